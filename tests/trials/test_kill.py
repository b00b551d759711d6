"""The short cut of tests.trials.kill: one point of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials.kill import KINDS, is_kept, trial


@pytest.mark.spec("G-26", "G-1", "F-12", "F-13", "F-14", "F-15")
async def test_kills_at_every_step_of_a_commit_lose_nothing_and_revive_nothing(tmp_path: Path) -> None:
    found, report = await trial(len(KINDS), 7, tmp_path / "data")
    assert is_kept(found, report), (report, found.came_back)
    assert set(found.kills) == set(KINDS)
    assert report.acknowledged > 0
