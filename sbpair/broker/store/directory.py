"""Ownership of a data directory, and the space left on its disk.

    DIR/                  mode 0700
    ├── owner.lock        locked (flock) while a broker uses the directory; contains its process id
    ├── reserve           space set aside, released when the disk is full
    ├── contoso.sqlite    a namespace, mode 0600; with its mark and, in use, its write-ahead log
    └── tls/              the certificate authority

When a commit finds the disk full, the reserve is deleted and the commit retried, so that accepted messages
are stored and messages can still be settled, which writes too. Sends are refused until the reserve can be
allocated again, or until the database itself has as much free space, left by messages that were removed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from ..errors import StoreError, StoreInUseError

RESERVE = 32 * 2**20
"""Bytes of the reserve: several times the size at which the write-ahead log is checkpointed."""

LOG_SHARE = 4
"""Without a reserve, the disk must have the reserve's size divided by this free, for the write-ahead log."""

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
OPEN_OWN = os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class DataDirectory:
    """A data directory that this process owns until :meth:`close`.

    The directory is created if missing. ``reserve`` is the size of the reserve in bytes.

    Raises StoreInUseError when another broker owns the directory, StoreError when it cannot be created or locked.
    """

    def __init__(self, path: Path, reserve: int = RESERVE) -> None:
        self.path = path
        self._size = reserve
        try:
            path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            self._lock = _acquire_lock(path)
        except OSError as error:
            raise StoreError(f"The data directory {path} cannot be used: {_reason(error)}.") from error
        self._is_full = not self._ensure_reserve()

    def file_of(self, namespace: str) -> Path:
        """Return the path of a namespace's database, which may not exist.

        Raises StoreError for an invalid name.
        """
        if not _NAME.fullmatch(namespace):
            raise StoreError(
                f"The namespace name {namespace!r} cannot be a file name: use at most 100 letters, digits, "
                "'.', '_' and '-', beginning with a letter or digit."
            )
        return self.path / f"{namespace.casefold()}.sqlite"

    def close(self) -> None:
        """Release the directory for other brokers."""
        os.close(self._lock)

    def has_room(self, unused: int = 0) -> bool:
        """Whether more messages may be stored; after the disk was full, the free space is checked again.

        ``unused`` are the free bytes within the database. A database never shrinks, so on a full disk they
        are the only space left; the write-ahead log needs some free space on the disk as well.
        """
        if self._is_full:
            self._is_full = not self._ensure_reserve()
        return not self._is_full or (unused >= self._size and self._free() >= self._size // LOG_SHARE)

    def release_reserve(self) -> bool:
        """Delete the reserve because the disk is full; return False when there was none."""
        self._is_full = True
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True

    @property
    def _reserve(self) -> Path:
        return self.path / "reserve"

    def _ensure_reserve(self) -> bool:
        """Allocate the reserve unless it exists; return False when the disk has not enough free space."""
        try:
            if self._reserve.exists() and self._reserve.stat().st_size >= self._size:
                return True
            if self._free() < 2 * self._size:
                return False
            descriptor = os.open(self._reserve, OPEN_OWN, PRIVATE_FILE)
            try:
                _allocate(descriptor, self._size)
            finally:
                os.close(descriptor)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            return False
        return True

    def _free(self) -> int:
        return shutil.disk_usage(self.path).free


def _acquire_lock(path: Path) -> int:
    if sys.platform == "win32":
        raise StoreError(
            "A broker keeps no data on Windows, where nothing locks its directory: leave out data."
        )
    import fcntl  # imported late: a broker in memory also runs on systems without fcntl

    descriptor = os.open(path / "owner.lock", OPEN_OWN, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 20).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreInUseError(path, owner) from None
    except BaseException:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    overwrite(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def overwrite(descriptor: int, content: bytes) -> None:
    """Write at the beginning of a file. Raises OSError."""
    if sys.platform == "win32":
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, content)
    else:
        os.pwrite(descriptor, content, 0)


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    for _ in range(0, size, 2**20):
        os.write(descriptor, bytes(min(size, 2**20)))


def make_private(path: Path) -> None:
    """Create the file if missing, readable and writable by its owner only, and sync its directory.

    Syncing the directory makes the file's name survive a power failure. Raises StoreError when that fails.
    """
    try:
        os.close(os.open(path, OPEN_OWN, PRIVATE_FILE))
        path.chmod(PRIVATE_FILE)
        _sync(path.parent)
    except OSError as error:
        raise StoreError(f"The file {path} cannot be used: {_reason(error)}.") from error


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
