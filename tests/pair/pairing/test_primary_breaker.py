"""The breaker of a primary entity: where failing is dear one send at a time asks, and the others are parked."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sbpair.pair.pairing.decide.attempts import RecentAttempts
from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair import Attempt, Pause, Result, SendFlow, Step
from sbpair.pair.pairing.decide.primary_breaker import PrimaryBreaker
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.events import SendRaised
from sbpair.pair.pairing.outcome import Classification, Failure, Outcome, Refused, Stored

if TYPE_CHECKING:
    from conftest import Driver

pytestmark = pytest.mark.spec("A-3")


class Entity:
    """A breaker, and the attempts that the health of its entity would record."""

    def __init__(self, longest: float = 4.0) -> None:
        self.attempts = RecentAttempts(60.0)
        self.breaker = PrimaryBreaker(self.attempts, longest)

    def teach(self) -> None:
        """Let it answer twenty messages fast."""
        for tenth in range(20):
            self.accepted(8.0 + tenth / 10)

    def accepted(self, now: float, count: int = 1) -> None:
        for _ in range(count):
            self.attempts.succeeded(now)
            self.breaker.patience.answered(0.02, now)
            self.breaker.accepted(now - 0.02, now)

    def rejected(self, now: float, count: int = 1) -> None:
        for _ in range(count):
            is_probe = self.is_half_open(now - 0.02)
            self.attempts.failed(now)
            self.breaker.failed(now - 0.02, now, is_unanswered=False, is_probe=is_probe)

    def unanswered(self, now: float, took: float = 0.5) -> None:
        is_probe = self.is_half_open(now - took)
        self.attempts.failed(now)
        self.breaker.failed(now - took, now, is_unanswered=True, is_probe=is_probe)

    def busy(self, now: float, *, pause: float = 0.0, is_first: bool = True) -> None:
        self.breaker.patience.answered(0.02, now)
        self.breaker.busy(now, pause, is_first=is_first)

    def is_half_open(self, now: float) -> bool:
        return self.breaker.is_half_open(now)


@pytest.fixture
def entity() -> Entity:
    return Entity()


def test_an_unknown_entity_is_asked(entity: Entity) -> None:
    assert not entity.is_half_open(0.0)
    assert entity.breaker.may_ask(0.0)
    assert entity.breaker.is_clean(0.0)


# --- what opens it


def test_after_one_unanswered_attempt_one_send_probes_and_others_are_parked(
    entity: Entity,
) -> None:
    entity.accepted(10.0, 20)
    entity.unanswered(10.6)
    assert entity.is_half_open(10.6)
    assert entity.breaker.may_ask(10.6)
    entity.breaker.asked(11.1)
    assert not entity.breaker.may_ask(11.0)


def test_after_an_unanswered_probe_others_are_parked_until_a_second_after_it_began(entity: Entity) -> None:
    entity.accepted(10.0, 20)
    entity.unanswered(10.6)
    entity.unanswered(11.2)
    assert not entity.breaker.may_ask(11.6)
    assert entity.breaker.may_ask(11.7)


def test_after_a_probe_longer_than_a_second_the_next_send_probes_at_once(entity: Entity) -> None:
    entity.unanswered(5.0)
    entity.unanswered(10.0, took=3.0)
    assert entity.breaker.may_ask(10.0)


def test_an_unanswered_attempt_while_others_are_answered_opens_no_breaker(entity: Entity) -> None:
    entity.accepted(10.0, 20)
    entity.accepted(10.3)
    entity.unanswered(10.5)
    assert not entity.is_half_open(10.5)
    assert entity.breaker.may_ask(10.5)


@pytest.mark.parametrize(("accepted", "opens"), [(0, True), (6, True), (7, False), (40, False)])
def test_up_to_a_tenth_of_attempts_plus_one_may_be_unanswered(
    entity: Entity, accepted: int, opens: bool
) -> None:
    entity.accepted(10.0, accepted)
    entity.unanswered(10.3)
    entity.accepted(10.4)
    assert not Entity.is_half_open(entity, 10.4)
    entity.unanswered(10.5)
    assert entity.is_half_open(10.5) is opens


@pytest.mark.parametrize(("accepted", "opens"), [(0, True), (5, True), (6, False), (40, False)])
def test_up_to_a_fifth_of_attempts_plus_two_may_be_busy(entity: Entity, accepted: int, opens: bool) -> None:
    entity.accepted(10.0, accepted)
    for _ in range(2):
        entity.busy(10.0)
    assert not entity.is_half_open(10.0)
    entity.busy(10.0)
    assert entity.is_half_open(10.0) is opens


def test_only_the_first_answer_of_a_repeatedly_busy_send_counts(entity: Entity) -> None:
    for again in range(10):
        entity.busy(10.0 + again, is_first=again == 0)
    assert not entity.is_half_open(20.0)


@pytest.mark.parametrize(("accepted", "opens"), [(0, True), (23, True), (24, False), (200, False)])
def test_up_to_a_fifth_of_attempts_plus_five_may_be_rejected(
    entity: Entity, accepted: int, opens: bool
) -> None:
    entity.accepted(10.0, accepted)
    entity.rejected(10.0, 5)
    assert not entity.is_half_open(10.0)
    entity.rejected(10.0)
    assert entity.is_half_open(10.0) is opens


def test_waiting_sends_park_later_ones_before_the_first_has_failed(entity: Entity) -> None:
    entity.teach()
    entity.accepted(10.6)
    entity.breaker.patience.waiting.update(dict.fromkeys((10.7, 10.71, 10.72)))
    assert entity.breaker.may_ask(10.8)
    assert not entity.breaker.may_ask(11.2)
    assert not entity.is_half_open(11.2)


# --- who asks while it is half open


def test_only_one_send_probes_at_a_time(entity: Entity) -> None:
    entity.unanswered(10.0)
    assert entity.breaker.may_ask(11.0)
    entity.breaker.asked(15.0)
    assert not entity.breaker.may_ask(14.9)
    assert entity.breaker.may_ask(15.0)


def test_after_a_rejected_probe_the_next_starts_a_second_after_it_began(entity: Entity) -> None:
    entity.rejected(10.0, 6)
    assert entity.breaker.may_ask(10.0)
    entity.rejected(10.5)
    assert not entity.breaker.may_ask(11.47)
    assert entity.breaker.may_ask(11.48)


def test_after_an_accepted_probe_the_next_starts_a_second_after_it_began(entity: Entity) -> None:
    entity.rejected(10.0, 6)
    assert entity.is_half_open(10.5)
    entity.accepted(11.0)
    assert entity.is_half_open(11.0)
    assert not entity.breaker.may_ask(11.97)
    assert entity.breaker.may_ask(11.98)


@pytest.mark.parametrize(("pause", "until"), [(0.0, 11.0), (0.9, 11.0), (5.0, 15.0)])
def test_after_a_busy_probe_the_next_starts_after_the_pause_and_at_least_a_second(
    entity: Entity, pause: float, until: float
) -> None:
    for _ in range(3):
        entity.busy(10.0, pause=pause)
    assert not entity.breaker.may_ask(until - 0.01)
    assert entity.breaker.may_ask(until)


def test_each_further_unanswered_probe_doubles_the_wait(entity: Entity) -> None:
    entity.teach()
    waits = [entity.breaker.seconds()]
    for second in range(5):
        entity.unanswered(11.0 + second)
        waits.append(entity.breaker.seconds())
    assert waits == [0.5, 0.5, 1.0, 2.0, 4.0, 4.0]
    entity.accepted(15.5)
    assert entity.breaker.seconds() == 0.5


def test_after_a_busy_answer_the_wait_is_the_initial_one(entity: Entity) -> None:
    entity.teach()
    for _ in range(3):
        entity.unanswered(11.0)
    assert entity.breaker.seconds() == 2.0
    entity.busy(12.0)
    assert entity.breaker.seconds() == 0.5


def test_the_longest_wait_is_configured() -> None:
    assert Entity(longest=10.0).breaker.seconds() == 7.5


# --- what closes it


def test_one_accepted_attempt_closes_the_breaker_only_if_hardly_any_other_failed(entity: Entity) -> None:
    entity.unanswered(10.6)
    assert entity.is_half_open(10.6)
    entity.accepted(11.2)
    assert not entity.is_half_open(11.2)
    entity.unanswered(11.8)
    assert entity.is_half_open(11.8)
    entity.accepted(12.4)
    assert entity.is_half_open(12.4)


def test_the_share_of_accepted_probes_closes_the_breaker(entity: Entity) -> None:
    entity.unanswered(10.0)
    entity.unanswered(10.0)
    assert entity.is_half_open(10.0)
    entity.accepted(11.0, 17)
    assert entity.is_half_open(11.0)
    entity.accepted(12.0)
    assert not entity.is_half_open(12.0)


def test_a_failure_hardly_counts_after_15_seconds_and_is_forgotten_in_a_minute(entity: Entity) -> None:
    entity.unanswered(10.0)
    entity.unanswered(10.0)
    assert entity.is_half_open(10.0)
    entity.accepted(11.0)
    assert entity.is_half_open(17.9)
    assert not entity.is_half_open(24.0)
    assert not entity.breaker.is_clean(24.0)
    entity.accepted(80.0)
    assert entity.breaker.is_clean(80.0)


def test_a_breaker_that_remembers_a_failure_is_not_clean(entity: Entity) -> None:
    entity.busy(10.0)
    assert not entity.breaker.is_clean(10.0)
    other = Entity()
    other.unanswered(10.0)
    assert not other.breaker.is_clean(10.0)
    assert not other.breaker.is_clean(300.0)  # nothing was answered since
    other.accepted(301.0)
    assert other.breaker.is_clean(301.0)


def test_a_healthy_entity_is_asked_at_once_and_nothing_is_stored(
    entity: Entity,
) -> None:
    entity.unanswered(10.0)
    for _ in range(3):
        entity.busy(10.0, pause=60.0)
    entity.unanswered(10.1)
    assert not entity.breaker.may_ask(10.1)
    entity.breaker.reset()
    assert not entity.is_half_open(10.1)
    assert entity.breaker.may_ask(10.1)
    assert entity.breaker.is_clean(10.1)
    assert entity.breaker.seconds() == 3.0
    entity.rejected(10.2, 6)  # half open again, and not because of what was
    assert entity.is_half_open(10.2)


# --- the flow that asks it


def is_primary(step: Step) -> bool:
    return isinstance(step, Attempt) and step.backlog is None


def unanswered(driver: Driver, step: Step) -> Result:
    """The result of an attempt that was given up when its time was over."""
    assert isinstance(step, Attempt)
    return driver.fail(after=step.until - driver.now, is_ambiguous=True)


@pytest.mark.parametrize(("kind", "most"), [("rejected", 0.10), ("unanswered", 0.20)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_failure_rate_of_one_in_twenty_parks_few_messages_needlessly(
    pair_of: Callable[..., Driver], kind: str, most: float, seed: int
) -> None:
    """Four senders make up to five sends a second each, for ten minutes."""
    pair, rng = pair_of(redirects=True).pair, random.Random(seed)

    def answer(step: Step, now: float) -> Result:
        assert isinstance(step, Attempt)
        if step.backlog is not None or rng.random() >= 0.05:
            return Result(now + 0.02)
        at = step.until if kind == "unanswered" else now + 0.02
        return Result(at, ConnectionError(kind), Classification(Failure.UNAVAILABLE, kind))

    def flow(now: float) -> SendFlow:
        return pair.send_flow("orders", 1, Choice(), now=now, deadline=now + 60.0)

    outcomes: list[Outcome] = []
    turns: list[tuple[float, int, float, SendFlow, Result | None]] = []
    turns += [(each / 20, each, each / 20, flow(each / 20), None) for each in range(4)]
    while turns[0][0] < 600:  # the turn that is due first: its sender, and when its send began
        now, sender, began, sending, result = heapq.heappop(turns)
        try:
            result = answer(sending.send(result), now)
            heapq.heappush(turns, (result.now, sender, began, sending, result))
        except StopIteration as ended:
            outcomes.append(ended.value)
            again = max(now, began + 0.2)
            heapq.heappush(turns, (again, sender, again, flow(again), None))
    parked = [each for each in outcomes if isinstance(each, Stored) and each.backlog is not None]
    assert all(isinstance(each, Stored) for each in outcomes)
    assert 0.04 * len(outcomes) < len(parked) <= most * len(outcomes)
    assert pair.state_of("orders") is not EntityState.FAILED_OVER


@pytest.mark.spec("A-1", "A-2", "B-2")
def test_an_unanswered_send_is_parked_and_not_sent_to_the_primary_again(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True, retry=RetryPolicy())
    outcome = driver.send(lambda step: unanswered(driver, step) if is_primary(step) else driver.ok())
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert outcome.is_ambiguous
    first, second = driver.steps
    assert isinstance(first, Attempt)
    assert (first.until, first.link_by) == (3.0, 4.0)  # nothing is learned yet
    assert isinstance(second, Attempt)


@pytest.mark.spec("A-1", "A-2")
def test_during_silence_one_send_per_second_probes_and_all_are_parked(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True)
    for _ in range(20):
        driver.primary(lambda: driver.ok(0.02))
    asked: list[Attempt] = []
    for _ in range(200):
        outcome = driver.send(lambda step: unanswered(driver, step) if is_primary(step) else driver.ok(0.01))
        assert isinstance(outcome, Stored)
        assert outcome.backlog is not None
        asked += [step for step in driver.steps if isinstance(step, Attempt) and step.backlog is None]
        driver.now += 0.04
    assert [step.is_over_idle for step in asked[:2]] == [False, True]
    assert len(asked) <= 2 + driver.now


@pytest.mark.spec("A-2", "P-3", "P-4", "G-12")
@pytest.mark.parametrize("retry", [RetryPolicy(total=0), RetryPolicy()])
def test_with_the_raising_policy_attempts_are_bounded_and_failover_follows_after_one_interval(
    pair_of: Callable[..., Driver], retry: RetryPolicy
) -> None:
    driver = pair_of(interval=60.0, retry=retry)

    def answer(step: Step) -> Result:
        if isinstance(step, Pause):
            driver.now = step.until
            return driver.ok()
        return unanswered(driver, step)

    assert isinstance(driver.send(answer), Refused)
    assert [step.until - at for step, at in timed(driver)[:2]] == pytest.approx(
        [10.0] * (1 + min(retry.total, 1))
    )
    driver.advance(max(69.9 - driver.now, 0.0))
    assert driver.pair.state_of("orders") is EntityState.SUSPECT
    driver.advance(0.1)
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER


def timed(driver: Driver) -> list[tuple[Attempt, float]]:
    """The attempts, and when each began: when the step before it had ended."""
    begins = [0.0, *(step.until for step in driver.steps if isinstance(step, (Attempt, Pause)))]
    return [
        (step, begun) for step, begun in zip(driver.steps, begins, strict=False) if isinstance(step, Attempt)
    ]


@pytest.mark.spec("A-4", "F-40")
def test_a_busy_primary_is_waited_for_as_with_the_raising_policy_or_its_message_is_parked(
    pair_of: Callable[..., Driver],
) -> None:
    """Under ``raise`` a send of 5 s gives up after 4; parked, it need not be."""
    driver = pair_of(redirects=True)

    def answer(step: Step) -> Result:
        if isinstance(step, Pause):
            driver.now = step.until
            return driver.ok()
        return driver.fail(Failure.BUSY, retry_after=1.0) if is_primary(step) else driver.ok()

    outcome = driver.send(answer, budget=5.0)
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert driver.now == 3.0  # another pause would be over two thirds of the time
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    assert not [event for event in driver.pair.events() if isinstance(event, SendRaised)]


@pytest.mark.spec("A-4", "F-40")
@pytest.mark.parametrize(("budget", "until"), [(3.0, 2.0), (60.0, 4.0)])
def test_a_busy_primary_is_waited_for_two_thirds_of_the_time_and_at_most_four_seconds(
    pair_of: Callable[..., Driver], budget: float, until: float
) -> None:
    for hint, waits in ((until, True), (until + 0.01, False)):
        driver = pair_of(redirects=True)
        answers = iter([driver.fail(Failure.BUSY, retry_after=hint), *[Result(hint)] * 2])
        outcome = driver.send(lambda _, left=answers: next(left), budget=budget)
        assert isinstance(outcome, Stored)
        assert (outcome.backlog is None) is waits


@pytest.mark.spec("A-1", "A-4", "R-7")
def test_a_message_no_backlog_accepts_gets_the_remaining_time_on_the_primary(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True, backlogs=1)
    busy = driver.fail(Failure.BUSY, retry_after=2.4)

    def answer(step: Step) -> Result:
        if isinstance(step, Pause):
            driver.now = step.until
            return driver.ok()
        if not is_primary(step):
            failed = driver.fail()
            assert failed.classification is not None
            return failed._replace(classification=failed.classification._replace(is_of_side=True))
        return busy if driver.now == 0.0 else driver.ok()

    assert driver.send(answer, budget=2.5) == Stored(None, is_ambiguous=False)
    last = driver.steps[-1]
    assert isinstance(last, Attempt)
    assert last.until == 2.5


@pytest.mark.spec("A-4")
def test_a_rejecting_entity_is_not_silent(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(redirects=True)
    for _ in range(20):
        driver.primary(driver.ok)
        driver.now += 0.1
    flows = []
    for _ in range(5):
        flows.append(driver.flow())
        next(flows[-1])
        driver.now += 0.04
    driver.now += 0.1
    parked = next(driver.flow())
    assert isinstance(parked, Attempt)
    assert parked.backlog is not None
    with pytest.raises(StopIteration) as refused:
        flows.pop().send(driver.fail(Failure.CONFIGURATION))
    assert isinstance(refused.value.value, Refused)
    step = next(driver.flow())
    assert isinstance(step, Attempt)
    assert step.backlog is None


def test_a_failure_share_that_keeps_returning_takes_longer_to_be_trusted(entity: Entity) -> None:
    now, spans = 100.0, []
    for _ in range(3):
        for _ in range(3):
            entity.busy(now)
        assert entity.is_half_open(now)
        began = now
        while entity.is_half_open(now):
            now += 1.0
            entity.accepted(now, 2)
        spans.append(now - began)
        now += 13.0  # what failed no longer decides
    assert spans[0] < 12.0 <= spans[1] < 24.0 <= spans[2] <= 30.0
