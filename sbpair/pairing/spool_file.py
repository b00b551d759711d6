"""How is a spool's file opened, and what keeps two processes from using it at once?

    PATH         the SQLite database, mode 0600
    PATH-wal     its write-ahead log: what is committed lies here first, synced before a commit returns
    PATH-owner   the number of the process that uses it, for the message to the one that comes second

The lock is SQLite's own (exclusive locking mode): the system releases it when the process ends, however
it ends. PATH-owner is only for people. Nobody else may open PATH while it is in use: closing any
descriptor of the file would take the process's POSIX lock away.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from pathlib import Path

from .errors import SpoolError, SpoolFullError

_logger = logging.getLogger("sbpair")

APPLICATION_ID = 0x53425350  # "SBSP"
SCHEMA_VERSION = 1
PATIENCE = 1.0  # seconds to wait for the lock: a listing holds it for less

_SCHEMA = """
CREATE TABLE spooled (
    number     INTEGER PRIMARY KEY,  -- the order of all
    sender     TEXT NOT NULL,        -- the entity, in the form in which paths are compared
    path       TEXT NOT NULL,        -- the entity as the caller wrote it
    message_id TEXT NOT NULL,
    spooled_at INTEGER NOT NULL,     -- milliseconds since the epoch
    message    BLOB NOT NULL,
    checksum   INTEGER NOT NULL,     -- CRC-32 of message
    refused    TEXT                  -- why it was set aside; NULL while it waits
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
_KEPT = "nothing in it was changed, keep the file"
_IN_USE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


def open_file(path: Path, primary: str | None) -> sqlite3.Connection:
    """The database, made when it is not there, and locked for this process until it is closed.

    ``primary`` is the name of the namespace whose messages it holds; None takes any, and makes no file.
    Raises SpoolError: in use, damaged, of another program, version or namespace, or not writable.
    """
    if primary is None and not path.exists():
        raise SpoolError(f"there is no spool {path}")
    _make_private(path)
    try:
        connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise meaning(path, error) from error
    try:
        _check_program(connection, path, primary)
        _restrict(path)
        _claim(connection)
        _check(connection, path, primary)
        _write_owner(path)
    except sqlite3.Error as error:
        connection.close()
        raise meaning(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def close_file(connection: sqlite3.Connection, path: Path) -> None:
    """Give the file back; what stood in the write-ahead log is in the database then."""
    _owner(path).unlink(missing_ok=True)
    connection.close()


def meaning(path: Path, error: sqlite3.Error) -> SpoolError:
    """What an error of SQLite means to whoever uses the spool."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _IN_USE:
        return SpoolError(
            f"the spool {path} is in use by {_owner_named(path)}; one process owns it at a time"
        )
    if code == sqlite3.SQLITE_FULL:
        return SpoolFullError(f"the disk of the spool {path} is full")
    text = f"the spool {path} {_MEANINGS.get(code, 'failed')}: {error}"
    return SpoolError(f"{text}; {_KEPT}" if code in _DAMAGED else text)


def _make_private(path: Path) -> None:
    """A file that only its owner reads, whatever the umask says. Never opens one that is there."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise SpoolError(f"the spool {path} is no regular file") from None
        return
    except OSError as error:
        raise SpoolError(f"the spool {path} cannot be created: {error.strerror}") from error
    os.chmod(path, 0o600)  # a umask can take the owner's rights too
    _sync_directory(path.parent)


def _restrict(path: Path) -> None:
    """Let only the owner read a spool that is there; it was made sure of that it is one."""
    if os.name == "posix" and stat.S_IMODE(path.lstat().st_mode) & 0o077:
        try:
            path.chmod(0o600)
        except OSError as error:
            raise SpoolError(f"others may read the spool {path}, and that cannot be changed") from error
        _logger.warning("the spool %s could be read by others; its mode is 0600 now", path)


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_program(connection: sqlite3.Connection, path: Path, primary: str | None) -> None:
    """A path that was mistyped may name any file: only a spool, or a file without a byte, is touched."""
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or tables):
        raise SpoolError(f"{path} is a database of another program, not a spool")
    if application == 0 and primary is None:
        raise SpoolError(f"there is no spool {path}: the file is empty")


def _claim(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"its journal mode is {mode}, not wal")
    connection.execute("PRAGMA synchronous = FULL")  # a commit returns after the log is on the disk
    connection.execute("PRAGMA fullfsync = ON")  # on macOS fsync alone stops at the drive's cache
    connection.execute("PRAGMA secure_delete = ON")  # what was delivered is not left lying about
    connection.execute("BEGIN IMMEDIATE")  # takes the lock, which then stays
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, path: Path, primary: str | None) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == 0:
        _lay_out(connection, primary)
        return
    if version != SCHEMA_VERSION:
        raise SpoolError(f"the spool {path} has version {version}; this sbpair reads {SCHEMA_VERSION}")
    problems = [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]
    if problems:
        found = " ".join(problems[0].split())
        raise SpoolError(f"the spool {path} is damaged: {found}; {_KEPT}")
    _check_primary(connection, path, primary)


def _lay_out(connection: sqlite3.Connection, primary: str | None) -> None:
    connection.executescript(  # one transaction: a file is laid out whole or not at all
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
            f"the spool {path} holds messages for the namespace {found[0]!r}, not for {primary!r}"
        )
    connection.execute("INSERT INTO pairing VALUES (?)", (primary,))


def _owner(path: Path) -> Path:
    return path.with_name(f"{path.name}-owner")


def _write_owner(path: Path) -> None:
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(_owner(path), flags, 0o600)
    except OSError as error:  # only for people: the lock holds without it
        _logger.warning("the owner of the spool %s is not noted: %s", path, error.strerror)
        return
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def _owner_named(path: Path) -> str:
    try:
        text = _owner(path).read_text("ascii")[:20].strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    return f"process {text}" if text.isdigit() else "another process"
