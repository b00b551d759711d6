"""Lines of journals become rows, whatever is in them: pure Arrow, no JVM."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.data.audit.columns import UNREADABLE, arrow_schema
from sbpair.data.audit.read import journal_lines
from sbpair.data.audit.read.journal_files import FileRange
from sbpair.data.audit.read.journal_lines import MAX_MISSES, batches

GOOD = b'{"event": "send_raised"}\n'


DEEP = b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}\n"


@pytest.mark.parametrize(
    "bad",
    [b"rubbish\n", b"rub\rbish\n", b"\n", b'{"event": "a"}\r{"event": "b"}\n', b"[" * 100_000 + b"\n"],
)
def test_each_unreadable_line_is_one_row_with_its_position(tmp_path: Path, bad: bytes) -> None:
    data = GOOD + bad + GOOD
    (tmp_path / "a.jsonl").write_bytes(data)
    schema = arrow_schema(("event", "journal_file", "journal_offset"))
    found = batches(FileRange(str(tmp_path), "a.jsonl", 0, len(data)), schema)
    rows = [(row["event"], row["journal_offset"]) for batch in found for row in batch.to_pylist()]
    assert rows == [("send_raised", 0), (UNREADABLE, len(GOOD)), ("send_raised", len(GOOD + bad))]


@pytest.mark.parametrize("bad", [DEEP, DEEP + b"rubbish\n"])
def test_a_deeply_nested_line_does_not_affect_other_rows(tmp_path: Path, bad: bytes) -> None:
    data = GOOD + bad + GOOD
    (tmp_path / "a.jsonl").write_bytes(data)
    found = batches(FileRange(str(tmp_path), "a.jsonl", 0, len(data)), arrow_schema(("event",)))
    events = [event for batch in found for event in batch["event"].to_pylist()]
    assert len(events) == data.count(b"\n")
    assert events[0] == events[-1] == "send_raised"


FIELDS = {
    "writer": st.text("ab", max_size=2),
    "ordinal": st.integers(0, 9),
    "at": st.just("2026-11-21T12:00:09.020Z"),
    "pair": st.just({"primary": "contoso", "secondary": "contoso-dr"}),
    "backlog": st.none() | st.integers(0, 9),
    "message_ids": st.lists(st.text("xy", max_size=2), max_size=2),
    "session_id": st.none() | st.text("s", max_size=2),
    "ambiguous": st.booleans(),
    "mono": st.floats(0, 9),
    "of_a_later_version": st.integers(0, 9) | st.text("z", max_size=2),
    "v": st.just(1) | st.just("not a number"),
}
RECORDS = st.lists(st.fixed_dictionaries({"event": st.sampled_from("ab")}, optional=FIELDS), max_size=12)


@given(RECORDS, st.sampled_from([1, 200]))
def test_records_do_not_depend_on_the_columns_searched_first(
    records: list[dict[str, object]], sample: int
) -> None:
    data = b"".join(json.dumps(each).encode() + b"\n" for each in records)
    names = ("event", "writer", "ordinal", "at", "pair", "backlog", "message_ids", "session_id", "ambiguous")

    def rows(misses: int) -> list[dict[str, object]]:
        with (
            tempfile.TemporaryDirectory() as directory,
            patch.multiple(journal_lines, BLOCK=300, SAMPLE=sample, MAX_MISSES=misses),
        ):
            Path(directory, "sender-w-1.jsonl").write_bytes(data)
            found = batches(FileRange(directory, "sender-w-1.jsonl", 0, len(data)), arrow_schema(names))
            return [row for batch in found for row in batch.to_pylist()]

    assert rows(MAX_MISSES) == rows(0)


def test_a_column_that_appears_late_is_read_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = b'{"event": "a", "backlog": 3}\n'
    data = (GOOD * 200 + late + GOOD * 200) * 2
    (tmp_path / "a.jsonl").write_bytes(data)
    monkeypatch.setattr(journal_lines, "BLOCK", len(data) // 2)
    schema = arrow_schema(("event", "backlog", "message_ids"))
    found = batches(FileRange(str(tmp_path), "a.jsonl", 0, len(data)), schema)
    assert [each for batch in found for each in batch["backlog"].to_pylist() if each is not None] == [3, 3]
