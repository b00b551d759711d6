"""Two clients and a circuit breaker: after five failures in a row everything goes to the second for a while."""

import threading
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from ..ends import Ends

SECONDS, FAILURES, OPEN_SECONDS = 5, 5, 10.0


class Breaker:
    """Closed, open, or half open: then one call at a time tries."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures, self._open_until = 0, 0.0

    def may_try(self) -> bool:
        with self._lock:
            if self._failures < FAILURES:
                return True
            if time.monotonic() < self._open_until:
                return False
            self._open_until = time.monotonic() + OPEN_SECONDS  # for all but this call
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            self._open_until = time.monotonic() + OPEN_SECONDS


class _Links(threading.local):
    def __init__(self, ends: Ends) -> None:
        self._clients = [
            ServiceBusClient.from_connection_string(end, retry_total=0)
            for end in (ends.primary, ends.secondary)
        ]
        self.first, self.second = (client.get_queue_sender(ends.queue) for client in self._clients)


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
        self._links.second.send_messages(message, timeout=SECONDS)
