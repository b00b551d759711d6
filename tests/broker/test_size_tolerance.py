"""The size limit of a delivery: what the link announces, and room for the envelope of a full batch (R-46)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from sbpair.broker import Broker
from sbpair.broker.frontends.received_message import TOLERANCE
from sbpair.pair.amqp.message import DataBody, Message
from sbpair.pair.amqp.performatives import Accepted, Rejected

pytestmark = pytest.mark.spec("R-46")
LIMIT = 262_144
TRACKED = re.compile(r"TrackingId:[0-9a-f-]{36}_B0, SystemTracker:contoso:Queue:orders, Timestamp:")


def of_size(size: int) -> bytes:
    envelope = len(Message(body=DataBody((bytes(LIMIT),))).encode()) - LIMIT
    return Message(body=DataBody((bytes(size - envelope),))).encode()


@pytest.mark.parametrize("more", [0, 21, TOLERANCE])
def test_a_delivery_slightly_above_the_limit_is_accepted(lab, more: int) -> None:
    queue, client = lab.queue(), lab.client()
    assert isinstance(client.send(client.sender("orders"), of_size(LIMIT + more)), Accepted)
    assert queue.counts(lab.now.entity).active == 1


@pytest.mark.parametrize("more", [TOLERANCE + 1, LIMIT, 4 * LIMIT])
def test_a_larger_delivery_is_refused_with_the_limit_and_the_tracking_id(lab, more: int) -> None:
    queue, client = lab.queue(), lab.client()
    answer = client.send(client.sender("orders"), of_size(LIMIT + more))
    assert isinstance(answer, Rejected)
    assert answer.error.symbol == "amqp:link:message-size-exceeded"
    assert f"size:{LIMIT + more} bytes) exceeds the limit ({LIMIT} bytes)" in answer.error.description
    assert TRACKED.search(answer.error.description)
    assert queue.counts(lab.now.entity).active == 0


def test_the_link_announces_the_limit_without_the_tolerance(lab) -> None:
    lab.queue()
    assert lab.client().sender("orders").remote_attach.max_message_size == LIMIT


@pytest.fixture
def sender() -> Iterator[ServiceBusSender]:
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        with (
            ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
        ):
            yield sender


def test_full_batches_of_the_sdk_are_accepted(sender: ServiceBusSender) -> None:
    """Messages of various sizes, so that batches end at and around the limit."""
    for size in range(9_000, 13_000, 500):
        batch = sender.create_message_batch()
        with suppress(ValueError):
            while True:
                batch.add_message(ServiceBusMessage(bytes(size), application_properties={"k": "v"}))
        sender.send_messages(batch)


def test_the_sdk_error_has_the_tracking_id(sender: ServiceBusSender) -> None:
    with pytest.raises(MessageSizeExceededError, match=TRACKED.pattern):
        sender.send_messages(ServiceBusMessage(bytes(LIMIT + 1000)))
