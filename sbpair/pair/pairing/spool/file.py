"""The file of a spool: an SQLite database that one process owns at a time.

    PATH         the database, mode 0600
    PATH-wal     its write-ahead log, synced before a commit returns
    PATH-owner   the id of the owning process, for error messages only

The lock is SQLite's own (exclusive locking mode), which the system releases when the process ends for any reason. Never
open PATH elsewhere in the owning process: closing any descriptor of the file would drop its POSIX lock.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

from ..errors import SpoolError, SpoolFullError

_logger = logging.getLogger("sbpair")

APPLICATION_ID = 0x53425350  # "SBSP"
SCHEMA_VERSION = 1
LOCK_TIMEOUT = 1.0  # seconds; longer than a listing holds the lock

_SCHEMA = """
CREATE TABLE spooled (
    number     INTEGER PRIMARY KEY,  -- the order of all
    sender     TEXT NOT NULL,        -- the entity, in the form in which paths are compared
    path       TEXT NOT NULL,        -- the entity as the caller wrote it
    message_id TEXT NOT NULL,
    spooled_at INTEGER NOT NULL,     -- milliseconds since the epoch
    message    BLOB NOT NULL,
    checksum   INTEGER NOT NULL,     -- CRC-32 of message
    refused    TEXT                  -- why it was refused; NULL while it waits
);
CREATE INDEX spooled_by_sender ON spooled (sender, number) WHERE refused IS NULL;
CREATE TABLE pairing (primary_namespace TEXT NOT NULL);
"""

_MEANINGS = {
    sqlite3.SQLITE_NOTADB: "is not a spool",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
}
_UNWRITABLE = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM}
)
_ERRORS_OF_THE_DISK = frozenset(
    getattr(errno, name)
    for name in ("EACCES", "EPERM", "EROFS", "EIO", "ENOSPC", "EDQUOT")
    if hasattr(errno, name)
)
LOG_BYTES = 5 * 2**20  # of the write-ahead log: a little more than SQLite fills before it begins again
_KEPT = "it was left unchanged; keep the file"
_IN_USE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


class SpoolUnwritableError(SpoolError):
    """The spool cannot be written, because of the disk or its permissions, which an operator can change meanwhile."""


def open_file(path: Path, primary: str | None) -> sqlite3.Connection:
    """Open the database, creating it if missing, and lock it for this process until it is closed.

    ``primary`` is the name of the namespace whose messages it holds; None accepts any, and creates no file.
    Raises SpoolError when the file is in use, damaged, or of another program, version or namespace;
    SpoolUnwritableError when it cannot be written; SpoolFullError when the disk is full.
    """
    if primary is None and not path.exists():
        raise SpoolError(f"the spool {path} does not exist")
    try:
        _make_private(path)
    except OSError as error:
        raise _os_error(path, error) from error
    try:
        connection = sqlite3.connect(
            path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise spool_error(path, error) from error
    try:
        _check_program(connection, path, primary)
        _restrict(path)
        _claim(connection)
        _check(connection, path, primary)
        _write_owner(path)
    except sqlite3.Error as error:
        connection.close()
        raise spool_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def lengthen_log(path: Path) -> None:
    """Extend the write-ahead log with zeros, which commits then overwrite: syncing a file that grows takes longer.

    Nothing may be written meanwhile.
    """
    if not hasattr(os, "pwrite"):
        return
    with suppress(OSError):  # it is only slower without
        descriptor = os.open(path.with_name(f"{path.name}-wal"), os.O_WRONLY)
        try:
            length = os.fstat(descriptor).st_size
            try:
                os.pwrite(descriptor, bytes(max(LOG_BYTES - length, 0)), length)
                os.fsync(descriptor)
            except OSError:  # of a disk that has no room for it
                os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)


def close_file(connection: sqlite3.Connection, path: Path) -> None:
    """Close and unlock the database; this merges the write-ahead log into it."""
    with suppress(OSError):  # the directory may be read-only by now; the file only words an error
        _owner(path).unlink()
    connection.close()


def spool_error(path: Path, error: sqlite3.Error) -> SpoolError:
    """Return the SpoolError, or SpoolFullError, for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _IN_USE:
        return SpoolError(
            f"the spool {path} is in use by {_owner_named(path)}; one process owns it at a time: "
            "stop that one, or use a file of your own"
        )
    if code == sqlite3.SQLITE_FULL:
        return SpoolFullError(f"the disk of the spool {path} is full")
    text = f"the spool {path} {_MEANINGS.get(code, 'failed')}: {error}"
    if code in _UNWRITABLE:
        return SpoolUnwritableError(text)
    return SpoolError(f"{text}; {_KEPT}" if code in _DAMAGED else text)


def _os_error(path: Path, error: OSError) -> SpoolError:
    text = f"the spool {path} cannot be created: {error.strerror}"
    return SpoolUnwritableError(text) if error.errno in _ERRORS_OF_THE_DISK else SpoolError(text)


def empty_file() -> sqlite3.Connection:
    """Return a database without messages, in place of one that cannot be opened; nothing may be written to it."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_SCHEMA)
    return connection


def _make_private(path: Path) -> None:
    """Create the file with mode 0600, regardless of the umask. Never opens an existing file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # exclusive: follows no link
    except FileExistsError:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise SpoolError(f"the spool {path} is not a regular file") from None
        return
    os.chmod(path, 0o600)  # a umask can remove the owner's permissions too
    _sync_directory(path.parent)


def _restrict(path: Path) -> None:
    """Make an existing spool readable by its owner only. Call after :func:`_check_program`."""
    if os.name == "posix" and stat.S_IMODE(path.lstat().st_mode) & 0o077:
        try:
            path.chmod(0o600)
        except OSError as error:
            raise SpoolError(
                f"other users can read the spool {path}, and its mode cannot be changed"
            ) from error
        _logger.warning("the spool %s was readable by other users; its mode is now 0600", path)


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_program(connection: sqlite3.Connection, path: Path, primary: str | None) -> None:
    """Refuse a file that is neither a spool nor empty: a mistyped path could name any database."""
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or tables):
        raise SpoolError(f"{path} is a database of another program, not a spool")
    if application == 0 and primary is None:
        raise SpoolError(f"the spool {path} does not exist: the file is empty")


def _claim(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"its journal mode is {mode}, not wal")
    connection.execute("PRAGMA synchronous = FULL")  # a commit syncs the log
    connection.execute("PRAGMA fullfsync = ON")  # on macOS fsync alone stops at the drive's cache
    connection.execute("PRAGMA secure_delete = ON")  # leave no traces of delivered messages
    connection.execute("BEGIN IMMEDIATE")  # takes the lock, which exclusive mode keeps
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, path: Path, primary: str | None) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == 0:
        _lay_out(connection, primary)
        return
    if version != SCHEMA_VERSION:
        raise SpoolError(
            f"the spool {path} has version {version}; this sbpair reads {SCHEMA_VERSION}: "
            "open it with the version that wrote it"
        )
    _check_primary(connection, path, primary)


def check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Read the whole file, which can take seconds. Raises SpoolError if it is damaged."""
    try:
        problems = [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]
    except sqlite3.Error as error:
        raise spool_error(path, error) from error
    if problems:
        found = " ".join(problems[0].split())
        raise SpoolError(f"the spool {path} is damaged: {found}; {_KEPT}")


def _lay_out(connection: sqlite3.Connection, primary: str | None) -> None:
    connection.executescript(  # one transaction: the schema is created whole or not at all
        f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
        f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
    if primary is not None:
        connection.execute("INSERT INTO pairing VALUES (?)", (primary,))


def _check_primary(connection: sqlite3.Connection, path: Path, primary: str | None) -> None:
    found = connection.execute("SELECT primary_namespace FROM pairing").fetchone()
    if primary is None or (found is not None and found[0] == primary):
        return
    if found is not None:
        raise SpoolError(
            f"the spool {path} holds messages for the namespace {found[0]!r}, not for {primary!r}: "
            "each pairing needs a file of its own"
        )
    connection.execute("INSERT INTO pairing VALUES (?)", (primary,))


def _owner(path: Path) -> Path:
    return path.with_name(f"{path.name}-owner")


def _write_owner(path: Path) -> None:
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(_owner(path), flags, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    except OSError as error:  # informational only: the lock holds without it
        _logger.warning("cannot write the owner file of the spool %s: %s", path, error.strerror)


def _owner_named(path: Path) -> str:
    try:
        text = _owner(path).read_text("ascii")[:20].strip()
    except (OSError, UnicodeDecodeError):
        return "another process"
    return f"process {text}" if text.isdigit() else "another process"
