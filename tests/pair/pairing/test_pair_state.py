"""When a closed or faulted side ends the other (P-50, G-25, R-1), with time as an argument."""

from __future__ import annotations

import itertools

import pytest

from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.decide.pair_state import PairFault, PairState, SideChange, SideState

P, S = Side.PRIMARY, Side.SECONDARY
WHY = "the credential was refused"


@pytest.mark.spec("P-50", "G-25")
@pytest.mark.parametrize("role", Side)
def test_a_partner_that_does_not_follow_a_close_is_faulted_after_five_seconds(role: Side) -> None:
    pair_state = PairState()
    assert pair_state.closed(role, 100.0) == [SideChange(role, SideState.CLOSED, "close() was called")]
    assert pair_state.next_timer() == 105.0
    assert pair_state.handle_timer(104.9) == []
    assert pair_state.fault is None
    pair_state.handle_timer(105.1)
    assert pair_state.fault == PairFault(role, SideState.CLOSED, "close() was called")
    assert role.partner in str(pair_state.fault)
    assert pair_state.next_timer() is None


@pytest.mark.spec("P-50", "G-25")
@pytest.mark.parametrize("role", Side)
def test_in_strict_mode_a_side_refused_for_five_seconds_faults_the_pair(role: Side) -> None:
    pair_state = PairState(faults_on_refusal=True)
    assert pair_state.refused(role, WHY, 100.0) == [SideChange(role, SideState.REFUSED, WHY)]
    pair_state.handle_timer(104.9)
    assert pair_state.fault is None
    pair_state.handle_timer(105.1)
    assert pair_state.fault == PairFault(role, SideState.REFUSED, WHY)


@pytest.mark.spec("R-87")
@pytest.mark.parametrize("role", Side)
def test_a_fault_closes_both_sides(role: Side) -> None:
    pair_state = PairState(faults_on_refusal=True)
    pair_state.refused(role, WHY, 0.0)
    assert pair_state.state_of(role.partner) is SideState.OPEN
    pair_state.handle_timer(5.0)
    assert (pair_state.state_of(role), pair_state.cause_of(role)) == (SideState.REFUSED, WHY)
    assert pair_state.state_of(role.partner) is SideState.CLOSED
    assert pair_state.cause_of(role.partner) == f"the pair is faulted: {pair_state.fault}"


@pytest.mark.spec("P-50")
def test_a_partner_that_closes_in_time_ends_the_pair_without_a_fault() -> None:
    pair_state = PairState()
    pair_state.closed(P, 0.0)
    assert not pair_state.is_over
    pair_state.closed(S, 4.9)
    assert pair_state.is_over
    pair_state.handle_timer(100.0)
    assert pair_state.fault is None
    assert pair_state.next_timer() is None


@pytest.mark.spec("P-50")
def test_in_strict_mode_a_refused_side_is_probed_every_second_and_recovers_when_accepted() -> None:
    pair_state = PairState(faults_on_refusal=True)
    pair_state.refused(S, WHY, 0.0)
    assert pair_state.next_timer() == 1.0
    assert pair_state.handle_timer(0.9) == []
    assert pair_state.handle_timer(1.0) == [S]
    assert pair_state.handle_timer(1.5) == []
    assert pair_state.handle_timer(2.0) == [S]
    assert pair_state.answered(S, 4.9) == [SideChange(S, SideState.OPEN, "it accepts again")]
    assert pair_state.is_whole
    assert pair_state.next_timer() is None


@pytest.mark.spec("P-50")
def test_read_strictly_a_second_refusal_does_not_restart_the_five_seconds() -> None:
    pair_state = PairState(faults_on_refusal=True)
    pair_state.refused(P, WHY, 0.0)
    assert pair_state.refused(P, "another", 4.0) == []
    pair_state.handle_timer(5.0)
    assert pair_state.fault == PairFault(P, SideState.REFUSED, WHY)


@pytest.mark.spec("P-50")
def test_in_strict_mode_a_late_acceptance_does_not_recover() -> None:
    pair_state = PairState(faults_on_refusal=True)
    pair_state.refused(P, WHY, 0.0)
    assert pair_state.answered(P, 5.0) == []
    pair_state.handle_timer(5.0)
    assert pair_state.answered(P, 6.0) == []
    assert pair_state.fault is not None
    assert pair_state.closed(S, 7.0) == []


def test_accepting_an_open_or_closed_side_changes_nothing() -> None:
    pair_state = PairState()
    assert pair_state.answered(P, 0.0) == []
    pair_state.closed(P, 1.0)
    assert pair_state.answered(P, 2.0) == []
    assert pair_state.refused(P, WHY, 2.0) == []
    assert pair_state.closed(P, 3.0) == []
    assert pair_state.state_of(P) is SideState.CLOSED


@pytest.mark.spec("P-50")
def test_a_partner_that_is_refused_too_has_not_followed() -> None:
    pair_state = PairState()
    pair_state.closed(P, 0.0)
    pair_state.refused(S, WHY, 3.0)
    pair_state.handle_timer(5.0)
    assert pair_state.fault == PairFault(P, SideState.CLOSED, "close() was called")


@pytest.mark.spec("P-50")
def test_in_strict_mode_the_second_refused_side_gets_its_own_five_seconds() -> None:
    pair_state = PairState(faults_on_refusal=True)
    pair_state.refused(P, WHY, 0.0)
    pair_state.closed(S, 2.0)
    pair_state.answered(P, 3.0)
    pair_state.handle_timer(6.9)
    assert pair_state.fault is None
    pair_state.handle_timer(7.0)
    assert pair_state.fault == PairFault(S, SideState.CLOSED, "close() was called")


@pytest.mark.spec("P-50")
def test_read_strictly_closing_a_refused_side_does_not_give_its_partner_more_time() -> None:
    pair_state = PairState(faults_on_refusal=True)
    pair_state.refused(P, WHY, 0.0)
    pair_state.closed(P, 4.0)
    pair_state.handle_timer(5.0)
    assert pair_state.fault == PairFault(P, SideState.CLOSED, "close() was called")


@pytest.mark.spec("R-1")
@pytest.mark.parametrize("role", Side)
def test_a_permanently_refused_side_is_a_state_and_never_a_fault(role: Side) -> None:
    pair_state = PairState()
    assert pair_state.refused(role, WHY, 0.0) == [SideChange(role, SideState.REFUSED, WHY)]
    now = 0.0
    while (timer := pair_state.next_timer()) is not None and now < 86_400.0:
        now = timer
        assert pair_state.handle_timer(now) == [role]
    assert pair_state.fault is None
    assert pair_state.state_of(role) is SideState.REFUSED
    assert pair_state.cause_of(role) == WHY
    assert pair_state.state_of(role.partner) is SideState.OPEN
    assert pair_state.answered(role, now) == [SideChange(role, SideState.OPEN, "it accepts again")]
    assert pair_state.is_whole
    assert pair_state.cause_of(role) == ""
    assert pair_state.next_timer() is None


@pytest.mark.spec("R-1")
def test_a_refused_side_is_looked_at_less_and_less_often_up_to_once_a_minute() -> None:
    pair_state, looks = PairState(), [0.0]
    pair_state.refused(S, WHY, 0.0)
    for _ in range(10):
        timer = pair_state.next_timer()
        assert timer is not None
        assert pair_state.handle_timer(timer - 0.1) == []
        assert pair_state.handle_timer(timer) == [S]
        looks.append(timer)
    waits = [after - before for before, after in itertools.pairwise(looks)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]


@pytest.mark.spec("R-1")
def test_after_a_recovery_the_next_refusal_is_probed_soon_again() -> None:
    pair_state = PairState()
    pair_state.refused(S, WHY, 0.0)
    for _ in range(5):
        pair_state.handle_timer(pair_state.next_timer() or 0.0)
    pair_state.answered(S, 100.0)
    pair_state.refused(S, WHY, 200.0)
    assert pair_state.next_timer() == 201.0


@pytest.mark.spec("R-1")
def test_two_refused_sides_do_not_end_the_pair() -> None:
    pair_state = PairState()
    pair_state.refused(P, WHY, 0.0)
    pair_state.refused(S, WHY, 1.0)
    for now in range(2, 1000):
        pair_state.handle_timer(float(now))
    assert pair_state.fault is None
    pair_state.answered(S, 1000.0)
    assert not pair_state.is_whole
    pair_state.answered(P, 1000.0)
    assert pair_state.is_whole


@pytest.mark.spec("P-50", "R-1")
def test_closing_a_refused_side_gives_its_partner_five_seconds_from_the_close() -> None:
    pair_state = PairState()
    pair_state.refused(P, WHY, 0.0)
    pair_state.closed(P, 100.0)
    pair_state.handle_timer(104.9)
    assert pair_state.fault is None
    pair_state.handle_timer(105.0)
    assert pair_state.fault == PairFault(P, SideState.CLOSED, "close() was called")
