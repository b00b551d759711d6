"""Integrity of a database: it is the file that was last written here, with all of its commits.

    NAME.sqlite       identity, commits      in the transaction of each commit
    NAME.sqlite-mark  identity, commits      after that is synced, and before any of it is acknowledged

SQLite takes a frame of its log with a wrong checksum for the end of the log: a flipped bit loses everything
committed after it, without an error. So a database with fewer commits than its mark has lost some. More
commits are fine: the process ended between the two writes, or the machine did before the mark, which is not
synced with each commit, left the system's cache (seconds).

The database is examined over a read-only connection before it is opened for writing: SQLite moves the log
into the database when a connection closes and deletes it, and a database that is refused must stay as found.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast
from uuid import uuid4
from zlib import crc32

from ..errors import StoreDamaged, StoreError
from .directory import PRIVATE_FILE
from .schema import APPLICATION_ID, IDENTITY, MIGRATIONS, ChecksumDiffers, unsealed

_TOLD = "{identity} layout {layout:04} commits {commits:020}"
_LINE = re.compile(rb"(([0-9a-f]{32}) layout ([0-9]{4}) commits ([0-9]{20})) ([0-9a-f]{8})\n")


@dataclass(frozen=True, slots=True)
class Mark:
    """What is told of a database: which one it is, its layout, and the number of its commits."""

    identity: str
    layout: int
    commits: int = 0

    @staticmethod
    def fresh(layout: int) -> Mark:
        """The mark of a database that is to be made."""
        return Mark(uuid4().hex, layout)

    def line(self) -> bytes:
        """The mark as it is written: always of the same length, far below a sector of a disk."""
        told = _TOLD.format(identity=self.identity, layout=self.layout, commits=self.commits).encode()
        return b"%b %08x\n" % (told, crc32(told))


def mark_of(database: Path) -> Path:
    """The file of the mark of a database."""
    return database.with_name(f"{database.name}-mark")


def read(database: Path) -> Mark | None:
    """The mark of a database; None where there is none, or its process ended before it was written.

    Raises StoreDamaged, StoreError.
    """
    path = mark_of(database)
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"The file {path} cannot be read: {error.strerror}.") from error
    if not written:
        return None
    line = _LINE.fullmatch(written)
    if line is None or crc32(line[1]) != int(line[5], 16):
        raise StoreDamaged(path, "its checksum differs")
    return Mark(line[2].decode(), int(line[3]), int(line[4]))


class MarkFile:
    """The mark of a database that is in use, on the disk from the beginning on. Raises StoreError."""

    def __init__(self, database: Path, mark: Mark) -> None:
        self._mark = mark
        path = mark_of(database)
        try:
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(path, flags, PRIVATE_FILE)
            try:
                os.pwrite(self._descriptor, mark.line(), 0)
                os.fsync(self._descriptor)  # its name is synced with the database's
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise StoreError(f"The file {path} cannot be written: {error.strerror}.") from error

    @property
    def identity(self) -> str:
        """Which database it is of."""
        return self._mark.identity

    def advance(self, commits: int) -> None:
        """So many commits are on the disk; that is told to the next process, and synced by the system."""
        self._mark = Mark(self._mark.identity, self._mark.layout, commits)
        os.pwrite(self._descriptor, self._mark.line(), 0)

    def close(self) -> None:
        """Sync it, and close it."""
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)


LOG_HEADER = 32  # bytes of a write-ahead log in which nothing is

_ELSEWHERE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_AUTH,
    }
)
"""Errors that tell of the system, not of what is in the file."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a database tells of itself; ``identity`` is None where it has not been given one."""

    application: int
    layout: int
    has_tables: bool
    identity: str | None
    commits: int


def log_of(database: Path) -> Path:
    """The write-ahead log of a database."""
    return database.with_name(f"{database.name}-wal")


def examined(path: Path) -> Mark:
    """The mark that the database at ``path`` is to have from now on. Nothing of it is changed.

    Raises StoreDamaged when commits are missing, or it is not what it was; StoreError when it cannot be read,
    or is of another program or a newer layout.
    """
    mark = read(path)
    if not _size(path):
        if _size(log_of(path)) > LOG_HEADER or (mark is not None and mark.commits):
            raise StoreDamaged(path, _nothing(path, mark))
        return mark or Mark.fresh(len(MIGRATIONS))
    with reading(path, is_ours=mark is not None and mark.commits > 0):
        found = _look(path)
        _check_kind(path, found, mark)
        if mark is not None:
            _check_commits(path, found, mark)
        identity = found.identity or (mark or Mark.fresh(0)).identity
        return Mark(identity, len(MIGRATIONS), found.commits)


@contextmanager
def reading(path: Path, *, is_ours: bool) -> Iterator[None]:
    """Raise what goes wrong as StoreDamaged where the file ``is_ours`` and to blame, else as StoreError."""
    try:
        yield
    except ChecksumDiffers as error:
        raise StoreDamaged(path, str(error) or "a checksum differs") from error
    except (sqlite3.Error, ValueError) as error:  # a text of SQLite's own can be none
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if is_ours and code not in _ELSEWHERE:
            raise StoreDamaged(path, str(error)) from error
        raise StoreError(f"The file {path} cannot be used: {error}.") from error


def _nothing(path: Path, mark: Mark | None) -> str:
    what = "empty" if path.exists() else "missing"
    commits = "some" if mark is None else mark.commits
    return f"it is {what}, though {commits} commits were made to it"


def _look(path: Path) -> Found:
    log = log_of(path)
    had_log = log.exists()
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        problems = [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]
        if problems:
            raise StoreDamaged(path, " ".join(problems[0].split()))
        return _told(connection)
    finally:
        connection.close()
        with suppress(FileNotFoundError):  # the index of the log: who writes has it in memory
            path.with_name(f"{path.name}-shm").unlink()
        if not had_log:
            log.unlink(missing_ok=True)  # an empty one, made for who reads


def _told(connection: sqlite3.Connection) -> Found:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    found = Found(application, layout, bool(tables), None, 0)
    if application != APPLICATION_ID or "progress" not in tables:
        return found
    for row in connection.execute("SELECT * FROM progress"):
        found = replace(found, commits=cast(int, unsealed(row)[1]))
    for name, value in map(unsealed, connection.execute("SELECT * FROM setting")):
        found = replace(found, identity=str(value)) if name == IDENTITY else found
    return found


def _check_kind(path: Path, found: Found, mark: Mark | None) -> None:
    was_ours = mark is not None and mark.commits > 0
    if found.application != APPLICATION_ID and (found.application or found.has_tables or was_ours):
        if was_ours:
            raise StoreDamaged(path, "it is not marked as a broker's any more")
        raise StoreError(f"The file {path} is a database of another program, not a broker's.")
    if found.layout > len(MIGRATIONS):
        if mark is not None and mark.layout <= len(MIGRATIONS):
            raise StoreDamaged(path, f"its layout is {found.layout}, and was {mark.layout}")
        raise StoreError(
            f"The file {path} has layout {found.layout}; this sbpair knows {len(MIGRATIONS)}: "
            "use a newer one."
        )


def _check_commits(path: Path, found: Found, mark: Mark) -> None:
    if found.identity is not None and found.identity != mark.identity:
        raise StoreDamaged(path, f"it is not the one that was made here, of which {mark_of(path)} tells")
    if found.commits < mark.commits:
        missing = mark.commits - found.commits
        which = "the last 1 of" if missing == 1 else f"the last {missing} of"
        raise StoreDamaged(
            path,
            f"{which} {mark.commits} commits {'is' if missing == 1 else 'are'} missing, since it is an older "
            f"copy or its write-ahead log, {log_of(path).name}, is damaged or gone",
        )
    if mark.commits and found.layout < mark.layout:
        raise StoreDamaged(path, f"its layout is {found.layout}, and was {mark.layout}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(f"The file {path} cannot be used: {error.strerror}.") from error
