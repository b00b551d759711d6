"""Backlog queues of a pair: which one stores a message, and which leave the rotation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sbpair.pair.pairing.decide.pair import Attempt, CreateBacklog, Result, Step
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.events import (
    BacklogReturned,
    BacklogWithdrawn,
    MessageParked,
)
from sbpair.pair.pairing.outcome import Classification, Failure, Refused, Stored, Stranded

if TYPE_CHECKING:
    from conftest import Driver

REFUSED = Classification(Failure.UNAVAILABLE, "no answer")


def is_primary(step: Step) -> bool:
    return isinstance(step, Attempt) and step.backlog is None


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
def test_when_every_backlog_fails_the_error_has_all_causes_starting_with_the_primary(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=3, interval=0.0)
    outcome = driver.send(lambda step: driver.fail())
    assert isinstance(outcome, Stranded)
    assert len(outcome.causes) == 4
    assert is_primary(driver.steps[0])


@pytest.mark.spec("P-5")
def test_a_returning_backlog_is_reported(pair_of: Callable[..., Driver]) -> None:
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


@pytest.mark.spec("F-42")
def test_a_message_parked_after_its_backlog_was_deleted_during_a_send_may_be_duplicated(
    driver: Driver,
) -> None:
    driver.fail_over()
    deleted = driver.fail(Failure.CONFIGURATION, is_missing=True, is_ambiguous=True)
    answers = iter([deleted, driver.ok(), driver.ok()])
    outcome = driver.send(lambda step: next(answers))
    assert isinstance(outcome, Stored)
    assert outcome.is_ambiguous


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


@pytest.mark.spec("P-7")
def test_two_pairs_with_one_seed_choose_alike(pair_of: Callable[..., Driver]) -> None:
    picks = []
    for _ in range(2):
        driver = pair_of(seed=42)
        driver.fail_over()
        picks.append([driver.send(lambda step: driver.ok()) for _ in range(10)])  # noqa: B023
    assert picks[0] == picks[1]


@pytest.mark.spec("F-80")
def test_a_partly_parked_call_reports_where_each_message_is_and_the_rest_continues(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=2)
    driver.fail_over()
    driver.pair.events()
    ids = ("a", "b", "c", "d", "e")
    flow = driver.pair.send_flow("orders", 5, Choice(), now=0.0, deadline=60.0, message_ids=lambda: ids)
    first = next(flow)
    second = flow.send(driver.fail()._replace(accepted=3))
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
    """Let these backlogs refuse the message as the caller's fault, and the others accept."""
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
def test_a_message_every_backlog_refuses_is_the_callers_error_and_withdraws_none(
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
def test_refusals_of_some_backlogs_and_outages_of_others_are_all_reported(
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
def test_an_unencodable_message_is_not_tried_in_another_backlog(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(backlogs=3)
    driver.fail_over()
    outcome = driver.send(lambda step: driver.fail(Failure.CALLER, is_local=True))
    assert isinstance(outcome, Refused)
    assert len(driver.steps) == 1
    assert driver.pair.rotation.available(driver.now) == [0, 1, 2]


@pytest.mark.spec("G-19", "P-4")
def test_a_redirected_send_out_of_time_asks_one_backlog_and_does_not_blame_it(
    pair_of: Callable[..., Driver],
) -> None:
    """A blocking primary can overrun its share; the error then names the backlog's answer too."""
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


@pytest.mark.spec("R-5", "P-5")
def test_a_backlog_without_a_ready_link_stays_in_rotation(at_once: Driver) -> None:
    at_once.fail_over()
    at_once.pair.events()
    outcome = at_once.send(lambda step: at_once.fail(after=1.0, is_own=True))
    assert isinstance(outcome, Stranded)
    assert len(at_once.pair.rotation.available(at_once.now)) == len(at_once.pair.rotation)


@pytest.mark.spec("R-5", "R-10")
def test_a_sender_waiting_for_a_link_does_not_keep_others_from_probing_a_backlog(
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
