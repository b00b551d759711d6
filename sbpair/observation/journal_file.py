"""How does one file of a journal grow, and when may others rely on it?

    _open-NAME --(append, append, ...)--> _open-NAME --(finish: fsync, rename)--> NAME

Readers of a directory skip names with a leading underscore (Spark does so by itself), so a file is immutable
from when it is visible. A line is appended whole or not at all.
"""

from __future__ import annotations

import os
from pathlib import Path

OPEN_PREFIX = "_open-"


class JournalFile:
    """One file, from its creation to its rename. Every method raises OSError; not thread-safe."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / name
        self.open_path = directory / f"{OPEN_PREFIX}{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._fd = os.open(self.open_path, flags, 0o600)
        self.size = 0
        self.records = 0
        self.is_torn = False  # half a line could not be cut off again: nothing may follow it

    def append(self, line: bytes, *, sync: bool = False) -> None:
        """Write a line; when that fails the file is as before, or :attr:`is_torn`."""
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            if sync:
                os.fsync(self._fd)
        except OSError:
            self._cut()
            raise
        self.size += len(line)
        self.records += 1

    def _cut(self) -> None:
        try:
            os.ftruncate(self._fd, self.size)
        except OSError:
            self.is_torn = True

    def finish(self, *, sync: bool) -> None:
        """Close the file and give it its final name. However this ends, the file is closed."""
        try:
            if sync:
                os.fsync(self._fd)
        finally:
            self.abandon()
        os.rename(self.open_path, self.path)
        if sync:
            _sync_directory(self.path.parent)

    def abandon(self) -> None:
        """Close the file under the name it has: its writer did not come to an orderly end."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _sync_directory(directory: Path) -> None:
    """Make the rename last through a power cut, where a directory can be opened (not on Windows)."""
    try:
        fd = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
