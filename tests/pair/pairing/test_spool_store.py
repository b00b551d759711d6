"""The spool's store on disk: order, bounds, threads and torn writes."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbpair.pair.pairing.errors import SpoolError, SpoolFullError
from sbpair.pair.pairing.spool import file as spool_file
from sbpair.pair.pairing.spool.store import OVERHEAD, Entry, Spool
from tests.children import exit_code_of

Open = Callable[..., Spool]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    """Return a function that opens a spool, by default at ``path``; all are closed at the end."""
    spools: list[Spool] = []

    def make(where: Path = path, primary: str | None = "contoso", **bounds: int) -> Spool:
        spools.append(Spool(where, primary=primary, **bounds))
        return spools[-1]

    yield make
    for spool in spools:
        spool.close()


def disk(spool: Spool) -> sqlite3.Connection:
    """The connection through which a spool writes, to see or to disturb what it asks of the disk."""
    return spool._connection


def entries(*texts: str) -> list[Entry]:
    return [Entry(text, text.encode() * 10) for text in texts]


def texts(spool: Spool, path: str = "orders") -> list[str]:
    return [each.message_id for each in spool.oldest(path, 10_000)]


# --- order and content


def test_appended_messages_are_read_in_order_per_entity(opened: Open) -> None:
    spool = opened()
    spool.append("Orders", entries("a", "b"), now=1)
    spool.append("invoices", entries("x"), now=2)
    spool.append("orders", entries("c"), now=3)
    assert texts(spool, "ORDERS") == ["a", "b", "c"]
    assert texts(spool, "invoices") == ["x"]
    assert [each.spooled_at for each in spool.oldest("orders", 2)] == [1, 1]
    assert spool.oldest("orders", 1)[0].path == "Orders"
    assert spool.oldest("orders", 1)[0].message == b"a" * 10
    assert (spool.waiting("orders"), spool.waiting("invoices"), spool.waiting("none")) == (3, 1, 0)
    assert sorted(spool.senders()) == ["invoices", "orders"]


@pytest.mark.spec("G-1")
def test_the_next_owner_finds_waiting_messages_and_continues_their_order(opened: Open) -> None:
    spool = opened()
    spool.append("orders", entries("a", "b"), now=1)
    spool.delete("orders", spool.oldest("orders", 1))
    spool.close()
    again = opened()
    assert again.waiting("orders") == 1
    again.append("orders", entries("c"), now=2)
    assert texts(again) == ["b", "c"]


def test_accepted_messages_are_deleted_and_free_their_space(opened: Open) -> None:
    spool = opened(max_messages=2)
    spool.append("orders", entries("a", "b"), now=1)
    spool.delete("orders", spool.oldest("orders", 2))
    spool.append("orders", entries("c", "d"), now=1)
    assert texts(spool) == ["c", "d"]


def test_a_message_no_broker_will_accept_is_set_aside_with_its_reason(opened: Open) -> None:
    spool = opened()
    spool.append("orders", entries("bad", "good"), now=1)
    spool.refuse("orders", spool.oldest("orders", 1)[0], "too large")
    assert texts(spool) == ["good"]
    assert spool.waiting("orders") == 1
    (count,) = spool.counts()
    assert (count.waiting, count.refused) == (1, 1)
    assert spool.refusals() == [("orders", "bad", "too large")]
    assert spool.purge(refused_only=True) == 1
    assert texts(spool) == ["good"]


def test_purge_is_for_one_entity_or_for_all(opened: Open) -> None:
    spool = opened()
    for name in ("orders", "Orders", "invoices"):
        spool.append(name, entries("a"), now=1)
    assert spool.purge("ORDERS") == 2
    assert spool.waiting("orders") == 0
    assert spool.purge() == 1
    assert spool.counts() == []
    spool.append("orders", entries("b"), now=2)
    assert texts(spool) == ["b"]


# --- bounds


def test_a_full_spool_refuses_the_whole_send_and_reports_its_contents(opened: Open, path: Path) -> None:
    spool = opened(max_messages=3)
    spool.append("orders", entries("a", "b"), now=1)
    with pytest.raises(SpoolFullError, match=f"{path} is full: it holds 2 of . messages"):
        spool.append("orders", entries("c", "d"), now=1)
    assert texts(spool) == ["a", "b"]
    spool.append("orders", entries("c"), now=1)


def test_the_byte_limit_applies_across_owners_of_a_spool(opened: Open) -> None:
    room = 3 * (1000 + OVERHEAD)
    spool = opened(max_bytes=room)
    for _ in range(3):
        spool.append("orders", [Entry("m", b"x" * 1000)], now=1)
    with pytest.raises(SpoolFullError, match=f"of {room} bytes"):
        spool.append("orders", [Entry("m", b"")], now=1)
    spool.close()
    with pytest.raises(SpoolFullError, match=f"of {room} bytes"):
        opened(max_bytes=room).append("orders", [Entry("m", b"")], now=1)


@pytest.mark.spec("R-2")
def test_messages_set_aside_use_no_room_of_waiting_ones(opened: Open) -> None:
    bounds = {"max_messages": 2, "max_bytes": 2 * (20 + OVERHEAD)}
    spool = opened(**bounds)
    for n in range(5):
        spool.append("orders", entries(f"{n}!"), now=1)
        spool.refuse("orders", spool.oldest("orders", 1)[0], "refused")
    spool.append("orders", entries("a!", "b!"), now=1)
    with pytest.raises(SpoolFullError, match=r"it holds 2 of . messages"):
        spool.append("orders", entries("c!"), now=1)
    spool.close()
    again = opened(**bounds)  # nor for the next owner
    assert again.waiting() == 2
    again.delete("orders", again.oldest("orders", 1))
    again.append("orders", entries("c!"), now=1)
    assert texts(again) == ["b!", "c!"]


@pytest.mark.spec("R-2")
def test_a_redriven_message_waits_again_in_its_old_place(opened: Open) -> None:
    spool = opened(max_messages=3)
    spool.append("Orders", entries("a", "b"), now=1)
    spool.append("invoices", entries("x"), now=1)
    for name in ("orders", "invoices"):
        spool.refuse(name, spool.oldest(name, 1)[0], "refused")
    spool.append("orders", entries("c", "d"), now=2)
    assert spool.redrive("ORDERS") == 1
    assert texts(spool) == ["a", "b", "c", "d"]
    assert spool.waiting("orders") == 4  # the bound does not stop it; it stops what comes
    with pytest.raises(SpoolFullError):
        spool.append("orders", entries("e"), now=2)
    assert spool.refusals() == [("invoices", "x", "refused")]
    assert (spool.redrive(), spool.redrive()) == (1, 0)
    assert texts(spool, "invoices") == ["x"]


@pytest.mark.spec("R-2")
def test_messages_only_for_the_primary_are_overtaken_and_stored_separately(opened: Open) -> None:
    spool = opened()
    spool.append("orders", entries("a", "b", "c", "d"), now=1)
    for _ in range(2):
        spool.overtake("orders", spool.oldest("orders", 1)[0])
    assert texts(spool) == ["c", "d"]
    assert (spool.waiting("orders"), spool.in_line("orders")) == (4, 2)
    spool.delete("orders", spool.oldest("orders", 1))
    found = spool.oldest_overtaken("orders")
    assert found is not None
    assert found.message_id == "a"
    spool.delete("orders", [found])
    assert texts(spool) == ["d"]  # what was handed out before is not handed out again
    found = spool.oldest_overtaken("orders")
    assert found is not None
    spool.refuse("orders", found, "refused")
    assert spool.oldest_overtaken("orders") is None
    assert (spool.waiting("orders"), spool.in_line("orders")) == (1, 1)


@pytest.mark.spec("R-2", "R-66", "F-89")
def test_a_failed_write_uses_no_space(opened: Open) -> None:
    spool = opened(max_messages=3, max_bytes=600_000)
    spool.append("orders", entries("a"), now=1)
    disk(spool).execute("PRAGMA max_page_count = 20")  # what SQLite answers when a disk is full
    for _ in range(5):
        with pytest.raises(SpoolFullError, match="disk"):
            spool.append("orders", [Entry("big", bytes(500_000))], now=1)
    disk(spool).execute("PRAGMA max_page_count = 100000")  # somebody made room
    spool.append("orders", [Entry("big", bytes(500_000)), Entry("b", b"")], now=1)
    assert texts(spool) == ["a", "big", "b"]


@pytest.mark.spec("F-89")
def test_a_full_disk_is_a_full_spool_and_earlier_messages_stay(opened: Open) -> None:
    spool = opened()
    spool.append("orders", entries("a"), now=1)
    disk(spool).execute("PRAGMA max_page_count = 20")  # what SQLite answers when a disk is full
    with pytest.raises(SpoolFullError, match="disk"):
        spool.append("orders", [Entry("big", bytes(500_000))], now=1)
    assert texts(spool) == ["a"]
    spool.append("orders", entries("b"), now=1)
    assert texts(spool) == ["a", "b"]


@pytest.mark.spec("F-89", "G-4")
def test_messages_a_full_disk_could_not_delete_are_deleted_at_the_end(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = opened()
    spool.append("orders", entries("a", "b"), now=1)

    def disk_full(statement: str, rows: object) -> None:
        raise SpoolFullError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(spool, "_transact", disk_full)
        with pytest.raises(SpoolFullError):
            spool.delete("orders", spool.oldest("orders", 1))
    assert texts(spool) == ["b"]
    assert spool.waiting("orders") == 1
    spool.close()
    assert texts(opened()) == ["b"]


@pytest.mark.spec("F-89")
def test_after_a_failed_write_nothing_more_is_accepted(opened: Open) -> None:
    spool = opened()
    spool.append("orders", entries("a"), now=1)
    disk(spool).execute("PRAGMA query_only = ON")  # stands for a file system gone read-only
    with pytest.raises(SpoolError, match="cannot be written"):
        spool.append("orders", entries("b"), now=1)
    disk(spool).execute("PRAGMA query_only = OFF")
    with pytest.raises(SpoolError, match="restart"):
        spool.append("orders", entries("c"), now=1)
    assert texts(spool) == ["a"]
    spool.close()
    assert texts(opened()) == ["a"]


# --- threads


def test_many_threads_append_at_once_and_each_keeps_its_order(opened: Open) -> None:
    spool = opened()
    threads = [
        threading.Thread(
            target=lambda t=t: [spool.append("orders", entries(f"{t}-{n}"), now=n) for n in range(50)]
        )
        for t in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = texts(spool)
    assert len(found) == 400
    for t in range(8):
        assert [text for text in found if text.startswith(f"{t}-")] == [f"{t}-{n}" for n in range(50)]


def test_appends_during_a_sync_share_the_next_one(opened: Open) -> None:
    spool = opened()
    commits: list[str] = []
    disk(spool).set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)
    threads = [threading.Thread(target=spool.append, args=("orders", entries(str(n)), n)) for n in range(20)]
    with spool._writing:  # a sync is under way
        for thread in threads:
            thread.start()
        while len(spool._tickets) < len(threads):
            threads[0].join(0.01)
    for thread in threads:
        thread.join(60)
    assert len(commits) == 1
    assert spool.waiting("orders") == 20


def test_a_failed_sync_is_reported_to_every_waiting_thread(opened: Open) -> None:
    spool = opened()
    told: list[Exception] = []

    def append(number: int) -> None:
        try:
            spool.append("orders", entries(str(number)), now=1)
        except SpoolError as error:
            told.append(error)

    threads = [threading.Thread(target=append, args=(n,)) for n in range(5)]
    with spool._writing:
        for thread in threads:
            thread.start()
        while len(spool._tickets) < len(threads):
            threads[0].join(0.01)
        disk(spool).execute("PRAGMA query_only = ON")
    for thread in threads:
        thread.join(60)
    assert len(told) == 5
    assert spool.waiting("orders") == 0


# --- the file


@pytest.mark.spec("S-10")
@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX matter")
@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_only_the_owner_can_read_the_spool_under_any_umask(opened: Open, path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        opened().append("orders", entries("a"), now=1)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("spool*") if file != path} <= {
        0o600,
        0,
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.with_name("spool-wal").stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX matter")
def test_a_spool_that_others_could_read_is_made_private(
    opened: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened().close()
    path.chmod(0o644)
    opened()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "was readable by other users" in caplog.text


@pytest.mark.slow
@pytest.mark.spec("S-10")
def test_a_second_owner_gets_the_path_and_process_id_of_the_first(opened: Open, path: Path) -> None:
    opened().append("orders", entries("a"), now=1)
    with pytest.raises(SpoolError, match=f"{path} is in use by process {os.getpid()}"):
        opened()
    program = (
        "import sys; from sbpair.pair.pairing.spool.store import Spool\n"
        "try: Spool(sys.argv[1], primary='contoso')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert other.stdout.startswith(f"SpoolError the spool {path} is in use by process {os.getpid()}")


def test_a_closed_spool_is_free_for_the_next_owner_and_accepts_nothing(opened: Open, path: Path) -> None:
    spool = opened()
    spool.close()
    spool.close()
    opened()
    with pytest.raises(SpoolError, match="closed"):
        spool.append("orders", entries("a"), now=1)


def test_a_forked_child_does_not_touch_its_parents_spool(opened: Open) -> None:
    spool = opened()
    spool.append("orders", entries("parent"), now=1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            spool.disown()
            try:
                spool.append("orders", entries("child"), now=1)
            except SpoolError:
                status = 0
        finally:
            os._exit(status)
    assert exit_code_of(child) == 0
    spool.append("orders", entries("parent again"), now=2)
    assert texts(spool) == ["parent", "parent again"]


def test_a_spool_of_another_namespace_is_refused(opened: Open) -> None:
    opened().close()
    with pytest.raises(SpoolError, match="for the namespace 'contoso', not for 'fabrikam'"):
        opened(primary="fabrikam")


def as_it_is(path: Path) -> tuple[bytes, int]:
    """Return the content and the permissions of a file."""
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("primary", ["contoso", None])
def test_files_that_are_no_spool_are_refused_unchanged(opened: Open, path: Path, primary: str | None) -> None:
    path.write_bytes(b"something else entirely, " * 100)
    path.chmod(0o644)
    before = as_it_is(path)
    with pytest.raises(SpoolError, match="is not a spool"):
        opened(primary=primary)
    assert as_it_is(path) == before
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE other (x)")
    other.close()
    before = as_it_is(path)
    with pytest.raises(SpoolError, match="another program"):
        opened(primary=primary)
    assert as_it_is(path) == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_reader_creates_no_spool_in_an_empty_file(opened: Open, path: Path) -> None:
    path.touch()
    with pytest.raises(SpoolError, match=r"the spool .* does not exist: the file is empty"):
        opened(primary=None)
    assert path.read_bytes() == b""


def test_a_later_version_is_refused_by_number(opened: Open, path: Path) -> None:
    opened().close()
    changed = sqlite3.connect(path)
    changed.execute("PRAGMA user_version = 7")
    changed.close()
    with pytest.raises(SpoolError, match="version 7"):
        opened()


def test_a_directory_a_link_and_a_missing_directory_are_refused_by_name(opened: Open, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    for where, what in (
        (tmp_path, "is not a regular file"),
        (link, "is not a regular file"),
        (tmp_path / "no" / "s", "created"),
    ):
        with pytest.raises(SpoolError, match=what):
            opened(where)
    assert not (tmp_path / "target").exists()


@pytest.mark.spec("F-90")
def test_a_damaged_file_is_refused_and_kept(opened: Open, path: Path) -> None:
    spool = opened()
    for n in range(300):
        spool.append("orders", [Entry(str(n), os.urandom(500))], now=1)
    spool.close()
    pages = bytearray(path.read_bytes())
    pages[4096 * 3 : 4096 * 6] = bytes(4096 * 3)
    path.write_bytes(pages)
    with pytest.raises(SpoolError, match=r"damaged: .*keep the file"):
        opened()
    assert path.read_bytes() == bytes(pages)


@pytest.mark.spec("F-90")
def test_a_flipped_bit_in_a_message_is_detected(opened: Open, path: Path) -> None:
    spool = opened()
    spool.append("orders", [Entry("a", b"Q" * 200), Entry("b", b"ok")], now=1)
    spool.close()
    stored = path.read_bytes()
    assert stored.count(b"QQQQQQQQ") == 25
    path.write_bytes(stored.replace(b"QQQQQQQQ", b"QQQPQQQQ", 1))
    assert [each.is_intact for each in opened().oldest("orders", 5)] == [False, True]


def test_a_commit_returns_after_the_log_is_synced(opened: Open) -> None:
    connection = disk(opened())
    settings = ("journal_mode", "synchronous", "locking_mode", "secure_delete")
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in settings]
    assert found == ["wal", 2, "exclusive", 1]  # 2 is FULL: each commit syncs


# --- torn writes


@pytest.mark.slow
@pytest.mark.spec("G-1", "F-90")
def test_a_log_truncated_at_any_byte_holds_whole_sends_and_every_synced_one(
    opened: Open, path: Path, tmp_path: Path
) -> None:
    """A power failure leaves the database as it was, with a part of the write-ahead log."""
    spool = opened()
    log = path.with_name("spool-wal")
    synced = [log.stat().st_size]  # how long the log was when each send returned
    sends = [[f"{n}-{k}" for k in range(n % 4 + 1)] for n in range(12)]
    for send in sends:
        spool.append("orders", [Entry(text, text.encode() * 150) for text in send], now=1)
        synced.append(log.stat().st_size)
    whole, database = log.read_bytes(), path.read_bytes()
    spool.close()
    lengths = sorted(
        {*range(synced[0], len(whole), 509), *synced, *(size - 1 for size in synced[1:]), len(whole)}
    )
    for cut in lengths:
        torn = tmp_path / "torn"
        shutil.rmtree(torn, ignore_errors=True)
        torn.mkdir()
        (torn / "spool").write_bytes(database)
        (torn / "spool-wal").write_bytes(whole[:cut])
        copy = opened(torn / "spool")
        found = texts(copy)
        copy.close()
        survived = sum(size <= cut for size in synced[1:])
        assert found == [text for send in sends[:survived] for text in send], cut
    assert len(lengths) > 100


@pytest.mark.spec("G-1", "F-90")
def test_a_checkpoint_truncated_at_any_page_loses_nothing(opened: Open, path: Path, tmp_path: Path) -> None:
    """During a checkpoint, the database is partly old and partly new."""
    spool = opened()
    for n in range(40):
        spool.append("orders", [Entry(str(n), os.urandom(700))], now=1)
    before, log = path.read_bytes(), path.with_name("spool-wal").read_bytes()
    spool.close()
    after = path.read_bytes()
    for cut in range(0, len(after), 2048):  # in the middle of a page too
        torn = tmp_path / f"torn{cut}"
        torn.write_bytes(after[:cut] + before[cut:])
        torn.with_name(f"{torn.name}-wal").write_bytes(log)
        copy = opened(torn)
        assert texts(copy) == [str(n) for n in range(40)], cut
        assert all(each.is_intact for each in copy.oldest("orders", 40))
        copy.close()


@pytest.mark.spec("F-90", "S-10")
def test_garbage_behind_a_torn_log_is_not_read_as_messages(opened: Open, path: Path, tmp_path: Path) -> None:
    spool = opened()
    log = path.with_name("spool-wal")
    spool.append("orders", entries("a"), now=1)
    good = log.stat().st_size
    spool.append("orders", entries("b"), now=1)
    whole, database = bytearray(log.read_bytes()), path.read_bytes()
    spool.close()
    whole[good + 24 + 100] ^= 1  # in the page of the last send
    (tmp_path / "flipped").write_bytes(database)
    (tmp_path / "flipped-wal").write_bytes(whole)
    assert texts(opened(tmp_path / "flipped")) == ["a"]


def test_a_process_killed_while_creating_the_file_leaves_a_usable_one(opened: Open, path: Path) -> None:
    spool_file._make_private(path)  # as far as it came
    opened().append("orders", entries("a"), now=1)


LEAVING_CHILD = """
import os, signal, sys
from pathlib import Path
from sbpair.pair.pairing.spool.store import Entry, Spool

spool = Spool(Path(sys.argv[1]), primary="contoso")
spool.append("orders", [Entry("before", b"before")], 0)
child = os.fork()
if child == 0:
    spool.disown()
    del spool
    sys.exit(0)  # as a worker leaves: the interpreter is taken down in order
os.waitpid(child, 0)
spool.append("orders", [Entry("after", b"after")], 0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.spec("G-1")
def test_a_forked_child_that_exits_removes_nothing_from_its_parents_spool(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    done = subprocess.run([sys.executable, "-c", LEAVING_CHILD, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    spool = Spool(path, primary="contoso")
    try:
        assert spool.waiting() == 2
    finally:
        spool.close()
