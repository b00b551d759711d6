"""The driver of the Python SDK's blocking client, with its retry options at their defaults. See lines.py."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from tests.trials.clients.drivers.lines import answer, serve
from tests.trials.clients.drivers.sdk_keywords import address


class BlockingDriver:
    """One client, with a sender and a receiver that are opened on first use and kept."""

    def __init__(self, command: dict[str, Any]) -> None:
        text, keywords = address(command)
        client = ServiceBusClient.from_connection_string(text, **keywords)
        self._sender = client.get_queue_sender(command["queue"])
        self._receiver = client.get_queue_receiver(command["queue"])
        self._held: dict[str, ServiceBusReceivedMessage] = {}

    def send(self, command: dict[str, Any]) -> None:
        message = ServiceBusMessage("x", message_id=command["id"])
        self._sender.send_messages(message, timeout=command["limit"])
        answer()

    def receive(self, command: dict[str, Any]) -> None:
        found = self._receiver.receive_messages(1, max_wait_time=command["wait"])
        self._held.update((str(message.message_id), message) for message in found)
        answer(str(found[0].message_id) if found else None)

    def complete(self, command: dict[str, Any]) -> None:
        self._receiver.complete_message(self._held.pop(command["id"]))
        answer()


if __name__ == "__main__":
    serve(BlockingDriver)
