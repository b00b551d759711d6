"""Concurrent events of a pair: every interleaving of two flows, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair import Attempt, Result, SendFlow, Step
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.events import BacklogWithdrawn, EntityFailedOver, EntityRecovered, MessageParked
from sbpair.pair.pairing.outcome import Classification, Failure, Outcome, Stored
from tests.pair.pairing.conftest import Driver, make_pair

REFUSED = Classification(Failure.UNAVAILABLE, "no answer")


class Sending:
    """A flow and its current step, or its ``outcome`` at the end."""

    def __init__(self, flow: SendFlow) -> None:
        self._flow = flow
        self.outcome: Outcome | None = None
        self.step: Step = next(flow)

    def answer(self, result: Result) -> None:
        try:
            self.step = self._flow.send(result)
        except StopIteration as landed:
            self.outcome = landed.value


def interleavings(first: int, second: int) -> Iterator[list[int]]:
    """Yield every interleaving of the steps of two flows."""
    for places in combinations(range(first + second), first):
        yield [0 if place in places else 1 for place in range(first + second)]


@pytest.mark.spec("F-67", "P-5")
@pytest.mark.parametrize("order", list(interleavings(2, 2)), ids=str)
def test_two_senders_failing_on_one_backlog_withdraw_it_once_and_both_succeed(
    pair_of: Callable[..., Driver], order: list[int]
) -> None:
    driver = pair_of(backlogs=2)
    driver.fail_over()
    both = [Sending(driver.flow(choice=Choice(0))) for _ in range(2)]
    for who in order:
        step = both[who].step
        assert isinstance(step, Attempt)
        both[who].answer(driver.fail(after=0.1) if step.backlog == 0 else driver.ok(after=0.1))
    assert [each.outcome for each in both] == [Stored(1, is_ambiguous=False)] * 2
    told = driver.pair.events()
    assert len({event.until for event in told if isinstance(event, BacklogWithdrawn)}) == 1
    assert driver.pair.rotation.available(driver.now) == [1]
    assert driver.pair.rotation.available(driver.now + 5.0) == [0, 1]  # the span of one failure


@pytest.mark.spec("F-69", "G-1")
@pytest.mark.parametrize("order", list(interleavings(1, 1)), ids=str)
def test_a_send_to_a_backlog_completes_there_although_the_entity_fails_back(
    driver: Driver, order: list[int]
) -> None:
    driver.fail_over()
    (path,) = driver.advance(1.0)
    sending = Sending(driver.flow())
    for who in order:
        if who:
            driver.pair.ping_finished(path, None, driver.now)
        else:
            sending.answer(driver.ok())
    assert isinstance(sending.outcome, Stored)
    assert sending.outcome.backlog is not None
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    assert sum(isinstance(event, MessageParked) for event in driver.pair.events()) == 1


@pytest.mark.spec("F-72", "P-32", "G-13")
@pytest.mark.parametrize("failure", [Failure.UNAVAILABLE, Failure.CONFIGURATION, Failure.BUSY, Failure.FULL])
def test_a_refused_or_lost_ping_is_followed_by_another(driver: Driver, failure: Failure) -> None:
    driver.fail_over()
    for _ in range(5):
        (path,) = driver.advance(60.0)
        driver.pair.ping_finished(path, Classification(failure, failure.value), driver.now)
        assert driver.pair.state_of("orders") is EntityState.FAILED_OVER
    driver.advance(60.0)
    assert driver.advance(60.0) == []  # one that is still under way is not doubled
    driver.pair.pings_lost()
    (path,) = driver.advance(60.0)
    driver.pair.ping_finished(path, None, driver.now)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


MOVES = ("send", "answer ok", "answer failed", "time", "ping ok", "ping refused", "hand")
walks = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 3)), max_size=60)


@pytest.mark.spec("F-68", "P-6", "G-13")
@given(walk=walks, interval=st.sampled_from([0.0, 5.0]))
def test_every_interleaving_of_sends_pings_and_timers_has_one_state_and_one_ping(
    walk: list[tuple[str, int]], interval: float
) -> None:
    driver, sends, pings = Driver(make_pair(interval=interval, ping=2.0)), [], []
    for move, which in walk:
        driver.now += 0.7
        was = driver.pair.state_of("orders")
        match move:
            case "send":
                sends.append(Sending(driver.flow()))
            case "answer ok" | "answer failed" if sends:
                sending = sends[which % len(sends)]
                sending.answer(driver.ok() if move == "answer ok" else driver.fail())
                sends = [each for each in sends if each.outcome is None]
            case "time":
                pings += driver.pair.handle_timer(driver.now)
            case "ping ok" | "ping refused" if pings:
                driver.pair.ping_finished(pings.pop(), None if move == "ping ok" else REFUSED, driver.now)
            case "hand":
                driver.pair.mark_healthy("orders", driver.now)
        assert len(pings) <= 1
        state = driver.pair.state_of("orders")
        assert (driver.pair.next_timer() is None) == (state is EntityState.HEALTHY)
        if was is EntityState.FAILED_OVER and state is not was:
            assert state is EntityState.HEALTHY
            assert move in ("ping ok", "hand")
    told = [event for event in driver.pair.events() if isinstance(event, EntityFailedOver | EntityRecovered)]
    failed = [event for event in told if isinstance(event, EntityFailedOver)]
    assert all(sending.outcome is None for sending in sends)
    if driver.pair.state_of("orders") is EntityState.FAILED_OVER:
        assert isinstance(told[-1], EntityFailedOver)
    assert len(failed) <= len(walk)
