"""Where does a broker keep its namespaces? In one data directory that it owns, until it gives it back."""

from __future__ import annotations

from pathlib import Path

from ..entities.namespace import Namespace
from ..entities.stored_message import Instant
from ..errors import StoreError, StoreFailed
from .directory import RESERVE, DataDirectory
from .loading import load
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
        self._directory.file_of(name).unlink()

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
