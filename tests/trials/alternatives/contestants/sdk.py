"""The SDK alone, with its own retries: one client, and a sender for each thread."""

import threading

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from ..ends import Ends


class Sender(threading.local):
    def __init__(self, ends: Ends, folder: str) -> None:
        self._client = ServiceBusClient.from_connection_string(ends.primary)
        self._sender = self._client.get_queue_sender(ends.queue)

    def send(self, message: ServiceBusMessage) -> None:
        self._sender.send_messages(message)
