"""What do the senders of one pairing share, and where does a message go next?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sbpair.pairing.events import (
    BacklogReturned,
    BacklogWithdrawn,
    EntityFailedOver,
    EntityRecovered,
    EntitySuspected,
    LinkProbed,
    MessageParked,
    PingFailed,
    PingSent,
    SendRaised,
)
from sbpair.pairing.health import EntityState
from sbpair.pairing.outcome import Classification, Failure, Refused, Stored, Stranded
from sbpair.pairing.pair import Attempt, CreateBacklog, Pause, Result, Step
from sbpair.pairing.rotation import Choice

if TYPE_CHECKING:
    from conftest import Driver

REFUSED = Classification(Failure.UNAVAILABLE, "no answer")


def is_primary(step: Step) -> bool:
    return isinstance(step, Attempt) and step.backlog is None


@pytest.mark.spec("P-2")
def test_a_healthy_entity_gets_every_message_and_nothing_happens(driver: Driver) -> None:
    for _ in range(3):
        assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)
        assert driver.steps == [Attempt(None, 60.0)]
    assert driver.pair.events() == []
    assert driver.pair.next_timer() is None


@pytest.mark.spec("P-3")
def test_the_first_failure_goes_to_its_caller_and_starts_the_interval(driver: Driver) -> None:
    outcome = driver.primary(driver.fail)
    assert isinstance(outcome, Refused)
    assert driver.pair.state_of("orders") is EntityState.SUSPECT
    assert driver.pair.next_timer() == 60.0
    assert [type(event) for event in driver.pair.events()] == [EntitySuspected, SendRaised]


@pytest.mark.spec("G-7")
@pytest.mark.parametrize("is_ambiguous", [True, False])
def test_what_was_raised_is_told_with_its_ids_and_whether_a_copy_may_be_stored(
    driver: Driver, is_ambiguous: bool
) -> None:
    flow = driver.pair.send_flow(
        "orders", 2, Choice(), now=0.0, deadline=60.0, message_ids=lambda: ("a", "b")
    )
    next(flow)
    with pytest.raises(StopIteration):
        flow.send(driver.fail(after=3.0, is_ambiguous=is_ambiguous))

    cause = "Unreachable"
    assert driver.pair.events()[-1] == SendRaised(3.0, "orders", cause, ("a", "b"), is_ambiguous)


@pytest.mark.spec("G-7")
def test_what_was_parked_is_told_with_its_ids_and_whether_a_copy_may_be_stored(at_once: Driver) -> None:
    flow = at_once.pair.send_flow(
        "orders", 2, Choice(), now=0.0, deadline=60.0, message_ids=lambda: ("a", "b")
    )
    next(flow)
    backlog = flow.send(at_once.fail(is_ambiguous=True)).backlog
    with pytest.raises(StopIteration):
        flow.send(at_once.ok())

    assert at_once.pair.events()[-1] == MessageParked(0.0, "orders", backlog, 2, ("a", "b"), True)


@pytest.mark.spec("P-3", "P-4")
def test_after_the_interval_messages_go_to_a_backlog_and_never_to_the_primary(driver: Driver) -> None:
    driver.primary(driver.fail)
    driver.advance(60)
    outcome = driver.primary(driver.fail)
    assert isinstance(outcome, Stored)
    assert outcome.backlog in range(10)
    assert not any(is_primary(step) for step in driver.steps)
    kinds = [type(event) for event in driver.pair.events()]
    assert kinds == [EntitySuspected, SendRaised, EntityFailedOver, MessageParked]


@pytest.mark.spec("P-3")
def test_with_an_interval_of_zero_this_very_message_is_redirected(at_once: Driver) -> None:
    outcome = at_once.primary(lambda: at_once.fail(after=1.0))
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert at_once.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("P-3", "G-18")
def test_a_reserve_is_kept_for_the_backlog_when_the_entity_may_fail_over_in_time(at_once: Driver) -> None:
    at_once.primary(at_once.ok)
    assert at_once.steps == [Attempt(None, 55.0)]
    at_once.primary(at_once.ok, budget=8.0)
    assert at_once.steps == [Attempt(None, 6.0)]


@pytest.mark.spec("P-2")
def test_no_reserve_is_taken_from_a_send_that_cannot_be_redirected(driver: Driver) -> None:
    driver.primary(driver.ok, budget=60.0)
    assert driver.steps == [Attempt(None, 60.0)]


@pytest.mark.spec("P-4", "G-18")
def test_a_send_under_way_while_the_entity_fails_over_is_redirected(driver: Driver) -> None:
    driver.primary(driver.fail)
    driver.now = 30.0

    def slowly() -> Result:
        driver.advance(40)
        return driver.fail()

    outcome = driver.primary(slowly, budget=60.0)
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None


@pytest.mark.spec("P-6")
def test_when_one_sender_has_failed_over_all_senders_divert_at_once(at_once: Driver) -> None:
    at_once.primary(at_once.fail, path="Orders")
    at_once.primary(at_once.ok, path="orders")
    assert not any(is_primary(step) for step in at_once.steps)


@pytest.mark.spec("G-11")
def test_another_entity_of_the_same_namespace_is_not_concerned(at_once: Driver) -> None:
    at_once.primary(at_once.fail, path="orders")
    assert at_once.primary(at_once.ok, path="invoices") == Stored(None, is_ambiguous=False)
    assert at_once.advance(200) == ["orders"]


@pytest.mark.spec("P-6", "P-33")
def test_an_accepted_ping_returns_every_sender_to_the_primary(at_once: Driver) -> None:
    at_once.primary(at_once.fail)
    assert at_once.advance(1) == ["orders"]
    at_once.pair.ping_left("orders", at_once.now)
    at_once.pair.ping_finished("orders", None, at_once.now)
    assert at_once.primary(at_once.ok) == Stored(None, is_ambiguous=False)
    kinds = [type(event) for event in at_once.pair.events()]
    assert kinds[-2:] == [PingSent, EntityRecovered]
    assert at_once.pair.next_timer() is None


@pytest.mark.spec("P-32", "P-34")
def test_a_refused_ping_is_told_and_counted_and_pings_go_on(at_once: Driver) -> None:
    at_once.primary(at_once.fail)
    pings = 0
    for _ in range(3):
        due = at_once.advance(60)
        pings += len(due)
        at_once.pair.ping_left("orders", at_once.now)
        at_once.pair.ping_finished("orders", REFUSED, at_once.now)
    assert pings == at_once.pair.pings_sent == 3
    assert sum(isinstance(event, PingFailed) for event in at_once.pair.events()) == 3
    assert at_once.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("P-32")
def test_an_entity_has_one_ping_under_way_at_most(at_once: Driver) -> None:
    at_once.primary(at_once.fail)
    assert at_once.advance(300) == ["orders"]


@pytest.mark.spec("P-5", "G-19")
def test_a_backlog_that_fails_leaves_the_rotation_of_every_sender(driver: Driver) -> None:
    driver.fail_over()
    flow = driver.flow()
    first = next(flow)
    assert isinstance(first, Attempt)
    second = flow.send(driver.fail())
    assert isinstance(second, Attempt)
    assert second.backlog != first.backlog
    assert first.backlog not in driver.pair.rotation.available(driver.now)
    assert isinstance(driver.pair.events()[-1], BacklogWithdrawn)


@pytest.mark.spec("G-19")
def test_all_but_one_backlog_may_be_down(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(backlogs=3)
    driver.fail_over()
    answers = iter([driver.fail, driver.fail, driver.ok])
    outcome = driver.send(lambda step: next(answers)())
    assert isinstance(outcome, Stored)
    assert len(driver.steps) == 3


@pytest.mark.spec("G-19", "F-35")
def test_when_every_backlog_fails_all_causes_are_carried_the_primarys_first(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=3, interval=0.0)
    outcome = driver.send(lambda step: driver.fail())
    assert isinstance(outcome, Stranded)
    assert len(outcome.causes) == 4
    assert is_primary(driver.steps[0])


@pytest.mark.spec("P-5")
def test_a_backlog_that_returns_is_told(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(backlogs=1)
    driver.fail_over()
    driver.send(lambda step: driver.fail())
    driver.now += 10
    driver.send(lambda step: driver.ok())
    assert any(isinstance(event, BacklogReturned) for event in driver.pair.events())


@pytest.mark.spec("P-12", "F-46")
def test_a_backlog_that_does_not_exist_is_created_and_tried_again(driver: Driver) -> None:
    driver.fail_over()
    missing = driver.fail(Failure.CONFIGURATION, is_missing=True)
    answers = iter([missing, driver.ok(), driver.ok()])
    outcome = driver.send(lambda step: next(answers))
    assert isinstance(outcome, Stored)
    assert [type(step) for step in driver.steps] == [Attempt, CreateBacklog, Attempt]


@pytest.mark.spec("P-5")
def test_a_backlog_that_cannot_be_created_is_a_failed_backlog(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(backlogs=2)
    driver.fail_over()

    def answer(step: Step) -> Result:
        if isinstance(step, CreateBacklog):
            return Result(driver.now, PermissionError("no Manage right"))
        return driver.fail(Failure.CONFIGURATION, is_missing=True)

    outcome = driver.send(answer)
    assert isinstance(outcome, Stranded)
    assert sum(isinstance(cause, PermissionError) for cause in outcome.causes) == 2


@pytest.mark.spec("F-33")
def test_a_dead_idle_connection_is_replaced_without_suspecting_the_entity(driver: Driver) -> None:
    answers = iter([driver.fail(was_reused=True, is_link_in_doubt=True, is_ambiguous=True), driver.ok()])
    outcome = driver.send(lambda step: next(answers))
    assert outcome == Stored(None, is_ambiguous=True)
    assert driver.steps == [Attempt(None, 60.0), Attempt(None, 60.0, is_fresh=True)]
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-3")
def test_a_fresh_connection_that_fails_too_counts(driver: Driver) -> None:
    outcome = driver.primary(lambda: driver.fail(was_reused=True, is_link_in_doubt=True))
    assert isinstance(outcome, Refused)
    assert len(driver.steps) == 2
    assert driver.pair.state_of("orders") is EntityState.SUSPECT


@pytest.mark.spec("F-40")
def test_a_busy_service_is_asked_again_after_ten_seconds_and_never_fails_over(at_once: Driver) -> None:
    answers = iter([at_once.fail(Failure.BUSY), Result(10.0), Result(10.0)])
    outcome = at_once.send(lambda step: next(answers))
    assert outcome == Stored(None, is_ambiguous=False)
    assert at_once.steps[1] == Pause(10.0)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-40")
def test_a_busy_service_that_names_its_pause_is_given_it(at_once: Driver) -> None:
    answers = iter([at_once.fail(Failure.BUSY, retry_after=25.0), Result(25.0), Result(25.0)])
    at_once.send(lambda step: next(answers))
    assert at_once.steps[1] == Pause(25.0)


@pytest.mark.spec("F-40")
def test_a_busy_service_is_raised_when_the_budget_does_not_hold_the_pause(at_once: Driver) -> None:
    outcome = at_once.primary(lambda: at_once.fail(Failure.BUSY), budget=9.0)
    assert isinstance(outcome, Refused)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-41", "F-42", "F-44")
@pytest.mark.parametrize("failure", [Failure.CONFIGURATION, Failure.FULL, Failure.CALLER])
def test_what_is_no_outage_is_raised_at_once_and_never_fails_over(at_once: Driver, failure: Failure) -> None:
    outcome = at_once.primary(lambda: at_once.fail(failure))
    assert isinstance(outcome, Refused)
    assert len(at_once.steps) == 1
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-22")
def test_a_message_too_large_for_a_backlog_is_the_callers_and_no_backlog_suffers(driver: Driver) -> None:
    driver.fail_over()
    outcome = driver.send(lambda step: driver.fail(Failure.CALLER, is_too_large=True))
    assert isinstance(outcome, Refused)
    assert outcome.is_parked
    assert outcome.is_too_large
    assert len(driver.pair.rotation.available(driver.now)) == 10


@pytest.mark.spec("P-7")
def test_a_sender_parks_all_its_messages_in_one_backlog(driver: Driver) -> None:
    driver.fail_over()
    choice = Choice()
    rests = {driver.send(lambda step: driver.ok(), choice=choice) for _ in range(20)}
    assert len(rests) == 1


@pytest.mark.spec("G-18")
def test_no_step_of_a_send_lasts_longer_than_its_deadline(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(interval=0.0, backlogs=4)

    def hang(step: Step) -> Result:
        assert isinstance(step, (Attempt, CreateBacklog, Pause))
        driver.now = max(driver.now, step.until)
        return driver.fail()

    for budget in (0.5, 3.0, 60.0):
        start = driver.now
        driver.send(hang, budget=budget)
        assert driver.now <= start + budget
        assert len(driver.steps) >= 2
        driver.pair.mark_healthy("orders", driver.now)


@pytest.mark.spec("P-6")
def test_by_hand_an_entity_is_failed_over_and_brought_home(driver: Driver) -> None:
    driver.pair.fail_over("orders", 0.0)
    assert driver.pair.state_of("ORDERS") is EntityState.FAILED_OVER
    driver.pair.mark_healthy("orders", 1.0)
    assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)


@pytest.mark.spec("P-2")
def test_a_flow_that_is_dropped_half_way_changes_nothing(driver: Driver) -> None:
    flow = driver.flow()
    next(flow)
    flow.close()
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    assert driver.pair.events() == []


@pytest.mark.spec("P-7")
def test_two_pairs_with_one_seed_choose_alike(pair_of: Callable[..., Driver]) -> None:
    picks = []
    for _ in range(2):
        driver = pair_of(seed=42)
        driver.fail_over()
        picks.append([driver.send(lambda step: driver.ok()) for _ in range(10)])  # noqa: B023
    assert picks[0] == picks[1]


@pytest.mark.spec("P-2", "P-3")
def test_an_attempt_made_on_the_straight_road_is_not_made_again(driver: Driver) -> None:
    flow = driver.pair.send_flow("orders", 1, Choice(), now=0.0, deadline=60.0, first=driver.fail())
    with pytest.raises(StopIteration) as landed:
        next(flow)
    assert isinstance(landed.value.value, Refused)
    assert driver.pair.state_of("orders") is EntityState.SUSPECT


@pytest.mark.spec("P-4")
def test_a_fast_path_attempt_that_failed_while_the_entity_failed_over_is_redirected(driver: Driver) -> None:
    driver.fail_over()
    first = driver.fail(was_reused=True, is_link_in_doubt=True)
    step = next(driver.pair.send_flow("orders", 1, Choice(), now=0.0, deadline=60.0, first=first))
    assert isinstance(step, Attempt)
    assert step.backlog is not None


@pytest.mark.spec("P-3")
def test_a_fast_path_success_of_a_suspect_entity_ends_the_suspicion(driver: Driver) -> None:
    driver.primary(driver.fail)
    flow = driver.pair.send_flow("orders", 1, Choice(), now=0.0, deadline=60.0, first=driver.ok())
    with pytest.raises(StopIteration):
        next(flow)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-3")
def test_the_straight_road_keeps_the_same_reserve_as_the_flow(
    driver: Driver, at_once: Driver, pair_of: Callable[..., Driver]
) -> None:
    assert driver.pair.fast_path("orders", 60.0)[1] == 60.0
    assert at_once.pair.fast_path("orders", 60.0)[1] == 55.0
    for each in (driver, at_once, pair_of(interval=10.0)):
        for budget in (2.0, 8.0, 60.0):
            each.primary(each.ok, budget=budget)
            (step,) = each.steps
            assert isinstance(step, Attempt)
            assert step.until == each.pair.fast_path("orders", budget)[1]


@pytest.mark.spec("P-32", "F-19")
def test_a_ping_whose_sender_is_gone_does_not_end_the_pings(at_once: Driver) -> None:
    at_once.primary(at_once.fail)
    assert at_once.advance(1) == ["orders"]
    at_once.pair.pings_lost()
    assert at_once.advance(60) == ["orders"]


@pytest.mark.spec("P-3")
def test_while_suspect_a_failing_send_is_redirected_where_the_policy_says_so(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True)
    for _ in range(2):  # the second tries the primary again: nothing has failed over
        outcome = driver.primary(driver.fail)
        assert isinstance(outcome, Stored)
        assert outcome.backlog is not None
        assert [is_primary(step) for step in driver.steps] == [True, False]
    assert driver.pair.state_of("orders") is EntityState.SUSPECT
    assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-22")
def test_redirecting_suspects_redirects_no_error_of_the_callers(pair_of: Callable[..., Driver]) -> None:
    outcome = (driver := pair_of(redirects=True)).primary(lambda: driver.fail(Failure.CALLER))
    assert isinstance(outcome, Refused)
    assert all(is_primary(step) for step in driver.steps)


def test_redirecting_suspects_keeps_part_of_the_budget_for_the_backlog(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True)
    driver.primary(driver.ok, budget=8.0)
    assert driver.steps == [Attempt(None, 6.0)]


@pytest.mark.spec("P-33", "P-34")
def test_a_held_entity_is_not_pinged_and_comes_home_only_by_hand(driver: Driver) -> None:
    driver.pair.hold("orders", driver.now)
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER
    assert driver.advance(3600) == []
    driver.pair.ping_finished("orders", None, driver.now)  # one that was under way
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER
    driver.pair.mark_healthy("orders", driver.now)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-33")
def test_a_released_entity_is_pinged_again_and_a_ping_brings_it_home(driver: Driver) -> None:
    driver.pair.hold("orders", driver.now)
    driver.advance(600)
    driver.pair.release("orders", driver.now)
    assert driver.advance(1) == ["orders"]
    driver.pair.ping_finished("orders", None, driver.now)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-40")
def test_a_busy_primary_is_not_asked_again_when_no_time_would_be_left(at_once: Driver) -> None:
    outcome = at_once.send(lambda step: at_once.fail(Failure.BUSY, after=0.1), budget=12.0)
    assert isinstance(outcome, Refused)
    assert len(at_once.steps) == 1
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-40", "P-3")
def test_a_service_that_stays_busy_for_the_limit_counts_as_an_outage(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(interval=0.0, busy_limit=15.0)
    outcome = driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0)
    assert isinstance(outcome, Refused)
    driver.now = 14.9
    assert isinstance(driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0), Refused)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    driver.now = 15.0
    outcome = driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0)
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("F-40", "P-3")
def test_a_success_in_between_ends_the_busy_spell(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(interval=0.0, busy_limit=15.0)
    driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0)
    health, _ = driver.pair.fast_path("orders", 60.0)
    assert not health.is_calm  # so that the next success is not overlooked on the fast path
    assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)
    assert health.is_calm
    driver.now = 20.0
    assert isinstance(driver.primary(lambda: driver.fail(Failure.BUSY), budget=9.0), Refused)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-40", "G-12")
def test_a_busy_service_that_counts_starts_the_failover_interval_as_any_outage(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(interval=60.0, busy_limit=0.0)
    assert isinstance(driver.primary(lambda: driver.fail(Failure.BUSY)), Refused)
    assert driver.pair.state_of("orders") is EntityState.SUSPECT
    driver.advance(60.0)
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("F-44")
def test_where_quotas_spill_a_full_entity_stays_healthy_and_this_message_is_parked(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(spills=True)
    outcome = driver.primary(lambda: driver.fail(Failure.FULL))
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)
    for failure in (Failure.CONFIGURATION, Failure.CALLER):
        assert isinstance(driver.primary(lambda failure=failure: driver.fail(failure)), Refused)


@pytest.mark.spec("P-34")
def test_a_link_that_is_opened_in_place_of_a_ping_is_told_and_not_counted(driver: Driver) -> None:
    driver.pair.ping_left("orders", 1.0, is_billed=False)
    assert driver.pair.pings_sent == 0
    assert driver.pair.events() == [LinkProbed(1.0, "orders")]


@pytest.mark.spec("F-80")
def test_what_is_parked_in_part_is_told_where_it_rests_and_the_rest_goes_on(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=2)
    driver.fail_over()
    driver.pair.events()
    ids = ("a", "b", "c", "d", "e")
    flow = driver.pair.send_flow("orders", 5, Choice(), now=0.0, deadline=60.0, message_ids=lambda: ids)
    first = next(flow)
    second = flow.send(replace(driver.fail(), accepted=3))
    with pytest.raises(StopIteration) as landed:
        flow.send(Result(0.0, accepted=2))
    assert isinstance(first, Attempt)
    assert isinstance(second, Attempt)
    assert landed.value.value == Stored(second.backlog, is_ambiguous=False)
    parked = [event for event in driver.pair.events() if isinstance(event, MessageParked)]
    assert [(event.backlog, event.count, event.message_ids) for event in parked] == [
        (first.backlog, 3, ("a", "b", "c")),
        (second.backlog, 2, ("d", "e")),
    ]


def declining(driver: Driver, which: set[int | None]) -> Callable[[Step], Result]:
    """These backlogs refuse the message as the caller's fault; the others accept."""
    return lambda step: (
        driver.fail(Failure.CALLER)
        if isinstance(step, Attempt) and step.backlog in which
        else driver.ok(after=0.01)
    )


@pytest.mark.spec("R-3", "P-5")
def test_a_backlog_that_refuses_what_another_accepts_is_withdrawn_for_every_sender(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=3)
    driver.fail_over()
    choices = [Choice(0) for _ in range(20)]
    for choice in choices:
        outcome = driver.send(declining(driver, {0}), choice=choice)
        assert isinstance(outcome, Stored)
        assert outcome.backlog in (1, 2)
    withdrawn = [event for event in driver.pair.events() if isinstance(event, BacklogWithdrawn)]
    assert [(event.backlog, event.cause) for event in withdrawn] == [(0, "caller")]
    assert len(driver.steps) == 1  # the last of them did not try it again


@pytest.mark.spec("R-3")
def test_what_every_backlog_refuses_is_the_callers_and_none_is_withdrawn(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=3)
    driver.fail_over()
    outcome = driver.send(declining(driver, {0, 1, 2}))
    assert isinstance(outcome, Refused)
    assert (outcome.is_parked, outcome.failure) == (True, Failure.CALLER)
    assert len(driver.steps) == 3
    assert driver.pair.rotation.available(driver.now) == [0, 1, 2]


@pytest.mark.spec("R-3", "G-19")
def test_where_some_backlogs_refuse_and_the_others_are_away_every_cause_is_told(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=3)
    driver.fail_over()

    def answer(step: Step) -> Result:
        assert isinstance(step, Attempt)
        return driver.fail(Failure.CALLER if step.backlog == 0 else Failure.UNAVAILABLE)

    outcome = driver.send(answer)
    assert isinstance(outcome, Stranded)  # nobody knows whether those would have taken it
    assert sorted(map(str, outcome.causes)) == ["caller", "unavailable", "unavailable"]
    assert driver.pair.rotation.available(driver.now) == [0]


@pytest.mark.spec("R-3", "R-4")
def test_what_cannot_be_encoded_is_not_tried_in_another_backlog(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(backlogs=3)
    driver.fail_over()
    outcome = driver.send(lambda step: driver.fail(Failure.CALLER, is_local=True))
    assert isinstance(outcome, Refused)
    assert len(driver.steps) == 1
    assert driver.pair.rotation.available(driver.now) == [0, 1, 2]


@pytest.mark.spec("G-19", "P-4")
def test_a_redirected_send_without_time_left_still_asks_one_backlog_and_blames_it_for_nothing(
    pair_of: Callable[..., Driver],
) -> None:
    """A blocking primary can overrun; what the caller is raised then names the backlog's answer too."""
    driver = pair_of(interval=0.0, backlogs=2)

    def answer(step: Step) -> Result:
        return driver.fail(after=10.0) if is_primary(step) else driver.fail()

    outcome = driver.send(answer, budget=8.0)
    assert isinstance(outcome, Stranded)
    assert [is_primary(step) for step in driver.steps] == [True, False]
    assert len(outcome.causes) == 2
    assert driver.pair.rotation.available(driver.now) == [0, 1]


@pytest.mark.spec("F-33", "G-7")
def test_an_idle_link_to_a_backlog_that_had_died_may_have_stored_the_message(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=2)
    driver.fail_over()
    driver.pair.events()
    stale = {"was_reused": True, "is_link_in_doubt": True, "is_ambiguous": True}
    answers = iter([lambda: driver.fail(**stale), driver.ok])
    outcome = driver.send(lambda step: next(answers)())
    assert isinstance(outcome, Stored)
    assert outcome.is_ambiguous
    assert [step.is_fresh for step in driver.steps if isinstance(step, Attempt)] == [False, True]
    (parked,) = [event for event in driver.pair.events() if isinstance(event, MessageParked)]
    assert parked.ambiguous


@pytest.mark.spec("P-32", "P-6")
def test_an_entity_is_pinged_again_and_comes_home_however_its_name_is_spelled(at_once: Driver) -> None:
    at_once.primary(at_once.fail, path="Orders")
    assert at_once.advance(1) == ["Orders"]
    at_once.pair.ping_finished("Orders", REFUSED, at_once.now)
    assert at_once.advance(60) == ["Orders"]
    at_once.pair.ping_finished("ORDERS", REFUSED, at_once.now)
    assert at_once.advance(60) == ["Orders"]
    at_once.pair.ping_finished("Orders", None, at_once.now)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("R-5")
def test_waiting_for_a_link_of_ours_counts_for_nothing_and_ends_with_the_budget(at_once: Driver) -> None:
    outcome = at_once.primary(lambda: at_once.fail(after=30.0, is_own=True))
    assert isinstance(outcome, Refused)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY
    assert at_once.now == 60.0


@pytest.mark.spec("R-5")
def test_whoever_waited_for_a_link_looks_again_where_the_message_goes(at_once: Driver) -> None:
    def called_back() -> Result:
        at_once.fail_over()
        return at_once.fail(is_own=True)

    outcome = at_once.primary(called_back)
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None


@pytest.mark.spec("R-5", "P-5")
def test_a_backlog_to_which_no_link_was_ready_stays_in_rotation(at_once: Driver) -> None:
    at_once.fail_over()
    at_once.pair.events()
    outcome = at_once.send(lambda step: at_once.fail(after=1.0, is_own=True))
    assert isinstance(outcome, Stranded)
    assert len(at_once.pair.rotation.available(at_once.now)) == len(at_once.pair.rotation)


@pytest.mark.spec("R-8")
def test_an_opening_that_failed_while_no_send_waited_is_evidence(at_once: Driver) -> None:
    at_once.pair.opening_failed("orders", Classification(Failure.UNAVAILABLE, "refused", is_own=True), 1.0)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY
    at_once.pair.opening_failed("orders", Classification(Failure.CONFIGURATION, "no such entity"), 1.0)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY
    at_once.pair.opening_failed("orders", Classification(Failure.UNAVAILABLE, "refused"), 1.0)
    assert at_once.pair.state_of("orders") is not EntityState.HEALTHY


@pytest.mark.spec("R-5", "R-10")
def test_a_sender_that_only_waited_for_a_link_keeps_no_other_from_trying_a_backlog_that_may_be_back(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=2)
    driver.fail_over()
    driver.send(lambda step: driver.fail() if step.backlog == 0 else driver.ok(), choice=Choice(0))  # type: ignore[union-attr]
    driver.now += 6.0
    answers = iter([lambda: driver.fail(is_own=True), driver.ok])
    driver.send(lambda step: next(answers)(), choice=Choice(0))
    outcome = driver.send(lambda step: driver.ok(after=0.1), choice=Choice(0))
    assert isinstance(outcome, Stored)
    assert outcome.backlog == 0
