"""The flow of a send whose session is ordered: the peeks that open its fence, and its one backlog queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from sbpair.pair.envelope.ordering import place_of
from sbpair.pair.pairing.decide.fence import PEEK_EVERY
from sbpair.pair.pairing.decide.ordered_sends import MAX_PEEK_SECONDS
from sbpair.pair.pairing.decide.pair import Attempt, CreateBacklog, Pause, Peek, Result
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.events import FenceOpened, FenceUnproved, MessageParked, SendRaised
from sbpair.pair.pairing.outcome import Classification, Failure, Outcome, Refused, Stored, Stranded

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Driver

BACKLOGS = 4
PLACE = place_of("orders", "s", BACKLOGS)
BACKLOG = BACKLOGS + PLACE.queue  # ordered queues are numbered after the others

pytestmark = pytest.mark.spec("O-4")


@pytest.fixture
def ordered(pair_of: Callable[..., Driver]) -> Driver:
    """A driver over a pair that keeps the order of sessions, and fails over at the first failure."""
    return pair_of(interval=0.0, backlogs=BACKLOGS, keeps_order=True)


def failed(
    failure: Failure = Failure.UNAVAILABLE, at: float = 0.0, *, was_reused: bool = False, **classified: bool
) -> Result:
    classification = Classification(failure, failure.value)._replace(**classified)
    return Result(at, ConnectionError(failure.value), classification, was_reused)


def send(driver: Driver, answers: Iterable[Result], budget: float = 60.0) -> Outcome:
    """Send one message of session "s", whose steps get these results: no more and no fewer."""
    driver.steps = []
    flow = driver.pair.send_flow(
        "orders",
        1,
        Choice(),
        now=driver.now,
        deadline=driver.now + budget,
        message_ids=lambda: ("a",),
        session="s",
    )
    driver.steps.append(next(flow))
    left = iter(answers)
    for answer in left:
        try:
            driver.steps.append(flow.send(answer))
        except StopIteration as ended:
            assert not list(left)
            outcome: Outcome = ended.value
            return outcome
    raise AssertionError(f"the flow goes on with {driver.steps[-1]}")


def open_fence(driver: Driver) -> None:
    """Let the driver's session pass, as an empty queue does."""
    send(driver, [Result(driver.now, is_empty=True), driver.ok()])
    driver.pair.events()


def test_a_session_passes_once_its_queue_is_empty(ordered: Driver) -> None:
    outcome = send(ordered, [Result(2.0, is_empty=True), Result(2.0)])

    assert outcome == Stored(None, is_ambiguous=False)
    assert ordered.steps == [Peek(BACKLOG, None, MAX_PEEK_SECONDS), Attempt(None, 2.0 + 10.0)]
    assert ordered.pair.events() == []  # no session was known to be fenced


def test_a_session_behind_a_non_empty_queue_is_peeked_and_then_parked(ordered: Driver) -> None:
    outcome = send(ordered, [Result(0.5), Result(0.9), Result(3.0)])

    assert outcome == Stored(BACKLOG, is_ambiguous=False)
    assert ordered.steps == [
        Peek(BACKLOG, None, MAX_PEEK_SECONDS),
        Peek(BACKLOG, PLACE.parked_id, 0.5 + MAX_PEEK_SECONDS),
        Attempt(BACKLOG, 10.9),
    ]
    assert ordered.pair.events() == [
        MessageParked(3.0, "orders", BACKLOG, 1, ("a",), False, "s", reason="failed_over")
    ]


def test_a_peek_takes_at_most_half_of_the_time_that_a_send_has(ordered: Driver) -> None:
    send(ordered, [Result(0.5), Result(0.9), Result(3.0)], budget=6.0)
    assert ordered.steps[:2] == [Peek(BACKLOG, None, 3.0), Peek(BACKLOG, PLACE.parked_id, 0.5 + 2.75)]


def test_a_send_out_of_time_is_parked_without_a_peek(ordered: Driver) -> None:
    outcome = send(ordered, [Result(6.0), Result(6.5)], budget=6.0)
    assert outcome == Stored(BACKLOG, is_ambiguous=False)
    assert ordered.steps[1:] == [Attempt(BACKLOG, 6.0)]


def test_a_parked_session_passes_once_it_is_empty_and_an_event_says_so(ordered: Driver) -> None:
    send(ordered, [Result(0.0), Result(0.0), Result(0.0)])
    ordered.pair.events()
    ordered.now = PEEK_EVERY

    assert send(ordered, [Result(1.5, is_empty=True), Result(1.5)]) == Stored(None, is_ambiguous=False)
    assert ordered.pair.events() == [FenceOpened(1.5, "orders", BACKLOG, 1)]


def test_a_queue_that_does_not_exist_is_empty(ordered: Driver) -> None:
    outcome = send(ordered, [failed(Failure.CONFIGURATION, is_missing=True), ordered.ok()])
    assert outcome == Stored(None, is_ambiguous=False)


def test_a_failed_peek_proves_nothing_and_is_reported_until_one_succeeds(ordered: Driver) -> None:
    unproved = FenceUnproved(0.0, "orders", BACKLOG, "unavailable")
    send(ordered, [failed(), failed(), ordered.ok()])
    assert [event for event in ordered.pair.events() if isinstance(event, FenceUnproved)] == [unproved]

    for first in (failed(at=1.0), Result(2.0), failed(at=3.0)):
        ordered.now = first.now
        send(ordered, [first, first, first])
    told = [event for event in ordered.pair.events() if isinstance(event, FenceUnproved)]
    assert len(told) == 1  # the second failure after the peek that succeeded


def test_a_session_of_a_failed_over_entity_is_parked_without_a_peek(ordered: Driver) -> None:
    ordered.fail_over()
    assert send(ordered, [Result(2.0)]) == Stored(BACKLOG, is_ambiguous=False)
    assert ordered.steps == [Attempt(BACKLOG, 10.0)]


def test_a_session_is_fenced_from_before_its_message_is_parked_until_a_later_peek(ordered: Driver) -> None:
    open_fence(ordered)
    assert ordered.pair.ordered is not None
    fence, place = ordered.pair.ordered.fence, PLACE
    assert fence.lets_pass(place)
    ordered.fail_over()
    flow = ordered.pair.send_flow("orders", 1, Choice(), now=0.0, deadline=60.0, session="s")
    next(flow)
    assert not fence.lets_pass(place)
    flow.close()  # as for a send that is cancelled
    ordered.now = PEEK_EVERY
    peek = fence.next_peek(place, ordered.now)
    assert peek is not None
    assert fence.note_empty_peek(peek) == 1


@pytest.mark.spec("O-5")
def test_a_session_keeps_its_queue_when_that_fails(ordered: Driver) -> None:
    ordered.fail_over()
    outcome = send(ordered, [failed(at=1.0, is_ambiguous=True)])

    assert isinstance(outcome, Stranded)
    assert [str(cause) for cause in outcome.causes] == ["unavailable"]
    raised = ordered.pair.events()[-1]
    assert raised == SendRaised(1.0, "orders", "ConnectionError", ("a",), True, "s")


@pytest.mark.spec("R-7")
def test_a_queue_that_is_unavailable_is_tried_again_after_a_pause(pair_of: Callable[..., Driver]) -> None:
    retry = RetryPolicy(2, backoff_factor=1.0, mode="fixed")
    driver = pair_of(interval=60.0, backlogs=BACKLOGS, keeps_order=True, retry=retry)
    driver.fail_over()
    outcome = send(driver, [failed(), Result(1.0), failed(at=1.0), Result(2.0), Result(3.0)])

    assert outcome == Stored(BACKLOG, is_ambiguous=False)
    first, second, third = (Attempt(BACKLOG, now + 10.0) for now in (0.0, 1.0, 2.0))
    assert driver.steps == [first, Pause(1.0), second, Pause(2.0), third]


def test_a_link_that_may_have_died_while_idle_is_replaced_once(ordered: Driver) -> None:
    ordered.fail_over()
    stale = failed(was_reused=True, is_link_in_doubt=True)

    assert send(ordered, [stale, ordered.ok()]) == Stored(BACKLOG, is_ambiguous=False)
    assert ordered.steps == [Attempt(BACKLOG, 10.0), Attempt(BACKLOG, 10.0, is_fresh=True)]
    assert isinstance(send(ordered, [stale, stale]), Stranded)


def test_a_queue_that_is_missing_is_created_once_and_the_message_parked_there(ordered: Driver) -> None:
    ordered.fail_over()
    missing = failed(Failure.CONFIGURATION, is_missing=True)

    assert send(ordered, [missing, Result(1.0), Result(2.0)]) == Stored(BACKLOG, is_ambiguous=False)
    assert ordered.steps == [Attempt(BACKLOG, 10.0), CreateBacklog(BACKLOG, 60.0), Attempt(BACKLOG, 11.0)]
    assert isinstance(send(ordered, [missing, Result(1.0), missing]), Stranded)


def test_a_queue_that_cannot_be_created_is_among_the_causes(ordered: Driver) -> None:
    ordered.fail_over()
    denied = PermissionError("may not create queues")
    outcome = send(ordered, [failed(Failure.CONFIGURATION, is_missing=True), Result(1.0, denied)])
    assert isinstance(outcome, Stranded)
    assert outcome.causes[-1] is denied


def test_no_queue_is_created_after_the_deadline(ordered: Driver) -> None:
    ordered.fail_over()
    outcome = send(ordered, [failed(Failure.CONFIGURATION, at=60.0, is_missing=True)])
    assert isinstance(outcome, Stranded)


def test_a_message_that_no_queue_would_take_is_refused(ordered: Driver) -> None:
    ordered.fail_over()
    outcome = send(ordered, [failed(Failure.CALLER, is_too_large=True)])

    assert isinstance(outcome, Refused)
    assert (str(outcome.error), outcome.is_parked, outcome.is_too_large) == ("caller", True, True)
    assert outcome.failure is Failure.CALLER


def test_a_failure_reports_the_messages_parked_before_it_and_the_rest_continues(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(
        interval=60.0, backlogs=BACKLOGS, keeps_order=True, retry=RetryPolicy(1, 1.0, mode="fixed")
    )
    driver.fail_over()
    driver.pair.events()
    flow = driver.pair.send_flow(
        "orders", 3, Choice(), now=0.0, deadline=60.0, message_ids=lambda: ("a", "b", "c"), session="s"
    )
    next(flow)
    flow.send(failed(at=1.0)._replace(accepted=2))
    flow.send(Result(2.0))
    with pytest.raises(StopIteration) as ended:
        flow.send(Result(3.0))

    assert ended.value.value == Stored(BACKLOG, is_ambiguous=False)
    assert driver.pair.events() == [
        MessageParked(1.0, "orders", BACKLOG, 2, ("a", "b"), False, "s", reason="failed_over"),
        MessageParked(3.0, "orders", BACKLOG, 1, ("c",), False, "s", reason="failed_over"),
    ]
