"""The journal records every omission and never stops a send."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from sbpair.observation import Fsync, Journal, JournalError, WriterRole, journal_files, read
from sbpair.pair.pairing.events import EntityFailedOver, MessageParked, PingSent


@pytest.fixture
def make(tmp_path, pair, clock):
    opened = []

    def journal(**options):
        opened.append(
            Journal(tmp_path / "journal", role=WriterRole.SENDER, pair=pair, **{"clock": clock} | options)
        )
        return opened[-1]

    yield journal
    for each in opened:
        each.close()


def ping(number):
    return PingSent(1000.0, "orders", number)


def all_records(directory, *, with_open=False):
    return [record for file in journal_files(directory, with_open=with_open) for record in read(file)]


@contextmanager
def no_room_beyond(size):
    """Limit files to ``size`` bytes, so that a write beyond is short or fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_closed_journal_is_gapless_and_says_that_it_is_complete(make):
    journal = make()
    for number in range(3):
        journal.write(ping(number))
    journal.close()

    records = all_records(journal.directory)
    assert [record["ordinal"] for record in records] == list(range(5))
    assert [record["event"] for record in records] == ["journal_opened", *["ping_sent"] * 3, "journal_closed"]
    assert {record["writer"] for record in records} == {journal.writer}
    last = records[-1]
    assert (last["file"], last["records"], last["lost"], last["is_last"]) == (1, 5, 0, True)
    assert journal.written == 5


def test_a_journal_file_is_visible_only_when_complete(make):
    journal = make()
    journal.write(ping(1))
    assert journal_files(journal.directory) == []
    (opened,) = journal_files(journal.directory, with_open=True)
    assert opened.name == f"_open-sender-{journal.writer}-000001.jsonl"
    assert [record["event"] for record in read(opened)] == ["journal_opened", "ping_sent"]

    journal.close()

    (closed,) = journal_files(journal.directory, with_open=True)
    assert closed.name == f"sender-{journal.writer}-000001.jsonl"


@pytest.mark.spec("S-10")
def test_files_are_for_their_owner_only(make):
    journal = make()
    (opened,) = journal_files(journal.directory, with_open=True)

    assert opened.stat().st_mode & 0o777 == 0o600
    assert journal.directory.stat().st_mode & 0o777 == 0o700


def test_a_full_file_is_rolled_and_ordinals_continue(make):
    journal = make(roll_bytes=4096)
    for number in range(50):
        journal.write(ping(number))
    journal.close()

    files = journal_files(journal.directory)
    assert len(files) > 2
    assert all(file.stat().st_size < 4096 + 1024 for file in files)
    records = all_records(journal.directory)
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    for number, file in enumerate(files, 1):
        of_file = list(read(file))
        assert (of_file[0]["event"], of_file[-1]["event"]) == ("journal_opened", "journal_closed")
        assert of_file[0]["file"] == of_file[-1]["file"] == number
        assert of_file[-1]["records"] == len(of_file)
        assert of_file[-1]["is_last"] == (file == files[-1])


def test_a_journal_rolled_by_hand_still_gets_its_closing_record(make):
    journal = make()
    journal.roll()
    assert len(journal_files(journal.directory)) == 1
    journal.close()

    assert [r["is_last"] for r in all_records(journal.directory) if r["event"] == "journal_closed"] == [
        False,
        True,
    ]


def test_writers_in_many_threads_share_one_series(make):
    journal = make(roll_bytes=4096)
    threads = [
        threading.Thread(target=lambda: [journal.write(ping(number)) for number in range(100)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()

    records = all_records(journal.directory)
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    assert sum(record["event"] == "ping_sent" for record in records) == 800


def test_a_full_disk_stops_no_caller_and_is_reported_afterwards(make, caplog):
    journal = make()
    journal.write(ping(1))
    (opened,) = journal_files(journal.directory, with_open=True)
    with no_room_beyond(opened.stat().st_size + 50):  # half a line fits
        for number in (2, 3, 4):
            journal.write(ping(number))
    assert journal.lost == 3
    assert (
        sum(entry.levelname == "ERROR" and entry.name.startswith("sbpair") for entry in caplog.records) == 1
    )
    journal.write(ping(5))
    journal.close()

    records = all_records(journal.directory)
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    assert [r["event"] for r in records[2:]] == ["journal_gap", "ping_sent", "journal_closed"]
    assert records[2]["lost"] == 3
    assert records[2]["cause"] == "File too large"
    assert records[3]["number"] == 5
    assert records[4]["lost"] == 3


def test_a_gap_at_the_end_is_reported(make):
    journal = make()
    with no_room_beyond(10):
        journal.write(ping(1))
    journal.close()

    assert [record["event"] for record in all_records(journal.directory)] == [
        "journal_opened",
        "journal_gap",
        "journal_closed",
    ]


def test_a_file_that_cannot_be_closed_grows_further_and_is_rolled_later(make, caplog):
    journal = make(roll_bytes=4096)
    (opened,) = journal_files(journal.directory, with_open=True)
    while opened.stat().st_size < 3800:
        journal.write(ping(1))
    with no_room_beyond(4400):  # room for the record that fills the file, none for the closing one
        while opened.exists() and opened.stat().st_size < 4096:
            journal.write(ping(2))
        journal.write(ping(3))
    assert opened.exists()
    journal.write(ping(4))
    journal.close()

    records = all_records(journal.directory)
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    assert not journal_files(journal.directory, with_open=True)[0].name.startswith("_open-")
    assert sum("cannot close journal file" in entry.message for entry in caplog.records) == 1


def test_a_directory_that_vanished_is_made_again(make):
    journal = make()
    journal.roll()
    for file in journal_files(journal.directory):
        file.unlink()
    journal.directory.rmdir()
    journal.directory.write_text("in the way")

    journal.write(ping(1))
    assert journal.lost == 1
    journal.directory.unlink()
    journal.write(ping(2))
    journal.close()

    assert [record["event"] for record in all_records(journal.directory)] == [
        "journal_opened",
        "journal_gap",
        "ping_sent",
        "journal_closed",
    ]


def test_a_file_that_could_not_be_started_leaves_nothing(make):
    journal = make()
    journal.roll()
    with no_room_beyond(10):
        journal.write(ping(1))
    assert len(journal_files(journal.directory, with_open=True)) == 1
    journal.write(ping(2))
    journal.close()

    records = all_records(journal.directory)
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    assert [record["file"] for record in records if record["event"] == "journal_opened"] == [1, 2]


def test_an_event_that_has_no_record_is_counted_and_the_next_is_written(make):
    journal = make()
    journal.write(object())
    journal.write(ping(1))
    journal.close()

    records = all_records(journal.directory)
    assert [record["event"] for record in records[1:3]] == ["journal_gap", "ping_sent"]
    assert journal.lost == 1


def test_an_event_after_close_is_dropped_without_an_exception(make):
    journal = make()
    journal.close()
    journal.write(ping(1))
    journal.close()

    assert journal.lost == 1
    assert len(all_records(journal.directory)) == 2


def test_a_journal_that_cannot_begin_says_so_at_once(tmp_path, pair):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"cannot write a journal to .*file"):
        Journal(tmp_path / "file", role=WriterRole.SYPHON, pair=pair)
    with pytest.raises(ValueError, match="roll_bytes must be at least 4096, not 10"):
        Journal(tmp_path, role=WriterRole.SYPHON, pair=pair, roll_bytes=10)


@pytest.mark.parametrize(
    ("fsync", "per_record", "at_close"), [(Fsync.NEVER, 0, 0), (Fsync.ON_ROLL, 0, 2), (Fsync.EVERY, 1, 3)]
)
def test_fsync_happens_at_the_configured_rate(make, monkeypatch, fsync, per_record, at_close):
    calls = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(fd), real(fd)))
    journal = make(fsync=fsync)

    calls.clear()
    journal.write(ping(1))
    assert len(calls) == per_record
    calls.clear()
    journal.close()
    assert len(calls) == at_close  # the closing record, the file, its directory


@pytest.mark.parametrize("tail", [b'{"v":1,"wri', b"\0\0\0\0", b'{"v":1}garbage\n', b"7\n"])
def test_a_torn_last_line_is_ignored(make, tail):
    journal = make()
    journal.write(ping(1))
    (opened,) = journal_files(journal.directory, with_open=True)
    with opened.open("ab") as file:
        file.write(tail)

    assert [record["event"] for record in read(opened)] == ["journal_opened", "ping_sent"]


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(make):
    journal = make()
    journal.write(ping(1))
    journal.close()
    (path,) = journal_files(journal.directory)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:20] + b"\n" + lines[2])

    with pytest.raises(JournalError, match=r"000001\.jsonl, line 2: not a record"):
        list(read(path))


@pytest.mark.spec("F-19")
def test_a_forked_child_is_a_separate_writer(make):
    journal = make()
    journal.write(ping(1))
    holding = journal._lock  # simulates another thread that writes at the time of the fork
    holding.acquire()
    child = multiprocessing.get_context("fork").Process(
        target=lambda: (journal.write(ping(2)), journal.close())
    )
    child.start()
    holding.release()
    child.join(60)
    assert child.exitcode == 0
    journal.write(ping(3))
    journal.close()

    by_writer = {}
    for record in all_records(journal.directory):
        by_writer.setdefault(record["writer"], []).append(record)
    assert len(by_writer) == 2
    for records in by_writer.values():
        assert [record["ordinal"] for record in records] == list(range(len(records)))
        assert records[-1]["is_last"] is True
    assert [r.get("number") for r in by_writer[journal.writer]] == [None, 1, 3, None]


WRITE_FOR_EVER = """
import itertools, sys
from sbpair.observation import Journal, PairLabels, WriterRole
from sbpair.pair.pairing.events import PingSent
journal = Journal(sys.argv[1], role=WriterRole.SENDER, pair=PairLabels("a", "b"), roll_bytes=20_000)
for number in itertools.count():
    journal.write(PingSent(0.0, "orders", number))
    if number == 500:
        print("500", flush=True)
"""


@pytest.mark.spec("F-16")
def test_a_writer_killed_at_any_instant_leaves_a_series_without_gaps(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout.readline() == "500\n"
        finally:
            process.kill()

    records = all_records(tmp_path, with_open=True)
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    assert sum(record["event"] == "ping_sent" for record in records) >= 500
    assert not any(record.get("is_last") for record in records)


def test_lines_are_json_that_any_reader_takes(make):
    journal = make()
    journal.write(EntityFailedOver(1000.0, "ord\ners\x1b[2J", "c"))
    journal.write(MessageParked(1000.0, "orders", 1, 2))
    journal.close()

    (path,) = journal_files(journal.directory)
    lines = path.read_text("ascii").splitlines()
    assert [json.loads(line)["v"] for line in lines] == [1] * 4
