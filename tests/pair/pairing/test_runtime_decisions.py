"""Decisions that both runtimes share, with state and time as arguments; nothing is sent."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from sbpair import (
    BacklogsCreated,
    BacklogsNotCreated,
    ClassifierFailed,
    EntityFailedOver,
    EntityState,
    Failure,
    LinkProbed,
    PairingDisabled,
    PairingEvent,
    PingSent,
    SpoolError,
)
from sbpair.pair.pairing.decide.pair import Attempt, Result
from sbpair.pair.pairing.decide.pair_state import SideState
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.decide.rotation import Choice
from sbpair.pair.pairing.events import entities_in_doubt
from sbpair.pair.pairing.options import is_disabled
from sbpair.pair.pairing.outcome import Classification
from sbpair.pair.pairing.request.classify import Phase
from sbpair.pair.pairing.request.request import LinkBatches, freeze
from sbpair.pair.pairing.shared import base_runtime
from sbpair.pair.pairing.shared.address import LinkSettings
from sbpair.pair.pairing.shared.backlog import backlogs_event
from sbpair.pair.pairing.shared.base_pool import role_of, spare_links
from sbpair.pair.pairing.shared.base_runtime import closed_result, not_written_in_time, time_left, with_count
from tests.pair.pairing.quiet_runtime import NOW, REFUSED, Base, P, S

pytestmark = [pytest.mark.spec("R-66"), pytest.mark.usefixtures("frozen")]

# --- construction


def test_the_options_reach_the_pair_in_seconds() -> None:
    core = Base(
        failover_interval=timedelta(seconds=11),
        ping_primary_interval=timedelta(seconds=12),
        backlog_queue_count=13,
        suspect_policy="redirect",
        spill_on_quota=True,
        failover_on_busy_after=timedelta(seconds=14),
        retry=RetryPolicy(5),
        fault_pair_on_refusal=True,
    )
    pair = core.pair
    assert (pair._failover_interval, pair._ping_interval, len(pair.rotation)) == (11.0, 12.0, 13)
    assert (pair.redirects_suspects, pair._spills_on_quota, pair._busy_limit) == (True, True, 14.0)
    assert pair._retry == RetryPolicy(5)
    assert pair._rng is core._rng is pair.rotation._rng
    assert core._rng.random() == random.Random(7).random()
    assert core.pair_state._ends == {SideState.CLOSED, SideState.REFUSED}
    assert core._backlogs.name(12) == "contoso/x-servicebus-transfer/12"
    assert core._backlogs._count == 13
    assert [side.role for side in core.sides] == [P, S]
    assert core.headroom is not None
    assert core.label == "contoso"
    usual = Base()
    assert (usual.pair.redirects_suspects, usual.pair._busy_limit) == (True, None)
    assert usual.pair_state._ends == {SideState.CLOSED}
    assert (usual.is_closed, usual.links, usual.on_receipt) == (False, {}, None)
    assert Base(headroom="off").headroom is None


@pytest.mark.spec("Q-16")
@pytest.mark.parametrize(("seconds", "lines"), [(15.0, 1), (15.001, 0)])
def test_a_time_too_short_for_the_service_to_reassign_a_message_is_told(
    seconds: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    Base(operation_timeout=timedelta(seconds=seconds))
    assert [record.getMessage() for record in caplog.records] == lines * [
        "operation_timeout is 0:00:15: reassigning a message to another partition can take the service "
        "0:00:15, so a send may fail that would have succeeded"
    ]


@pytest.mark.parametrize(("exists", "creates"), [(True, False), (False, True)])
def test_backlogs_are_created_unless_they_are_assumed(exists: bool, creates: bool) -> None:
    core = Base(assume_backlogs_exist=exists)
    assert core.creates_backlogs is creates
    must_exist = core._must_exist(3)
    assert (must_exist is None) is creates
    if must_exist is not None:
        assert isinstance(must_exist, MessagingEntityNotFoundError)
        assert must_exist.message == "Backlog queue contoso/x-servicebus-transfer/3 does not exist."
    assert core.retry_total == 0


def test_a_client_that_is_switched_off_says_so_once_and_leaves_all_to_the_sdk(
    disabled: None, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    core = Base(spool=tmp_path / "spool", retry=RetryPolicy(5))
    assert (core.retry_total, core.creates_backlogs, core.headroom) == (None, False, None)
    for _ in range(2):
        core.announce()
    assert core.told == [PairingDisabled(NOW, "", "SBPAIR_DISABLE is set in the environment")]
    assert core._opened_spool("contoso", None, core.told.append) is None  # type: ignore[arg-type]
    assert not (tmp_path / "spool").exists()
    core.by_hand(core.pair.fail_over, "orders")
    assert caplog.records[-1].getMessage() == "fail_over('orders') was ignored: SBPAIR_DISABLE is set"
    assert core.pair.state_of("orders") is EntityState.HEALTHY
    core.opening_failed("orders", ServiceBusConnectionError(message="refused"))
    core._hear(None, Result(NOW, None, REFUSED))
    assert (core.publications, core.pair_state.is_whole) == (0, True)
    flow = core._flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    assert next(flow) == Attempt(None, 1050.0)
    with pytest.raises(StopIteration):  # the SDK has retried
        flow.send(Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down")))


def test_a_client_that_is_not_switched_off_announces_nothing_and_obeys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = Base()
    core.announce()
    assert core.told == []
    core.by_hand(core.pair.fail_over, "orders")
    (event,) = core.told
    assert isinstance(event, EntityFailedOver)
    assert (event.at, event.path) == (NOW, "orders")
    assert core._opened_spool("contoso", None, core.told.append) is None  # type: ignore[arg-type]


# --- errors


def refuses(error: Exception) -> Failure:
    raise LookupError("no table")


@pytest.mark.parametrize(
    ("classifier", "failure", "told"),
    [
        (None, Failure.BUSY, None),
        (lambda error: None, Failure.BUSY, None),
        (lambda error: Failure.FULL, Failure.FULL, None),
        (lambda error: "full", Failure.FULL, None),
        (lambda error: "odd", Failure.BUSY, "ValueError: 'odd' is not a valid Failure"),
        (refuses, Failure.BUSY, "LookupError: no table"),
    ],
)
def test_the_classifier_of_the_options_has_the_last_word_where_it_has_one(
    classifier: Any, failure: Failure, told: str | None
) -> None:
    core = Base(classifier=classifier)
    assert core.classify(ServiceBusServerBusyError(), Phase.SENDING).failure is failure
    assert core.told == ([] if told is None else [ClassifierFailed(NOW, "", told)])


class Link:
    opened_at = NOW - 1.0

    def __init__(self, *, has_overrun: bool = False) -> None:
        self.is_open, self.has_overrun = True, has_overrun

    def deletion(self) -> None: ...


class Store:
    def release(self, pooled: Link) -> None: ...
    def discard(self, pooled: Link) -> None: ...


def test_what_the_watch_ended_is_told_as_late_with_its_cause() -> None:
    ended = ServiceBusConnectionError(message="shut")
    result = Base()._failure(
        Store(), Link(has_overrun=True), ended, Phase.SENDING, None, freeze(ServiceBusMessage("x")), NOW
    )
    assert isinstance(result.error, OperationTimeoutError)
    assert result.error.message == "The send did not end by its deadline."
    assert result.error.__cause__ is result.error.inner_exception is ended
    assert (result.now, result.was_reused) == (NOW, True)


@pytest.mark.spec("R-8")
@pytest.mark.parametrize(("began", "was_reused"), [(NOW - 2.0, False), (NOW, True)])
def test_a_link_counts_as_reused_when_it_was_open_before_the_attempt(began: float, was_reused: bool) -> None:
    message = freeze(ServiceBusMessage("x"))
    result = Base()._failure(
        Store(), Link(), ServiceBusConnectionError(), Phase.SENDING, None, message, began
    )
    assert result.was_reused is was_reused


@pytest.mark.parametrize("pooled", [None, Link()])
def test_what_came_of_an_attempt_says_when_and_over_which_link(pooled: Link | None) -> None:
    error = ServiceBusServerBusyError()
    result = Base()._failure(Store(), pooled, error, Phase.OPENING, None, freeze(ServiceBusMessage("x")), NOW)
    assert (result.now, result.error, result.was_reused) == (NOW, error, pooled is not None)
    assert result.classification is not None
    assert result.classification.failure is Failure.BUSY


def test_what_cannot_be_encoded_is_told_by_its_fault_unless_the_sdk_did() -> None:
    broken = freeze(ServiceBusMessage("x", application_properties={"n": 2**70}))
    down = ServiceBusConnectionError(message="refused")
    error, classification = Base()._classify(down, Phase.OPENING, None, broken)
    fault = error.__cause__
    assert isinstance(error, ServiceBusError)
    assert error.message == f"The message cannot be encoded: {fault}."
    assert error.inner_exception is fault
    assert (classification.failure, classification.is_local) == (Failure.CALLER, True)
    for same in (type(fault)("said already"), ServiceBusError("Handler failed", error=type(fault)("so"))):
        assert Base()._classify(same, Phase.OPENING, None, broken)[0] is same


@pytest.mark.spec("R-4")
def test_what_the_application_was_handling_is_no_cause_of_the_failure() -> None:
    handled = ServiceBusServerBusyError()
    error = ServiceBusError("Handler failed", error=TypeError("garbled"))
    error.__context__ = handled
    sent = freeze(ServiceBusMessage("x"))
    for pooled in (None, Link()):
        with_it = Base()._failure(Store(), pooled, error, Phase.SENDING, handled, sent, NOW).classification
        assert with_it == base_runtime.classify(error, Phase.SENDING, handled)
        assert with_it == Base().classify(error, Phase.SENDING, handled)
    seen: list[Exception] = []
    Base(classifier=seen.append).classify(error, Phase.SENDING)
    assert seen == [error]


@pytest.mark.spec("F-35")
def test_a_spool_is_opened_for_this_client(tmp_path: Path) -> None:
    core = Base(spool=tmp_path / "spool")
    told: list[Any] = []

    def send(*_: object) -> Any:
        return None

    for is_read_later in (False, True):
        spooling = core._opened_spool("contoso", send, told.append, is_read_later=is_read_later)
        assert spooling is not None
        assert (spooling._send_again, spooling._emit) == (send, told.append)
        assert spooling._spool._is_whole is not is_read_later
        assert spooling._spool._connection.execute("SELECT * FROM pairing").fetchall() == [("contoso",)]
        before = core._rng.getstate()
        spooling._schedule._jitter()
        assert core._rng.getstate() != before
        spooling.close()


# --- attempts


def test_an_attempt_takes_no_longer_than_a_try() -> None:
    core = Base(try_timeout=4.0)
    assert (core.limit_attempt(3.0), core.limit_attempt(5.0)) == (3.0, 4.0)
    step = Attempt(2, NOW + 9.0, is_fresh=True)
    assert core._limit(step) == Attempt(2, NOW + 4.0, is_fresh=True)
    assert core._limit(Attempt(None, NOW + 1.0)) == Attempt(None, NOW + 1.0)
    assert Base().limit_attempt(5.0) == 5.0
    assert Base()._limit(step) is step


def test_settings_of_a_link_are_for_its_entity_alone() -> None:
    core = Base()
    core.links["orders"] = LinkSettings(client_identifier="me")
    assert core._link_keywords("orders") == {"client_identifier": "me"}
    assert core._link_keywords("/0") == {}


@pytest.mark.spec("P-30")
@pytest.mark.parametrize(
    ("probe", "timeout", "until", "event", "count"),
    [
        ("message", 60.0, NOW + 30.0, PingSent(NOW, "orders", 1), 1),
        ("link", 20.0, NOW + 20.0, LinkProbed(NOW, "orders"), 0),
    ],
)
def test_a_ping_is_a_message_or_a_link_over_a_fresh_link_and_is_told(
    probe: Any, timeout: float, until: float, event: PairingEvent, count: int
) -> None:
    core = Base(probe=probe, operation_timeout=timedelta(seconds=timeout))
    attempt, request = core._ping_attempt("orders")
    assert attempt == Attempt(None, until, is_fresh=True)
    assert len(request) == count
    assert core._happened() == [event]


def test_only_while_an_entity_is_suspect_its_backlog_is_warmed() -> None:
    core, choice = Base(), Choice(backlog=4)
    assert core._backlog_to_warm("orders", choice) is None
    core.opening_failed("orders", ServiceBusConnectionError(message="refused"))
    assert core._backlog_to_warm("orders", choice) == 4
    core.pair.rotation.failed(4, NOW)
    assert core._backlog_to_warm("orders", choice) not in (4, None)  # it is out now
    core.by_hand(core.pair.fail_over, "orders")
    assert core._backlog_to_warm("orders", choice) is None


def test_a_backlog_that_was_created_is_no_error_and_one_that_was_not_is_classified() -> None:
    core = Base()
    assert core._creation_result(None) == Result(NOW)
    error = ServiceBusServerBusyError()
    result = core._creation_result(error)
    assert (result.now, result.error) == (NOW, error)
    assert result.classification is not None
    assert result.classification.failure is Failure.BUSY


# --- details


def test_results_say_when_and_why() -> None:
    error = ValueError("closed")
    why = "the client, or this side of it, is closed"
    assert closed_result(error) == Result(NOW, error, Classification(Failure.CALLER, why, is_local=True))
    late = not_written_in_time(is_withdrawn=False)
    assert str(late.error) == "the spool did not answer in time; the message may be in it nevertheless"
    assert isinstance(late.error, SpoolError)
    stalls = Classification(Failure.UNAVAILABLE, "the disk stalls", is_ambiguous=True)
    assert (late.now, late.classification) == (NOW, stalls)
    back = not_written_in_time(is_withdrawn=True)
    assert str(back.error) == "the spool did not answer in time; nothing was written"
    assert back.classification is None
    request = freeze([ServiceBusMessage("a"), ServiceBusMessage("b")])
    assert with_count(late, request, 0, 0) is late
    request.rewrite("orders")
    for _ in request.chunks(LinkBatches(ServiceBusMessageBatch, 1000), 0):
        pass
    told = with_count(late, request, 0, 0)
    assert (told.accepted, told.size) == (2, request.parked_bytes)


def test_an_attempt_without_time_is_not_made() -> None:
    assert time_left(NOW + 0.5) == 0.5
    for until in (NOW, NOW - 1.0):
        with pytest.raises(OperationTimeoutError) as told:
            time_left(until)
        assert told.value.message == "No time was left for this attempt."


def test_what_came_of_the_backlogs_is_told_with_its_cause() -> None:
    assert backlogs_event(("a", "b"), NOW) == BacklogsCreated(NOW, "", ("a", "b"))
    event = backlogs_event(ServiceBusServerBusyError(), NOW)
    assert isinstance(event, BacklogsNotCreated)
    assert (event.at, event.path) == (NOW, "")
    assert event.cause.startswith("ServiceBusServerBusyError: ")


def test_a_pool_belongs_to_a_backlog_by_its_slash_and_keeps_one_link_for_the_primary() -> None:
    assert (role_of("/0"), role_of("orders"), role_of("topic/orders")) == (S, P, P)
    assert (spare_links("/0"), spare_links("orders")) == (0, 1)
    over = EntityFailedOver(NOW, "orders", "why")
    assert entities_in_doubt([BacklogsCreated(NOW, "", ()), over]) == ["orders"]


@pytest.mark.parametrize("value", ["maybe" * 10, "2"])
def test_a_switch_that_says_neither_is_quoted_in_part(value: str) -> None:
    with pytest.raises(ValueError) as told:
        is_disabled({"SBPAIR_DISABLE": value})
    quoted = repr(value[:32])
    assert str(told.value) == f"the environment variable SBPAIR_DISABLE must be 1 or 0, not {quoted}"
