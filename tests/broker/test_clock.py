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


def test_the_system_clock_is_that_of_the_machine():
    before = real()

    assert before <= SystemClock().now() <= real()


def test_a_manual_clock_starts_at_the_current_time_and_stands_still():
    before = real()
    clock = ManualClock()
    started = clock.now()

    assert before <= started <= real()
    assert clock.advance(5) == started + 5
    assert clock.advance(timedelta(days=1)) == started + 5 + DAY
    assert clock.now() == started + 5 + DAY


def test_a_shifted_clock_continues_from_the_set_time():
    clock = ShiftedClock()
    clock.advance(timedelta(days=1))

    assert real() + DAY - 1000 < clock.now() <= real() + DAY


@pytest.mark.parametrize("clock", [ManualClock(), ShiftedClock()])
def test_a_clock_cannot_be_set_back(clock):
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_only_a_manual_clock_has_to_be_driven():
    assert [clock.is_driven() for clock in (SystemClock(), ShiftedClock(), ManualClock())] == [
        False,
        False,
        True,
    ]


def test_a_timer_set_to_a_millisecond_is_due_at_that_millisecond():
    due = range(130_000, 131_000)
    assert [ClockReading(each / 1000, 0, 0).milliseconds for each in due] == list(due)
