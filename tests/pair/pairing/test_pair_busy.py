"""A busy or full service: pauses, the limit of a busy period, and quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair import Attempt, Pause, Result, Step
from sbpair.pair.pairing.outcome import Classification, Failure, Refused, Stored

if TYPE_CHECKING:
    from conftest import Driver

REFUSED = Classification(Failure.UNAVAILABLE, "no answer")


def is_primary(step: Step) -> bool:
    return isinstance(step, Attempt) and step.backlog is None


@pytest.mark.spec("F-40", "H-40")
def test_a_busy_service_is_asked_again_after_a_random_pause_and_never_fails_over(at_once: Driver) -> None:
    answers = iter([at_once.fail(Failure.BUSY), Result(10.0), Result(10.0)])
    outcome = at_once.send(lambda step: next(answers))
    assert outcome == Stored(None, is_ambiguous=False)
    pause = at_once.steps[1]
    assert isinstance(pause, Pause)
    assert 0 < pause.until <= 1.6
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-40")
def test_a_busy_service_gets_the_pause_it_names(at_once: Driver) -> None:
    answers = iter([at_once.fail(Failure.BUSY, retry_after=25.0), Result(25.0), Result(25.0)])
    at_once.send(lambda step: next(answers))
    assert at_once.steps[1] == Pause(25.0)


@pytest.mark.spec("F-40")
def test_a_busy_service_is_raised_when_the_budget_does_not_hold_the_pause(at_once: Driver) -> None:
    outcome = at_once.primary(lambda: at_once.fail(Failure.BUSY, retry_after=10.0), budget=9.0)
    assert isinstance(outcome, Refused)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-40")
def test_a_busy_primary_is_not_asked_again_when_no_time_would_be_left(at_once: Driver) -> None:
    outcome = at_once.send(lambda step: at_once.fail(Failure.BUSY, after=0.1, retry_after=10.0), budget=12.0)
    assert isinstance(outcome, Refused)
    assert len(at_once.steps) == 1
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-40", "P-3")
def test_a_service_busy_for_the_limit_counts_as_an_outage(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(interval=0.0, busy_limit=15.0)
    outcome = driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0)
    assert isinstance(outcome, Refused)
    driver.now = 14.9
    assert isinstance(driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0), Refused)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    driver.now = 15.0
    outcome = driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0)
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("F-40", "P-3")
def test_a_success_ends_the_busy_period(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(interval=0.0, busy_limit=15.0)
    driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0)
    health, _ = driver.pair.fast_path("orders", 60.0)
    assert not health.is_calm  # so that the next success is not overlooked on the fast path
    driver.now = 40.0
    assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)
    driver.now = 60.0
    assert isinstance(driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0), Refused)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    driver.now = 140.0  # the breaker remembers it for a minute
    assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)
    assert health.is_calm


@pytest.mark.spec("F-40", "G-12")
def test_a_busy_service_that_counts_starts_the_failover_interval_as_any_outage(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(interval=60.0, busy_limit=0.0)
    assert isinstance(driver.primary(lambda: driver.fail(Failure.BUSY)), Refused)
    assert driver.pair.state_of("orders") is EntityState.SUSPECT
    driver.advance(60.0)
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("F-44")
def test_a_full_entity_that_spills_stays_healthy_and_its_message_is_parked(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(spills=True)
    outcome = driver.primary(lambda: driver.fail(Failure.FULL))
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)
    for failure in (Failure.CONFIGURATION, Failure.CALLER):
        assert isinstance(driver.primary(lambda failure=failure: driver.fail(failure)), Refused)
