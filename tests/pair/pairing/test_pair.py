"""The pair: where a message goes next, and the state that its senders share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair import Attempt, CreateBacklog, Pause, Result, Step
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.events import (
    EntityFailedOver,
    EntityRecovered,
    EntitySuspected,
    LinkProbed,
    MessageParked,
    PingFailed,
    PingSent,
    SendRaised,
)
from sbpair.pair.pairing.outcome import Classification, Failure, Refused, Stored

if TYPE_CHECKING:
    from conftest import Driver

REFUSED = Classification(Failure.UNAVAILABLE, "no answer")


def is_primary(step: Step) -> bool:
    return isinstance(step, Attempt) and step.backlog is None


@pytest.mark.spec("P-2")
def test_a_healthy_entity_gets_every_message_and_no_event_occurs(driver: Driver) -> None:
    for _ in range(3):
        assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)
        assert driver.steps == [Attempt(None, 10.0)]
    assert driver.pair.events() == []
    assert driver.pair.next_timer() is None


@pytest.mark.spec("P-3")
def test_the_first_failure_is_raised_and_starts_the_interval(driver: Driver) -> None:
    outcome = driver.primary(driver.fail)
    assert isinstance(outcome, Refused)
    assert driver.pair.state_of("orders") is EntityState.SUSPECT
    assert driver.pair.next_timer() == 60.0
    assert [type(event) for event in driver.pair.events()] == [EntitySuspected, SendRaised]


@pytest.mark.spec("G-7")
@pytest.mark.parametrize("is_ambiguous", [True, False])
def test_a_raised_send_is_reported_with_its_ids_and_ambiguity(driver: Driver, is_ambiguous: bool) -> None:
    flow = driver.pair.send_flow(
        "orders", 2, Choice(), now=0.0, deadline=60.0, message_ids=lambda: ("a", "b")
    )
    next(flow)
    with pytest.raises(StopIteration):
        flow.send(driver.fail(after=3.0, is_ambiguous=is_ambiguous))

    cause = "UnreachableError"
    assert driver.pair.events()[-1] == SendRaised(3.0, "orders", cause, ("a", "b"), is_ambiguous)


@pytest.mark.spec("G-7")
def test_a_parked_send_is_reported_with_its_ids_and_ambiguity(at_once: Driver) -> None:
    flow = at_once.pair.send_flow(
        "orders", 2, Choice(), now=0.0, deadline=60.0, message_ids=lambda: ("a", "b")
    )
    next(flow)
    backlog = flow.send(at_once.fail(is_ambiguous=True)).backlog
    with pytest.raises(StopIteration):
        flow.send(at_once.ok())

    assert at_once.pair.events()[-1] == MessageParked(
        0.0, "orders", backlog, 2, ("a", "b"), True, reason="failed_over"
    )


@pytest.mark.spec("P-3", "P-4")
def test_after_the_interval_messages_go_only_to_a_backlog(driver: Driver) -> None:
    driver.primary(driver.fail)
    driver.advance(60)
    outcome = driver.primary(driver.fail)
    assert isinstance(outcome, Stored)
    assert outcome.backlog in range(10)
    assert not any(is_primary(step) for step in driver.steps)
    kinds = [type(event) for event in driver.pair.events()]
    assert kinds == [EntitySuspected, SendRaised, EntityFailedOver, MessageParked]


@pytest.mark.spec("P-3")
def test_with_a_zero_interval_the_failed_message_is_redirected(at_once: Driver) -> None:
    outcome = at_once.primary(lambda: at_once.fail(after=1.0))
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert at_once.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("P-3", "G-18")
def test_a_reserve_is_kept_for_the_backlog_when_the_entity_may_fail_over_in_time(at_once: Driver) -> None:
    at_once.primary(at_once.ok)
    assert at_once.steps == [Attempt(None, 10.0)]
    at_once.primary(at_once.ok, budget=8.0)
    assert at_once.steps == [Attempt(None, 6.0)]


@pytest.mark.spec("P-2")
def test_a_send_that_cannot_be_redirected_uses_its_whole_time_on_the_primary(driver: Driver) -> None:
    driver.primary(driver.ok, budget=8.0)
    assert driver.steps == [Attempt(None, 8.0)]


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
def test_a_failover_seen_by_one_sender_diverts_all_senders_at_once(at_once: Driver) -> None:
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
def test_a_refused_ping_is_reported_and_counted_and_pings_continue(at_once: Driver) -> None:
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
def test_an_entity_has_at_most_one_ping_in_flight(at_once: Driver) -> None:
    at_once.primary(at_once.fail)
    assert at_once.advance(300) == ["orders"]


@pytest.mark.spec("F-33")
def test_a_dead_idle_connection_is_replaced_without_suspecting_the_entity(driver: Driver) -> None:
    answers = iter([driver.fail(was_reused=True, is_link_in_doubt=True, is_ambiguous=True), driver.ok()])
    outcome = driver.send(lambda step: next(answers))
    assert outcome == Stored(None, is_ambiguous=True)
    assert driver.steps == [Attempt(None, 10.0), Attempt(None, 10.0, is_fresh=True)]
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-3")
def test_a_fresh_connection_that_fails_too_counts(driver: Driver) -> None:
    outcome = driver.primary(lambda: driver.fail(was_reused=True, is_link_in_doubt=True))
    assert isinstance(outcome, Refused)
    assert len(driver.steps) == 2
    assert driver.pair.state_of("orders") is EntityState.SUSPECT


@pytest.mark.spec("F-41", "F-42", "F-44")
@pytest.mark.parametrize("failure", [Failure.CONFIGURATION, Failure.FULL, Failure.CALLER])
def test_an_error_that_is_no_outage_is_raised_at_once_and_never_fails_over(
    at_once: Driver, failure: Failure
) -> None:
    outcome = at_once.primary(lambda: at_once.fail(failure))
    assert isinstance(outcome, Refused)
    assert len(at_once.steps) == 1
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("G-18")
def test_no_step_of_a_send_outlasts_its_deadline(pair_of: Callable[..., Driver]) -> None:
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
def test_an_entity_is_failed_over_and_back_manually(driver: Driver) -> None:
    driver.pair.fail_over("orders", 0.0)
    assert driver.pair.state_of("ORDERS") is EntityState.FAILED_OVER
    driver.pair.mark_healthy("orders", 1.0)
    assert driver.primary(driver.ok) == Stored(None, is_ambiguous=False)


@pytest.mark.spec("P-2")
def test_an_abandoned_flow_changes_nothing(driver: Driver) -> None:
    flow = driver.flow()
    next(flow)
    flow.close()
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    assert driver.pair.events() == []


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
    assert driver.pair.fast_path("orders", 8.0)[1] == 8.0
    assert at_once.pair.fast_path("orders", 8.0)[1] == 6.0
    assert driver.pair.fast_path("orders", 60.0)[1] == 10.0
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
def test_a_failing_send_to_a_suspect_entity_is_redirected_where_the_policy_says_so(
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
    driver.primary(driver.ok, budget=2.0)
    (step,) = driver.steps
    assert isinstance(step, Attempt)
    assert step._replace(waiting=None) == Attempt(None, 1.5, open_by=1.5)


@pytest.mark.spec("P-33", "P-34")
def test_a_held_entity_is_not_pinged_and_fails_back_only_manually(driver: Driver) -> None:
    driver.pair.hold("orders", driver.now)
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER
    assert driver.advance(3600) == []
    driver.pair.ping_finished("orders", None, driver.now)  # one that was under way
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER
    driver.pair.mark_healthy("orders", driver.now)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-33")
def test_a_released_entity_is_pinged_again_and_fails_back(driver: Driver) -> None:
    driver.pair.hold("orders", driver.now)
    driver.advance(600)
    driver.pair.release("orders", driver.now)
    assert driver.advance(1) == ["orders"]
    driver.pair.ping_finished("orders", None, driver.now)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-34")
def test_a_link_opened_in_place_of_a_ping_is_reported_and_not_counted(driver: Driver) -> None:
    driver.pair.ping_left("orders", 1.0, is_billed=False)
    assert driver.pair.pings_sent == 0
    assert driver.pair.events() == [LinkProbed(1.0, "orders")]


@pytest.mark.spec("P-32", "P-6")
def test_an_entity_is_pinged_and_fails_back_in_any_spelling_of_its_name(at_once: Driver) -> None:
    at_once.primary(at_once.fail, path="Orders")
    assert at_once.advance(1) == ["Orders"]
    at_once.pair.ping_finished("Orders", REFUSED, at_once.now)
    assert at_once.advance(60) == ["Orders"]
    at_once.pair.ping_finished("ORDERS", REFUSED, at_once.now)
    assert at_once.advance(60) == ["Orders"]
    at_once.pair.ping_finished("Orders", None, at_once.now)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("R-5")
def test_waiting_for_a_local_link_is_no_evidence_and_ends_with_the_budget(at_once: Driver) -> None:
    outcome = at_once.primary(lambda: at_once.fail(after=30.0, is_own=True))
    assert isinstance(outcome, Refused)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY
    assert at_once.now == 60.0


@pytest.mark.spec("R-5")
def test_a_send_that_waited_for_a_link_is_routed_anew(at_once: Driver) -> None:
    def called_back() -> Result:
        at_once.fail_over()
        return at_once.fail(is_own=True)

    outcome = at_once.primary(called_back)
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None


@pytest.mark.spec("R-108")
def test_a_local_resource_shortage_is_no_evidence_and_is_waited_for(at_once: Driver) -> None:
    lacks_until = 30.0

    def answer(step: Step) -> Result:
        if isinstance(step, Pause):
            at_once.now = step.until
            return at_once.ok()
        assert isinstance(step, Attempt)
        return at_once.fail(is_own=True, is_shortage=True) if at_once.now < lacks_until else at_once.ok()

    assert isinstance(at_once.send(answer), Stored)
    assert (at_once.now, len(at_once.steps)) == (30.0, 61)
    lacks_until = 1000.0
    assert isinstance(at_once.send(answer), Refused)
    assert at_once.now == 90.0
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("R-8")
def test_an_opening_that_failed_while_no_send_waited_is_evidence(at_once: Driver) -> None:
    at_once.pair.opening_failed("orders", Classification(Failure.UNAVAILABLE, "refused", is_own=True), 1.0)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY
    at_once.pair.opening_failed("orders", Classification(Failure.CONFIGURATION, "no such entity"), 1.0)
    assert at_once.pair.state_of("orders") is EntityState.HEALTHY
    at_once.pair.opening_failed("orders", Classification(Failure.UNAVAILABLE, "refused"), 1.0)
    assert at_once.pair.state_of("orders") is not EntityState.HEALTHY
