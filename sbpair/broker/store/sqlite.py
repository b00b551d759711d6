"""The SQLite database of one namespace.

    commit()         writes all changes in one transaction and syncs before it returns
    begin_commit()   writes the changes and syncs in a thread: answers wait until the sync is done
    end_commit()     waits for the commit that begin_commit() started

The database uses a write-ahead log: a commit is on the disk completely or not at all, and is counted (see
``integrity``). When the disk is full, the reserve of the data directory is released and the commit retried,
once. Any other failure of a commit is final, since after a failed sync the contents of the disk are unknown.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sbpair.pair.amqp.encoding import encode

from ..auth import Right, SharedAccessPolicy
from ..entities.change_log import ChangeLog, Changes, EntityChange
from ..entities.message_store import MessageStore
from ..entities.queue import Queue
from ..entities.queue_partition import QueuePartition
from ..errors import StoreError, StoreFailedError
from .directory import DataDirectory, make_private
from .entity_rows import entity_row
from .integrity import MarkFile, examine, storage_errors
from .message_rows import MessageRows, Statement
from .schema import IDENTITY, NUMBER_BITS, Row, prepare, verify, with_checksum

MAX_PARTS = 2 ** (63 - NUMBER_BITS)

PAGE = 8192  # bytes
LOG = 8 * 2**20
"""Bytes of the write-ahead log after which SQLite checkpoints it into the database."""

_PART = "INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?, ?)"
_ENTITY = "INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ACCEPTED = "INSERT OR REPLACE INTO accepted VALUES (?, ?, ?, ?, ?)"
_SESSION = "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?)"
_SETTING = "INSERT OR REPLACE INTO setting VALUES (?, ?, ?)"
_PROGRESS = "INSERT OR REPLACE INTO progress VALUES (?, ?, ?)"
_POLICY = "policy"
_POLICIES = "policies"


class SqliteStore:
    """The database of one namespace, at ``path``, to which the changes in ``change_log`` are committed.

    ``path`` comes from :meth:`DataDirectory.file_of` of ``directory``. A missing database is created.

    Raises StoreDamagedError when the database is damaged, StoreError when it cannot be used.
    """

    def __init__(self, directory: DataDirectory, path: Path, change_log: ChangeLog) -> None:
        self.directory = directory
        self.change_log = change_log
        self.path = path
        mark = examine(path)
        self.commits = mark.commits
        self._failure: StoreFailedError | None = None
        self._pending_commit: Future[None] | None = None
        self._free_bytes = 0  # within the database, when last measured
        self._thread: ThreadPoolExecutor | None = None  # created by the first begin_commit()
        self._entities: dict[Queue, int] = {}
        self._parts: dict[MessageStore, int] = {}
        self._places: dict[MessageStore, tuple[int, int]] = {}  # entity number, position within the entity
        self._next_entity = self._next_part = 1
        self._messages = MessageRows()
        self._mark = MarkFile(path, mark)
        try:
            self.connection = _open(path)
            try:
                self.setting(IDENTITY, mark.identity)
            except BaseException:
                self.connection.close()
                raise
        except BaseException:
            self._mark.close()
            raise

    def setting(self, name: str, value: str) -> str:
        """Return the stored setting ``name``, storing ``value`` first if it is missing.

        Raises StoreError when the database cannot be written.
        """
        found = self.settings().get(name)
        if found is not None:
            return found
        try:
            self._transact([(_SETTING, [with_checksum(name, value)])])
        except sqlite3.Error as error:
            raise StoreError(f"The file {self.path} cannot be written: {error}.") from error
        return value

    def settings(self) -> dict[str, str]:
        """Return all settings by name. Raises ChecksumMismatchError when one is damaged."""
        rows = self.connection.execute("SELECT * FROM setting")
        return {str(name): str(value) for name, value in map(verify, rows)}

    def policy(self) -> SharedAccessPolicy:
        """Return the namespace's root policy, generated on first use and then stored."""
        fresh = SharedAccessPolicy.generate()
        kept = self.setting(_POLICY, f"{fresh.name} {fresh.primary_key} {fresh.secondary_key}")
        name, primary, secondary = kept.split(" ")
        return SharedAccessPolicy(name, primary, secondary)

    def policies(self) -> list[SharedAccessPolicy]:
        """Return the namespace's additional policies, as last passed to :meth:`save_policies`."""
        kept = json.loads(self.settings().get(_POLICIES, "[]"))
        return [
            SharedAccessPolicy(name, primary, secondary, frozenset(map(Right, rights)))
            for name, primary, secondary, rights in kept
        ]

    def save_policies(self, policies: Iterable[SharedAccessPolicy]) -> None:
        """Store the additional policies, synced before this returns. Raises StoreFailedError when that fails."""
        kept = [
            (each.name, each.primary_key, each.secondary_key, sorted(right.value for right in each.rights))
            for each in policies
        ]
        self.end_commit()
        transact = partial(self._transact, [(_SETTING, [with_checksum(_POLICIES, json.dumps(kept))])])
        with self._recording_failure():
            self._with_reserve(transact, transact)

    @property
    def has_pending_changes(self) -> bool:
        """Whether there are uncommitted changes, a commit in progress or a failed commit."""
        return self._failure is not None or self._pending_commit is not None or not self.change_log.is_empty

    def has_room(self) -> bool:
        """Whether the disk or the database has space for more messages."""
        return self.directory.has_room() or self.directory.has_room(self._free_space())

    def _free_space(self) -> int:
        """Free bytes within the database, usable without growing it."""
        if self._pending_commit is None:  # else another thread uses the connection: return the last value
            (pages,) = self.connection.execute("PRAGMA freelist_count").fetchone()
            self._free_bytes = int(pages) * PAGE
        return self._free_bytes

    def commit(self) -> None:
        """Write all changes, synced before this returns.

        Raises StoreFailedError when that fails, and on every later call.
        """
        self.end_commit()
        if not self.change_log.is_empty:
            with self._recording_failure():
                transact = partial(self._transact, self._pending_statements())
                self._with_reserve(transact, transact)

    def begin_commit(self) -> Future[None]:
        """Write all changes and sync them in a thread; the future returned is done once they are on the disk.

        Waits for a commit in progress first. Call :meth:`end_commit` once the future is done.

        Raises StoreFailedError when writing fails, and on every later call.
        """
        self.end_commit()
        with self._recording_failure():
            statements = self._pending_statements()
            insert = partial(self._insert, statements)
            self._with_reserve(insert, insert)
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, f"sync of {self.path.name}")
            self._pending_commit = self._thread.submit(
                self._with_reserve, self._commit_transaction, partial(self._transact, statements)
            )
            return self._pending_commit

    def end_commit(self) -> None:
        """Wait for the commit in progress, if any.

        Raises StoreFailedError when it failed, and on every later call.
        """
        if self._failure is not None:
            raise self._failure
        if self._pending_commit is not None:
            pending, self._pending_commit = self._pending_commit, None
            with self._recording_failure():
                pending.result()

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of any kind: changes taken from the change log are not on the disk
            self._failure = StoreFailedError(self.path, str(error) or type(error).__name__)
            raise self._failure from error

    def _pending_statements(self) -> list[Statement]:
        return list(self._change_statements(self.change_log.take()))

    def _with_reserve(self, work: Callable[[], None], retry: Callable[[], None]) -> None:
        """Call ``work``; when the disk is full, release the reserve and call ``retry``, which starts over."""
        try:
            work()
        except sqlite3.OperationalError as error:
            is_full = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
            if not is_full or not self.directory.release_reserve():
                raise
            retry()  # the transaction was rolled back: nothing has been written

    def _transact(self, statements: list[Statement]) -> None:
        self._insert(statements)
        self._commit_transaction()

    def _insert(self, statements: list[Statement]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        with self._rolling_back():
            for statement, rows in statements:
                self.connection.executemany(statement, rows)
            self.connection.execute(_PROGRESS, with_checksum(1, self.commits + 1))

    def _commit_transaction(self) -> None:
        """Commit and sync the transaction; SQLite releases the GIL meanwhile."""
        with self._rolling_back():
            self.connection.execute("COMMIT")
        self.commits += 1
        self._mark.advance(self.commits)

    @contextmanager
    def _rolling_back(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Commit outstanding changes and close the files. Raises StoreFailedError when the commit fails."""
        try:
            if self._failure is None:
                self.commit()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
            self.abandon()

    def abandon(self) -> None:
        """Close the files without committing."""
        self.connection.close()
        self._mark.close()

    def _change_statements(self, changes: Changes) -> Iterator[Statement]:
        for change, entity in changes.entities:
            yield from (
                self._upsert_statements(entity)
                if change is EntityChange.DESCRIBED
                else self._delete_statements(entity)
            )
        yield from self._messages.write_statements(changes, self._parts)
        numbered = [self._part_row(queue) for queue in changes.numbered if queue in self._parts]
        if numbered:
            yield _PART, numbered
        if changes.accepted:
            yield from self._accepted_statements(changes)
        if changes.sessions:
            yield from self._session_statements(changes)

    def _upsert_statements(self, entity: Queue) -> Iterator[Statement]:
        number = self._entities.get(entity)
        if number is None:
            number = self.register(entity, self._next_entity, range(self._next_part, MAX_PARTS))
            yield _PART, [self._part_row(part) for part in entity.all_partitions()]
        yield _ENTITY, [entity_row(number, entity)]

    def load_messages(self, queues: Mapping[int, QueuePartition]) -> None:
        """Load all stored messages into ``queues``, given by part number.

        Raises ChecksumMismatchError, KeyError, ValueError or DecodeError when the database is damaged.
        """
        self._messages.load(self.connection, queues, self.change_log.take)

    def register(self, entity: Queue, number: int, parts: Iterable[int]) -> int:
        """Assign ``number`` to an entity and ``parts``, in order, to its queues; return ``number``."""
        self._entities[entity] = number
        self._next_entity = max(self._next_entity, number + 1)
        for place, (part, queue) in enumerate(zip(parts, entity.all_partitions(), strict=False)):
            self._parts[queue] = part
            self._places[queue] = (number, place)
            self._next_part = max(self._next_part, part + 1)
        return number

    def _delete_statements(self, entity: Queue) -> Iterator[Statement]:
        number = self._entities.pop(entity)
        parts = [self._parts.pop(queue) for queue in entity.all_partitions()]
        rows: list[Row] = [(part,) for part in parts]
        yield "DELETE FROM entity WHERE id = ?", [(number,)]
        yield "DELETE FROM part WHERE id = ?", rows
        yield "DELETE FROM accepted WHERE part = ?", rows
        yield "DELETE FROM session WHERE part = ?", rows
        yield from self._messages.delete_statements(parts)

    def _part_row(self, queue: MessageStore) -> Row:
        accessed = queue.accessed_at if isinstance(queue, QueuePartition) else None
        return with_checksum(self._parts[queue], *self._places[queue], queue.last_number, accessed)

    def _accepted_statements(self, changes: Changes) -> Iterator[Statement]:
        rows = [each for each in changes.accepted if each.queue in self._parts]
        yield (
            _ACCEPTED,
            [
                with_checksum(self._parts[each.queue], each.at, each.number, encode(each.message_id))
                for each in rows
            ],
        )
        latest = {each.queue: each.at for each in rows}
        yield (
            "DELETE FROM accepted WHERE part = ? AND at <= ?",
            [
                (self._parts[queue], at - queue.description.duplicate_detection_history_time_window)
                for queue, at in latest.items()
            ],
        )

    def _session_statements(self, changes: Changes) -> Iterator[Statement]:
        stored = [
            (self._parts[queue], session)
            for (queue, _), session in changes.sessions.items()
            if queue in self._parts
        ]
        yield (
            "DELETE FROM session WHERE part = ? AND session_id = ?",
            [(part, session.id) for part, session in stored],
        )
        yield (
            _SESSION,
            [
                with_checksum(part, session.id, session.state, session.state_set_at)
                for part, session in stored
                if session.state is not None
            ],
        )


def _open(path: Path) -> sqlite3.Connection:
    make_private(path)
    with storage_errors(path, is_ours=True):
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA page_size = {PAGE}")  # of a new file
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # keeps the index of the log in memory
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(
                    f"The file {path} cannot have a write-ahead log (its journal mode is {mode}): use a data "
                    "directory on a local disk."
                )
            connection.execute("PRAGMA synchronous = FULL")  # a commit returns once the log is on the disk
            connection.execute("PRAGMA fullfsync = ON")  # on macOS fsync alone stops at the drive's cache
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG // PAGE}")
            connection.execute("PRAGMA secure_delete = OFF")  # removed messages need not be overwritten
            prepare(connection)
        except BaseException:
            connection.close()
            raise
    return connection
