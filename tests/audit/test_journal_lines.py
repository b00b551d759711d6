"""What becomes of bytes that are no records: pure Arrow, no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbpair.audit.columns import UNREADABLE, arrow_schema
from sbpair.audit.journal_files import FileRange
from sbpair.audit.journal_lines import batches

GOOD = b'{"event": "send_raised"}\n'


@pytest.mark.parametrize("bad", [b"rubbish\n", b"rub\rbish\n", b"\n", b'{"event": "a"}\r{"event": "b"}\n'])
def test_each_line_that_is_no_record_is_one_row_that_says_where_it_stands(tmp_path: Path, bad: bytes) -> None:
    data = GOOD + bad + GOOD
    (tmp_path / "a.jsonl").write_bytes(data)
    schema = arrow_schema(("event", "journal_file", "journal_offset"))
    found = batches(FileRange(str(tmp_path), "a.jsonl", 0, len(data)), schema)
    rows = [(row["event"], row["journal_offset"]) for batch in found for row in batch.to_pylist()]
    assert rows == [("send_raised", 0), (UNREADABLE, len(GOOD)), ("send_raised", len(GOOD + bad))]
