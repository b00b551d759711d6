"""Relays as users write them with the SDK: each drains backlog queues into ``orders``, and is timed.

Links are opened before the time starts. All restore the same properties of these messages as the syphon, as far as the
SDK allows.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

RECEIVED_AT_ONCE = 50
WORKERS = 8
OURS = (b"x-ms-", b"x-sbpair-")


def copy_of(message: Any) -> ServiceBusMessage:
    """The message to send for one that was parked."""
    properties = message.application_properties or {}
    kept = {key: value for key, value in properties.items() if not key.startswith(OURS)}
    return ServiceBusMessage(
        b"".join(message.body), message_id=message.message_id, application_properties=kept
    )


def _relay(primary: str, secondary: str, backlogs: dict[str, int], *, in_batches: bool) -> float:
    took = 0.0
    with (
        ServiceBusClient.from_connection_string(secondary) as source,
        ServiceBusClient.from_connection_string(primary) as target,
        target.get_queue_sender("orders") as sender,
    ):
        sender.create_message_batch()  # opens the link
        for name, count in backlogs.items():
            with source.get_queue_receiver(name) as receiver:
                receiver.peek_messages()  # opens the link
                left = count
                began = time.perf_counter()
                while left:
                    messages = receiver.receive_messages(min(RECEIVED_AT_ONCE, left), max_wait_time=5)
                    if in_batches and messages:
                        sender.send_messages([copy_of(message) for message in messages])
                    for message in messages:
                        if not in_batches:
                            sender.send_messages(copy_of(message))
                        receiver.complete_message(message)
                    left -= len(messages)
                took += time.perf_counter() - began
    return took


def one_by_one(primary: str, secondary: str, backlogs: dict[str, int]) -> float:
    """Receive fifty, send one, complete one: the loop that everybody writes first."""
    return _relay(primary, secondary, backlogs, in_batches=False)


def in_batches(primary: str, secondary: str, backlogs: dict[str, int]) -> float:
    """Receive fifty, send them as one batch, complete each."""
    return _relay(primary, secondary, backlogs, in_batches=True)


def by_workers(primary: str, secondary: str, backlogs: dict[str, int]) -> float:
    """The SDK for asyncio: eight workers, each with its links, each sends and completes what it received."""
    return asyncio.run(_by_workers(primary, secondary, backlogs))


async def _by_workers(primary: str, secondary: str, backlogs: dict[str, int]) -> float:
    left = dict(backlogs)
    names = [list(backlogs)[number % len(backlogs)] for number in range(WORKERS)]
    async with (
        AsyncServiceBusClient.from_connection_string(secondary) as source,
        AsyncServiceBusClient.from_connection_string(primary) as target,
    ):
        links = []
        for name in names:
            sender, receiver = target.get_queue_sender("orders"), source.get_queue_receiver(name)
            await sender.create_message_batch()
            await receiver.peek_messages()
            links.append((name, sender, receiver))

        async def move(sender: Any, receiver: Any, message: Any) -> None:
            await sender.send_messages(copy_of(message))
            await receiver.complete_message(message)

        async def work(name: str, sender: Any, receiver: Any) -> None:
            while left[name] > 0:
                asked = min(RECEIVED_AT_ONCE, left[name])
                left[name] -= asked
                messages = await receiver.receive_messages(asked, max_wait_time=5)
                left[name] += asked - len(messages)
                for message in messages:
                    await move(sender, receiver, message)

        began = time.perf_counter()
        await asyncio.gather(*(work(*link) for link in links))
        took = time.perf_counter() - began
        for _, sender, receiver in links:
            await sender.close()
            await receiver.close()
        return took
