"""The namespaces a broker keeps on disk: opens the stores of one data directory and loads their entities."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import cast

from ...amqp.errors import DecodeError
from ..entities.namespace import Namespace
from ..entities.queue import Queue
from ..entities.stored_message import Instant
from ..errors import BrokerError, StoreDamaged, StoreError, StoreFailed
from .columns import identity_of
from .directory import RESERVE, DataDirectory
from .entity_rows import restore_entity, stores_of
from .integrity import mark_of
from .schema import ChecksumDiffers, unsealed
from .sqlite import SqliteStore


class Disk:
    """The stores of one broker. Raises StoreInUse, StoreError. ``reserve``: see ``directory``."""

    def __init__(self, path: Path, reserve: int = RESERVE) -> None:
        self._directory = DataDirectory(path, reserve)
        self._stores: dict[Path, SqliteStore] = {}
        self.is_closed = False

    def keep(self, namespace: Namespace, now: Instant) -> SqliteStore:
        """Fill a namespace with what was kept of it, and keep it from now on; it is to have a journal.

        Raises StoreError, StoreDamaged: the file is left as it is, and may be tried again.
        """
        journal = namespace.journal
        assert journal is not None  # noqa: S101 - the caller gave it one
        path = self._directory.file_of(namespace.name)
        if path in self._stores:
            raise StoreError(f"Two namespaces would be kept in the file {path}: their names differ by case.")
        store = SqliteStore(self._directory, path, journal)
        try:
            load(store, namespace, now)
        except BaseException:
            store.abandon()
            raise
        self._stores[path] = store
        return store

    def release(self, name: str) -> None:
        """Close the file of a namespace, which is as it was written last."""
        self._stores.pop(self._directory.file_of(name)).close()

    def forget(self, name: str) -> None:
        """Delete a namespace with all that was kept of it."""
        self.release(name)
        path = self._directory.file_of(name)
        mark_of(path).unlink()  # first: a database without a mark is taken as it is, and not the other way
        path.unlink()

    def close(self) -> None:
        """Write what has changed, and give the directory back; idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            for store in self._stores.values():
                store.close()
        except StoreFailed:
            pass  # who commits was told
        finally:
            self._directory.close()


_DAMAGE = (ChecksumDiffers, DecodeError, ValueError, TypeError, KeyError, IndexError, sqlite3.DatabaseError)


def load(store: SqliteStore, namespace: Namespace, now: Instant) -> None:
    """Fill an empty namespace; what is locked was given up with the process.

    Idleness counts from ``now`` on: nothing is deleted for a time in which it could not be used. Raises
    StoreDamaged, and StoreError where the namespace was of another kind.
    """
    try:
        _check_settings(store, namespace)
        namespace.created_at = int(store.setting("created_at", str(namespace.created_at)))
        queues = _entities(store, namespace, now)
        with _uncollected():
            _fill(store, queues)
    except StoreError:
        raise
    except BrokerError as error:
        raise StoreDamaged(store.path, str(error)) from error
    except _DAMAGE as error:
        raise StoreDamaged(store.path, str(error) or "a checksum differs") from error
    store.journal.take()  # what was told while it was filled is written already


@contextmanager
def _uncollected() -> Iterator[None]:
    """Millions of objects come and stay: to look for cycles among them takes most of the time."""
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
            f"The namespace in {store.path} is {found}, and not {kind}: start the broker as it was made."
        )


def _parts(store: SqliteStore) -> dict[int, list[tuple[int, int, Instant | None]]]:
    """Of each entity its parts in order: row id, last number, last access."""
    rows = (unsealed(row) for row in store.connection.execute("SELECT * FROM part ORDER BY entity, place"))
    return {
        cast(int, entity): [cast("tuple[int, int, int | None]", (row[0], row[3], row[4])) for row in mine]
        for entity, mine in groupby(rows, itemgetter(1))
    }


def _entities(store: SqliteStore, namespace: Namespace, now: Instant) -> dict[int, Queue]:
    """Make the entities; their parts, by number."""
    parts, queues = _parts(store), dict[int, Queue]()
    for row in store.connection.execute("SELECT * FROM entity ORDER BY id"):
        number, entity = restore_entity(namespace, unsealed(row))
        mine = parts.pop(number, [])
        store.took(entity, number, [part for part, *_ in mine])
        for queue, (part, last, accessed_at) in zip(stores_of(entity), mine, strict=True):
            queues[part] = queue
            queue.go_on_after(last)
            queue.accessed_at = accessed_at
        if entity.description.auto_delete_on_idle is not None:
            entity.touch(now)
    if parts:
        raise KeyError(f"the entity {min(parts)} is missing")
    return queues


def _fill(store: SqliteStore, queues: dict[int, Queue]) -> None:
    """Each table is read whole, not by queue: so no row is passed over where an inner page lies."""
    execute = store.connection.execute
    store.fill(queues)
    for row in execute("SELECT * FROM accepted ORDER BY part, at, number"):
        part, at, number, message_id = cast("tuple[int, int, int, bytes]", unsealed(row))
        queues[part].restore_accepted(identity_of(message_id), number, at)
    for row in execute("SELECT * FROM session"):
        part, session_id, state, set_at = cast("tuple[int, str, bytes, int]", unsealed(row))
        sessions = queues[part].sessions
        if sessions is None:
            raise KeyError(f"the sessions of '{queues[part].path}' are missing")
        sessions.restore(session_id, state, set_at)
