"""The trial of :mod:`tests.trials.long_backlog`, cut short."""

from __future__ import annotations

import asyncio

import pytest

from tests.trials.long_backlog import COPIES, trial


@pytest.mark.spec("G-1", "G-3")
def test_a_backlog_comes_home_although_its_syphon_is_killed() -> None:
    report = asyncio.run(trial(messages=40_000, kills=1))
    assert report.lost == 0, report
    assert report.copies <= COPIES, report
