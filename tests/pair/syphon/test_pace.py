"""The pace for one entity: by its answers at first, evenly and carefully once it was busy or away. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

import pytest

from sbpair.pair.ground.asked_pause import LEAST, MOST, _tell_longer, asked_pause
from sbpair.pair.syphon.forward.pace import (
    BURST,
    ENOUGH,
    FAST,
    FIRST_RATE,
    FIRST_WINDOW,
    FORGOTTEN,
    HALVED_EVERY,
    LARGEST_WINDOW,
    LOWEST_RATE,
    MAX_PATHS,
    MAX_SHOWN,
    OUTAGE,
    RECOVERS_IN,
    RECOVERY,
    REMEMBERED,
    SMOOTHED,
    Pace,
    Paces,
)

pytestmark = pytest.mark.spec("H-10")


def spend(pace: Pace, start: float, seconds: float, *, accepts: bool = True) -> int:
    """Send as much as the pace allows, each message accepted at once, until it is free; return how many were sent."""
    now, sent = start, 0
    while now < start + seconds and not pace.is_free:
        for _ in range(pace.room(now, 0)):
            pace.sent(now)
            sent += 1
            if accepts:
                pace.accepted(now)
        due = pace.due(now)
        now = max(now + 1e-4, due if due < math.inf else now + 1e-3)
    return sent


def accept(pace: Pace, count: int, now: float = 0.0) -> Pace:
    for _ in range(count):
        pace.accepted(now)
    return pace


def test_each_accepted_message_allows_one_more_so_that_their_number_doubles() -> None:
    pace = Pace()
    assert (pace.is_free, pace.rate(0.0), pace.room(0.0, 0)) == (True, math.inf, FIRST_WINDOW)
    assert (pace.room(0.0, FIRST_WINDOW), pace.due(0.0)) == (0, math.inf)
    accept(pace, FIRST_WINDOW)
    assert pace.room(0.0, 0) == 2 * FIRST_WINDOW
    accept(pace, LARGEST_WINDOW)
    assert pace.room(0.0, 0) == LARGEST_WINDOW


def be_answered(pace: Pace, now: float, accepted: int, busy: int = 0) -> None:
    """Answer as many messages, the busy ones first."""
    for _ in range(busy):
        pace.was_busy(now)
    accept(pace, accepted, now)


def test_a_busy_entity_gets_half_of_its_accepted_rate_after_the_requested_pause() -> None:
    pace = accept(Pace(), 300, 10.0)
    pace.was_busy(10.2, 2.0)
    assert not pace.is_free
    assert (pace.room(12.1, 0), pace.due(11.0), pace.paused_for(11.0)) == (0, 12.2, pytest.approx(1.2))
    assert pace.rate(12.2) == 150.0
    assert pace.room(12.2, 0) == 300 * SMOOTHED  # evenly
    assert pace.paused_for(12.3) == 0.0


def test_only_messages_accepted_in_the_last_second_count() -> None:
    pace = accept(accept(Pace(), 200, 10.9), 100, 11.0)
    pace.was_busy(11.1)
    assert pace.rate(11.1) == 100.0
    pace = accept(Pace(), 200, 10.9)
    pace.was_busy(12.0)
    assert pace.rate(12.0) == FIRST_RATE / 2
    pace = accept(accept(Pace(), 200, 10.9), 60, 12.0)
    pace.was_busy(12.1)
    assert pace.rate(12.1) == 30.0


def test_a_rate_is_halved_at_most_once_a_second_after_enough_answers_down_to_the_lowest() -> None:
    pace = accept(Pace(), 400)
    for now in (0.0, 0.1, 0.9):
        pace.was_busy(now)
    assert pace.rate(0.9) == 200.0
    now = HALVED_EVERY
    for rate, busy in ((200.0, 20), (100.0, 10), (50.0, 5), (25.0, 2), (12.5, 1), (6.25, 1), (3.125, 1)):
        be_answered(pace, now, ENOUGH - 1 - busy, busy)
        assert pace.rate(now) == rate
        accept(pace, 1, now)
        pace.was_busy(now)
        now += HALVED_EVERY
    assert pace.rate(now) == LOWEST_RATE


def test_a_rate_recovers_quickly_then_slowly_near_the_busy_rate_and_then_fast() -> None:
    pace = accept(Pace(), 400)
    pace.was_busy(0.0, 2.0)
    assert pace.rate(2.0 + HALVED_EVERY) == 200.0  # until it is known whether that is slow enough
    accept(pace, ENOUGH, 2.0)
    parts = [pace.rate(2.0 + part * RECOVERS_IN) for part in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)]
    assert parts == pytest.approx([200.0, 375.0, 400.0, 425.0, 600.0, 1075.0])
    assert pace.rate(2.0 + 5 * RECOVERS_IN) == math.inf
    assert (pace.is_free, pace.room(500.0, 0)) == (True, FIRST_WINDOW)


def test_a_low_rate_recovers_sooner() -> None:
    pace = accept(Pace(), 60)
    pace.was_busy(0.0)
    accept(pace, ENOUGH, HALVED_EVERY)
    back = HALVED_EVERY + 60 * RECOVERY
    assert (pace.rate(back), back < RECOVERS_IN) == (60.0, True)
    assert pace.rate(30.0) > 60.0


def test_a_busy_entity_without_sends_is_forgotten_after_a_while() -> None:
    pace = Pace()
    pace.was_busy(0.0)
    assert pace.rate(FORGOTTEN) == FIRST_RATE / 2
    assert pace.rate(HALVED_EVERY + FORGOTTEN) == math.inf


def test_messages_of_a_paced_entity_are_sent_evenly() -> None:
    pace = accept(Pace(), 400)
    pace.was_busy(0.0)
    sent = spend(pace, 0.0, 1.0, accepts=False)
    assert 200 <= sent <= 215 + BURST
    pace = Pace(max_rate=100)
    assert spend(pace, 0.0, 1.0) <= 100 + BURST
    assert spend(pace, 1.0, 0.5) <= 50
    assert pace.room(100.0, 0) == BURST


def test_a_returning_entity_starts_slowly_and_doubles_each_second() -> None:
    pace = accept(Pace(), 10_000)
    pace.was_out_of_reach(0.0)
    assert pace.rate(0.0) == FIRST_RATE
    assert spend(pace, 0.0, 1.0) == pytest.approx(1.4 * FIRST_RATE, abs=BURST + 2)
    for second in range(1, 6):
        assert pace.rate(second) == pytest.approx(FIRST_RATE * 2**second, rel=0.25)
        assert not pace.is_free
        spend(pace, float(second), 1.0)
    spend(pace, 6.0, 1.0)
    assert pace.is_free
    assert FAST < FIRST_RATE * 2**6


def test_2200_messages_come_home_within_six_seconds_after_an_outage() -> None:
    pace = Pace()
    pace.was_out_of_reach(0.0)
    assert spend(pace, 0.0, 6.0) >= 2200


def test_an_unused_rate_does_not_grow_and_a_lower_one_stays() -> None:
    pace = Pace()
    pace.was_out_of_reach(0.0)
    assert pace.rate(100.0) == FIRST_RATE
    pace.was_busy(0.0)
    half = pace.rate(0.0)
    pace.was_out_of_reach(0.0)
    assert pace.rate(0.0) == half == FIRST_RATE / 2


def test_the_pace_after_an_outage_depends_on_the_rate_at_that_moment() -> None:
    pace, later = accept(Pace(), 400), 3 * RECOVERS_IN
    pace.was_busy(0.0)
    assert 400 < pace.rate(later) < math.inf  # it has grown far above where it was busy
    pace.was_out_of_reach(later)
    assert pace.rate(later) == FIRST_RATE
    pace = accept(Pace(), 90)
    pace.was_busy(0.0)
    pace.was_out_of_reach(0.0)
    assert pace.rate(0.0) == 45.0  # slower than that, it stays


def test_no_pace_exceeds_the_maximum() -> None:
    pace = Pace(max_rate=20)
    assert (pace.rate(0.0), pace.room(0.0, 0), pace.is_free) == (20, BURST, False)
    pace.was_out_of_reach(0.0)
    assert pace.rate(0.0) == 20
    accept(pace, 3000)
    pace.was_busy(0.0)
    assert pace.rate(100.0) == 20
    assert spend(pace, 100.0, 2.0) <= 40 + BURST


def test_the_pause_is_parsed_from_the_text_of_the_service() -> None:
    assert asked_pause("being throttled. Please wait 2 seconds and try again.") == 2.0
    assert asked_pause("please wait") is None


# --- the paces of a side


def test_a_path_has_one_pace_in_any_case() -> None:
    paces = Paces(7)
    assert paces.of("Orders", 0.0) is paces.of("orders", 1.0)
    assert paces.of("invoices", 0.0).rate(0.0) == 7
    assert paces.rates(0.0) == {"orders": 7, "invoices": 7}
    assert Paces().rates(0.0) == {}


def test_a_returning_side_makes_all_its_entities_start_slowly() -> None:
    paces = Paces()
    known = paces.of("orders", 0.0)
    paces.side_reached(1.0)
    paces.side_lost(10.0)
    paces.side_lost(11.0)
    paces.side_reached(10.0 + OUTAGE - 0.1)
    assert known.is_free
    paces.side_lost(20.0)
    paces.side_reached(20.0 + OUTAGE)
    back = 20.0 + OUTAGE
    assert known.rate(back) == paces.of("new", back).rate(back) == FIRST_RATE
    assert paces.of("later", back + REMEMBERED).is_free


def test_the_number_of_remembered_paces_is_bounded() -> None:
    paces = Paces()
    first, second = paces.of("0", 0.0), paces.of("1", 0.0)
    for number in range(2, MAX_PATHS):
        paces.of(str(number), 0.0)
    assert paces.of("0", 0.0) is first
    paces.of("one more", 0.0)
    assert paces.of("0", 0.0) is first  # used since
    assert paces.of("1", 0.0) is not second


def test_only_the_slowest_of_many_paces_are_shown_without_side_effects() -> None:
    paces = Paces()
    for number in range(MAX_SHOWN + 5):
        paces.of(f"q{number}", 0.0).was_busy(number * 0.001)
    shown = paces.rates(1.0)
    assert len(shown) == MAX_SHOWN
    assert len(paces.rates(1e6)) == MAX_SHOWN
    assert not paces.of("q0", 1e6).is_free
    assert paces.of("q0", 1e6).rate(1e6) == math.inf
    assert paces.of("q0", 1e6).is_free


# --- busy whatever it is sent, and the return to health


@dataclass
class Entity:
    """Answers *busy* to a ``share`` of the messages, and to those above ``limit`` in a second; others send ``live``."""

    share: float
    limit: int = 1_000_000
    live: float = 0.0
    rng: Random = field(default_factory=lambda: Random(11))
    answered: int = 0
    second: int = 0
    live_sent: int = 0
    live_busy: int = 0

    def is_busy(self, now: float) -> bool:
        if int(now) != self.second:
            self.second, self.answered = int(now), 0
        self.answered += 1
        return self.answered > self.limit or self.rng.random() < self.share

    def serve_others(self, now: float) -> None:
        while self.live_sent < self.live * now:
            self.live_sent += 1
            self.live_busy += self.is_busy(now)


@dataclass
class Backlog:
    """Messages on their way home through a pace; each that was busy waits by itself for the ``hint``."""

    waiting: int
    hint: float | None = 2.0
    alone: list[float] = field(default_factory=list)
    home: int = 0
    now: float = 0.0

    @property
    def left(self) -> int:
        return self.waiting + len(self.alone)

    def drain(self, pace: Pace, entity: Entity, until: float, *, parked: float = 0.0) -> None:
        """Send until a time or until none is left; ``parked`` messages per second are added meanwhile."""
        began, added = self.now, 0
        while self.now < until and (self.left or parked):
            entity.serve_others(self.now)
            while parked and added < (self.now - began) * parked:
                self.waiting, added = self.waiting + 1, added + 1
            while self.alone and self.alone[0] <= self.now:
                heappop(self.alone)
                self.waiting += 1
            room = min(self.waiting, pace.room(self.now, 0))
            self.waiting -= room
            for _ in range(room):
                pace.sent(self.now)
            for _ in range(room):
                self._answer(pace, is_busy=entity.is_busy(self.now))
            self.now += SMOOTHED

    def _answer(self, pace: Pace, *, is_busy: bool) -> None:
        if is_busy:
            pace.was_busy(self.now, self.hint)
            heappush(self.alone, self.now + (self.hint or 0.5))
        else:
            self.home += 1
            pace.accepted(self.now)


@pytest.mark.parametrize("hint", [None, 2.0, 10.0])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.67, 0.8])
def test_1200_messages_come_home_within_30_s_after_an_entity_was_busy(
    share: float, hint: float | None
) -> None:
    for seed in range(5):
        pace, backlog = Pace(), Backlog(0, hint)
        backlog.drain(pace, Entity(share, rng=Random(seed)), 60.0, parked=20.0)
        backlog.waiting += 1200 - backlog.left
        backlog.drain(pace, Entity(0.0), 60.0 + 30.0)
        assert backlog.left == 0, f"seed {seed}"


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.67])
def test_a_permanently_busy_entity_is_drained_at_half_the_rate_of_a_plain_sender(
    share: float,
) -> None:
    """Four plain senders send one message after the other, and pause for two seconds after each busy answer."""
    plain = 4 * 60.0 / 2.0 * (1 - share) / share
    homes = []
    for seed in range(7):
        backlog = Backlog(3000)
        backlog.drain(Pace(), Entity(share, rng=Random(seed)), 60.0)
        homes.append(backlog.home)
    assert sorted(homes)[3] >= plain  # the median
    assert sorted(homes)[1] >= plain / 2


@pytest.mark.spec("H-14")
@pytest.mark.parametrize(("limit", "live", "share"), [(500, 200, 0.01), (100, 20, 0.02), (100, 80, 0.03)])
def test_other_senders_are_seldom_busy_because_of_a_drain(limit: int, live: float, share: float) -> None:
    pace, backlog, entity = Pace(), Backlog(10_400), Entity(0.0, limit, live)
    pace.was_out_of_reach(0.0)
    backlog.drain(pace, entity, 90.0)
    assert entity.live_busy <= share * entity.live_sent
    assert backlog.home >= 0.6 * min(10_400, (limit - live) * 90)


@pytest.mark.spec("H-14")
def test_the_drain_does_not_take_an_entity_from_other_senders_because_it_is_always_busy() -> None:
    backlog, entity = Backlog(10_400), Entity(0.0, 100, 150.0)
    backlog.drain(Pace(), entity, 90.0)
    assert entity.live_busy <= 0.55 * entity.live_sent  # a third of theirs is busy without a drain


def test_an_entity_no_longer_always_busy_is_halved_again_when_busy() -> None:
    pace, backlog = Pace(), Backlog(100_000)
    backlog.drain(pace, Entity(0.5), 30.0)
    assert backlog.home > 100
    pace.was_out_of_reach(backlog.now)
    healthy = Entity(0.0, 500, 200.0, live_sent=int(200 * backlog.now))
    backlog.drain(pace, healthy, 130.0)
    assert healthy.live_busy <= 0.02 * 200 * 90


@pytest.mark.spec("H-40")
@pytest.mark.parametrize(("hint", "pause"), [(0.0, LEAST), (2.0, 2.0), (999_999.0, MOST)])
def test_every_pause_is_within_the_bounds(hint: float, pause: float) -> None:
    pace = Pace()
    pace.was_busy(100.0, hint)
    assert pace.paused_for(100.0) == pytest.approx(pause)
    assert asked_pause(f"Please wait {hint:.0f} seconds and try again.") == pause


@pytest.mark.spec("H-40")
def test_a_pause_above_the_maximum_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    _tell_longer.cache_clear()
    for text in ("wait 301 seconds", "wait 99999999999999999999 seconds", "wait 300 seconds"):
        assert asked_pause(text) == MOST
    (said,) = caplog.records
    assert "longer than 300 s" in said.message
