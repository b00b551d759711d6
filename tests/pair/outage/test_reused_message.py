"""A message object that is reused while its send is pending: every attempt sends the original content."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from sbpair import StoredIn
from sbpair.broker import NamespaceControl
from sbpair.broker.faults import Withhold
from tests.pair.outage.conftest import Either


def taken(namespace: NamespaceControl, queue: str) -> list[tuple[str, object]]:
    """Receive a queue's messages: the id, and the body or the property n."""
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
    ):
        found: list[ServiceBusReceivedMessage] = []
        while namespace.counts(queue).active:
            found += receiver.receive_messages(10, max_wait_time=30)
    return [(str(each.message_id), content(each)) for each in found]


def content(message: ServiceBusMessage) -> object:
    if b"n" in message.application_properties:
        return message.application_properties[b"n"]
    body = message.raw_amqp_message.body
    return body if isinstance(body, (dict, list)) else b"".join(body)


def parked(either: Either) -> list[tuple[str, object]]:
    names = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
    return [each for name in names for each in taken(either.secondary, name)]


@pytest.mark.slow
@pytest.mark.spec("R-12", "G-5")
@pytest.mark.parametrize("is_open", [True, False], ids=["over an open link", "over a new link"])
async def test_a_message_object_changed_meanwhile_is_parked_as_it_was(
    either: Either, parks_early: None, is_open: bool
) -> None:
    for index in range(2):
        either.secondary.create_queue(f"contoso/x-servicebus-transfer/{index}")
    client = either.client(timeout=20, ping=60, assume_backlogs_exist=True)
    sender = client.get_queue_sender("orders")
    if is_open:
        await either.send(sender, ServiceBusMessage("before", message_id="before"), timeout=200)
    message = ServiceBusMessage("a", message_id="A", application_properties={"n": "a"})
    with either.primary.fault("orders", Withhold()):
        sending = asyncio.create_task(
            either.send(sender, message)
            if either.is_asyncio
            else asyncio.to_thread(sender.send_messages, message)
        )
        await either.until(lambda: either.primary.counts("orders").active > int(is_open))
        message.message_id = "B"
        message.application_properties["n"] = "b"
        receipt = await sending
    assert (receipt.stored_in, receipt.message_ids) == (StoredIn.BACKLOG, ("A",))
    assert parked(either) == [("A", b"a")]


@pytest.mark.spec("R-12")
async def test_a_batch_is_parked_as_its_messages_were_when_added(either: Either) -> None:
    client = either.client(ping=60)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    batch = await either.done(sender.create_message_batch())
    value, parts = {"n": [1]}, bytearray(b"a")
    batch.add_message(
        AmqpAnnotatedMessage(value_body=value, properties=AmqpMessageProperties(message_id="v"))
    )
    batch.add_message(
        AmqpAnnotatedMessage(data_body=[parts], properties=AmqpMessageProperties(message_id="d"))
    )
    value["n"][0] = 2
    parts[:] = b"b"
    either.primary.take_down("refuse")
    await either.send(sender, batch)
    assert parked(either) == [("v", {b"n": [1]}), ("d", b"a")]
