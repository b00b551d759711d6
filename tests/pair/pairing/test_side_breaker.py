"""A secondary that fails as a whole is asked once a second, not by every send (H-20 to H-22)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sbpair.pair.pairing.decide.backlogs import SideBreaker
from sbpair.pair.pairing.decide.pair import Attempt, Pause, Result, Step
from sbpair.pair.pairing.events import BacklogWithdrawn
from sbpair.pair.pairing.outcome import Failure, Stored, Stranded

if TYPE_CHECKING:
    from conftest import Driver

DOWN = ConnectionError("down")


def breaker() -> SideBreaker:
    return SideBreaker(random.Random(1))


def of_side(driver: Driver) -> Result:
    """The answer of a namespace that is down."""
    failed = driver.fail()
    assert failed.classification is not None
    return failed._replace(classification=failed.classification._replace(is_of_side=True))


@pytest.mark.spec("H-20")
def test_two_failing_queues_open_the_side_breaker_and_one_does_not() -> None:
    side = breaker()
    side.failed(0, DOWN, 0.0)
    side.failed(0, DOWN, 0.1)
    assert side.may_ask(0.2)
    side.failed(1, DOWN, 0.2)
    assert side.cause is not None
    assert repr(side.cause.again()) == repr(DOWN)
    assert not side.may_ask(0.3)


@pytest.mark.spec("H-20")
def test_the_side_breaker_stays_closed_while_another_queue_accepts() -> None:
    side = breaker()
    side.succeeded(0.0)
    side.failed(0, DOWN, 0.1)
    side.failed(1, DOWN, 0.2)
    assert not side.is_open


@pytest.mark.spec("H-20")
def test_an_open_side_breaker_makes_one_trial_per_second_and_closes_on_success() -> None:
    side = breaker()
    side.failed(0, DOWN, 0.0)
    side.failed(1, DOWN, 0.0)
    asked = sum(side.may_ask(tenth / 10) for tenth in range(100))
    assert 7 <= asked <= 14
    side.succeeded(10.0)
    assert side.may_ask(10.0)


@pytest.mark.spec("H-20", "H-24")
def test_with_both_sides_silent_the_secondary_gets_two_attempts_and_then_one_per_second(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of()
    driver.fail_over()
    asked = 0
    for _ in range(400):  # 40 sends a second
        driver.steps.clear()
        outcome = driver.send(lambda _: of_side(driver))
        assert isinstance(outcome, Stranded)
        assert outcome.causes
        asked += sum(isinstance(step, Attempt) for step in driver.steps)
        driver.now += 0.025
    assert asked <= 30


@pytest.mark.spec("H-21")
def test_a_busy_secondary_is_waited_for_on_one_queue_by_its_hint(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of()
    driver.fail_over()
    answers = iter([driver.fail(Failure.BUSY, retry_after=2.0), Result(2.0), driver.ok()])

    def answer(_: Step) -> Result:
        return next(answers)

    assert isinstance(driver.send(answer, budget=10.0), Stored)
    first, pause, second = driver.steps
    assert pause == Pause(2.0)
    assert isinstance(first, Attempt)
    assert isinstance(second, Attempt)
    assert first.backlog == second.backlog
    assert not [event for event in driver.pair.events() if isinstance(event, BacklogWithdrawn)]


@pytest.mark.spec("H-22", "P-5")
def test_a_quarantine_is_reported_once(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(backlogs=1)
    driver.fail_over()
    for _ in range(5):
        driver.send(lambda _: driver.fail())
    assert len([event for event in driver.pair.events() if isinstance(event, BacklogWithdrawn)]) == 1


@pytest.mark.spec("H-21")
def test_a_busy_queue_that_accepts_other_messages_is_not_withdrawn(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(backlogs=1)
    driver.fail_over()
    for index in range(40):
        is_busy = index % 2
        driver.send(lambda _, busy=is_busy: driver.fail(Failure.BUSY) if busy else driver.ok(), budget=1.0)
        driver.now += 0.1
    assert not [event for event in driver.pair.events() if isinstance(event, BacklogWithdrawn)]


@pytest.mark.spec("H-21", "P-5")
def test_a_queue_that_only_answers_busy_is_withdrawn(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(backlogs=2)
    driver.fail_over()
    driver.send(lambda _: driver.ok(), budget=1.0)
    driver.now += 6.0
    driver.send(lambda _: driver.fail(Failure.BUSY), budget=1.0)
    assert [event for event in driver.pair.events() if isinstance(event, BacklogWithdrawn)]
