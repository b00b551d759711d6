"""The trial of :mod:`tests.trials.both_down`, cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials.both_down import trial


@pytest.mark.spec("G-1", "G-2", "G-3", "G-4", "F-35")
@pytest.mark.parametrize("kill", [False, True], ids=["alive", "killed"])
@pytest.mark.parametrize("back", ["primary", "both"])
def test_messages_acknowledged_while_both_sides_refuse_arrive_in_order(
    tmp_path: Path, kill: bool, back: str
) -> None:
    report = trial(tmp_path / "spool", seconds=1.5, rate=200, kill=kill, back=back)
    assert report.is_right, report.as_json()
    assert report.stored_in["spool"] > 100  # else it proves nothing
    assert report.kills == (2 if kill else 0)
