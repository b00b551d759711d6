"""Two clients without retries: what the first does not take goes to the second, and consumers read both."""

import threading

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from ..ends import Ends

SECONDS = 5


class Sender(threading.local):
    def __init__(self, ends: Ends, folder: str) -> None:
        self._clients = [
            ServiceBusClient.from_connection_string(end, retry_total=0)
            for end in (ends.primary, ends.secondary)
        ]
        self._first, self._second = (client.get_queue_sender(ends.queue) for client in self._clients)

    def send(self, message: ServiceBusMessage) -> None:
        try:
            self._first.send_messages(message, timeout=SECONDS)
        except MessageSizeExceededError:
            raise
        except ServiceBusError:
            self._second.send_messages(message, timeout=SECONDS)
