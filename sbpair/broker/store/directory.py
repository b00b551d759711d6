"""Ownership of a data directory, and the room left on its disk.

    DIR/                  mode 0700
    ├── owner.lock        locked (flock) while a broker uses the directory; in it that process's number
    ├── reserve           room that nothing else can take, given up when the disk is full
    ├── contoso.sqlite    a namespace, mode 0600; beside it its mark, and its write-ahead log while in use
    └── tls/              the certificate authority

When a commit finds the disk full, the reserve is deleted and the commit made in its place: so what was taken
is kept, and settling, which writes too, goes on. Sends are refused until the reserve could be had again, or
the file itself has as much room within: what was received and settled left it there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import StoreError, StoreInUse

RESERVE = 32 * 2**20
"""Bytes of the reserve: several times what the write-ahead log grows to before it is used anew."""

LOG_SHARE = 4
"""The part of the reserve's size that is to be free for the log, where a file takes what it has room for."""

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class DataDirectory:
    """A directory that this process owns until :meth:`close`. ``reserve`` is a size in bytes.

    Raises StoreInUse when another broker owns it, StoreError when it cannot be used.
    """

    def __init__(self, path: Path, reserve: int = RESERVE) -> None:
        self.path = path
        self._size = reserve
        try:
            path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            self._lock = _locked(path)
        except OSError as error:
            raise StoreError(f"The data directory {path} cannot be used: {_why(error)}.") from error
        self._is_full = not self._set_aside()

    def file_of(self, namespace: str) -> Path:
        """The file of a namespace, which may not be there yet. Raises StoreError."""
        if not _NAME.fullmatch(namespace):
            raise StoreError(
                f"The namespace name {namespace!r} cannot name a file: letters, digits, '.', '_' and '-'."
            )
        return self.path / f"{namespace.casefold()}.sqlite"

    def close(self) -> None:
        """Let another broker have it."""
        os.close(self._lock)

    # -- room

    def has_room(self, unused: int = 0) -> bool:
        """Whether more may be taken; where there was none, it is looked again.

        ``unused``: bytes in the file that is to take it. A file never shrinks, so on a disk that is full of
        it they are the room that there is; beside them the log needs some.
        """
        if self._is_full:
            self._is_full = not self._set_aside()
        return not self._is_full or (unused >= self._size and self._free() >= self._size // LOG_SHARE)

    def give_up_reserve(self) -> bool:
        """The disk is full: give up what was set aside; False when there was nothing left to give up."""
        self._is_full = True
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True

    @property
    def _reserve(self) -> Path:
        return self.path / "reserve"

    def _set_aside(self) -> bool:
        """Make the reserve, if it is not there; False when there is no room for it."""
        try:
            if self._reserve.exists() and self._reserve.stat().st_size >= self._size:
                return True
            if self._free() < 2 * self._size:
                return False
            descriptor = os.open(self._reserve, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, PRIVATE_FILE)
            try:
                _allocate(descriptor, self._size)
            finally:
                os.close(descriptor)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            return False
        return True

    def _free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


def _locked(path: Path) -> int:
    import fcntl  # late: where there is none, a broker in memory still runs

    lock = path / "owner.lock"
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 20).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreInUse(path, owner) from None
    except BaseException:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    for _ in range(0, size, 2**20):
        os.write(descriptor, bytes(min(size, 2**20)))


def make_private(path: Path) -> None:
    """Have the file there, for its owner only; its name outlives the machine. Raises StoreError."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, PRIVATE_FILE))
        path.chmod(PRIVATE_FILE)
        _sync(path.parent)
    except OSError as error:
        raise StoreError(f"The file {path} cannot be used: {_why(error)}.") from error


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _why(error: OSError) -> str:
    return error.strerror or str(error)
