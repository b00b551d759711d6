"""The thread that writes a spool."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbpair.pair.pairing.errors import SpoolError, SpoolFullError
from sbpair.pair.pairing.spool import writer as module
from sbpair.pair.pairing.spool.store import Entry, Spool
from sbpair.pair.pairing.spool.writer import Writer, Writing
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spec("A-8")


class Disk:
    """A spool whose transactions can be held; it counts them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, self.transactions, self.waits = threading.Event(), 0, threading.Event()
        self.answers.set()
        real = Spool._transact

        def transact(spool: Spool, statement: str, rows: list[tuple[object, ...]]) -> None:
            self.waits.set()
            assert self.answers.wait(PATIENCE)
            self.transactions += 1
            real(spool, statement, rows)

        monkeypatch.setattr(Spool, "_transact", transact)
        self.spool = Spool(path, primary="contoso", max_messages=100)
        self.writer = Writer(self.spool, lambda: None)
        self.ended: list[SpoolError | None] = []

    def begin(self, *ids: str) -> Writing:
        writing = Writing(self.writer, self.ended.append)
        writing.begin("orders", [Entry(each, b"x") for each in ids])
        return writing

    def stalled(self) -> Writing:
        """A write that the disk does not answer."""
        self.answers.clear()
        self.waits.clear()
        writing = self.begin("stalled")
        assert self.waits.wait(PATIENCE)
        return writing

    def kept(self) -> list[str]:
        return [each.message_id for each in self.spool.oldest("orders", 100)]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "spool", monkeypatch)
    yield disk
    disk.answers.set()
    disk.writer.stop()
    disk.spool.close()


def test_writes_arriving_during_a_sync_share_the_next_one_in_order(disk: Disk) -> None:
    writings = [disk.stalled(), *(disk.begin(str(n)) for n in range(20))]
    disk.answers.set()
    for writing in writings:
        assert writing.wait(PATIENCE)
        writing.check()
    assert disk.transactions == 2
    assert disk.kept() == ["stalled", *map(str, range(20))]
    assert disk.ended == [None] * 21


def test_accepted_messages_are_deleted_in_the_transaction_of_the_next_write(disk: Disk) -> None:
    assert disk.begin("a", "b").wait(PATIENCE)
    writing = disk.stalled()
    disk.spool.accepted("orders", disk.spool._recent.oldest("orders", 2, 1, 0))
    disk.writer.tidy()
    later = disk.begin("c")
    disk.answers.set()
    assert writing.wait(PATIENCE)
    assert later.wait(PATIENCE)
    assert disk.spool.undeleted == 0
    assert disk.transactions == 3
    assert disk.kept() == ["b", "stalled", "c"]


def test_accepted_messages_are_deleted_soon_without_a_write(disk: Disk) -> None:
    assert disk.begin("a", "b").wait(PATIENCE)
    disk.spool.accepted("orders", disk.spool.oldest("orders", 1))
    disk.writer.tidy()
    wait_until(lambda: disk.spool.undeleted == 0)
    assert disk.kept() == ["b"]


def test_a_write_not_yet_begun_can_be_withdrawn_and_one_in_progress_cannot(disk: Disk) -> None:
    under_way, waits = disk.stalled(), disk.begin("late")
    assert waits.withdraw()
    assert not under_way.withdraw()
    disk.answers.set()
    assert under_way.wait(PATIENCE)
    with pytest.raises(SpoolError, match="withdrawn"):
        waits.check()
    assert disk.kept() == ["stalled"]
    disk.begin(*map(str, range(99)))  # the room of what was withdrawn is free again


def test_without_room_nothing_is_written_and_the_refusal_is_reported(disk: Disk) -> None:
    with pytest.raises(SpoolFullError):
        disk.begin(*map(str, range(101)))
    assert [type(error) for error in disk.ended] == [SpoolFullError]


def test_writes_during_the_close_are_written_or_refused(disk: Disk) -> None:
    writing = disk.stalled()
    waits = disk.begin("waits")
    closing = threading.Thread(target=disk.spool.close)
    closing.start()
    disk.answers.set()
    closing.join(PATIENCE)
    assert writing.wait(PATIENCE)
    assert waits.wait(PATIENCE)
    assert disk.ended == [None, None]
    with pytest.raises(SpoolError, match="is closed"):
        disk.begin("late")


def test_a_send_writes_itself_if_the_system_has_no_thread(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", start)
        writing = disk.begin("a")
    assert writing.wait(0.0)
    assert disk.kept() == ["a"]
    assert disk.begin("b").wait(PATIENCE)  # there are threads again


def test_a_failed_deletion_is_reported_and_retried(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.01)
    assert disk.begin("a").wait(PATIENCE)
    disk.spool._connection.execute("PRAGMA max_page_count = 1")
    disk.spool._connection.execute("PRAGMA query_only = ON")
    disk.spool.accepted("orders", disk.spool.oldest("orders", 1))
    disk.writer.tidy()
    wait_until(lambda: "cannot delete replayed messages" in caplog.text)
    assert disk.spool.undeleted == 1
    assert disk.spool.waiting() == 0
