"""A signal raises an exception inside a pure machine: what has to be called back still is."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import CO_GENERATOR
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import pytest

from sbpair.pair.envelope.ordering import SessionPlace
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.decide import (
    attempts,
    backlogs,
    due,
    failing_keys,
    fence,
    health,
    pair,
    pair_state,
    patience,
    primary_breaker,
    steps,
)
from sbpair.pair.pairing.decide.due import LOST_AFTER
from sbpair.pair.pairing.decide.health import EntityHealth, EntityState, HealthPolicy
from sbpair.pair.pairing.outcome import Classification, Failure
from tests.interrupts import Interrupt, at_signals, codes_of, interrupted_after

if TYPE_CHECKING:
    from conftest import Driver

AWAY = Classification(Failure.UNAVAILABLE, "away")
Act = Callable[[EntityHealth, float], object]
ACTS: dict[str, Act] = {
    "suspect": lambda entity, now: (entity.attempt_failed(now), entity.send_failed(now)),
    "recover": lambda entity, now: entity.send_succeeded(now),
    "fail over": lambda entity, now: entity.fail_over(now),
    "hold": lambda entity, now: entity.hold(now),
    "release": lambda entity, now: entity.release(now),
    "mark": lambda entity, now: entity.mark_healthy(now),
    "ping": lambda entity, now: entity.ping_accepted(now),
    "timer": lambda entity, now: entity.handle_timer(now + 100.0),
}
LIVES = [
    ["suspect", "recover", "suspect", "timer", "timer", "ping", "ping", "timer"],
    ["fail over", "timer", "ping", "ping", "suspect", "ping", "ping", "timer"],
    ["hold", "ping", "release", "timer", "ping", "ping", "timer"],
    ["suspect", "hold", "mark", "suspect", "timer", "timer"],
    ["fail over", "ping", "ping", "fail over", "ping", "hold", "release", "mark"],
]


def is_called_back(entity: EntityHealth) -> bool:
    """Whether what its state needs will be called: a timer, unless it is healthy or held."""
    needs = entity.state is not EntityState.HEALTHY and not entity._is_held
    return entity.next_timer() is not None or not needs


@pytest.mark.spec("B-16")
@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("is_by_trial", [True, False])
def test_an_entity_has_its_timer_wherever_a_transition_was_interrupted(
    life: list[str], is_by_trial: bool
) -> None:
    inside, places, broken = set(codes_of(health)), 0, []
    was_interrupted = True
    while was_interrupted:
        places += 1
        moved: dict[str, float | None] = {}
        entity = EntityHealth(
            60.0,
            60.0,
            lambda: 1.0,
            policy=HealthPolicy(returns_always=is_by_trial),
            moved=lambda at, moved=moved: moved.update(at=at),  # type: ignore[misc]
        )
        was_interrupted, left = False, list(life)
        try:
            with interrupted_after(places, inside, at_signals()):
                while left:
                    ACTS[left[0]](entity, 100.0 * (len(life) - len(left)))
                    left.pop(0)
        except Interrupt:
            was_interrupted = True
        if not is_called_back(entity):
            broken.append((places, left[0]))
        for number, act in enumerate(left[1:]):  # life goes on
            ACTS[act](entity, 1000.0 + 100.0 * number)
            if not is_called_back(entity):
                broken.append((places, act))
    assert broken == []
    assert places > 50


@pytest.mark.spec("B-16")
def test_an_entity_fails_back_wherever_a_turn_of_the_pair_was_interrupted(
    pair_of: Callable[..., Driver],
) -> None:
    inside = set(codes_of(due)) | {
        each
        for each in codes_of(pair)
        if each.co_name in ("handle_timer", "ping_finished", "_is_pinged", "next_timer")
    }
    places, was_interrupted = 0, True
    while was_interrupted:
        places += 1
        driver, was_interrupted = pair_of(ping=10.0), False
        for path in ("a", "b", "c"):
            driver.pair.fail_over(path, 0.0)
        try:
            with interrupted_after(places, inside, at_signals()):
                for path in driver.advance(15.0):
                    driver.pair.ping_finished(path, AWAY, driver.now)
                for path in driver.advance(15.0):
                    driver.pair.ping_finished(path, AWAY, driver.now)
        except Interrupt:
            was_interrupted = True
        for _ in range(int(LOST_AFTER / 10.0) + 5):
            for path in driver.advance(10.0):
                driver.pair.ping_finished(path, None, driver.now)
        states = {path: driver.pair.state_of(path) for path in ("a", "b", "c")}
        assert set(states.values()) == {EntityState.HEALTHY}, (places, states)


Machine = TypeVar("Machine")


def lives(
    make: Callable[[], Machine], acts: Sequence[Callable[[Machine], object]], of: ModuleType
) -> Iterator[Machine]:
    """A machine for each place of its acts at which it was interrupted; the acts behind that one follow."""
    inside = {each for each in codes_of(of) if not each.co_flags & CO_GENERATOR}
    places, was_interrupted = 0, True
    while was_interrupted:
        places += 1
        machine, left, was_interrupted = make(), list(acts), False
        try:
            with interrupted_after(places, inside, at_signals()):
                while left:
                    left[0](machine)
                    left.pop(0)
        except Interrupt:
            was_interrupted = True
        for act in left[1:]:
            act(machine)
        yield machine
    assert places > 10


HERE, THERE = SessionPlace(0, "here"), SessionPlace(1, "there")


class Parking:
    """A fence, what waits behind it, and the peek that was sent last, as ordered sends use them."""

    def __init__(self) -> None:
        self.fence = fence.Fence(2)
        self.waiting: Counter[SessionPlace] = Counter()
        self.peek: fence.PeekRequest | None = None
        self.is_seen_empty = False

    def park(self, place: SessionPlace) -> None:
        me = object()
        try:
            self.fence.park_began(place, me)
            self.waiting[place] += 1
        finally:
            try:
                self.fence.park_ended(place, me)
            except BaseException:
                self.fence.park_ended(place, me)
                raise

    def ask(self, place: SessionPlace, now: float) -> None:
        self.peek = self.fence.next_peek(place, now)
        self.is_seen_empty = not any(
            count
            for other, count in self.waiting.items()
            if other.queue == place.queue
            and (self.peek is None or self.peek.parked_id in (None, other.parked_id))
        )

    def hear(self) -> None:
        if self.peek is not None and self.is_seen_empty:
            self.fence.note_empty_peek(self.peek)

    def check(self) -> None:
        for place, count in self.waiting.items():
            assert not (count and self.fence.lets_pass(place)), place
        assert not (self.fence.is_open and self.waiting.total())


@pytest.mark.spec("B-16")
def test_no_session_is_reordered_or_blocked_wherever_its_fence_was_interrupted() -> None:
    acts: list[Callable[[Parking], object]] = [
        lambda each: each.ask(HERE, 0.0),
        lambda each: each.hear(),
        lambda each: each.ask(THERE, 0.0),
        lambda each: each.hear(),
        lambda each: each.ask(HERE, 2.0),
        lambda each: each.park(HERE),
        lambda each: each.hear(),  # of a peek that began before
        lambda each: each.park(THERE),
        lambda each: each.waiting.pop(HERE, None),
        lambda each: each.ask(HERE, 4.0),
        lambda each: each.hear(),
    ]

    def checked(act: Callable[[Parking], object]) -> Callable[[Parking], object]:
        return lambda each: (act(each), each.check())

    for parking in lives(Parking, list(map(checked, acts)), fence):
        parking.check()
        parking.waiting.clear()
        for now in (10.0, 12.0):
            for place in (HERE, THERE):
                parking.ask(place, now)
                parking.hear()
        parking.ask(HERE, 14.0)
        assert parking.fence.is_open


@pytest.mark.spec("B-16")
def test_all_queues_return_to_rotation_wherever_it_was_interrupted() -> None:
    acts: list[Callable[[backlogs.Rotation], object]] = [
        lambda each: each.failed(0, 0.0),
        lambda each: each.begun(0, 10.0),
        lambda each: each.failed(0, 10.0),
        lambda each: each.failed(1, 10.0),
        lambda each: each.pick(steps.Choice(), 10.0),
        lambda each: each.failed(2, 10.0),
        lambda each: each.succeeded(1, 11.0),
    ]
    for queues in lives(lambda: backlogs.Rotation(3, Random(1)), acts, backlogs):
        queues.succeeded(1, 12.0)
        assert 1 in queues.available(12.0)
        if len(queues.available(12.0)) < 3:  # not all had failed: the others end by themselves
            assert queues.available(12.0 + backlogs.MAX_QUARANTINE_SECONDS) == [0, 1, 2]
    queues = backlogs.Rotation(3, Random(1))
    for act in acts[:-1]:
        act(queues)
    for interrupted in lives(lambda: copy.deepcopy(queues), acts[-1:] * 2, backlogs):
        interrupted.succeeded(1, 12.0)
        assert interrupted.available(12.0) == [0, 1, 2]


@pytest.mark.spec("B-16")
def test_the_secondary_breaker_probes_and_closes_wherever_it_was_interrupted() -> None:
    error = OSError("away")
    acts: list[Callable[[backlogs.SideBreaker], object]] = [
        lambda each: each.failed(0, error, 0.0, is_only=True),
        lambda each: each.failed(0, error, 1.0, is_only=True),
        lambda each: each.may_ask(3.0),
        lambda each: each.failed(1, error, 3.0),
        lambda each: each.succeeded(4.0),
    ]
    for breaker in lives(lambda: backlogs.SideBreaker(Random(1)), acts, backlogs):
        if breaker.is_open:  # its success was interrupted
            assert breaker.may_ask(4.0 + 1.25 * backlogs.TRIAL_INTERVAL)
            breaker.succeeded(6.0)
        assert breaker.may_ask(6.0)
        breaker.failed(0, error, 20.0, is_only=True)
        assert not breaker.is_open, "a failure before the success counts"


@pytest.mark.spec("B-16")
def test_the_fill_level_of_a_queue_is_right_wherever_its_update_was_interrupted() -> None:
    found = {0: backlogs.BacklogSize(500, 1000, 5)}
    acts: list[Callable[[backlogs.Room], object]] = [
        lambda each: each.parked(0, 100, 0.0),
        lambda each: each.outage_ended(),
        lambda each: each.parked(0, 100, 1.0),
        lambda each: each.due(100.0),
        lambda each: each.measure(found),
    ]
    for queues in lives(lambda: backlogs.Room(Random(1)), acts, backlogs):
        queues.parked(0, 10, 200.0)
        assert queues.next_timer() is not None
        assert queues.levels()[0].size in (510, 10, 110, 210)  # found, or parked since the outage began
        queues.measure(found)
        assert queues.levels() == {0: backlogs.BacklogLevel(500, 1000, 5)}


@pytest.mark.spec("B-16")
def test_a_silence_is_noticed_wherever_an_attempt_was_interrupted() -> None:
    def attempt(learned: patience.Patience, began: float) -> None:
        waiting = patience.Waiting(learned, began)
        try:
            learned.answered(0.01, began + 0.01)
        finally:
            waiting.pause()

    acts = [partial(attempt, began=number * 0.1) for number in range(8)]
    for learned in lives(lambda: patience.Patience(10.0), acts, patience):
        for number in range(16):  # teach it what it may have missed
            learned.answered(0.01, 100.0 + number)
        for number in range(4):
            patience.Waiting(learned, 200.0 + 0.01 * number)
        assert learned.is_silent(203.0)


@pytest.mark.spec("B-16")
def test_a_pair_is_whole_once_both_sides_answer_wherever_its_state_was_interrupted() -> None:
    acts: list[Callable[[pair_state.PairState], object]] = [
        lambda each: each.refused(Side.PRIMARY, "token", 0.0),
        lambda each: each.handle_timer(1.0),
        lambda each: each.answered(Side.PRIMARY, 2.0),
    ]
    for sides in lives(pair_state.PairState, acts, pair_state):
        assert sides.is_whole == all(sides.state_of(role) is pair_state.SideState.OPEN for role in Side)
        assert sides.is_whole or sides.next_timer() is not None
        sides.answered(Side.PRIMARY, 3.0)
        assert sides.is_whole


@pytest.mark.spec("B-16")
def test_a_primary_is_asked_again_wherever_its_breaker_was_interrupted() -> None:
    acts: list[Callable[[primary_breaker.PrimaryBreaker], object]] = [
        lambda each: each.accepted(0.0, 0.1),
        lambda each: each.asked(5.0),
        lambda each: each.failed(1.0, 5.0, is_unanswered=True, is_probe=True),
        lambda each: each.busy(6.0, 1.0, is_first=True),
        lambda each: each.may_ask(8.0),
        lambda each: each.accepted(8.0, 8.1),
    ]
    for breaker in lives(
        lambda: primary_breaker.PrimaryBreaker(attempts.RecentAttempts(60.0), 10.0), acts, primary_breaker
    ):
        assert breaker.may_ask(20.0)
        breaker.accepted(20.0, 20.1)
        assert not breaker.is_half_open(200.0)


@pytest.mark.spec("B-16")
def test_a_key_set_aside_is_tried_again_wherever_its_failures_were_interrupted() -> None:
    def send(keys: failing_keys.FailingKeys, number: int) -> None:
        keys.succeeded(None, float(number))
        keys.failed("bad", OSError("away"), float(number), is_first=True)

    acts = [partial(send, number=number) for number in range(25)]
    for keys in lives(failing_keys.FailingKeys, acts, failing_keys):
        assert keys.is_aside("bad", 24.0)
        assert keys.set_aside("bad", 24.0) is not None
        assert keys.set_aside("bad", 24.0 + failing_keys.ASIDE + 1.0) is None
        keys.succeeded("bad", 60.0)
        assert not keys.is_aside("bad", 60.0)
