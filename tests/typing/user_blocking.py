"""A typed program of a user. The test has mypy read it as it stands, and with the SDK's own client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus import ServiceBusReceiver as Receiver
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedServiceBusClient as Client
from sbpair import PairedServiceBusSender as Sender


def publish(sender: Sender, bodies: list[str]) -> bool:
    try:
        sender.send_messages([ServiceBusMessage(body) for body in bodies], timeout=5.0)
        sender.send_messages(ServiceBusMessage("single"))
    except ServiceBusError:
        return False
    return True


def publish_batch(sender: Sender, bodies: list[bytes]) -> int:
    batch = sender.create_message_batch(max_size_in_bytes=1024)
    for body in bodies:
        batch.add_message(ServiceBusMessage(body))
    sender.send_messages(batch)
    return len(batch)


def remind(sender: Sender) -> list[int]:
    numbers = sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    sender.cancel_scheduled_messages(numbers)
    sender.cancel_scheduled_messages(numbers[0], timeout=3.0)
    return numbers


def names(client: Client) -> tuple[str, str, str]:
    with client, client.get_queue_sender("orders") as sender, client.get_topic_sender("prices") as other:
        publish(other, [])
        return client.fully_qualified_namespace, sender.entity_name, sender.client_identifier


def consume(client: Client) -> Receiver:
    return client.get_queue_receiver("orders", max_wait_time=5.0, prefetch_count=10)
