"""The remaining time of a lock, when the clocks of the broker and this machine differ."""

from __future__ import annotations

import pytest

from sbpair.pair.client.locks import DEFAULT_LOCK, LockClock

SKEWS = pytest.mark.parametrize("skew", [-300.0, -90.0, -20.0, 0.0, 90.0, 300.0, 86_400.0])
NOW = 1_000_000.0


@SKEWS
def test_the_first_locks_of_a_link_are_fresh_whatever_the_clocks_say(skew: float) -> None:
    clock = LockClock()
    ends = NOW + skew + DEFAULT_LOCK
    assert clock.left(ends, NOW + 0.01, NOW) >= 5
    assert clock.left(ends, NOW + 0.02, NOW) >= 4.9


@SKEWS
@pytest.mark.spec("F-66")
def test_a_lock_that_expired_during_sleep_is_checked_and_a_new_one_is_not(skew: float) -> None:
    clock = LockClock()
    ends = NOW + skew + DEFAULT_LOCK
    assert clock.left(ends, NOW, NOW) > 0
    woken = NOW + DEFAULT_LOCK + 1
    assert clock.left(ends + 1, woken, NOW) == 0
    assert clock.left(woken + skew + DEFAULT_LOCK, woken, NOW) > 0


def test_a_first_lock_that_may_be_as_old_as_its_link_is_asked_about() -> None:
    clock = LockClock()
    assert clock.left(NOW + 900, NOW + 600, NOW) == 0
    assert clock.renewed(NOW + 900, NOW + 600) == DEFAULT_LOCK
    assert clock.left(NOW + 901, NOW + 601, NOW) == DEFAULT_LOCK


@pytest.mark.parametrize("step", [-400.0, 400.0])
def test_a_clock_change_costs_at_most_one_lock_check(step: float) -> None:
    clock = LockClock()
    assert clock.left(NOW + DEFAULT_LOCK, NOW, NOW) == DEFAULT_LOCK
    ours = NOW + 1 + step
    asks = clock.left(NOW + 1 + DEFAULT_LOCK, ours, NOW) == 0
    assert asks is (step > 0)
    clock.renewed(NOW + 1 + DEFAULT_LOCK, ours)
    assert clock.left(NOW + 2 + DEFAULT_LOCK, ours + 1, NOW) == DEFAULT_LOCK


def test_a_short_lock_is_recognised_and_a_long_one_is_trusted_for_a_minute() -> None:
    for lock, trusted in ((5.0, 5.0), (30.0, 30.0), (60.0, 60.0), (300.0, 60.0)):
        clock = LockClock()
        assert clock.left(NOW + lock, NOW, NOW) == trusted


def test_a_clock_difference_beyond_any_lock_is_reported() -> None:
    for skew, difference in ((0.0, None), (200.0, None), (300.0, 300.0), (-90.0, -90.0)):
        clock = LockClock()
        clock.left(NOW + skew + DEFAULT_LOCK, NOW, NOW)
        assert clock.difference == difference


def test_a_learned_clock_offset_can_be_forgotten() -> None:
    clock = LockClock()
    clock.renewed(NOW + 60, NOW + 600)
    clock.forget()
    assert (clock.span, clock.difference) == (DEFAULT_LOCK, None)


def test_a_lock_older_than_the_newest_has_correspondingly_less_time_left() -> None:
    clock = LockClock()
    assert clock.left(NOW + DEFAULT_LOCK, NOW, NOW) == DEFAULT_LOCK
    assert clock.left(NOW + DEFAULT_LOCK, NOW + 0.5, NOW) == DEFAULT_LOCK - 0.5
    assert (
        clock.left(NOW + DEFAULT_LOCK, NOW + 0.25, NOW) == DEFAULT_LOCK - 0.25
    )  # the newest is still the first
    assert clock.left(NOW + DEFAULT_LOCK, NOW + DEFAULT_LOCK / 2, NOW) == DEFAULT_LOCK / 2
    assert clock.left(NOW + DEFAULT_LOCK, NOW + DEFAULT_LOCK / 2 + 0.5, NOW) == 0.0
