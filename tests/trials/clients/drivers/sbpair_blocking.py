"""The driver of the blocking paired client and processor. See lines.py; argument: a name of PAIRED."""

from __future__ import annotations

import queue
import sys
import threading
from typing import Any

from azure.servicebus import ServiceBusMessage

from sbpair import PairedServiceBusClient
from sbpair.processor import ReceivedMessage
from tests.trials.clients.drivers.lines import answer, serve
from tests.trials.clients.drivers.paired_options import PAIRED, PROCESSOR


class BlockingPairedDriver:
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
        self._path = command["queue"]
        self._sender = self._client.get_queue_sender(self._path)
        self._processor = self._client.get_queue_processor(self._path, self._handle, options=PROCESSOR)
        self._is_started = False
        self._arrived: queue.SimpleQueue[tuple[ReceivedMessage, threading.Event]] = queue.SimpleQueue()
        self._held: dict[str, tuple[ReceivedMessage, threading.Event]] = {}

    def send(self, command: dict[str, Any]) -> None:
        message = ServiceBusMessage("x", message_id=command["id"])
        receipt = self._sender.send_messages(message, timeout=command["limit"])
        answer(copies=receipt.ambiguous)

    def receive(self, command: dict[str, Any]) -> None:
        if not self._is_started:
            self._processor.__enter__()
            self._is_started = True
        try:
            found = self._arrived.get(timeout=command["wait"])
        except queue.Empty:
            answer(None)
            return
        name = str(found[0].message_id)
        self._held[name] = found
        answer(name)

    def complete(self, command: dict[str, Any]) -> None:
        message, is_over = self._held.pop(command["id"])
        try:
            self._processor.complete_message(message)
        finally:
            is_over.set()
        answer()

    def _handle(self, message: ReceivedMessage) -> None:
        is_over = threading.Event()
        self._arrived.put((message, is_over))
        is_over.wait()


if __name__ == "__main__":
    serve(lambda command: BlockingPairedDriver(command, sys.argv[1]))
