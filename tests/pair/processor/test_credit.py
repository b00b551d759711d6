"""How many messages a processor may hold, for any handler time and lock duration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.processor.credit import MAX_BYTES, MAX_WAITING, WAIT_PART, ProcessorWindow


@pytest.mark.spec("C-12")
@given(st.integers(1, 500), st.floats(1e-5, 1000), st.floats(5, 300))
def test_a_received_message_reaches_its_handler_within_a_quarter_of_its_lock(
    calls: int, took: float, span: float
) -> None:
    window = ProcessorWindow(calls)
    window.lock_span = span
    assert window.limit == calls  # before the first handler was timed
    for _ in range(100):
        window.handled(took, 1000)
    waiting = window.limit - calls
    assert waiting * took / calls <= span * WAIT_PART * 1.001
    assert waiting <= MAX_WAITING


@pytest.mark.spec("C-12")
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), max_size=30))
def test_credit_is_granted_in_halves_and_revoked_without_room(changes) -> None:
    window = ProcessorWindow(16)
    window.handled(0.001, 100)
    credit = 0
    for used, in_hand in changes:
        credit = max(0, credit - used)
        grant = window.grant(credit, in_hand, 0)
        room = max(0, window.limit - in_hand)
        if grant is not None:
            assert grant == room
            credit = grant
        assert (credit == 0) == (room == 0) or credit > room // 2
        assert credit > 0 or room == 0


@pytest.mark.spec("C-12")
def test_large_messages_are_held_by_their_bytes() -> None:
    window = ProcessorWindow(1)
    for _ in range(200):
        window.handled(1e-6, 4 * 1024 * 1024)
    assert (window.limit - 1) * 4 * 1024 * 1024 <= MAX_BYTES


@pytest.mark.spec("C-12")
def test_stuck_handlers_leave_no_room() -> None:
    window = ProcessorWindow(4)
    window.handled(0.001, 100)
    assert window.limit > 1000
    window.running_for(120.0)
    assert window.limit == 4
    assert window.grant(credit=50, in_hand=4, settling=0) == 0
