"""The trials of killed processors, shortened."""

from __future__ import annotations

import pytest

from tests.trials.processor_kill import trial, verdict


@pytest.mark.trial
@pytest.mark.spec("C-17")
async def test_killed_processors_lose_nothing() -> None:
    found = await trial(messages=600, kills=3, seed=1)
    assert verdict(found), found


@pytest.mark.trial
@pytest.mark.spec("C-16", "C-17")
async def test_sessions_of_a_killed_processor_continue_in_order_on_another() -> None:
    found = await trial(messages=600, kills=3, seed=1, sessions=6)
    assert verdict(found), found
    assert found["sessions that went on"]
