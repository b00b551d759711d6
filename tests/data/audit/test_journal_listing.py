"""Which files in a directory are read, and which are reported, without Spark."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from sbpair.data.audit.columns import UNREAD, UNREADABLE, arrow_schema
from sbpair.data.audit.read import journal_lines
from sbpair.data.audit.read.journal_files import admit, ranges, whole_lines
from sbpair.data.audit.read.journal_lines import batches, unread_rows
from sbpair.data.audit.read.journal_listing import Unread, list_files
from sbpair.data.audit.read.reading import plan

LINES = [b'{"event": "e%d"}\n' % n for n in range(20)]
SCHEMA = arrow_schema(("event", "journal_file", "journal_offset"))


def write(directory: Path, name: str, content: bytes = b"".join(LINES)) -> Path:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return file


def events(directory: Path, start: dict[str, int] | None = None) -> list[str]:
    there = whole_lines(str(directory))
    pieces = ranges(str(directory), (start or {}).get, there, 100)
    return [row["event"] for piece in pieces for batch in batches(piece, SCHEMA) for row in batch.to_pylist()]


@pytest.mark.spec("R-74")
def test_journals_in_folders_and_compressed_ones_are_read_whole(tmp_path: Path) -> None:
    write(tmp_path, "sender-a-000001.jsonl", b"".join(LINES[:5]))
    write(tmp_path, "hosts/7/sender-b-000001.jsonl.gz", b"".join(LINES[5:10]))
    write(tmp_path, "hosts/7/_open-sender-b-000002.jsonl", b"".join(LINES[10:15]) + b'{"torn')
    write(tmp_path, "old/_open-syphon-c-000001.jsonl.gz", b"".join(LINES[15:]) + b'{"torn')

    assert sorted(events(tmp_path)) == sorted(f"e{n}" for n in range(20))
    assert list_files(str(tmp_path)).unread == ()


@pytest.mark.spec("R-74")
def test_a_file_present_with_and_without_gz_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "sender-a-000001.jsonl")
    write(tmp_path, "sender-a-000001.jsonl.gz")

    assert list(list_files(str(tmp_path)).journals) == ["sender-a-000001.jsonl"]


MAYBE = {
    "sender-a-000001.jsonl.zst": b"\x28\xb5\x2f\xfd....",
    "sender-a-000001.jsonl.1": b"",
    "sender-a-000001.JSONL": b"{}\n",
    ".sender-a-000001.jsonl": b"{}\n",
    "folder/journals.tar": b"sender\0\0\0",
    "journals.zip": b"PK\x03\x04\xff\xfe",
    "sender.log": b' {"v":1}\n',
}


@pytest.mark.spec("R-74")
@pytest.mark.parametrize("name", MAYBE)
def test_a_possible_journal_that_is_not_read_is_reported_with_the_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(MAYBE[name])
    found = list_files(str(tmp_path))

    assert found.journals == {}
    assert [each.name for each in found.unread] == [name]
    assert found.unread[0].reason


def test_a_text_that_cannot_be_a_journal_is_skipped(tmp_path: Path) -> None:
    for name, content in {
        "README.md": "# Where these come from — über alles",
        "empty": "",
        "a.csv": "a,b\n",
    }.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for name in ("report.html", "summary.json", "messages/part-0.parquet"):
        write(tmp_path / "audit", name, b"{}\0")
    (tmp_path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")

    assert list_files(str(tmp_path)).unread == ()


@pytest.mark.spec("R-74")
def test_links_are_followed_once_and_a_dangling_one_is_reported(tmp_path: Path) -> None:
    journals, elsewhere = tmp_path / "journals", tmp_path / "elsewhere"
    write(elsewhere, "sender-a-000001.jsonl")
    journals.mkdir()
    (journals / "linked").symlink_to(elsewhere)
    (elsewhere / "round").symlink_to(journals)
    (journals / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(journals / "pipe.jsonl")
    found = list_files(str(journals))

    assert list(found.journals) == ["linked/sender-a-000001.jsonl"]
    assert [each.name for each in found.unread] == ["gone.jsonl", "pipe.jsonl"]


@pytest.mark.spec("R-74")
@pytest.mark.parametrize("cut", [1, 9, 40], ids=["the last byte", "the check", "the middle"])
def test_a_damaged_archive_yields_its_readable_part_and_is_reported(tmp_path: Path, cut: int) -> None:
    file = write(
        tmp_path, "sender-a-000001.jsonl.gz", os.urandom(200).hex().encode() + b"\n" + b"".join(LINES)
    )
    file.write_bytes(file.read_bytes()[:-cut])

    assert UNREADABLE in events(tmp_path)


@pytest.mark.spec("R-74")
def test_an_empty_file_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "sender-a-000001.jsonl.gz", b"")
    write(tmp_path, "sender-b-000001.jsonl", b"")

    assert events(tmp_path) == [UNREADABLE]
    assert [each.name for each in plan(str(tmp_path)).unread] == ["sender-b-000001.jsonl"]


@pytest.mark.spec("R-74")
@pytest.mark.parametrize("name", ["a-b-1.jsonl", "a-b-1.jsonl.gz"])
def test_an_endless_line_takes_no_memory(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_lines, "BLOCK", 64)
    write(tmp_path, name, LINES[0] + b"x" * 10_000 + b"\n" + LINES[1])
    there = whole_lines(str(tmp_path))
    (piece,) = ranges(str(tmp_path), {}.get, there, 2**20)
    rows = [row for batch in batches(piece, SCHEMA) for row in batch.to_pylist()]

    assert [row["event"] for row in rows] == ["e0", UNREADABLE, "e1"]
    assert rows[2]["journal_offset"] == len(LINES[0]) + 10_001


@pytest.mark.spec("R-74")
def test_a_journal_compressed_during_a_stream_is_continued_at_its_position(tmp_path: Path) -> None:
    file = write(tmp_path, "sender-a-000001.jsonl", b"".join(LINES[:12]))
    read = whole_lines(str(tmp_path))
    file.unlink()
    write(tmp_path, "sender-a-000001.jsonl.gz")

    assert events(tmp_path, read) == [f"e{n}" for n in range(12, 20)]
    assert events(tmp_path, read | whole_lines(str(tmp_path))) == []


@pytest.mark.spec("R-74")
def test_a_limit_reads_compressed_files_one_after_another(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path, f"sender-{name}-000001.jsonl.gz")
    there, start, steps = whole_lines(str(tmp_path)), {}, 0
    while start != there:
        start, steps = start | admit(str(tmp_path), start.get, there, 1), steps + 1

    assert steps == 3


def test_an_unread_file_is_a_row(tmp_path: Path) -> None:
    batch = unread_rows([Unread("a.zst", "why")], arrow_schema(("event", "journal_file", "reason", "writer")))

    (row,) = batch.to_pylist()
    assert (row["event"], row["journal_file"], row["reason"]) == (UNREAD, "a.zst", "why")


def test_a_uri_is_read_as_its_directory(tmp_path: Path) -> None:
    write(tmp_path, "sender-a-000001.jsonl", b"".join(LINES[:5]) + b'{"torn')
    write(tmp_path, "hosts/7/sender-b-000001.jsonl.gz", b"".join(LINES[5:10]))
    write(tmp_path, "hosts/_open-sender-c-000001.jsonl", b"".join(LINES[10:]))
    write(tmp_path, "journals.zip", b"PK\x03\x04\xff\xfe")
    for name in ("report.html", "summary.json", "messages/part-0.parquet"):
        write(tmp_path / "audit", name, b"{}\0")
    uri = tmp_path.as_uri()

    assert list_files(uri) == list_files(str(tmp_path))
    pieces = ranges(uri, {}.get, whole_lines(uri), 100)
    rows = [row["event"] for piece in pieces for batch in batches(piece, SCHEMA) for row in batch.to_pylist()]
    assert sorted(rows) == sorted(f"e{n}" for n in range(20))
