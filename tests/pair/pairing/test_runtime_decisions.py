"""Decisions that both runtimes share, with state and time as arguments; nothing is sent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from sbpair import EntityState, Failure
from sbpair.events import (
    ClassifierFailed,
    EntityFailedOver,
    PairingDisabled,
)
from sbpair.pair.pairing.decide.pair import Attempt, Result
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.options import is_disabled
from sbpair.pair.pairing.outcome import Classification
from sbpair.pair.pairing.request.classify import Phase, classify
from sbpair.pair.pairing.request.request import freeze
from tests.pair.pairing.quiet_runtime import NOW, REFUSED, Base

pytestmark = [pytest.mark.spec("R-66"), pytest.mark.usefixtures("frozen")]


def open_spool(core: Base, *, is_read_later: bool = False) -> None:
    def send(*_: object) -> Any:
        raise AssertionError("nothing is sent here")

    core.spool.open(
        "contoso",
        send,
        core.told.extend,
        core._rng,
        core.headroom,
        core._timers_changed,
        is_read_later=is_read_later,
    )


# --- construction


@pytest.mark.spec("Q-16")
@pytest.mark.parametrize(("seconds", "lines"), [(15.0, 1), (15.001, 0)])
def test_a_timeout_too_short_for_a_message_reassignment_is_logged(
    seconds: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    Base(operation_timeout=timedelta(seconds=seconds))
    assert [record.getMessage() for record in caplog.records] == lines * [
        "operation_timeout is 0:00:15: reassigning a message to another partition can take the service "
        "0:00:15, so a send may fail that would have succeeded"
    ]


@pytest.mark.parametrize(("exists", "creates"), [(True, False), (False, True)])
def test_backlogs_are_created_unless_assumed_to_exist(exists: bool, creates: bool) -> None:
    core = Base(assume_backlogs_exist=exists)
    assert core.creates_backlogs is creates
    must_exist = core._must_exist(3)
    assert (must_exist is None) is creates
    if must_exist is not None:
        assert isinstance(must_exist, MessagingEntityNotFoundError)
        assert must_exist.message == "Backlog queue contoso/x-servicebus-transfer/3 does not exist."
    assert core.retry_total == 0


def test_a_disabled_client_logs_it_once_and_leaves_everything_to_the_sdk(
    disabled: None, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    core = Base(spool=tmp_path / "spool", retry=RetryPolicy(5))
    assert (core.retry_total, core.creates_backlogs, core.headroom) == (None, False, None)
    for _ in range(2):
        core.announce()
    assert core.told == [PairingDisabled(NOW, "", "SBPAIR_DISABLE is set in the environment")]
    open_spool(core)
    assert core.spool.flow is None
    assert not (tmp_path / "spool").exists()
    core.by_hand(core.pair.fail_over, "orders")
    assert caplog.records[-1].getMessage() == "fail_over('orders') was ignored: SBPAIR_DISABLE is set"
    assert core.pair.state_of("orders") is EntityState.HEALTHY
    core.opening_failed("orders", ServiceBusConnectionError(message="refused"))
    core.hear(None, Result(NOW, None, REFUSED))
    assert (core.publications, core.sides.state.is_whole) == (0, True)
    flow = core.flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    assert next(flow) == Attempt(None, 1050.0)
    with pytest.raises(StopIteration):  # the SDK has retried
        flow.send(Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down")))


def test_an_enabled_client_logs_no_notice_and_obeys_commands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = Base()
    core.announce()
    assert core.told == []
    core.by_hand(core.pair.fail_over, "orders")
    (event,) = core.told
    assert isinstance(event, EntityFailedOver)
    assert (event.at, event.path) == (NOW, "orders")
    open_spool(core)
    assert core.spool.flow is None


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
def test_the_classifier_of_the_options_decides_where_given(
    classifier: Any, failure: Failure, told: str | None
) -> None:
    core = Base(classifier=classifier)
    assert core.failures.classify(ServiceBusServerBusyError(), Phase.SENDING).failure is failure
    assert core.told == ([] if told is None else [ClassifierFailed(NOW, "", told)])


class Link:
    opened_at = NOW - 1.0

    def __init__(self, *, has_overrun: bool = False) -> None:
        self.is_open, self.has_overrun = True, has_overrun

    def deletion(self) -> None: ...


class Store:
    def release(self, pooled: Link) -> None: ...
    def discard(self, pooled: Link) -> None: ...


def test_a_call_ended_by_the_watch_is_reported_as_late_with_its_cause() -> None:
    ended = ServiceBusConnectionError(message="shut")
    result = Base().failures.of_attempt(
        Store(), Link(has_overrun=True), ended, Phase.SENDING, None, freeze(ServiceBusMessage("x")), NOW
    )
    assert isinstance(result.error, OperationTimeoutError)
    assert result.error.message == "The send did not end by its deadline."
    assert result.error.__cause__ is result.error.inner_exception is ended
    assert (result.now, result.was_reused) == (NOW, True)


@pytest.mark.spec("R-8")
@pytest.mark.parametrize(("began", "was_reused"), [(NOW - 2.0, False), (NOW, True)])
def test_a_link_open_before_the_attempt_counts_as_reused(began: float, was_reused: bool) -> None:
    message = freeze(ServiceBusMessage("x"))
    result = Base().failures.of_attempt(
        Store(), Link(), ServiceBusConnectionError(), Phase.SENDING, None, message, began
    )
    assert result.was_reused is was_reused


@pytest.mark.spec("R-4")
def test_an_exception_being_handled_by_the_application_is_not_a_cause() -> None:
    handled = ServiceBusServerBusyError()
    error = ServiceBusError("Handler failed", error=TypeError("garbled"))
    error.__context__ = handled
    sent = freeze(ServiceBusMessage("x"))
    for pooled in (None, Link()):
        with_it = (
            Base()
            .failures.of_attempt(Store(), pooled, error, Phase.SENDING, handled, sent, NOW)
            .classification
        )
        assert with_it == classify(error, Phase.SENDING, handled)
        assert with_it == Base().failures.classify(error, Phase.SENDING, handled)
    seen: list[Exception] = []
    Base(classifier=seen.append).failures.classify(error, Phase.SENDING)
    assert seen == [error]


# --- details


@pytest.mark.parametrize("value", ["maybe" * 10, "2"])
def test_an_invalid_switch_value_is_quoted_in_part(value: str) -> None:
    with pytest.raises(ValueError) as told:
        is_disabled({"SBPAIR_DISABLE": value})
    quoted = repr(value[:32])
    assert str(told.value) == f"the environment variable SBPAIR_DISABLE must be 1 or 0, not {quoted}"
