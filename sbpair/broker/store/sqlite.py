"""The SQLite file of one namespace.

    commit()         written in one transaction and synced before it returns
    begin_commit()   written at once, synced in a thread: no answer leaves before the sync
    load()           entities, then their messages, in the order of their numbers

SQLite with a write-ahead log: a commit is on the disk whole or not at all, and is counted (integrity.py). A disk
that is full costs the reserve of the directory, once; any other failure of a commit is the end, for after a
sync that failed nobody knows what is on the disk.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ...amqp.encoding import encode
from ..auth import Right, SharedAccessPolicy
from ..entities.entity import Entity
from ..entities.journal import Changes, EntityChange, Journal
from ..entities.message_store import MessageStore
from ..entities.queue import Queue
from ..errors import StoreError, StoreFailed
from .directory import DataDirectory, make_private
from .entity_rows import entity_row, stores_of
from .integrity import MarkFile, examined, reading
from .message_rows import MessageRows, Statement
from .schema import IDENTITY, NUMBER_BITS, Row, prepare, sealed, unsealed

MOST_PARTS = 2 ** (63 - NUMBER_BITS)

PAGE = 8192  # bytes
LOG = 8 * 2**20
"""Bytes of the write-ahead log from which on its pages are moved to where they belong, and it begins anew."""

_PART = "INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?, ?)"
_ENTITY = "INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ACCEPTED = "INSERT OR REPLACE INTO accepted VALUES (?, ?, ?, ?, ?)"
_SESSION = "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?)"
_SETTING = "INSERT OR REPLACE INTO setting VALUES (?, ?, ?)"
_PROGRESS = "INSERT OR REPLACE INTO progress VALUES (?, ?, ?)"
_POLICY = "policy"
_POLICIES = "policies"


class SqliteStore:
    """The file of one namespace, and what of its ``journal`` is not in it yet.

    Raises StoreError, StoreDamaged. ``path`` is one that ``directory`` has given.
    """

    def __init__(self, directory: DataDirectory, path: Path, journal: Journal) -> None:
        self.directory = directory
        self.journal = journal
        self.path = path
        mark = examined(path)
        self.commits = mark.commits
        self._failure: StoreFailed | None = None
        self._under_way: Future[None] | None = None
        self._spare = 0  # bytes within the file, when that was last looked at
        self._thread: ThreadPoolExecutor | None = None  # from the first sync on
        self._entities: dict[Entity, int] = {}
        self._parts: dict[MessageStore, int] = {}
        self._places: dict[MessageStore, tuple[int, int]] = {}  # entity, and place in it
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

    # -- settings

    def setting(self, name: str, value: str) -> str:
        """What was set when the file was made; else ``value``, which is set."""
        found = self.settings().get(name)
        if found is not None:
            return found
        try:
            self._transact([(_SETTING, [sealed(name, value)])])
        except sqlite3.Error as error:
            raise StoreError(f"The file {self.path} cannot be written: {error}.") from error
        return value

    def settings(self) -> dict[str, str]:
        """All that was set. Raises ChecksumDiffers."""
        rows = self.connection.execute("SELECT * FROM setting")
        return {str(name): str(value) for name, value in map(unsealed, rows)}

    def policy(self) -> SharedAccessPolicy:
        """The namespace's keys: connection strings hold beyond a restart."""
        fresh = SharedAccessPolicy.generate()
        kept = self.setting(_POLICY, f"{fresh.name} {fresh.primary_key} {fresh.secondary_key}")
        name, primary, secondary = kept.split(" ")
        return SharedAccessPolicy(name, primary, secondary)

    def policies(self) -> list[SharedAccessPolicy]:
        """The namespace's further policies, as they were kept last."""
        kept = json.loads(self.settings().get(_POLICIES, "[]"))
        return [
            SharedAccessPolicy(name, primary, secondary, frozenset(map(Right, rights)))
            for name, primary, secondary, rights in kept
        ]

    def keep_policies(self, policies: Iterable[SharedAccessPolicy]) -> None:
        """Have these as the further ones; it is on the disk when this returns. Raises StoreFailed."""
        kept = [
            (each.name, each.primary_key, each.secondary_key, sorted(right.value for right in each.rights))
            for each in policies
        ]
        self.end_commit()
        transact = partial(self._transact, [(_SETTING, [sealed(_POLICIES, json.dumps(kept))])])
        with self._failing():
            self._attempt(transact, transact)

    # -- keeping

    @property
    def has_work(self) -> bool:
        """Something changed that is not on the disk yet, or that has failed."""
        return self._failure is not None or self._under_way is not None or not self.journal.is_empty

    def has_room(self) -> bool:
        """Whether messages may be taken."""
        return self.directory.has_room() or self.directory.has_room(self._unused())

    def _unused(self) -> int:
        """Bytes of the file in which nothing is, so that it need not grow."""
        if self._under_way is None:  # else another thread has the connection: as it was before
            (pages,) = self.connection.execute("PRAGMA freelist_count").fetchone()
            self._spare = int(pages) * PAGE
        return self._spare

    def commit(self) -> None:
        """Write what has changed; it is on the disk when this returns. Raises StoreFailed, from then on."""
        self.end_commit()
        if not self.journal.is_empty:
            with self._failing():
                transact = partial(self._transact, self._take())
                self._attempt(transact, transact)

    def begin_commit(self) -> Future[None]:
        """Write what has changed, and sync it in a thread: on the disk when that is done and has not raised.

        None other may be under way; :meth:`end_commit` ends it. Raises StoreFailed, from then on.
        """
        self.end_commit()
        with self._failing():
            statements = self._take()
            insert = partial(self._insert, statements)
            self._attempt(insert, insert)
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, f"sync of {self.path.name}")
            self._under_way = self._thread.submit(
                self._attempt, self._seal, partial(self._transact, statements)
            )
            return self._under_way

    def end_commit(self) -> None:
        """Wait for the commit that is under way, if one is. Raises StoreFailed, from then on."""
        if self._failure is not None:
            raise self._failure
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            with self._failing():
                under_way.result()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever it is: what was taken from the journal is not on the disk
            self._failure = StoreFailed(self.path, str(error) or type(error).__name__)
            raise self._failure from error

    def _take(self) -> list[Statement]:
        return list(self._statements(self.journal.take()))

    def _attempt(self, work: Callable[[], None], again: Callable[[], None]) -> None:
        """Do it; on a disk that is full ``again``, from the beginning, with what the reserve gave up."""
        try:
            work()
        except sqlite3.OperationalError as error:
            is_full = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
            if not is_full or not self.directory.give_up_reserve():
                raise
            again()  # nothing of it was written: it was rolled back

    def _transact(self, statements: list[Statement]) -> None:
        self._insert(statements)
        self._seal()

    def _insert(self, statements: list[Statement]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        with self._undoing():
            for statement, rows in statements:
                self.connection.executemany(statement, rows)
            self.connection.execute(_PROGRESS, sealed(1, self.commits + 1))

    def _seal(self) -> None:
        """Write the log and sync it: SQLite does not hold the interpreter's lock while it does."""
        with self._undoing():
            self.connection.execute("COMMIT")
        self.commits += 1
        self._mark.advance(self.commits)

    @contextmanager
    def _undoing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Write what has changed and close the file."""
        try:
            if self._failure is None:
                self.commit()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
            self.abandon()

    def abandon(self) -> None:
        """Close the file and write nothing: what it holds could not be read."""
        self.connection.close()
        self._mark.close()

    # -- what is written

    def _statements(self, changes: Changes) -> Iterator[Statement]:
        for fate, entity in changes.entities:
            yield from self._described(entity) if fate is EntityChange.DESCRIBED else self._dropped(entity)
        yield from self._messages.statements(changes, self._parts)
        numbered = [self._part_row(queue) for queue in changes.numbered if queue in self._parts]
        if numbered:
            yield _PART, numbered
        if changes.accepted:
            yield from self._accepted(changes)
        if changes.sessions:
            yield from self._sessions(changes)

    def _described(self, entity: Entity) -> Iterator[Statement]:
        known = self._entities.get(entity)
        if known is None:
            known = self.took(entity, self._next_entity, range(self._next_part, MOST_PARTS))
            yield _PART, [self._part_row(part) for part in stores_of(entity)]
        yield _ENTITY, [entity_row(known, entity)]

    def fill(self, queues: Mapping[int, Queue]) -> None:
        """Put the messages of these parts back. Raises ChecksumDiffers, and what else is damage."""
        self._messages.load(self.connection, queues, self.journal.take)

    def took(self, entity: Entity, number: int, parts: Iterable[int]) -> int:
        """Know an entity by its number, and its parts by theirs; returns the first."""
        self._entities[entity] = number
        self._next_entity = max(self._next_entity, number + 1)
        for place, (part, queue) in enumerate(zip(parts, stores_of(entity), strict=False)):
            self._parts[queue] = part
            self._places[queue] = (number, place)
            self._next_part = max(self._next_part, part + 1)
        return number

    def _dropped(self, entity: Entity) -> Iterator[Statement]:
        number = self._entities.pop(entity)
        parts = [self._parts.pop(queue) for queue in stores_of(entity)]
        rows: list[Row] = [(part,) for part in parts]
        yield "DELETE FROM entity WHERE id = ?", [(number,)]
        yield "DELETE FROM part WHERE id = ?", rows
        yield "DELETE FROM accepted WHERE part = ?", rows
        yield "DELETE FROM session WHERE part = ?", rows
        yield from self._messages.dropped(parts)

    def _part_row(self, queue: MessageStore) -> Row:
        accessed = queue.accessed_at if isinstance(queue, Queue) else None
        return sealed(self._parts[queue], *self._places[queue], queue.last_number, accessed)

    def _accepted(self, changes: Changes) -> Iterator[Statement]:
        news = [each for each in changes.accepted if each.queue in self._parts]
        yield (
            _ACCEPTED,
            [sealed(self._parts[each.queue], each.at, each.number, encode(each.message_id)) for each in news],
        )
        latest = {each.queue: each.at for each in news}
        yield (
            "DELETE FROM accepted WHERE part = ? AND at <= ?",
            [
                (self._parts[queue], at - queue.description.duplicate_detection_history_time_window)
                for queue, at in latest.items()
            ],
        )

    def _sessions(self, changes: Changes) -> Iterator[Statement]:
        noted = [
            (self._parts[queue], session)
            for (queue, _), session in changes.sessions.items()
            if queue in self._parts
        ]
        yield (
            "DELETE FROM session WHERE part = ? AND session_id = ?",
            [(part, session.id) for part, session in noted],
        )
        yield (
            _SESSION,
            [
                sealed(part, session.id, session.state, session.state_set_at)
                for part, session in noted
                if session.state is not None
            ],
        )


def _open(path: Path) -> sqlite3.Connection:
    make_private(path)
    with reading(path, is_ours=True):
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA page_size = {PAGE}")  # of a file that is new
            connection.execute(
                "PRAGMA locking_mode = EXCLUSIVE"
            )  # the index of the log in memory, not in a file
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(
                    f"The file {path} cannot have a write-ahead log: its journal mode is {mode}."
                )
            connection.execute("PRAGMA synchronous = FULL")  # a commit returns when the log is on the disk
            connection.execute("PRAGMA fullfsync = ON")  # on macOS fsync alone stops at the drive's cache
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG // PAGE}")
            connection.execute("PRAGMA secure_delete = OFF")  # what is settled need not be written once more
            prepare(connection)
        except BaseException:
            connection.close()
            raise
    return connection
