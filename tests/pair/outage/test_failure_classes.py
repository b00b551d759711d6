"""Every row of the table of failure classes against a real broker: what fails over and what is raised.

Each row is sent twice: with a failover interval of 0, where an outage parks that message, and of an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from sbpair import (
    EntityState,
    PairedServiceBusClient,
    PairedServiceBusSender,
    ReservedPropertyError,
    StoredIn,
)
from sbpair.broker import NamespaceControl
from sbpair.broker.faults import RejectWith
from sbpair.events import SendRaised
from tests.pair.outage.conftest import Either
from tests.pair.outage.tap import Passing, Tap

BUDGET = 9.0  # seconds; shorter than the pause that a busy service asks for
HOUR = 3600.0


def rejected(condition: str) -> Callable:
    return lambda primary: primary.fault("orders", RejectWith(condition, "so the test wants it"))


@contextmanager
def down(primary: NamespaceControl, how: str) -> Iterator[None]:
    primary.take_down(how)
    try:
        yield
    finally:
        primary.bring_up()


@contextmanager
def deleted(primary: NamespaceControl) -> Iterator[None]:
    primary.delete_queue("orders")
    yield
    primary.create_queue("orders")


@contextmanager
def disabled(primary: NamespaceControl, status: str) -> Iterator[None]:
    as_it_was = primary.description("orders")
    primary.update_queue("orders", replace(as_it_was, status=status))
    yield
    primary.update_queue("orders", as_it_was)


UNAVAILABLE = {
    "refused": (lambda primary: down(primary, "refuse"), ServiceBusConnectionError),
    "reset": (lambda primary: down(primary, "reset"), ServiceBusError),
    "internal error": (rejected("amqp:internal-error"), ServiceBusError),
    "link detached": (rejected("amqp:link:detach-forced"), ServiceBusError),
    "connection closed": (rejected("amqp:connection:forced"), ServiceBusError),
    "moving": (rejected("com.microsoft:container-close"), ServiceBusError),
    "no partition": (rejected("com.microsoft:partition-not-available"), ServiceBusError),
    "timed out": (rejected("com.microsoft:timeout"), OperationTimeoutError),
    "cancelled": (rejected("com.microsoft:operation-cancelled"), ServiceBusError),
    "suspended": (rejected("com.microsoft:namespace-suspended"), ServiceBusError),
    "unknown": (rejected("com.contoso:never-heard-of"), ServiceBusError),
}
RAISED = {
    "busy": (rejected("com.microsoft:server-busy"), ServiceBusServerBusyError),
    "no right": (rejected("amqp:unauthorized-access"), ServiceBusAuthorizationError),
    "not found": (rejected("amqp:not-found"), MessagingEntityNotFoundError),
    "deleted": (deleted, (MessagingEntityNotFoundError, ServiceBusAuthenticationError)),
    "disabled": (lambda primary: disabled(primary, "Disabled"), MessagingEntityDisabledError),
    "disabled for sends": (lambda primary: disabled(primary, "SendDisabled"), MessagingEntityDisabledError),
    "full": (rejected("amqp:resource-limit-exceeded"), ServiceBusQuotaExceededError),
    "too large": (rejected("amqp:link:message-size-exceeded"), MessageSizeExceededError),
    "not allowed": (rejected("amqp:not-allowed"), ServiceBusError),
    "unreadable": (rejected("amqp:decode-error"), ServiceBusError),
    "argument": (rejected("com.microsoft:argument-error"), ServiceBusError),
}


def message() -> ServiceBusMessage:
    return ServiceBusMessage(
        b"an order",
        message_id="m-1",
        session_id="s-1",
        application_properties={"mine": 1},
        subject="s",
        correlation_id="c",
    )


def looks(sent: ServiceBusMessage) -> tuple[object, ...]:
    """Return what a caller can observe about a message."""
    names = ("message_id", "session_id", "time_to_live", "scheduled_enqueue_time_utc", "subject", "to")
    fields = [getattr(sent, name) for name in names]
    return (list(sent.body), dict(sent.application_properties or {}), *fields, sent.correlation_id)


@pytest.mark.spec("P-3", "P-4", "G-7", "G-12")
@pytest.mark.parametrize("row", UNAVAILABLE)
async def test_an_outage_parks_the_message_and_is_raised_only_where_the_options_say_so(
    either: Either, row: str
) -> None:
    trouble, error = UNAVAILABLE[row]
    at_once, patient = either.client(interval=0, ping=60), either.client(interval=HOUR, ping=60)
    raising = either.client(interval=HOUR, ping=60, suspect_policy="raise")
    with trouble(either.primary):
        for client, state in ((at_once, EntityState.FAILED_OVER), (patient, EntityState.SUSPECT)):
            sent = message()
            receipt = await either.send(client.get_queue_sender("orders"), sent, timeout=BUDGET)
            assert receipt.stored_in is StoredIn.BACKLOG
            assert client.state_of("orders") is state
            assert looks(sent) == looks(message())
        again = message()
        with pytest.raises(error):
            await either.send(raising.get_queue_sender("orders"), again, timeout=BUDGET)
        assert raising.state_of("orders") is EntityState.SUSPECT
    assert looks(again) == looks(message())
    assert sum(either.parked()) == 2


@pytest.mark.spec("P-2", "P-3", "F-40", "F-41", "F-42", "F-43", "F-44", "A-1")
@pytest.mark.parametrize(
    ("row", "policy"),
    [*((row, "redirect") for row in RAISED if row != "busy"), *((row, "raise") for row in RAISED)],
)
async def test_whatever_is_no_outage_is_raised_and_never_fails_over(
    either: Either, row: str, policy: str
) -> None:
    trouble, error = RAISED[row]
    at_once = either.client(interval=0, ping=60, suspect_policy=policy)
    sender = at_once.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    with trouble(either.primary):
        sent = message()
        with pytest.raises(error):
            await either.send(sender, sent, timeout=BUDGET)
        assert at_once.state_of("orders") is EntityState.HEALTHY
    assert looks(sent) == looks(message())
    assert sum(either.parked()) == 0
    assert at_once.pings_sent == 0
    assert (await either.send(sender, ServiceBusMessage("after"))).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("P-2", "P-3", "P-20")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (ServiceBusMessage(bytes(2 * 1024 * 1024)), MessageSizeExceededError),
        (ServiceBusMessage("x", application_properties={"n": 2**40}), ServiceBusError),
        (ServiceBusMessage("x", application_properties={"x-ms-path": "y"}), ReservedPropertyError),
        (42, TypeError),
        (None, TypeError),
    ],
    ids=["too large", "no int", "reserved", "no message", "nothing"],
)
async def test_a_caller_error_is_raised_and_never_fails_over(
    either: Either, wrong: object, error: type[Exception]
) -> None:
    client = either.client(interval=0, ping=60)
    sender = client.get_queue_sender("orders")
    with pytest.raises(error):
        await either.send(sender, wrong)
    assert client.state_of("orders") is EntityState.HEALTHY
    assert either.primary.counts("orders").total == 0
    assert either.secondary.operations.sends == 0


@pytest.mark.spec("F-42", "F-55")
@pytest.mark.parametrize("was_used", [True, False])
async def test_a_queue_that_is_made_again_is_sent_to_over_a_new_link_and_is_no_outage(
    either: Either, was_used: bool
) -> None:
    """The links of the deleted queue are detached, also one that is open and was never sent over."""
    client = either.client(interval=0, ping=60)
    sender = await opened(either, client)
    if was_used:
        await either.send(sender, ServiceBusMessage("deleted with its queue"))
    with deleted(either.primary):
        pass
    receipt = await either.send(sender, ServiceBusMessage("x"))
    assert receipt.stored_in is StoredIn.PRIMARY
    assert client.state_of("orders") is EntityState.HEALTHY
    assert (either.primary.counts("orders").active, either.parked()) == (1, [0, 0])


@pytest.mark.spec("X-27")
async def test_a_misspelt_queue_is_named_with_a_remedy(either: Either) -> None:
    """The SDK's own error has the class of a refused key and no word of the name."""
    sender = either.client().get_queue_sender("ordres")
    with pytest.raises(ServiceBusAuthenticationError, match=r"create it, or correct its name.*/ordres'"):
        await either.send(sender, ServiceBusMessage("x"))


@pytest.mark.spec("F-42", "F-55")
async def test_a_queue_that_is_deleted_during_a_send_is_missing_and_is_no_outage(
    either: Either, tap: Tap
) -> None:
    client = either.client(interval=0, ping=60)

    def delete_it_and_drop_the_answer(passing: Passing) -> bool:
        if passing.is_answer("orders"):
            either.primary.delete_queue("orders")
            return False
        return True

    tap.rule = delete_it_and_drop_the_answer
    with pytest.raises(MessagingEntityNotFoundError, match="deleted while a message was being sent"):
        await either.send(client.get_queue_sender("orders"), message())
    assert client.state_of("orders") is EntityState.HEALTHY
    assert either.parked() == [0, 0]
    raised = await either.heard(SendRaised)
    assert isinstance(raised, SendRaised)
    assert raised.ambiguous  # a receiver may have had it before


async def opened(either: Either, client: PairedServiceBusClient) -> PairedServiceBusSender:
    """A sender that was entered, and so has an open link."""
    sender = client.get_queue_sender("orders")
    if either.is_asyncio:
        await sender.__aenter__()  # type: ignore[attr-defined]
    else:
        sender.__enter__()
    return sender
