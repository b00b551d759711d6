"""The driver of the asyncio paired client and processor. See lines.py; argument: a name of PAIRED."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from azure.servicebus import ServiceBusMessage

from sbpair.aio import PairedServiceBusClient
from sbpair.processor import ReceivedMessage
from tests.trials.clients.drivers.lines import answer, serve_async
from tests.trials.clients.drivers.paired_options import PAIRED, PROCESSOR


class AsyncPairedDriver:
    """A paired sender, and a processor whose only handler waits for the command to complete."""

    def __init__(self, command: dict[str, Any], options: str) -> None:
        port = command["tls_port"]
        self._client = PairedServiceBusClient.from_connection_strings(
            command["connection_string"],
            command["secondary"],
            options=PAIRED[options],
            connection_verify=command["ca_file"],
            custom_endpoint_address=None if port is None else f"sb://localhost:{port}",
        )
        self._sender = self._client.get_queue_sender(command["queue"])
        self._processor = self._client.get_queue_processor(command["queue"], self._handle, options=PROCESSOR)
        self._running: asyncio.Task[None] | None = None
        self._arrived: asyncio.Queue[tuple[ReceivedMessage, asyncio.Event]] = asyncio.Queue()
        self._held: dict[str, tuple[ReceivedMessage, asyncio.Event]] = {}

    async def send(self, command: dict[str, Any]) -> None:
        message = ServiceBusMessage("x", message_id=command["id"])
        receipt = await self._sender.send_messages(message, timeout=command["limit"])
        answer(copies=receipt.ambiguous)

    async def receive(self, command: dict[str, Any]) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._processor.run())
        try:
            async with asyncio.timeout(command["wait"]):
                found = await self._arrived.get()
        except TimeoutError:
            answer(None)
            return
        name = str(found[0].message_id)
        self._held[name] = found
        answer(name)

    async def complete(self, command: dict[str, Any]) -> None:
        message, is_over = self._held.pop(command["id"])
        try:
            await self._processor.complete_message(message)
        finally:
            is_over.set()
        answer()

    async def _handle(self, message: ReceivedMessage) -> None:
        is_over = asyncio.Event()
        self._arrived.put_nowait((message, is_over))
        await is_over.wait()


if __name__ == "__main__":
    asyncio.run(serve_async(lambda command: AsyncPairedDriver(command, sys.argv[1])))
