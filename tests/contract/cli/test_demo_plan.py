"""The plan of the demo is complete, with the outage in the middle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair import PairedNamespaceOptions
from sbpair.contract.cli.demo.application import SENDERS, lanes
from sbpair.contract.cli.demo.plan import PING_INTERVAL, Act, make_plan

PLANS = st.builds(make_plan, st.integers(1, 700), st.floats(0.5, 60), st.integers(0, 2**32))


@given(PLANS)
def test_every_message_is_in_exactly_one_parcel(plan):
    ids = [key for call in plan.calls for key in call.message_ids]

    assert len(ids) == len(set(ids)) == plan.messages


@given(PLANS)
def test_some_parcels_are_due_during_the_outage_and_none_after_its_end(plan):
    during = [call.due for call in plan.calls if call.act is Act.DURING]

    assert during
    assert all(0 <= due < plan.outage for due in during)


@given(PLANS)
def test_parcels_are_ordered_by_due_time(plan):
    order = [(list(Act).index(call.act), call.due) for call in plan.calls]

    assert order == sorted(order)


@given(PLANS)
def test_the_failover_comes_before_the_outage_ends(plan):
    assert plan.failover_interval.total_seconds() < plan.outage / 2
    PairedNamespaceOptions(failover_interval=plan.failover_interval, ping_primary_interval=PING_INTERVAL)


def test_a_seed_reproduces_the_plan_and_another_seed_changes_it():
    assert make_plan(300, 1, seed=7) == make_plan(300, 1, seed=7)
    assert make_plan(300, 1, seed=7).calls != make_plan(300, 1, seed=8).calls


def test_some_sends_carry_one_message_and_some_a_list():
    lengths = {len(call.message_ids) for call in make_plan(300, 1, seed=1).calls}

    assert 1 in lengths
    assert max(lengths) > 1


@given(st.builds(make_plan, st.integers(1, 300), st.just(1.0), st.integers(0, 99), st.integers(1, 30)))
def test_one_thread_makes_all_calls_of_a_session_in_order(plan):
    found = lanes(plan.calls)
    sessions = [{call.session for call in lane} for lane in found]

    assert len(found) == SENDERS
    assert sorted(map(id, plan.calls)) == sorted(id(call) for lane in found for call in lane)
    assert sum(map(len, sessions)) == len(set().union(*sessions))
    place = {id(call): number for number, call in enumerate(plan.calls)}
    assert all(
        [place[id(call)] for call in lane] == sorted(place[id(call)] for call in lane) for lane in found
    )


def test_without_sessions_the_threads_share_all_calls():
    plan = make_plan(30, 1, seed=1)
    found = lanes(plan.calls)

    assert len(found) == SENDERS
    assert all(lane is found[0] for lane in found)
    assert tuple(found[0]) == plan.calls


def test_sessions_do_not_change_the_grouping_of_messages():
    plain, several = make_plan(300, 1, seed=7), make_plan(300, 1, seed=7, sessions=20)

    assert [call.message_ids for call in plain.calls] == [call.message_ids for call in several.calls]
    assert {call.session for call in plain.calls} == {None}
    assert len({call.session for call in several.calls}) == 20


@pytest.mark.parametrize(("sessions", "ordering"), [(-1, "none"), (0, "session")])
def test_invalid_sessions_are_refused(sessions, ordering):
    with pytest.raises(ValueError, match="sessions"):
        make_plan(10, 1, 1, sessions, ordering)


@pytest.mark.parametrize(("messages", "outage"), [(0, 1), (-5, 1), (10, 0.1), (10, 1e9)])
def test_a_plan_out_of_range_is_refused(messages, outage):
    with pytest.raises(ValueError, match="must be"):
        make_plan(messages, outage, 1)
