"""The driver of the Python SDK's asyncio client, with its retry options at their defaults. See lines.py."""

from __future__ import annotations

import asyncio
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from tests.trials.clients.drivers.lines import answer, serve_async
from tests.trials.clients.drivers.sdk_keywords import address


class AsyncDriver:
    """One client, with a sender and a receiver that are opened on first use and kept."""

    def __init__(self, command: dict[str, Any]) -> None:
        text, keywords = address(command)
        client = ServiceBusClient.from_connection_string(text, **keywords)
        self._sender = client.get_queue_sender(command["queue"])
        self._receiver = client.get_queue_receiver(command["queue"])
        self._held: dict[str, ServiceBusReceivedMessage] = {}

    async def send(self, command: dict[str, Any]) -> None:
        message = ServiceBusMessage("x", message_id=command["id"])
        await self._sender.send_messages(message, timeout=command["limit"])
        answer()

    async def receive(self, command: dict[str, Any]) -> None:
        found = await self._receiver.receive_messages(1, max_wait_time=command["wait"])
        self._held.update((str(message.message_id), message) for message in found)
        answer(str(found[0].message_id) if found else None)

    async def complete(self, command: dict[str, Any]) -> None:
        await self._receiver.complete_message(self._held.pop(command["id"]))
        answer()


if __name__ == "__main__":
    asyncio.run(serve_async(AsyncDriver))
