"""The namespaces of a data directory: opening their stores and loading their entities and messages."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import cast

from sbpair.pair.amqp.errors import DecodeError

from ..entities.namespace import Namespace
from ..entities.queue_partition import QueuePartition
from ..entities.stored_message import Instant
from ..errors import BrokerError, StoreDamagedError, StoreError, StoreFailedError
from .columns import identity_of
from .directory import RESERVE, DataDirectory
from .entity_rows import restore_entity
from .integrity import mark_path
from .schema import ChecksumMismatchError, verify
from .sqlite import SqliteStore


class Disk:
    """The stores of one broker, in the data directory ``path``.

    ``reserve`` is the size in bytes of the space set aside for a full disk, see :class:`DataDirectory`.

    Raises StoreInUseError when another broker owns the directory, StoreError when it cannot be used.
    """

    def __init__(self, path: Path, reserve: int = RESERVE) -> None:
        self._directory = DataDirectory(path, reserve)
        self._stores: dict[Path, SqliteStore] = {}
        self.is_closed = False

    def attach(self, namespace: Namespace, now: Instant) -> SqliteStore:
        """Load the stored contents of ``namespace`` and return the store that its changes are committed to.

        The namespace must be empty and have a change_log. A missing file is created.

        Raises StoreDamagedError when the file is damaged, StoreError when it cannot be used or belongs to a
        namespace of another kind. The file is then left unchanged, and the call can be repeated.
        """
        change_log = namespace.change_log
        assert change_log is not None  # noqa: S101 - every stored namespace has one
        path = self._directory.file_of(namespace.name)
        if path in self._stores:
            raise StoreError(
                f"Two namespaces would share the file {path}: their names differ only by case. Rename one."
            )
        store = SqliteStore(self._directory, path, change_log)
        try:
            load(store, namespace, now)
        except BaseException:
            store.abandon()
            raise
        self._stores[path] = store
        return store

    def detach(self, name: str) -> None:
        """Commit outstanding changes of a namespace and close its file.

        Raises StoreFailedError when that fails.
        """
        self._stores.pop(self._directory.file_of(name)).close()

    def delete(self, name: str) -> None:
        """Delete a namespace with everything stored for it."""
        self.detach(name)
        path = self._directory.file_of(name)
        # The mark first: a database without its mark is valid, a mark without its database counts as damage.
        mark_path(path).unlink()
        path.unlink()

    def close(self) -> None:
        """Commit outstanding changes, close all files and release the directory; idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            for store in self._stores.values():
                store.close()
        except StoreFailedError:
            pass  # already raised by the commit that failed
        finally:
            self._directory.close()


_DAMAGE = (
    ChecksumMismatchError,
    DecodeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    sqlite3.DatabaseError,
)


def load(store: SqliteStore, namespace: Namespace, now: Instant) -> None:
    """Load the entities and messages in ``store`` into the empty ``namespace``. Locks are not restored.

    Entities that are deleted on idle count as used at ``now``: the time without a broker is not idle time.

    Raises StoreDamagedError when the file is damaged, StoreError when it belongs to a namespace of another kind.
    """
    try:
        _check_settings(store, namespace)
        namespace.created_at = int(store.setting("created_at", str(namespace.created_at)))
        queues = _entities(store, namespace, now)
        with _without_garbage_collection():
            _load_contents(store, queues)
    except StoreError:
        raise
    except BrokerError as error:
        raise StoreDamagedError(store.path, str(error)) from error
    except _DAMAGE as error:
        raise StoreDamagedError(store.path, str(error) or "a checksum does not match") from error
    store.change_log.take()  # discard the changes recorded while loading: they are stored already


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector: scanning millions of new objects would take most of the loading time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_settings(store: SqliteStore, namespace: Namespace) -> None:
    kind = f"{namespace.tier.value} with {len(namespace.layout.stores)} partitions"
    found = store.setting("kind", kind)
    if found != kind:
        raise StoreError(
            f"The namespace in {store.path} is {found}, not {kind}: start the broker with the settings that "
            "the namespace was created with."
        )


def _parts(store: SqliteStore) -> dict[int, list[tuple[int, int, Instant | None]]]:
    """Return the parts of each entity in order, as tuples of row id, last number and last access."""
    rows = (verify(row) for row in store.connection.execute("SELECT * FROM part ORDER BY entity, place"))
    return {
        cast(int, entity): [cast("tuple[int, int, int | None]", (row[0], row[3], row[4])) for row in mine]
        for entity, mine in groupby(rows, itemgetter(1))
    }


def _entities(store: SqliteStore, namespace: Namespace, now: Instant) -> dict[int, QueuePartition]:
    """Create the stored entities in ``namespace``; return their queues by part number."""
    parts, queues, paths = _parts(store), dict[int, QueuePartition](), set[str]()
    for row in store.connection.execute("SELECT * FROM entity ORDER BY id"):
        number, entity = restore_entity(namespace, verify(row))
        mine, places = parts.pop(number, []), entity.all_partitions()
        if entity.path.casefold() in paths:
            raise ValueError(f"the entity {entity.path} is stored twice")
        if len(mine) != len(places):
            raise ValueError(f"the entity {entity.path} has {len(mine)} parts where it needs {len(places)}")
        paths.add(entity.path.casefold())
        store.register(entity, number, [part for part, *_ in mine])
        for queue, (part, last, accessed_at) in zip(places, mine, strict=True):
            queues[part] = queue
            queue.continue_after(last)
            queue.accessed_at = accessed_at
        if entity.description.auto_delete_on_idle is not None:
            entity.touch(now)
    if parts:
        raise KeyError(f"the entity {min(parts)} is missing")
    return queues


def _load_contents(store: SqliteStore, queues: dict[int, QueuePartition]) -> None:
    """Load messages, duplicate detection history and session states.

    Each table is scanned completely rather than by key, so that a damaged inner page cannot hide a row.
    """
    execute = store.connection.execute
    store.load_messages(queues)
    for row in execute("SELECT * FROM accepted ORDER BY part, at, number"):
        part, at, number, message_id = cast("tuple[int, int, int, bytes]", verify(row))
        queues[part].restore_accepted(identity_of(message_id), number, at)
    for row in execute("SELECT * FROM session"):
        part, session_id, state, set_at = cast("tuple[int, str, bytes, int]", verify(row))
        sessions = queues[part].sessions
        if sessions is None:
            raise KeyError(f"the sessions of '{queues[part].path}' are missing")
        sessions.restore(session_id, state, set_at)
