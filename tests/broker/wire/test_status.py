"""Entity status with the unmodified SDK: set by its administration client, observed by links."""

from __future__ import annotations

from contextlib import closing

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessagingEntityDisabledError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from azure.servicebus.management import EntityStatus, ServiceBusAdministrationClient

from sbpair.broker import Broker


@pytest.fixture
def admin(broker, contoso):
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as opened:
        yield opened


def set_status(admin, queue, status):
    description = admin.get_queue(queue)
    description.status = status
    admin.update_queue(description)
    assert admin.get_queue(queue).status == status


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_existing_and_new_senders_are_refused_and_continue_when_the_queue_is_active(
    admin, client, queue, status
):
    with client.get_queue_sender(queue) as live:
        live.send_messages(ServiceBusMessage("before"))
        set_status(admin, queue, status)
        with pytest.raises(MessagingEntityDisabledError):
            live.send_messages(ServiceBusMessage("while"))
        with closing(client.get_queue_sender(queue)) as late, pytest.raises(MessagingEntityDisabledError):
            late.send_messages(ServiceBusMessage("while"))
        set_status(admin, queue, EntityStatus.ACTIVE)
        live.send_messages(ServiceBusMessage("after"))
    assert admin.get_queue_runtime_properties(queue).active_message_count == 2


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED])
def test_a_receiver_is_refused_and_gets_waiting_messages_when_the_queue_is_active(
    admin, client, queue, status
):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("waits"))
    set_status(admin, queue, status)
    with pytest.raises(ServiceBusError) as raised, client.get_queue_receiver(queue) as receiver:
        receiver.receive_messages(1, max_wait_time=20)
    assert isinstance(raised.value, MessagingEntityDisabledError)
    set_status(admin, queue, EntityStatus.ACTIVE)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=20)
        assert str(message) == "waits"


def test_topics_and_subscriptions_have_a_status(admin, client):
    admin.create_topic("stateful")
    admin.create_subscription("stateful", "s")
    topic, subscription = admin.get_topic("stateful"), admin.get_subscription("stateful", "s")
    topic.status, subscription.status = EntityStatus.SEND_DISABLED, EntityStatus.RECEIVE_DISABLED
    admin.update_topic(topic)
    admin.update_subscription("stateful", subscription)
    with closing(client.get_topic_sender("stateful")) as sender, pytest.raises(MessagingEntityDisabledError):
        sender.send_messages(ServiceBusMessage("x"))
    with (
        closing(client.get_subscription_receiver("stateful", "s")) as receiver,
        pytest.raises(MessagingEntityDisabledError),
    ):
        receiver.receive_messages(1, max_wait_time=20)
    admin.delete_topic("stateful")


def test_an_update_may_drop_the_locks_of_a_receiver(broker, contoso, admin, client, make_queue):
    if not isinstance(broker, Broker):
        pytest.skip("elsewhere it cannot be asked for")
    orders = make_queue()
    with client.get_queue_sender(orders) as sender:
        sender.send_messages(ServiceBusMessage("held"))
    contoso.let_updates_take_locks()
    try:
        with client.get_queue_receiver(orders) as receiver:
            (held,) = receiver.receive_messages(1, max_wait_time=20)
            description = admin.get_queue(orders)
            description.max_delivery_count = 5
            admin.update_queue(description)
            with pytest.raises((MessageLockLostError, ServiceBusConnectionError)):
                receiver.complete_message(held)
        with client.get_queue_receiver(orders) as receiver:
            (again,) = receiver.receive_messages(1, max_wait_time=20)
            assert again.delivery_count == 1
            receiver.complete_message(again)
    finally:
        contoso.let_updates_take_locks(False)


@pytest.mark.slow
@pytest.mark.spec("X-11")
def test_a_receiver_detached_by_an_update_reattaches_by_itself(contoso, admin, make_queue):
    orders = make_queue()
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as patient,
        patient.get_queue_sender(orders) as sender,
        patient.get_queue_receiver(orders) as receiver,
    ):
        for text in ("before", "after"):
            sender.send_messages(ServiceBusMessage(text))
            (message,) = receiver.receive_messages(1, max_wait_time=20)
            assert str(message) == text
            receiver.complete_message(message)
            description = admin.get_queue(orders)
            description.max_delivery_count += 1
            admin.update_queue(description)
