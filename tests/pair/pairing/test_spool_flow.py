"""The spool in the flow of a send: when it is used, and what is written to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from sbpair.pair.envelope.copies import message_id_of
from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair import (
    Attempt,
    CaughtUpError,
    Result,
    SpoolMessages,
    SpoolUse,
    Step,
)
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.errors import SpoolFullError
from sbpair.pair.pairing.events import MessageSpooled, SendRaised
from sbpair.pair.pairing.outcome import Classification, Failure, Outcome, Refused, Stored, Stranded
from sbpair.pair.pairing.request.request import ENVELOPE_ROOM, freeze

if TYPE_CHECKING:
    from conftest import Answer, Driver


def send(driver: Driver, answer: Answer, use: SpoolUse, first: Result | None = None) -> Outcome:
    flow = driver.pair.send_flow(
        "orders", 2, Choice(), now=driver.now, deadline=driver.now + 60.0, first=first, spool=use
    )
    driver.steps = []
    step = next(flow)
    while True:
        driver.steps.append(step)
        try:
            step = flow.send(answer(step))
        except StopIteration as landed:
            outcome: Outcome = landed.value
            return outcome


def failing(driver: Driver) -> Answer:
    """Fail both namespaces, while the disk works."""
    return lambda step: driver.ok() if isinstance(step, SpoolMessages) else driver.fail()


@pytest.mark.spec("F-35", "G-1")
def test_a_message_every_backlog_refused_is_spooled(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(interval=0.0, backlogs=3)
    outcome = send(driver, failing(driver), SpoolUse.LAST_RESORT)
    assert outcome == Stored(None, is_ambiguous=False, is_spooled=True)
    assert [type(step) for step in driver.steps] == [Attempt] * 4 + [SpoolMessages]
    spooled = driver.pair.events()[-1]
    assert spooled == MessageSpooled(driver.now, "orders", 2)


@pytest.mark.spec("F-35")
@pytest.mark.parametrize("use", [SpoolUse.NEVER, SpoolUse.FROM_IT])
def test_without_a_spool_or_during_a_replay_nothing_is_spooled(at_once: Driver, use: SpoolUse) -> None:
    outcome = send(at_once, failing(at_once), use)
    assert isinstance(outcome, Stranded)
    assert outcome.spool_error is None
    assert not any(isinstance(step, SpoolMessages) for step in at_once.steps)


def test_behind_older_messages_neither_namespace_is_tried(driver: Driver) -> None:
    outcome = send(driver, failing(driver), SpoolUse.AT_ONCE)
    assert outcome == Stored(None, is_ambiguous=False, is_spooled=True)
    assert driver.steps == [SpoolMessages(60.0, is_first=True)]


@pytest.mark.spec("X-30")
def test_behind_older_messages_a_full_disk_is_the_reported_cause(driver: Driver) -> None:
    outcome = send(driver, lambda step: Result(5.0, SpoolFullError("full")), SpoolUse.AT_ONCE)
    assert isinstance(outcome, Stranded)
    raised = driver.pair.events()[-1]
    assert isinstance(raised, SendRaised)
    assert raised.cause == "SpoolFullError"


def test_a_send_whose_older_messages_left_goes_the_direct_way(driver: Driver) -> None:
    outcome = send(
        driver,
        lambda step: Result(5.0, CaughtUpError()) if isinstance(step, SpoolMessages) else driver.ok(),
        SpoolUse.AT_ONCE,
    )
    assert outcome == Stored(None, is_ambiguous=False)
    assert driver.steps == [SpoolMessages(60.0, is_first=True), Attempt(None, 15.0)]


def test_a_send_no_side_accepted_is_spooled_though_older_messages_have_left(at_once: Driver) -> None:
    answers = iter([CaughtUpError(), None])

    def answer(step: Step) -> Result:
        return Result(at_once.now, next(answers)) if isinstance(step, SpoolMessages) else at_once.fail()

    assert send(at_once, answer, SpoolUse.AT_ONCE) == Stored(None, is_ambiguous=False, is_spooled=True)


@pytest.mark.spec("A-8")
def test_with_a_full_spool_a_send_goes_directly_and_is_not_written_twice(at_once: Driver) -> None:
    full = CaughtUpError()
    full.__cause__ = SpoolFullError("full")

    def answer(step: Step) -> Result:
        return Result(at_once.now, full) if isinstance(step, SpoolMessages) else at_once.fail()

    outcome = send(at_once, answer, SpoolUse.AT_ONCE)
    assert isinstance(outcome, Stranded)
    assert isinstance(outcome.spool_error, SpoolFullError)
    assert sum(isinstance(step, SpoolMessages) for step in at_once.steps) == 1
    assert (
        send(
            at_once,
            lambda step: Result(0.0, full) if isinstance(step, SpoolMessages) else at_once.ok(),
            SpoolUse.AT_ONCE,
        ).is_spooled
        is False
    )


def failed_over(pair_of: Callable[..., Driver]) -> Driver:
    driver = pair_of(interval=0.0, backlogs=1)
    driver.pair.fail_over("orders", 0.0)
    return driver


@pytest.mark.spec("A-7")
def test_a_spooled_message_no_backlog_accepts_probes_the_primary(
    pair_of: Callable[..., Driver],
) -> None:
    driver = failed_over(pair_of)

    def answer(step: Step) -> Result:
        return driver.ok() if isinstance(step, Attempt) and step.backlog is None else driver.fail()

    assert send(driver, answer, SpoolUse.FROM_IT) == Stored(None, is_ambiguous=False)
    assert [step.backlog for step in driver.steps if isinstance(step, Attempt)] == [0, None]
    assert driver.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("A-7")
def test_an_unanswering_primary_delays_spooled_messages_for_two_seconds(
    pair_of: Callable[..., Driver],
) -> None:
    driver = failed_over(pair_of)
    outcome = send(driver, lambda step: driver.fail(), SpoolUse.FROM_IT)
    assert isinstance(outcome, Stranded)
    assert not any(isinstance(event, SendRaised) for event in driver.pair.events())  # it had no caller
    assert driver.steps[-1] == Attempt(None, driver.now + 2.0, is_fresh=True)
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("A-7")
def test_a_spooled_message_no_backlog_accepts_probes_a_doubtful_primary_every_time(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(backlogs=2, redirects=True)
    for _ in range(10):
        send(driver, failing(driver), SpoolUse.LAST_RESORT)
    is_up = False

    def answer(step: Step) -> Result:
        is_primary = isinstance(step, Attempt) and step.backlog is None
        return driver.ok() if is_primary and is_up else driver.fail()

    assert isinstance(send(driver, answer, SpoolUse.FROM_IT), Stranded)
    is_up = True
    for _ in range(5):  # within the second in which one send may ask
        assert send(driver, answer, SpoolUse.FROM_IT) == Stored(None, is_ambiguous=False)
    assert driver.pair.state_of("orders") is EntityState.SUSPECT


@pytest.mark.spec("A-7")
def test_the_primary_of_a_held_entity_is_not_asked(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(interval=0.0, backlogs=1)
    driver.pair.hold("orders", 0.0)
    assert isinstance(send(driver, lambda step: driver.fail(), SpoolUse.FROM_IT), Stranded)
    assert [step.backlog for step in driver.steps if isinstance(step, Attempt)] == [0]


@pytest.mark.spec("A-7", "R-2")
def test_a_message_the_primary_refuses_for_its_content_is_refused(pair_of: Callable[..., Driver]) -> None:
    driver = failed_over(pair_of)

    def answer(step: Step) -> Result:
        is_primary = isinstance(step, Attempt) and step.backlog is None
        return driver.fail(Failure.CALLER if is_primary else Failure.UNAVAILABLE)

    outcome = send(driver, answer, SpoolUse.FROM_IT)
    assert isinstance(outcome, Refused)
    assert not outcome.is_parked


def test_an_attempt_already_made_counts_before_the_spool_is_used(driver: Driver) -> None:
    flow = driver.pair.send_flow(
        "orders", 1, Choice(), now=0.0, deadline=60.0, first=driver.ok(), spool=SpoolUse.AT_ONCE
    )
    with pytest.raises(StopIteration) as landed:
        next(flow)
    assert landed.value.value == Stored(None, is_ambiguous=False)


@pytest.mark.spec("F-35", "G-1")
def test_a_failing_spool_is_no_success_and_every_cause_is_reported(at_once: Driver) -> None:
    full = OSError("full")

    def answer(step: Step) -> Result:
        return Result(at_once.now, full) if isinstance(step, SpoolMessages) else at_once.fail()

    outcome = send(at_once, answer, SpoolUse.LAST_RESORT)
    assert isinstance(outcome, Stranded)
    assert outcome.spool_error is full
    assert len(outcome.causes) == 11
    *others, raised = at_once.pair.events()
    assert not any(isinstance(event, MessageSpooled) for event in others)
    assert isinstance(raised, SendRaised)
    assert raised.cause == "OSError"


@pytest.mark.spec("P-2", "P-3")
@pytest.mark.parametrize(
    "failure", [Failure.CONFIGURATION, Failure.FULL, Failure.CALLER, Failure.UNAVAILABLE]
)
def test_an_error_raised_without_a_spool_is_raised_with_one(driver: Driver, failure: Failure) -> None:
    outcome = send(driver, lambda step: driver.fail(failure), SpoolUse.LAST_RESORT)
    assert isinstance(outcome, Refused)
    assert outcome.failure is failure
    assert len(driver.steps) == 1


@pytest.mark.spec("G-7")
def test_a_spooled_message_that_may_be_stored_too_is_ambiguous(at_once: Driver) -> None:
    def answer(step: Step) -> Result:
        return at_once.ok() if isinstance(step, SpoolMessages) else at_once.fail(is_ambiguous=True)

    assert send(at_once, answer, SpoolUse.LAST_RESORT) == Stored(None, is_ambiguous=True, is_spooled=True)


class Maker:
    """A link that accepts batches of this size."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        return ServiceBusMessageBatch(max_size_in_bytes or self._limit)


@pytest.mark.spec("P-22", "G-4")
def test_only_the_unparked_rest_of_a_batch_is_spooled() -> None:
    request = freeze([ServiceBusMessage(bytes(3000), message_id=str(n)) for n in range(6)])
    request.rewrite("orders")
    pieces = request.chunks(Maker(ENVELOPE_ROOM + 7000), 0)
    next(pieces)
    assert (request.parked, len(request.unstored_messages())) == (0, 6)  # sent, not accepted yet
    next(pieces)  # accepted; the second was sent, and fails
    assert request.parked == 2
    assert [message_id_of(message) for message, _ in request.unstored_messages()] == ["2", "3", "4", "5"]


@pytest.mark.spec("G-7", "G-18")
def test_an_unanswering_disk_makes_the_send_ambiguous(at_once: Driver) -> None:
    stalled = Classification(Failure.UNAVAILABLE, "the disk stalls", is_ambiguous=True)

    def answer(step: Step) -> Result:
        if isinstance(step, SpoolMessages):
            assert step.until >= at_once.now + 1.0
            return Result(at_once.now, OSError("stalled"), stalled)
        return at_once.fail()

    assert isinstance(send(at_once, answer, SpoolUse.LAST_RESORT), Stranded)
    raised = at_once.pair.events()[-1]
    assert isinstance(raised, SendRaised)
    assert raised.ambiguous
