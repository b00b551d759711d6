"""The offsets of a stream over journals, and the cost of checking for new lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from sbpair.data.audit.read import journal_files
from sbpair.data.spark.journal_positions import EARLIER, Offset, Positions
from sbpair.data.spark.journal_source import JournalOptions, JournalPartition, JournalStreamReader

BYTES_OF_NAME = 65  # of a file in an offset that names it
BYTES_OF_FILE = 16  # of a packed one
LINE = '{"v":1}\n'
NAMES = st.sampled_from([f"{folder}sender-{n}-000001.jsonl" for n in range(6) for folder in ("", "a/", "ü/")])


@given(st.lists(st.dictionaries(NAMES, st.integers(0, 2**48), max_size=5), max_size=8))
def test_each_file_has_its_last_position_after_any_batches(batches: list[dict[str, int]]) -> None:
    offset: Offset = {}
    expected: dict[str, int] = {}
    for ends in batches:
        if ends:  # Spark plans no batch without data
            offset = json.loads(json.dumps(Positions.of(offset).advance(ends).offset()))
            expected |= ends
            assert Positions.of(offset).named == ends

    found = Positions.of(offset)
    assert {name: found.position_in(name) for name in expected} == expected
    assert found.position_in("never seen") is None


def test_an_old_offset_that_names_every_file_is_continued() -> None:
    positions = Positions.of({"sender-a-000001.jsonl": 7, "sender-b-000001.jsonl.gz": 9})

    after = Positions.of(positions.advance({"sender-a-000001.jsonl": 8}).offset())
    assert [after.position_in(f"sender-{each}") for each in ("a-000001.jsonl", "b-000001.jsonl.gz")] == [8, 9]


@pytest.mark.parametrize(
    "packed", ["AAAA", "kq3dBWJx1vSA", "%%%", 7], ids=["short", "torn", "not base64", "a number"]
)
def test_a_damaged_offset_is_refused(packed: object) -> None:
    with pytest.raises(ValueError, match="sbpair-journal: "):
        Positions.of({EARLIER: packed})  # type: ignore[dict-item]


def stream(directory: Path) -> JournalStreamReader:
    return JournalStreamReader(JournalOptions.of({"path": str(directory)}), StructType().add("v", "integer"))


def next_offset(reader: JournalStreamReader, start: Offset) -> Offset:
    """Store and reload an offset as Spark does between two batches."""
    return json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))


def names_in(reader: JournalStreamReader, start: Offset, end: Offset) -> list[str]:
    tasks = [task for task in reader.partitions(start, end) if isinstance(task, JournalPartition)]
    return [piece.name for task in tasks for piece in task.pieces]


@pytest.mark.spec("R-79")
def test_unchanged_files_are_not_reopened_and_take_few_bytes_of_an_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 500
    for number in range(count):
        (tmp_path / f"sender-{number:036}-000001.jsonl").write_text(LINE * (number + 1))
    opened: list[str] = []
    really = journal_files._open

    def counted(directory: str, name: str, *how: object) -> object:
        opened.append(name)
        return really(directory, name, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(journal_files, "_open", counted)
    reader = stream(tmp_path)
    monkeypatch.setattr(reader._polling, "shortest", 0.0)

    first = next_offset(reader, {})
    assert len(opened) == count
    assert next_offset(reader, first) == first
    assert len(opened) == count, "nothing is new"

    (tmp_path / "_open-sender-new-000001.jsonl").write_text(LINE + '{"torn')
    with (tmp_path / f"sender-{7:036}-000001.jsonl").open("a") as file:
        file.write(LINE)
    second = next_offset(reader, first)

    assert opened[count:] == [f"sender-{7:036}-000001.jsonl", "sender-new-000001.jsonl"]
    assert names_in(reader, first, second) == opened[count:]
    assert len(json.dumps(first)) > BYTES_OF_NAME * count
    assert len(json.dumps(second)) < BYTES_OF_FILE * count
    assert names_in(stream(tmp_path), first, second) == opened[count:], "another process plans the same"
    assert next_offset(stream(tmp_path), second) == second


@pytest.mark.spec("R-79")
def test_an_idle_stream_does_not_list_the_directory_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sbpair.data.spark import journal_source

    waits: list[float] = []
    monkeypatch.setattr(journal_source, "sleep", waits.append)
    monkeypatch.setattr(journal_source.time, "monotonic", lambda: 100.0)
    (tmp_path / "sender-a-000001.jsonl").write_text(LINE)
    reader = stream(tmp_path)

    end = next_offset(reader, {})
    for _ in range(2):
        assert next_offset(reader, end) == end

    assert waits == [0.0, 0.0, journal_source.POLL]


def test_a_vanished_file_keeps_its_position(tmp_path: Path) -> None:
    file, reader = tmp_path / "sender-a-000001.jsonl", stream(tmp_path)
    file.write_text(LINE)
    first = next_offset(reader, {})
    file.rename(tmp_path / "elsewhere")
    (tmp_path / "sender-b-000001.jsonl").write_text(LINE)
    second = next_offset(stream(tmp_path), first)
    (tmp_path / "elsewhere").rename(file)

    assert next_offset(stream(tmp_path), second) == second


def test_a_file_deleted_before_it_was_read_is_named(tmp_path: Path) -> None:
    file, reader = tmp_path / "sender-a-000001.jsonl", stream(tmp_path)
    file.write_text(LINE)
    end = next_offset(reader, {})
    file.unlink()

    (task,) = reader.partitions({}, end)
    with pytest.raises(FileNotFoundError, match=r"sender-a-000001\.jsonl is no longer in"):
        list(reader.read(task))
