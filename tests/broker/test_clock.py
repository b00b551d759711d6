"""The clocks of the entities: real, manual and shifted."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from sbpair.broker import ManualClock, ShiftedClock, SystemClock
from sbpair.broker.clock import ClockReading

DAY = 86_400_000


def real():
    return time.time_ns() // 1_000_000


def test_the_systems_clock_is_the_machines():
    before = real()

    assert before <= SystemClock().now() <= real()


def test_a_manual_clock_starts_at_the_real_now_and_stands():
    before = real()
    clock = ManualClock()
    started = clock.now()

    assert before <= started <= real()
    assert clock.advance(5) == started + 5
    assert clock.advance(timedelta(days=1)) == started + 5 + DAY
    assert clock.now() == started + 5 + DAY


def test_a_shifted_clock_runs_on_from_where_it_was_set():
    clock = ShiftedClock()
    clock.advance(timedelta(days=1))

    assert real() + DAY - 1000 < clock.now() <= real() + DAY


@pytest.mark.parametrize("clock", [ManualClock(), ShiftedClock()])
def test_no_clock_is_turned_back(clock):
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_only_a_manual_clock_waits_to_be_driven():
    assert [clock.is_driven() for clock in (SystemClock(), ShiftedClock(), ManualClock())] == [
        False,
        False,
        True,
    ]


def test_a_timer_that_rings_at_a_millisecond_is_due_at_it():
    due = range(130_000, 131_000)
    assert [ClockReading(each / 1000, 0, 0).milliseconds for each in due] == list(due)
