"""A delivery carries exactly the annotations that the SDK's own tests expect."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage

from sbpair.broker import Broker, NamespaceControl
from tests.broker.wire.elsewhere import entity_time, fresh

pytestmark = pytest.mark.spec("R-51")

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE
FIRST_NUMBER, STATE = b"x-opt-enqueue-sequence-number", b"x-opt-message-state"
ORDINARY = {b"x-opt-enqueued-time", b"x-opt-sequence-number"}
LOCKED = ORDINARY | {FIRST_NUMBER, b"x-opt-locked-until"}


def send(client: ServiceBusClient, path: str, **fields: object) -> None:
    with client.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("x", **fields))


def annotated(message: ServiceBusReceivedMessage) -> set[bytes]:
    return set(message.raw_amqp_message.annotations)


@pytest.mark.parametrize(
    ("fields", "added"),
    [({}, {FIRST_NUMBER}), ({"partition_key": "key"}, {b"x-opt-partition-key"})],
    ids=["plain", "keyed"],
)
def test_a_receive_and_delete_message_has_number_time_and_empty_delivery_annotations(
    client: ServiceBusClient, queue: str, fields: dict[str, object], added: set[bytes]
) -> None:
    send(client, queue, **fields)
    with client.get_queue_receiver(queue, receive_mode=DELETE) as receiver:
        (message,) = receiver.receive_messages(1)
    assert annotated(message) == ORDINARY | added
    assert message.raw_amqp_message.delivery_annotations == {}


def test_a_message_with_an_annotation_of_its_senders_has_no_first_number(
    client: ServiceBusClient, queue: str
) -> None:
    own = AmqpAnnotatedMessage(data_body=b"x", annotations={"x-opt-mine": "1"})
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(own)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1)
    assert annotated(message) == (LOCKED - {FIRST_NUMBER}) | {b"x-opt-mine"}


def test_a_locked_message_has_its_number_its_times_and_its_lock_token(
    client: ServiceBusClient, queue: str
) -> None:
    send(client, queue)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1)
        assert annotated(message) == LOCKED
        assert message.raw_amqp_message.delivery_annotations == {b"x-opt-lock-token": message.lock_token}


def test_a_peeked_message_has_its_state_and_its_first_number(client: ServiceBusClient, queue: str) -> None:
    send(client, queue)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.peek_messages(1)
    assert annotated(message) == ORDINARY | {FIRST_NUMBER, STATE}
    assert not message.raw_amqp_message.delivery_annotations


def test_a_deferred_message_has_its_state(client: ServiceBusClient, queue: str) -> None:
    send(client, queue)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1)
        receiver.defer_message(message)
        (deferred,) = receiver.receive_deferred_messages(message.sequence_number)
        assert annotated(deferred) == LOCKED | {STATE}


@pytest.mark.spec("R-51", "X-3")
def test_a_message_that_was_scheduled_has_its_first_number_and_its_state(
    client: ServiceBusClient, contoso: NamespaceControl, queue: str, broker: Broker
) -> None:
    with client.get_queue_sender(queue) as sender:
        at = entity_time(contoso) + timedelta(hours=1)
        (scheduled,) = sender.schedule_messages(ServiceBusMessage("x"), at)
    broker.advance(timedelta(hours=1, seconds=1))
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=30)
        assert annotated(message) == LOCKED | {STATE, b"x-opt-scheduled-enqueue-time"}
        assert message.state is ServiceBusMessageState.SCHEDULED
        assert message.enqueued_sequence_number == scheduled != message.sequence_number


def test_a_message_that_was_forwarded_has_its_first_number(
    client: ServiceBusClient, contoso: NamespaceControl, queue: str
) -> None:
    source = fresh("source")
    contoso.create_queue(source, forward_to=queue)
    send(client, source)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1)
        assert annotated(message) == LOCKED
        assert (message.enqueued_sequence_number, message.sequence_number) == (1, 1)


def test_a_subscription_message_has_the_sequence_number_of_its_topic(
    client: ServiceBusClient, contoso: NamespaceControl
) -> None:
    topic = fresh("events")
    contoso.create_topic(topic)
    contoso.create_subscription(topic, "all")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("x"))
    with client.get_subscription_receiver(topic, "all") as receiver:
        (message,) = receiver.receive_messages(1)
        assert annotated(message) == LOCKED
        assert (message.enqueued_sequence_number, message.sequence_number) == (1, 1)


@pytest.mark.spec("X-3")
def test_a_subscription_shows_the_schedule_of_a_message_unless_it_was_past(
    client: ServiceBusClient, contoso: NamespaceControl, broker: Broker
) -> None:
    topic = fresh("events")
    contoso.create_topic(topic)
    contoso.create_subscription(topic, "all")
    now = entity_time(contoso)
    with client.get_topic_sender(topic) as sender:
        for hours in (-1, 1):
            sender.schedule_messages(ServiceBusMessage(str(hours)), now + timedelta(hours=hours))
    broker.advance(timedelta(hours=1, seconds=1))
    with client.get_subscription_receiver(topic, "all") as receiver:
        states = {str(message): message.state for message in receiver.receive_messages(2, max_wait_time=30)}
    assert states == {"-1": ServiceBusMessageState.ACTIVE, "1": ServiceBusMessageState.SCHEDULED}
