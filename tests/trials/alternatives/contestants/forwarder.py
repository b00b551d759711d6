"""Two clients and a breaker, with a queue to park in on the second, and a forwarder that brings the messages home."""

import threading
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from ..ends import Ends
from .breaker import Breaker

SECONDS, PAUSE = 5, 2.0


class _Links(threading.local):
    def __init__(self, ends: Ends) -> None:
        places = ((ends.primary, ends.queue), (ends.secondary, ends.parking))
        self._clients = [ServiceBusClient.from_connection_string(end, retry_total=0) for end, _ in places]
        self.first, self.parking = (
            client.get_queue_sender(queue) for client, (_, queue) in zip(self._clients, places, strict=True)
        )


class Sender:
    def __init__(self, ends: Ends, folder: str) -> None:
        self._links, self._breaker = _Links(ends), Breaker()

    def send(self, message: ServiceBusMessage) -> None:
        if self._breaker.may_try():
            try:
                self._links.first.send_messages(message, timeout=SECONDS)
            except MessageSizeExceededError:
                raise
            except ServiceBusError:
                self._breaker.failed()
            else:
                self._breaker.succeeded()
                return
        self._links.parking.send_messages(message, timeout=SECONDS)


def forward(ends: Ends) -> None:
    """Bring the parked messages home, for ever: a process of its own."""
    while True:
        try:
            with (
                ServiceBusClient.from_connection_string(ends.secondary, retry_total=0) as there,
                ServiceBusClient.from_connection_string(ends.primary, retry_total=0) as home,
                there.get_queue_receiver(ends.parking) as receiver,
                home.get_queue_sender(ends.queue) as sender,
            ):
                for message in receiver:
                    body, carried = b"".join(message.body), message.application_properties
                    copy = ServiceBusMessage(
                        body, message_id=message.message_id, application_properties=carried
                    )
                    sender.send_messages(copy, timeout=SECONDS)
                    receiver.complete_message(message)
        except ServiceBusError:
            time.sleep(PAUSE)
