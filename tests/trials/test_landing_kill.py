"""The short cut of tests.trials.landing_kill."""

from __future__ import annotations

import pytest

from tests.trials.landing_kill import trial

MESSAGES = 1400  # a syphon lands fewer than 700 before it is killed: 400, and what both twins hold


@pytest.mark.spec("C-1", "C-2", "C-4", "G-1")
async def test_a_syphon_killed_while_landing_loses_nothing_and_lands_each_message_once() -> None:
    report = await trial(messages=MESSAGES, kills=3, seed=1)
    assert report.is_right, report
    assert report.kills == 3
    assert report.landed > 0
    assert report.landed + report.home == MESSAGES
