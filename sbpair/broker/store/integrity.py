"""Integrity of a database: whether it is the one that was last written here, with all of its commits.

    NAME.sqlite       identity, commits      written in the transaction of each commit
    NAME.sqlite-mark  identity, commits      written after the commit is synced, before it is acknowledged

SQLite treats a frame of its write-ahead log with a wrong checksum as the end of the log: a flipped bit silently loses
everything committed after it. A database with fewer commits than its mark has therefore lost some. More commits than in
the mark are fine: either the process ended between the two writes, or the machine stopped before the operating system
had written the mark to disk, which can take seconds because the mark is not synced with each commit.

The database is examined over a read-only connection before it is opened for writing: when its last connection closes,
SQLite checkpoints and deletes the log, but a database that is refused must stay as it was found.
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

from ..errors import StoreDamagedError, StoreError
from .directory import OPEN_OWN, PRIVATE_FILE, overwrite
from .schema import APPLICATION_ID, IDENTITY, MIGRATIONS, ChecksumMismatchError, verify

_LINE_FORMAT = "{identity} layout {layout:04} commits {commits:020}"
_LINE = re.compile(rb"(([0-9a-f]{32}) layout ([0-9]{4}) commits ([0-9]{20})) ([0-9a-f]{8})\n")


@dataclass(frozen=True, slots=True)
class DatabaseMark:
    """The content of a mark: the identity of the database, its layout and its number of commits."""

    identity: str
    layout: int
    commits: int = 0

    @staticmethod
    def fresh(layout: int) -> DatabaseMark:
        """Return the mark of a new database."""
        return DatabaseMark(uuid4().hex, layout)

    def line(self) -> bytes:
        """Return the encoded mark.

        Its length is constant and far below a disk sector, so a write is atomic.
        """
        text = _LINE_FORMAT.format(identity=self.identity, layout=self.layout, commits=self.commits).encode()
        return b"%b %08x\n" % (text, crc32(text))


def mark_path(database: Path) -> Path:
    """Return the path of the mark of a database."""
    return database.with_name(f"{database.name}-mark")


def read_mark(database: Path) -> DatabaseMark | None:
    """Return the mark of a database, or None when it is missing or was never written.

    Raises StoreDamagedError when the mark is malformed, StoreError when it cannot be read.
    """
    path = mark_path(database)
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
        raise StoreDamagedError(path, "its checksum does not match")
    return DatabaseMark(line[2].decode(), int(line[3]), int(line[4]))


class MarkFile:
    """The mark of a database in use, written and synced on creation.

    Raises StoreError when the mark cannot be written.
    """

    def __init__(self, database: Path, mark: DatabaseMark) -> None:
        self._mark = mark
        path = mark_path(database)
        try:
            self._descriptor = os.open(path, OPEN_OWN, PRIVATE_FILE)
            try:
                overwrite(self._descriptor, mark.line())
                os.fsync(self._descriptor)  # the directory entry is synced with the database's
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise StoreError(f"The file {path} cannot be written: {error.strerror}.") from error

    @property
    def identity(self) -> str:
        """The identity of the database."""
        return self._mark.identity

    def advance(self, commits: int) -> None:
        """Record that ``commits`` commits are synced; written at once, without waiting for a sync."""
        self._mark = DatabaseMark(self._mark.identity, self._mark.layout, commits)
        overwrite(self._descriptor, self._mark.line())

    def close(self) -> None:
        """Sync the mark and close it."""
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)


LOG_HEADER = 32  # bytes of an empty write-ahead log

_ENVIRONMENT_ERRORS = frozenset(
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
"""SQLite errors caused by the system, not by the contents of the file."""


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """The data that a database records about itself; ``identity`` is None before its first commit."""

    application: int
    layout: int
    has_tables: bool
    identity: str | None
    commits: int


def log_path(database: Path) -> Path:
    """Return the path of the write-ahead log of a database."""
    return database.with_name(f"{database.name}-wal")


def examine(path: Path) -> DatabaseMark:
    """Check the database at ``path`` without changing it; return the mark to use from now on.

    Raises StoreDamagedError when commits are missing or the file is damaged or another one; StoreError when it
    cannot be read, belongs to another program or has a newer layout.
    """
    mark = read_mark(path)
    if not _size(path):
        if _size(log_path(path)) > LOG_HEADER or (mark is not None and mark.commits):
            raise StoreDamagedError(path, _missing_text(path, mark))
        return mark or DatabaseMark.fresh(len(MIGRATIONS))
    with storage_errors(path, is_ours=mark is not None and mark.commits > 0):
        found = _inspect(path)
        _check_kind(path, found, mark)
        if mark is not None:
            _check_commits(path, found, mark)
        identity = found.identity or (mark or DatabaseMark.fresh(0)).identity
        return DatabaseMark(identity, len(MIGRATIONS), found.commits)


@contextmanager
def storage_errors(path: Path, *, is_ours: bool) -> Iterator[None]:
    """Translate errors to StoreDamagedError, if a broker's own file is damaged, or else to StoreError."""
    try:
        yield
    except ChecksumMismatchError as error:
        raise StoreDamagedError(path, str(error) or "a checksum does not match") from error
    except (sqlite3.Error, ValueError) as error:  # ValueError: text that is not UTF-8
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if is_ours and code not in _ENVIRONMENT_ERRORS:
            raise StoreDamagedError(path, str(error)) from error
        raise StoreError(f"The file {path} cannot be used: {error}.") from error


def _missing_text(path: Path, mark: DatabaseMark | None) -> str:
    what = "empty" if path.exists() else "missing"
    commits = "some" if mark is None else mark.commits
    return f"it is {what}, though {commits} commits were made to it"


def _inspect(path: Path) -> DatabaseInfo:
    log = log_path(path)
    had_log = log.exists()
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        problems = [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]
        if problems:
            raise StoreDamagedError(path, " ".join(problems[0].split()))
        return _info(connection)
    finally:
        connection.close()
        with suppress(FileNotFoundError):  # the index of the log, which writers keep in memory
            path.with_name(f"{path.name}-shm").unlink()
        if not had_log:
            log.unlink(missing_ok=True)  # an empty one, created by this connection


def _info(connection: sqlite3.Connection) -> DatabaseInfo:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    found = DatabaseInfo(application, layout, bool(tables), None, 0)
    if application != APPLICATION_ID or "progress" not in tables:
        return found
    for row in connection.execute("SELECT * FROM progress"):
        found = replace(found, commits=cast(int, verify(row)[1]))
    for name, value in map(verify, connection.execute("SELECT * FROM setting")):
        found = replace(found, identity=str(value)) if name == IDENTITY else found
    return found


def _check_kind(path: Path, found: DatabaseInfo, mark: DatabaseMark | None) -> None:
    was_ours = mark is not None and mark.commits > 0
    if found.application != APPLICATION_ID and (found.application or found.has_tables or was_ours):
        if was_ours:
            raise StoreDamagedError(path, "its application id is no longer the broker's")
        raise StoreError(f"The file {path} is a database of another program, not a broker's.")
    if found.layout > len(MIGRATIONS):
        if mark is not None and mark.layout <= len(MIGRATIONS):
            raise StoreDamagedError(path, f"its layout is {found.layout}, but was {mark.layout}")
        raise StoreError(
            f"The file {path} has layout {found.layout}; this version of sbpair supports up to "
            f"{len(MIGRATIONS)}: use a newer version."
        )


def _check_commits(path: Path, found: DatabaseInfo, mark: DatabaseMark) -> None:
    if found.identity is not None and found.identity != mark.identity:
        raise StoreDamagedError(path, f"it is not the database that {mark_path(path).name} belongs to")
    if found.commits < mark.commits:
        missing = mark.commits - found.commits
        raise StoreDamagedError(
            path,
            f"the last {missing} of {mark.commits} commits {'is' if missing == 1 else 'are'} missing: the file is "
            f"an older copy, or its write-ahead log {log_path(path).name} is damaged or missing",
        )
    if mark.commits and found.layout < mark.layout:
        raise StoreDamagedError(path, f"its layout is {found.layout}, but was {mark.layout}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(f"The file {path} cannot be used: {error.strerror}.") from error
