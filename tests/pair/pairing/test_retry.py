"""Retries of a failed send: the pauses, and when it counts as a failure (R-7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import pytest
from azure.servicebus._base_handler import _get_backoff_time
from azure.servicebus._common._configuration import Configuration
from azure.servicebus._pyamqp.error import RetryMode
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair import Attempt, Pause, Result, Step, primary_flow
from sbpair.pair.pairing.decide.retry import NO_RETRIES, RetryPolicy
from sbpair.pair.pairing.decide.steps import Choice, Retries
from sbpair.pair.pairing.events import EntitySuspected
from sbpair.pair.pairing.outcome import Failure, Refused, Stored

if TYPE_CHECKING:
    from conftest import Driver

DEFAULT = RetryPolicy()


def in_time(driver: Driver, primary: Callable[[], Result]) -> Callable[[Step], Result]:
    """Answer with this primary and accepting backlogs, and let pauses pass in virtual time."""

    def answer(step: Step) -> Result:
        if isinstance(step, Pause):
            driver.advance(step.until - driver.now)
            return Result(driver.now)
        return primary() if isinstance(step, Attempt) and step.backlog is None else driver.ok()

    return answer


@pytest.mark.spec("R-7")
def test_the_defaults_and_the_pauses_are_those_of_the_sdk() -> None:
    theirs = Configuration(hostname="contoso.example", amqp_transport=PyamqpTransport)
    assert theirs.retry_total == DEFAULT.total
    assert theirs.retry_backoff_factor == DEFAULT.backoff_factor
    assert theirs.retry_backoff_max == DEFAULT.backoff_max
    assert theirs.retry_mode == DEFAULT.mode
    for mode in RetryMode:
        policy = RetryPolicy(9, 0.8, 60.0, mode.value)
        for retry in range(1, 10):
            assert policy.pause(retry) == _get_backoff_time(mode, 0.8, 60.0, retry)
        assert policy.pause(10) is None


@pytest.mark.spec("B-19")
@pytest.mark.parametrize("mode", RetryPolicy.MODES)
def test_clients_that_fail_together_do_not_retry_together(mode: str) -> None:
    began: list[int] = []  # the seconds in which 200 clients make their attempts
    for seed in range(200):
        retries, at = Retries(RetryPolicy(mode=mode), Random(seed)), 0.0
        while (again := retries.next_at(at, 60.0)) is not None:
            at = again
            began.append(int(again / 0.1))
    assert max(Counter(began).values()) < 40


@pytest.mark.spec("B-19")
def test_a_pause_is_between_half_and_one_and_a_half_of_the_policy() -> None:
    pauses = [Retries(DEFAULT, Random(seed)).next_at(0.0, 60.0) or 0.0 for seed in range(1000)]
    assert min(pauses) >= 0.8
    assert max(pauses) <= 2.4
    assert sum(pauses) / 1000 == pytest.approx(1.6, abs=0.05)


@pytest.mark.spec("R-7", "R-15")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"total": -1}, ValueError),
        ({"total": True}, TypeError),
        ({"total": 1.5}, TypeError),
        ({"backoff_factor": -0.1}, ValueError),
        ({"backoff_factor": float("nan")}, ValueError),
        ({"backoff_max": "120"}, TypeError),
        ({"mode": "linear"}, ValueError),
    ],
)
def test_a_setting_out_of_range_is_named(wrong: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"retry_{next(iter(wrong))}"):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.spec("R-7")
def test_a_short_failure_is_retried_and_raises_nothing(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(retry=DEFAULT)
    answers = iter([lambda: driver.fail(is_ambiguous=True), driver.fail, driver.ok])
    outcome = driver.send(in_time(driver, lambda: next(answers)()))
    assert outcome == Stored(None, is_ambiguous=True)
    assert driver.steps == [
        Attempt(None, 10.0),
        Pause(1.6),
        Attempt(None, 11.6),
        Pause(1.6 + 3.2),
        Attempt(None, 14.8),
    ]
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    assert driver.pair.events() == []


@pytest.mark.spec("R-7", "P-3")
def test_only_a_failure_after_the_retries_counts(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(retry=DEFAULT)
    outcome = driver.send(in_time(driver, driver.fail))
    assert isinstance(outcome, Refused)
    assert sum(isinstance(step, Attempt) for step in driver.steps) == 4
    assert driver.now == pytest.approx(1.6 + 3.2 + 6.4)
    (suspected,) = [event for event in driver.pair.events() if isinstance(event, EntitySuspected)]
    assert suspected.at == driver.now
    assert driver.pair.next_timer() == driver.now + 60.0


@pytest.mark.spec("R-7", "P-3")
def test_a_suspect_entity_is_retried_and_a_success_ends_the_suspicion(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(retry=RetryPolicy(total=2))
    driver.send(in_time(driver, driver.fail))
    answers = iter([driver.fail, driver.ok])
    assert driver.send(in_time(driver, lambda: next(answers)())) == Stored(None, is_ambiguous=False)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("R-7", "P-4")
def test_an_entity_that_fails_over_during_the_pause_gets_no_further_attempt(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(interval=5.0, retry=DEFAULT)
    driver.send(in_time(driver, driver.fail), budget=2.0)
    driver.advance(4.0)
    outcome = driver.send(in_time(driver, driver.fail))
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert [type(step) for step in driver.steps] == [Attempt, Pause, Attempt]


@pytest.mark.spec("R-7", "P-3")
def test_with_a_zero_interval_the_first_failure_redirects(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(interval=0.0, retry=DEFAULT)
    outcome = driver.send(in_time(driver, driver.fail))
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert [type(step) for step in driver.steps] == [Attempt, Attempt]


def attempts_of(driver: Driver, budget: float) -> tuple[list[float], float]:
    """When a send that fails makes its attempts, in seconds from its beginning, and until when the last may take."""
    began, at = driver.now, []

    def primary() -> Result:
        at.append(round(driver.now - began, 2))
        return driver.fail(after=0.05)

    assert isinstance(driver.send(in_time(driver, primary), budget=budget), Refused)
    return at, round([step.until for step in driver.steps if isinstance(step, Attempt)][-1] - began, 2)


@pytest.mark.spec("R-7", "H-40")
@pytest.mark.parametrize("suspect_for", [None, 0.0, 52.0])
def test_a_send_that_cannot_be_parked_makes_as_many_attempts_as_the_bare_sdk(
    pair_of: Callable[..., Driver], suspect_for: float | None
) -> None:
    driver = pair_of(retry=DEFAULT)
    if suspect_for is not None:
        driver.send(in_time(driver, driver.fail))
        driver.advance(suspect_for)
    assert attempts_of(driver, budget=6.0) == ([0.0, 1.65, 4.9], 6.0)


@pytest.mark.spec("R-7", "H-40")
def test_a_pause_longer_than_the_remaining_time_is_shortened_for_a_last_attempt(
    pair_of: Callable[..., Driver],
) -> None:
    assert attempts_of(pair_of(retry=DEFAULT), budget=3.0) == ([0.0, 1.65, 2.25], 3.0)
    assert attempts_of(pair_of(retry=DEFAULT), budget=1.6) == ([0.0, 1.2], 1.6)


@pytest.mark.spec("R-7", "P-4")
def test_an_entity_that_fails_over_during_a_shortened_pause_leaves_time_for_the_backlog(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(interval=5.0, retry=DEFAULT)
    driver.send(in_time(driver, driver.fail), budget=2.0)
    driver.advance(2.0)
    outcome = driver.send(in_time(driver, driver.fail), budget=4.0)
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert [type(step) for step in driver.steps] == [Attempt, Pause, Attempt, Pause, Attempt]


@pytest.mark.spec("R-7", "G-18")
@pytest.mark.parametrize("budget", [0.5, 1.5, 3.0, 5.0, 10.0])
def test_retries_stay_inside_the_callers_budget(pair_of: Callable[..., Driver], budget: float) -> None:
    driver = pair_of(retry=DEFAULT)
    outcome = driver.send(in_time(driver, lambda: driver.fail(after=0.1)), budget=budget)
    assert isinstance(outcome, Refused)
    assert driver.now < budget + 0.2
    assert driver.pair.state_of("orders") is EntityState.SUSPECT


@pytest.mark.spec("R-7", "G-18")
def test_send_that_can_be_parked_is_parked_in_place_of_a_retry(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(redirects=True, retry=DEFAULT)
    outcome = driver.send(
        in_time(driver, lambda: driver.fail() if driver.now < 1 else driver.ok()), budget=6.0
    )
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert [step.backlog for step in driver.steps if isinstance(step, Attempt)] == [None, outcome.backlog]


@pytest.mark.spec("R-7", "G-18")
def test_primary_is_tried_again_when_no_backlog_queue_takes_the_message(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True, retry=DEFAULT, backlogs=1)

    def answer(step: Step) -> Result:
        if isinstance(step, Pause):
            return driver.ok(step.until - driver.now)
        return driver.ok() if driver.now >= 1.6 else driver.fail()

    assert driver.send(answer) == Stored(None, is_ambiguous=False)
    assert [type(step) for step in driver.steps] == [Attempt, Attempt, Pause, Attempt]


@pytest.mark.spec("R-7")
def test_the_fast_path_attempt_is_the_first_of_the_tries(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(retry=RetryPolicy(total=1))
    flow = driver.pair.send_flow("orders", 1, Choice(), now=0.0, deadline=60.0, first=driver.fail())
    assert next(flow) == Pause(1.6)
    assert isinstance(flow.send(Result(1.6)), Attempt)
    with pytest.raises(StopIteration) as landed:
        flow.send(Result(1.7, RuntimeError("again"), driver.fail().classification))
    assert isinstance(landed.value.value, Refused)


@pytest.mark.spec("R-7", "F-40")
def test_a_busy_answer_between_two_failures_is_waited_for_and_is_no_retry(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(retry=RetryPolicy(total=2))
    answers = iter([driver.fail, lambda: driver.fail(Failure.BUSY, retry_after=10.0), driver.fail, driver.ok])
    outcome = driver.send(in_time(driver, lambda: next(answers)()))
    assert outcome == Stored(None, is_ambiguous=False)
    pauses = [step.until for step in driver.steps if isinstance(step, Pause)]
    assert pauses == [1.6, 11.6, pytest.approx(14.8)]


@pytest.mark.spec("R-7")
@pytest.mark.parametrize("failure", [Failure.CONFIGURATION, Failure.FULL, Failure.CALLER])
def test_an_error_that_is_no_outage_is_not_retried(pair_of: Callable[..., Driver], failure: Failure) -> None:
    driver = pair_of(retry=DEFAULT)
    assert isinstance(driver.send(in_time(driver, lambda: driver.fail(failure))), Refused)
    assert len(driver.steps) == 1


@pytest.mark.spec("R-7")
def test_an_operation_only_the_primary_can_do_is_retried(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of()
    flow = primary_flow(0.0, 60.0, Random(1), retry=DEFAULT)
    assert next(flow) == Attempt(None, 60.0)
    pause = flow.send(driver.fail())
    assert isinstance(pause, Pause)
    assert 0.8 <= pause.until <= 2.4
    assert flow.send(Result(1.6)) == Attempt(None, 60.0)
    with pytest.raises(StopIteration):
        flow.send(driver.ok())
    off = primary_flow(0.0, 60.0, Random(1), retry=NO_RETRIES)
    next(off)
    with pytest.raises(StopIteration):
        off.send(driver.fail())


@pytest.mark.spec("B-18")
@pytest.mark.parametrize("budget", [3.0, 6.0, 9.0])
def test_a_send_that_no_side_accepts_uses_its_whole_time(
    pair_of: Callable[..., Driver], budget: float
) -> None:
    driver = pair_of(redirects=True, retry=DEFAULT)

    def answer(step: Step) -> Result:
        return driver.ok(step.until - driver.now) if isinstance(step, Pause) else driver.fail(after=0.01)

    driver.send(answer, budget=budget)
    last = [step.until for step in driver.steps if isinstance(step, Pause)][-1]
    assert last >= 0.75 * budget
