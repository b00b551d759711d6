"""The window grants credit within one lock, and counts long polls."""

from __future__ import annotations

import pytest

from sbpair.pair.client.link import runs
from sbpair.pair.syphon.forward.credit import FIRST_LIMIT, RECEIVE_SPAN, Window

DAY = 86_400.0


def idle(window: Window, until: float) -> None:
    """Run a link to an empty backlog: polls end, credit is drained and granted again."""
    now, credit = 0.0, 0
    while now < until:
        credit = window.grant(credit, 0, 0, now) or credit
        timer = window.next_timer()
        assert timer is not None
        now = timer
        if window.handle_timer(now):
            credit = 0  # drained


@pytest.mark.spec("P-41", "G-23")
def test_ten_idle_backlogs_cost_40_receives_an_hour_and_960_a_day() -> None:
    for span, receives in ((3600.0, 40), (DAY, 960), (30 * DAY, 28_800)):
        windows = [Window(500, 2000) for _ in range(10)]
        for window in windows:
            idle(window, span)
        assert sum(window.receives for window in windows) == receives


@pytest.mark.spec("P-41")
def test_topping_up_remaining_credit_starts_no_new_receive() -> None:
    window = Window(500, 2000)
    credit = window.grant(0, 0, 0, 0.0)
    assert credit == FIRST_LIMIT

    assert window.grant(FIRST_LIMIT // 2, 0, 0, 1.0) == FIRST_LIMIT
    assert window.receives == 1


@pytest.mark.spec("P-41")
def test_a_message_restarts_the_long_poll() -> None:
    window = Window(500, 2000)
    window.grant(0, 0, 0, 0.0)
    window.message_arrived(100.0)

    assert not window.handle_timer(RECEIVE_SPAN)
    assert window.handle_timer(100.0 + RECEIVE_SPAN)


@pytest.mark.spec("H-13")
def test_a_link_that_is_lost_with_messages_halves_the_limit_but_not_below_64() -> None:
    window = Window(500, 2000)
    limits = []
    for _ in range(4):
        window.link_lost(10)
        limits.append(window.limit)
    assert limits == [128, 64, 64, 64]
    window.link_lost(0)
    for _ in range(7):
        window.forwarded(0.1, 60.0)
    assert window.limit == 71
    few = Window(5, 2000)
    few.link_lost(1)
    assert few.limit == 5


def test_credit_is_topped_up_in_halves_and_not_per_message() -> None:
    window = Window(FIRST_LIMIT, 2000)
    assert window.grant(FIRST_LIMIT - 1, 0, 0, 0.0) is None
    assert window.grant(FIRST_LIMIT // 2 + 1, 0, 0, 0.0) is None
    assert window.grant(FIRST_LIMIT // 2, 0, 0, 0.0) == FIRST_LIMIT


@pytest.mark.spec("F-63")
def test_the_window_shrinks_when_forwarding_takes_a_quarter_of_a_lock_and_grows_again() -> None:
    window = Window(500, 2000)
    for _ in range(1000):
        window.forwarded(0.01, 60.0)
    assert window.limit == 500

    window.forwarded(16.0, 60.0)
    assert window.limit == 250
    for _ in range(20):
        window.forwarded(16.0, 60.0)
    assert window.limit == 1
    assert window.grant(0, 0, 0, 0.0) == 1

    window.forwarded(0.01, 60.0)
    assert window.limit == 2


@pytest.mark.spec("F-63")
def test_credit_above_a_reduced_window_is_revoked() -> None:
    window = Window(500, 2000)
    window.forwarded(59.0, 60.0)
    assert window.grant(FIRST_LIMIT, 0, 0, 0.0) == FIRST_LIMIT // 2


@pytest.mark.spec("G-21")
def test_held_messages_leave_room_for_others_up_to_a_limit() -> None:
    window = Window(10, 40)
    assert window.room(active=0, held=10) == 10
    assert window.room(active=0, held=35) == 5
    assert window.room(active=0, held=40) == 0
    assert window.room(active=10, held=0) == 0


@pytest.mark.spec("F-63")
def test_messages_waiting_only_for_the_backlogs_answer_have_as_much_room_again() -> None:
    window = Window(10, 40)
    assert window.room(active=0, held=0, settling=10) == 10
    assert window.room(active=4, held=0, settling=10) == 6
    assert window.room(active=0, held=0, settling=17) == 3
    assert window.room(active=0, held=0, settling=20) == 0


def test_consecutive_delivery_ids_are_one_run() -> None:
    assert list(runs([5, 3, 4, 9, 7, 8, 1])) == [(1, 1), (3, 5), (7, 9)]
    assert list(runs([])) == []
    assert list(runs([0])) == [(0, 0)]
    assert list(runs([2**32 - 1, 0])) == [(0, 0), (2**32 - 1, 2**32 - 1)]
