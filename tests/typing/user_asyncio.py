"""The same program for asyncio."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusReceiver as Receiver
from azure.servicebus.exceptions import ServiceBusError

from sbpair.aio import PairedServiceBusClient as Client
from sbpair.aio import PairedServiceBusSender as Sender


async def publish(sender: Sender, bodies: list[str]) -> bool:
    try:
        await sender.send_messages([ServiceBusMessage(body) for body in bodies], timeout=5.0)
        await sender.send_messages(ServiceBusMessage("single"))
    except ServiceBusError:
        return False
    return True


async def publish_batch(sender: Sender, bodies: list[bytes]) -> int:
    batch = await sender.create_message_batch(max_size_in_bytes=1024)
    for body in bodies:
        batch.add_message(ServiceBusMessage(body))
    await sender.send_messages(batch)
    return len(batch)


async def remind(sender: Sender) -> list[int]:
    at = datetime.now(UTC) + timedelta(hours=1)
    numbers = await sender.schedule_messages(ServiceBusMessage("later"), at)
    await sender.cancel_scheduled_messages(numbers)
    await sender.cancel_scheduled_messages(numbers[0], timeout=3.0)
    return numbers


async def names(client: Client) -> tuple[str, str, str]:
    async with (
        client,
        client.get_queue_sender("orders") as sender,
        client.get_topic_sender("prices") as other,
    ):
        await publish(other, [])
        return client.fully_qualified_namespace, sender.entity_name, sender.client_identifier


def consume(client: Client) -> Receiver:
    return client.get_queue_receiver("orders", max_wait_time=5.0, prefetch_count=10)
