"""The fate of a link after a failed attempt, and whether link or message caused the failure (R-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from sbpair import Failure, PairedNamespaceOptions
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.request.classify import Phase
from sbpair.pair.pairing.request.request import SendRequest, freeze
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from sbpair.pair.pairing.shared.base_runtime import BaseRuntime

GOOD = freeze(ServiceBusMessage("x"))
UNENCODABLE = freeze(ServiceBusMessage("x", application_properties={"a": "\ud800"}))


class Link:
    """A link after its attempt failed."""

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open
        self.has_overrun = False
        self.opened_at = 0.0
        self.deleted: MessagingEntityNotFoundError | None = None

    def deletion(self) -> MessagingEntityNotFoundError | None:
        return self.deleted


class Store:
    """A pool that records which links were returned."""

    def __init__(self) -> None:
        self.given: list[Link] = []
        self.dropped: list[Link] = []

    def release(self, pooled: Link) -> None:
        self.given.append(pooled)

    def discard(self, pooled: Link) -> None:
        self.dropped.append(pooled)


@pytest.fixture
def core() -> BaseRuntime:
    def unused() -> Any:
        raise AssertionError("no administration is needed here")

    sides = (SdkNamespace(role, f"{role}.example", SdkSettings()) for role in Side)
    return BaseRuntime(*sides, "contoso", PairedNamespaceOptions(), unused, None)


@pytest.mark.parametrize("error", [MessageSizeExceededError(), ServiceBusServerBusyError()])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_link_is_reused_after_a_refusal_unless_the_sdk_closed_it(
    core: BaseRuntime, error: Exception, is_open: bool
) -> None:
    store, link = Store(), Link(is_open=is_open)
    core.failures.of_attempt(store, link, error, Phase.SENDING, None, GOOD, 1.0)
    assert (store.given, store.dropped) == (([link], []) if is_open else ([], [link]))


def test_a_link_is_never_reused_after_an_outage(core: BaseRuntime) -> None:
    store, link = Store(), Link(is_open=True)
    core.failures.of_attempt(
        store, link, ServiceBusConnectionError(message="reset"), Phase.SENDING, None, GOOD, 1.0
    )
    assert (store.given, store.dropped) == ([], [link])


@pytest.mark.spec("F-42")
@pytest.mark.parametrize("error", [ServiceBusConnectionError(message="why?"), ServiceBusServerBusyError()])
def test_a_failure_without_a_reason_is_explained_by_the_deletion_of_the_entity(
    core: BaseRuntime, error: Exception
) -> None:
    store, link = Store(), Link(is_open=True)
    link.deleted = MessagingEntityNotFoundError(condition=b"amqp:resource-deleted")
    result = core.failures.of_attempt(store, link, error, Phase.SENDING, None, GOOD, 1.0)
    assert result.classification is not None
    if isinstance(error, ServiceBusServerBusyError):
        assert (result.error, result.classification.failure) == (error, Failure.BUSY)
        return
    assert (result.error, link.deleted.__cause__) == (link.deleted, error)
    assert result.classification.failure is Failure.CONFIGURATION
    assert (result.classification.is_missing, result.classification.is_ambiguous) == (True, True)
    assert (store.given, store.dropped) == ([], [link])


GARBLED = ServiceBusError("Handler failed", error=TypeError("'NoneType' object is not subscriptable"))


@pytest.mark.spec("R-4")
@pytest.mark.parametrize(
    ("sent", "failure", "is_ambiguous"),
    [(GOOD, Failure.UNAVAILABLE, True), (UNENCODABLE, Failure.CALLER, False)],
    ids=["encodable", "unencodable"],
)
def test_an_encodable_message_makes_a_python_error_an_outage_and_any_other_the_callers_error(
    core: BaseRuntime, sent: SendRequest, failure: Failure, is_ambiguous: bool
) -> None:
    result = core.failures.of_attempt(Store(), Link(is_open=True), GARBLED, Phase.SENDING, None, sent, 1.0)
    assert result.classification is not None
    assert (result.classification.failure, result.classification.is_ambiguous) == (failure, is_ambiguous)


@pytest.mark.spec("R-4")
def test_a_message_that_cannot_be_encoded_is_the_callers_fault_in_an_outage_too(core: BaseRuntime) -> None:
    down = ServiceBusConnectionError(message="refused")
    result = core.failures.of_attempt(Store(), None, down, Phase.OPENING, None, UNENCODABLE, 1.0)
    assert result.classification is not None
    assert result.classification.failure is Failure.CALLER
    assert isinstance(result.error, ServiceBusError)  # as the SDK has it
    assert isinstance(result.error.__cause__, UnicodeEncodeError)


@pytest.mark.spec("R-4")
@pytest.mark.parametrize(
    "make",
    [
        lambda: [ServiceBusMessage("x"), ServiceBusMessage("y", application_properties={"n": 2**70})],
        lambda: ServiceBusMessage("x", application_properties={"when": object()}),
    ],
    ids=["too large a number", "no AMQP type"],
)
def test_an_unencodable_message_is_found_without_a_link(
    core: BaseRuntime, make: Callable[[], object]
) -> None:
    assert freeze(make()).encoding_fault() is not None
    assert GOOD.encoding_fault() is None
