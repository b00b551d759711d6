"""The plan of an audit's reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbpair.data.audit.read import reading

LINE = b'{"event": "send_raised"}\n'


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes for journals of a few lines; a task has a few, too."""
    for name, lines in (("TASK_BYTES", 2), ("PART_BYTES", 4), ("MAX_BYTES", 8)):
        monkeypatch.setattr(reading, name, lines * len(LINE))
    monkeypatch.setattr(reading, "SHARES", 5)


@pytest.mark.parametrize(
    ("lines", "tasks", "parts"),
    [
        (6, [2, 2, 2], 2),  # small tasks while there are few
        (30, [6, 6, 6, 6, 6], 6),  # then larger ones
        (80, [8] * 10, 11),  # up to the largest
    ],
)
def test_larger_journals_are_read_in_larger_tasks_before_there_are_more(
    tmp_path: Path, lines: int, tasks: list[int], parts: int
) -> None:
    (tmp_path / "sender-w-000001.jsonl").write_bytes(LINE * lines)
    planned = reading.plan(str(tmp_path))
    assert [sum(each.end - each.start for each in task) // len(LINE) for task in planned.tasks] == tasks
    assert planned.parts == parts
