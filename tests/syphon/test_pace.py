"""The pace for one entity: by its answers at first, evenly and carefully once it was busy or away. Pure."""

from __future__ import annotations

import math

import pytest

from sbpair.asked_pause import asked_pause
from sbpair.syphon.pace import (
    BURST,
    FAST,
    FIRST_RATE,
    FIRST_WINDOW,
    HALVED_EVERY,
    LARGEST_WINDOW,
    LOWEST_RATE,
    RECOVERS_IN,
    Pace,
)
from sbpair.syphon.paces import MAX_PATHS, MAX_SHOWN, OUTAGE, REMEMBERED, Paces

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


def test_each_accepted_message_makes_room_for_one_more_so_that_their_number_doubles() -> None:
    pace = Pace()
    assert (pace.is_free, pace.rate(0.0), pace.room(0.0, 0)) == (True, math.inf, FIRST_WINDOW)
    assert (pace.room(0.0, FIRST_WINDOW), pace.due(0.0)) == (0, math.inf)
    accept(pace, FIRST_WINDOW)
    assert pace.room(0.0, 0) == 2 * FIRST_WINDOW
    accept(pace, LARGEST_WINDOW)
    assert pace.room(0.0, 0) == LARGEST_WINDOW


def test_a_busy_entity_gets_half_of_what_it_accepted_after_the_pause_that_it_asked_for() -> None:
    pace = accept(Pace(), 300, 10.0)
    pace.was_busy(10.2, 2.0)
    assert not pace.is_free
    assert (pace.room(12.1, 0), pace.due(11.0), pace.paused_for(11.0)) == (0, 12.2, pytest.approx(1.2))
    assert pace.rate(12.2) == 150.0
    assert pace.room(12.2, 0) == BURST
    assert pace.paused_for(12.3) == 0.0


def test_what_was_accepted_in_the_second_before_counts_and_nothing_older() -> None:
    pace = accept(accept(Pace(), 200, 10.9), 100, 11.0)
    pace.was_busy(11.1)
    assert pace.rate(11.1) == 100.0
    pace = accept(Pace(), 200, 10.9)
    pace.was_busy(12.0)
    assert pace.rate(12.0) == FIRST_RATE / 2
    pace = accept(accept(Pace(), 200, 10.9), 60, 12.0)
    pace.was_busy(12.1)
    assert pace.rate(12.1) == 30.0


def test_a_rate_is_halved_at_most_once_a_second_and_not_below_the_lowest() -> None:
    pace = accept(Pace(), 400)
    for now in (0.0, 0.1, 0.9):
        pace.was_busy(now)
    assert pace.rate(0.9) == 200.0
    pace.was_busy(HALVED_EVERY)
    assert pace.rate(HALVED_EVERY) == pytest.approx(100.0, rel=0.01)
    for second in range(2, 20):
        pace.was_busy(float(second))
    assert pace.rate(19.0) == LOWEST_RATE


def test_a_rate_grows_back_quickly_then_slowly_near_where_it_was_busy_and_then_fast_again() -> None:
    pace = accept(Pace(), 400)
    pace.was_busy(0.0, 2.0)
    parts = [pace.rate(2.0 + part * RECOVERS_IN) for part in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)]
    assert parts == pytest.approx([200.0, 375.0, 400.0, 425.0, 600.0, 1075.0])
    assert pace.rate(2.0 + 5 * RECOVERS_IN) == math.inf
    assert (pace.is_free, pace.room(500.0, 0)) == (True, FIRST_WINDOW)


def test_messages_of_a_paced_entity_are_sent_evenly() -> None:
    pace = accept(Pace(), 400)
    pace.was_busy(0.0)
    sent = spend(pace, 0.0, 1.0, accepts=False)
    assert 200 <= sent <= 215 + BURST
    pace = Pace(max_rate=100)
    assert spend(pace, 0.0, 1.0) <= 100 + BURST
    assert spend(pace, 1.0, 0.5) <= 50
    assert pace.room(100.0, 0) == BURST


def test_an_entity_that_comes_back_begins_slowly_and_doubles_each_second() -> None:
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


def test_a_rate_that_is_not_used_does_not_grow_and_a_slower_one_stays() -> None:
    pace = Pace()
    pace.was_out_of_reach(0.0)
    assert pace.rate(100.0) == FIRST_RATE
    pace.was_busy(0.0)
    half = pace.rate(0.0)
    pace.was_out_of_reach(0.0)
    assert pace.rate(0.0) == half == FIRST_RATE / 2


def test_an_outage_is_judged_by_the_rate_of_its_moment() -> None:
    pace, later = Pace(), 4 * RECOVERS_IN
    pace.was_busy(0.0)
    assert 4 * FIRST_RATE < pace.rate(later) < math.inf  # it has grown far above where it was busy
    pace.was_out_of_reach(later)
    assert pace.rate(later) == FIRST_RATE
    pace = accept(Pace(), 90)
    pace.was_busy(0.0)
    pace.was_out_of_reach(0.0)
    assert pace.rate(0.0) == 45.0  # slower than that, it stays


def test_no_pace_is_above_the_maximum() -> None:
    pace = Pace(max_rate=20)
    assert (pace.rate(0.0), pace.room(0.0, 0), pace.is_free) == (20, BURST, False)
    pace.was_out_of_reach(0.0)
    assert pace.rate(0.0) == 20
    accept(pace, 3000)
    pace.was_busy(0.0)
    assert pace.rate(100.0) == 20
    assert spend(pace, 100.0, 2.0) <= 40 + BURST


def test_the_service_names_the_pause_in_its_text() -> None:
    assert asked_pause("being throttled. Please wait 2 seconds and try again.") == 2.0
    assert asked_pause("please wait") is None


# --- the paces of a side


def test_a_path_has_one_pace_whatever_its_case() -> None:
    paces = Paces(7)
    assert paces.of("Orders", 0.0) is paces.of("orders", 1.0)
    assert paces.of("invoices", 0.0).rate(0.0) == 7
    assert paces.rates(0.0) == {"orders": 7, "invoices": 7}
    assert Paces().rates(0.0) == {}


def test_a_side_that_was_away_makes_all_its_entities_begin_slowly() -> None:
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


def test_only_so_many_paths_have_a_pace() -> None:
    paces = Paces()
    first, second = paces.of("0", 0.0), paces.of("1", 0.0)
    for number in range(2, MAX_PATHS):
        paces.of(str(number), 0.0)
    assert paces.of("0", 0.0) is first
    paces.of("one more", 0.0)
    assert paces.of("0", 0.0) is first  # used since
    assert paces.of("1", 0.0) is not second


def test_of_many_paces_the_slowest_are_shown_and_showing_them_changes_nothing() -> None:
    paces = Paces()
    for number in range(MAX_SHOWN + 5):
        paces.of(f"q{number}", 0.0).was_busy(number * 0.001)
    shown = paces.rates(1.0)
    assert len(shown) == MAX_SHOWN
    assert len(paces.rates(1e6)) == MAX_SHOWN
    assert not paces.of("q0", 1e6).is_free
    assert paces.of("q0", 1e6).rate(1e6) == math.inf
    assert paces.of("q0", 1e6).is_free
