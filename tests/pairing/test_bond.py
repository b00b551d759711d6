"""When does the end of one side end the other? (P-50, G-25) No clock: time is an argument."""

from __future__ import annotations

import pytest

from sbpair.pairing.bond import Bond, PairFault, Role, SideChange, SideState

P, S = Role.PRIMARY, Role.SECONDARY
WHY = "the credential was refused"


@pytest.mark.spec("P-50", "G-25")
@pytest.mark.parametrize("role", Role)
def test_a_partner_that_does_not_follow_a_close_is_faulted_after_five_seconds(role: Role) -> None:
    bond = Bond()
    assert bond.closed(role, 100.0) == [SideChange(role, SideState.CLOSED, "close() was called")]
    assert bond.next_timer() == 105.0
    assert bond.handle_timer(104.9) == []
    assert bond.fault is None
    bond.handle_timer(105.1)
    assert bond.fault == PairFault(role, SideState.CLOSED, "close() was called")
    assert role.partner in str(bond.fault)
    assert bond.next_timer() is None


@pytest.mark.spec("P-50", "G-25")
@pytest.mark.parametrize("role", Role)
def test_a_side_that_stays_refused_faults_the_pair_after_five_seconds(role: Role) -> None:
    bond = Bond()
    assert bond.refused(role, WHY, 100.0) == [SideChange(role, SideState.FAULTED, WHY)]
    bond.handle_timer(104.9)
    assert bond.fault is None
    bond.handle_timer(105.1)
    assert bond.fault == PairFault(role, SideState.FAULTED, WHY)


@pytest.mark.spec("P-50")
def test_a_partner_that_follows_in_time_ends_the_pair_without_a_fault() -> None:
    bond = Bond()
    bond.closed(P, 0.0)
    assert not bond.is_over
    bond.closed(S, 4.9)
    assert bond.is_over
    bond.handle_timer(100.0)
    assert bond.fault is None
    assert bond.next_timer() is None


@pytest.mark.spec("P-50")
def test_a_refused_side_is_looked_at_every_second_and_an_accept_cures_it() -> None:
    bond = Bond()
    bond.refused(S, WHY, 0.0)
    assert bond.next_timer() == 1.0
    assert bond.handle_timer(0.9) == []
    assert bond.handle_timer(1.0) == [S]
    assert bond.handle_timer(1.5) == []
    assert bond.handle_timer(2.0) == [S]
    assert bond.answered(S, 4.9) == [SideChange(S, SideState.OPEN, "it accepts again")]
    assert bond.is_whole
    assert bond.next_timer() is None


@pytest.mark.spec("P-50")
def test_a_second_refusal_does_not_restart_the_five_seconds() -> None:
    bond = Bond()
    bond.refused(P, WHY, 0.0)
    assert bond.refused(P, "another", 4.0) == []
    bond.handle_timer(5.0)
    assert bond.fault == PairFault(P, SideState.FAULTED, WHY)


@pytest.mark.spec("P-50")
def test_an_accept_that_comes_too_late_cures_nothing() -> None:
    bond = Bond()
    bond.refused(P, WHY, 0.0)
    assert bond.answered(P, 5.0) == []
    bond.handle_timer(5.0)
    assert bond.answered(P, 6.0) == []
    assert bond.fault is not None
    assert bond.closed(S, 7.0) == []


def test_an_accept_of_an_open_side_or_of_a_closed_one_changes_nothing() -> None:
    bond = Bond()
    assert bond.answered(P, 0.0) == []
    bond.closed(P, 1.0)
    assert bond.answered(P, 2.0) == []
    assert bond.refused(P, WHY, 2.0) == []
    assert bond.closed(P, 3.0) == []
    assert bond.state_of(P) is SideState.CLOSED


@pytest.mark.spec("P-50")
def test_a_partner_that_is_refused_too_has_not_followed() -> None:
    bond = Bond()
    bond.closed(P, 0.0)
    bond.refused(S, WHY, 3.0)
    bond.handle_timer(5.0)
    assert bond.fault == PairFault(P, SideState.CLOSED, "close() was called")


@pytest.mark.spec("P-50")
def test_when_the_first_is_cured_the_second_has_five_seconds_of_its_own() -> None:
    bond = Bond()
    bond.refused(P, WHY, 0.0)
    bond.closed(S, 2.0)
    bond.answered(P, 3.0)
    bond.handle_timer(6.9)
    assert bond.fault is None
    bond.handle_timer(7.0)
    assert bond.fault == PairFault(S, SideState.CLOSED, "close() was called")


@pytest.mark.spec("P-50")
def test_closing_a_refused_side_does_not_give_its_partner_more_time() -> None:
    bond = Bond()
    bond.refused(P, WHY, 0.0)
    bond.closed(P, 4.0)
    bond.handle_timer(5.0)
    assert bond.fault == PairFault(P, SideState.CLOSED, "close() was called")
