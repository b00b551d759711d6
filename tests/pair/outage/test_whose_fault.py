"""Errors that do not come from the service, and a backlog that differs from the others (R-3, R-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import EntityState, PairedServiceBusClient, StoredIn
from sbpair.broker.errors import BrokerError
from sbpair.broker.faults import RejectWith
from sbpair.events import BacklogWithdrawn, SendRaised
from tests.pair.outage.conftest import Either
from tests.pair.outage.tap import Passing, Tap

BACKLOG = "contoso/x-servicebus-transfer/{}"
EMPTY_DISPOSITION = b"\x00\x53\x15\x45"  # described list 0x15 without its fields: the SDK's decoder stumbles


def garbled(passing: Passing) -> bytes:
    """Return a frame on the same channel that the SDK cannot decode."""
    head = bytes([2, 0]) + passing.channel.to_bytes(2, "big")
    body = head + EMPTY_DISPOSITION
    return (len(body) + 4).to_bytes(4, "big") + body


def first_answer_garbled(path: str) -> Callable[[Passing], bool | bytes]:
    answers = []

    def rule(passing: Passing) -> bool | bytes:
        if passing.is_answer(path):
            answers.append(passing)
            if len(answers) == 1:
                return garbled(passing)
        return True

    return rule


@pytest.fixture
def secondary_tap(either: Either) -> Iterator[Tap]:
    with Tap(either.secondary) as tap:
        either.ways = either.ways[0], tap.connection_string
        yield tap


@pytest.mark.slow
@pytest.mark.spec("R-4", "G-7")
async def test_a_send_raised_after_a_garbled_answer_is_ambiguous_and_counts(either: Either, tap: Tap) -> None:
    client = either.client(interval=60, suspect_policy="raise")
    tap.rule = first_answer_garbled("orders")
    with pytest.raises(ServiceBusError):
        await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    raised = await either.heard(SendRaised)
    assert isinstance(raised, SendRaised)
    assert raised.ambiguous
    assert client.state_of("orders") is EntityState.SUSPECT
    assert either.primary.counts("orders").active == 1


@pytest.mark.slow
@pytest.mark.spec("R-4", "P-4")
async def test_a_send_redirected_after_a_garbled_answer_is_marked_ambiguous(either: Either, tap: Tap) -> None:
    client = either.client(interval=0, ping=60)
    tap.rule = first_answer_garbled("orders")
    receipt = await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert (receipt.stored_in, receipt.ambiguous) == (StoredIn.BACKLOG, True)


@pytest.mark.slow
@pytest.mark.spec("R-4", "P-5")
async def test_a_garbled_answer_of_a_backlog_leads_to_the_next(either: Either, secondary_tap: Tap) -> None:
    client = await held(either)
    sender = client.get_queue_sender("orders")
    sender._choice.backlog = 0
    secondary_tap.rule = first_answer_garbled(BACKLOG.format(0))
    receipt = await either.send(sender, ServiceBusMessage("x"))
    assert (receipt.stored_in, receipt.backlog in (1, 2), receipt.ambiguous) == (StoredIn.BACKLOG, True, True)
    assert {event.backlog for event in either.told if isinstance(event, BacklogWithdrawn)} == {0}


@pytest.mark.spec("R-4")
async def test_a_message_that_cannot_be_encoded_is_the_callers_error_in_an_outage_too(either: Either) -> None:
    client = either.client(interval=0, ping=60)
    either.primary.take_down("refuse")
    with pytest.raises(Exception, match="surrogates not allowed"):
        await either.send(
            client.get_queue_sender("orders"), ServiceBusMessage("x", application_properties={"a": "\ud800"})
        )
    assert client.state_of("orders") is EntityState.HEALTHY


async def held(either: Either) -> PairedServiceBusClient:
    """Create a client that parks; a test may have created some of its three backlogs differently."""
    for index in range(3):
        with suppress(BrokerError):
            either.secondary.create_queue(BACKLOG.format(index))
    client = either.client(ping=60, backlogs=3, assume_backlogs_exist=True)
    client.hold("orders")
    return client


@pytest.mark.spec("R-3", "P-5")
async def test_one_backlog_that_requires_sessions_fails_no_send(either: Either) -> None:
    either.secondary.create_queue(BACKLOG.format(1), requires_session=True)
    client = await held(either)
    for n in range(12):
        sender = client.get_queue_sender("orders")
        if n == 0:
            sender._choice.backlog = 1  # twelve random choices may all miss this one
        receipt = await either.send(sender, ServiceBusMessage("x"))
        assert (receipt.stored_in, receipt.backlog == 1) == (StoredIn.BACKLOG, False)
    withdrawn = [event for event in either.told if isinstance(event, BacklogWithdrawn)]
    assert {event.backlog for event in withdrawn} == {1}
    assert len(withdrawn) < 6  # a refusal withdraws it for all senders, not for one send


@pytest.mark.spec("R-3", "P-5")
@pytest.mark.parametrize(
    "condition", ["amqp:link:message-size-exceeded", "amqp:not-allowed", "amqp:decode-error"]
)
async def test_a_message_one_backlog_refuses_as_the_callers_error_goes_to_the_next(
    either: Either, condition: str
) -> None:
    client = await held(either)
    sender = client.get_queue_sender("orders")
    sender._choice.backlog = 0
    with either.secondary.fault(BACKLOG.format(0), RejectWith(condition)):
        receipt = await either.send(sender, ServiceBusMessage("x"))
    assert receipt.backlog in (1, 2)
    assert {event.backlog for event in either.told if isinstance(event, BacklogWithdrawn)} == {0}


@pytest.mark.spec("R-3")
async def test_a_message_every_backlog_refuses_raises_the_first_error_and_withdraws_none(
    either: Either,
) -> None:
    client = await held(either)
    with (
        either.secondary.fault(BACKLOG.format("*"), RejectWith("amqp:not-allowed", "because")),
        pytest.raises(ServiceBusError, match="because"),
    ):
        await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert not [event for event in either.told if isinstance(event, BacklogWithdrawn)]
