"""The file of a spool: ownership, and errors when it cannot be used."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sbpair.pair.pairing.errors import SpoolError, SpoolFullError
from sbpair.pair.pairing.spool.file import (
    SpoolUnwritableError,
    check_whole,
    close_file,
    open_file,
    spool_error,
)

pytestmark = pytest.mark.spec("R-66", "S-10")

Open = Callable[..., sqlite3.Connection]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    connections: list[sqlite3.Connection] = []

    def make(primary: str | None = "contoso") -> sqlite3.Connection:
        connections.append(open_file(path, primary))
        return connections[-1]

    yield make
    for each in connections:
        each.close()


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (
            sqlite3.SQLITE_BUSY,
            SpoolError,
            " is in use by another process; one process owns it at a time: stop that one, or use a file of your own",
        ),
        (
            sqlite3.SQLITE_LOCKED,
            SpoolError,
            " is in use by another process; one process owns it at a time: stop that one, or use a file of your own",
        ),
        (sqlite3.SQLITE_NOTADB, SpoolError, " is not a spool: why; it was left unchanged; keep the file"),
        (sqlite3.SQLITE_CORRUPT, SpoolError, " is damaged: why; it was left unchanged; keep the file"),
        (sqlite3.SQLITE_READONLY, SpoolUnwritableError, " cannot be written: why"),
        (
            sqlite3.SQLITE_READONLY | 5 << 8,
            SpoolUnwritableError,
            " cannot be written: why",
        ),  # a code that says more
        (sqlite3.SQLITE_CANTOPEN, SpoolUnwritableError, " cannot be opened: why"),
        (sqlite3.SQLITE_IOERR, SpoolUnwritableError, " cannot be read or written: why"),
        (sqlite3.SQLITE_MISUSE, SpoolError, " failed: why"),
        (None, SpoolError, " failed: why"),
    ],
)
def test_an_sqlite_error_is_reported_by_its_meaning(code: int | None, kind: type, told: str) -> None:
    error = sqlite3.OperationalError("why")
    if code is not None:
        error.sqlite_errorcode = code
    found = spool_error(Path("x/spool"), error)
    assert (type(found), str(found)) == (kind, f"the spool x/spool{told}")


def test_a_full_disk_is_reported_as_a_full_spool() -> None:
    error = sqlite3.OperationalError("why")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    found = spool_error(Path("spool"), error)
    assert (type(found), str(found)) == (SpoolFullError, "the disk of the spool spool is full")


@pytest.mark.parametrize(
    ("written", "owner"),
    [
        (b"123\n", "process 123"),
        (b"12345678901234567890123", "process 12345678901234567890"),
        (b"a tale", "another process"),
        (b"\xff1", "another process"),
        (b"", "another process"),
    ],
)
def test_an_owner_is_named_only_by_a_number(path: Path, written: bytes, owner: str) -> None:
    path.with_name("spool-owner").write_bytes(written)
    error = sqlite3.OperationalError()
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    assert f"in use by {owner};" in str(spool_error(path, error))


def test_a_spool_syncs_leaves_no_files_behind_and_belongs_to_its_process(opened: Open, path: Path) -> None:
    connection = opened()

    def setting(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    names = ("journal_mode", "synchronous", "fullfsync", "secure_delete", "locking_mode")
    assert [setting(name) for name in names] == ["wal", 2, 1, 1, "exclusive"]
    assert (setting("application_id"), setting("user_version")) == (0x53425350, 1)
    assert connection.execute("SELECT * FROM pairing").fetchall() == [("contoso",)]
    assert not connection.in_transaction
    owner = path.with_name("spool-owner")
    assert owner.read_bytes() == b"%d\n" % os.getpid()
    assert stat.S_IMODE(owner.stat().st_mode) & 0o177 == 0
    close_file(connection, path)
    assert not owner.exists()
    opened().close()
    close_file(connection, path)
    close_file(connection, path)  # though it is gone


def test_a_spool_whose_owner_file_is_unwritable_is_still_owned(
    opened: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.with_name("spool-owner").mkdir()
    with caplog.at_level(logging.WARNING, logger="sbpair"):
        opened()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"cannot write the owner file of the spool {path}: {os.strerror(21)}"
    path.with_name("spool-owner").rmdir()  # it would be in the way of the end


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="a matter of POSIX")
def test_a_spool_in_a_directory_turned_read_only_still_closes(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = opened()

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        close_file(connection, path)
    opened()


def test_the_name_of_the_owner_is_not_written_through_a_link(opened: Open, path: Path) -> None:
    other = path.with_name("other")
    other.write_text("precious")
    path.with_name("spool-owner").symlink_to(other)
    opened()
    assert other.read_text() == "precious"


def open_files() -> list[str]:
    """Return the paths of the open files of this process."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it looks at what Linux says is open")
def test_a_new_file_is_synced_in_its_directory_before_use(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    opened().close()
    assert synced == [str(path.parent)]
    assert str(path.parent) not in open_files()
    opened()
    assert len(synced) == 1  # it was there already


def test_a_layout_left_by_a_dead_unnamed_owner_belongs_to_the_next(opened: Open, path: Path) -> None:
    connection = opened()
    connection.execute("DELETE FROM pairing")
    connection.close()
    opened(None).close()  # who only looks does not take it
    opened("fabrikam").close()
    with pytest.raises(SpoolError) as told:
        opened("contoso")
    holds = (
        "holds messages for the namespace 'fabrikam', not for 'contoso': each pairing needs a file of its own"
    )
    assert str(told.value) == f"the spool {path} {holds}"
    connection = opened(None)
    assert connection.execute("SELECT * FROM pairing").fetchall() == [("fabrikam",)]


def test_a_refused_spool_is_reported_in_full_and_released(opened: Open, path: Path) -> None:
    with pytest.raises(SpoolError) as told:
        opened(None)
    assert str(told.value) == f"the spool {path} does not exist"
    assert not path.exists()
    path.touch()
    with pytest.raises(SpoolError) as told:
        opened(None)
    assert str(told.value) == f"the spool {path} does not exist: the file is empty"
    connection = opened()
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(SpoolError) as told:
        opened()
    assert (
        str(told.value)
        == f"the spool {path} has version 2; this sbpair reads 1: open it with the version that wrote it"
    )
    with sqlite3.connect(path, isolation_level=None) as other:  # it is not locked
        other.execute("PRAGMA application_id = 7")
        other.execute("PRAGMA user_version = 1")
    other.close()
    with pytest.raises(SpoolError) as told:
        opened()
    assert str(told.value) == f"{path} is a database of another program, not a spool"
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("DROP TABLE pairing")
        other.execute("DROP TABLE spooled")
    other.close()
    with pytest.raises(SpoolError, match="another program"):  # even one that is empty
        opened()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o601])
def test_a_spool_readable_by_others_is_made_private_and_reported(
    opened: Open, path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    opened().close()
    path.chmod(mode)
    with caplog.at_level(logging.WARNING, logger="sbpair"):
        opened().close()
        opened()
    (line,) = [record.getMessage() for record in caplog.records]  # told once
    assert line == f"the spool {path} was readable by other users; its mode is now 0600"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_uncreatable_file_is_reported_with_the_system_error(tmp_path: Path) -> None:
    where = tmp_path / "no" / "spool"
    with pytest.raises(SpoolError) as told:
        open_file(where, "contoso")
    assert str(told.value) == f"the spool {where} cannot be created: {os.strerror(2)}"
    with pytest.raises(SpoolError) as told:
        open_file(tmp_path, "contoso")
    assert str(told.value) == f"the spool {tmp_path} is not a regular file"


@pytest.mark.spec("F-90")
def test_damage_is_reported_in_one_line_and_undamaged_files_are_not(path: Path) -> None:
    def layout(column: str) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("UPDATE sqlite_master SET sql = ?", (f"CREATE TABLE t ({column})",))
        connection.close()

    def check() -> None:
        connection = sqlite3.connect(path)
        try:
            check_whole(connection, path)
        finally:
            connection.close()

    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (NULL), (NULL)")
    connection.close()
    check()
    layout("x NOT NULL")
    with pytest.raises(SpoolError) as told:
        check()
    kept = "it was left unchanged; keep the file"
    assert str(told.value) == f"the spool {path} is damaged: NULL value in t.x; {kept}"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(SpoolError) as told:
        check()
    assert str(told.value) == f"the spool {path} is not a spool: file is not a database; {kept}"
