"""The client that all brokers are measured with: our engine, a blocking socket, and nothing else.

One thread, one connection, one session. Its own cost is the same whoever answers, so that a ratio between two
brokers is, if anything, flattering to the slower one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import (
    ConnectionClosed,
    DispositionReceived,
    Event,
    LinkDetached,
    MessageReceived,
)
from sbpair.pair.amqp.link import ReceiverLink, SenderLink
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.pair.amqp.performatives import ACCEPTED, Accepted, Source, Target

WINDOW = 1000  # deliveries without an outcome
CHUNK = 262_144
BODY = 1024
WITHIN = 60.0  # seconds a broker may be silent


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens, and who may come in (SASL PLAIN)."""

    port: int
    user: str
    password: str
    hostname: str
    prefix: str = ""  # of the address of a queue


def endpoint_of(connection_string: str) -> Endpoint:
    """The endpoint of a namespace of our broker."""
    parts = dict(part.split("=", 1) for part in connection_string.split(";"))
    port = int(parts["Endpoint"].rstrip("/").rpartition(":")[2])
    return Endpoint(port, parts["SharedAccessKeyName"], parts["SharedAccessKey"], "localhost")


def payload(*, durable: bool = False) -> bytes:
    """A message of a kibibyte, with a message id and three application properties."""
    return Message(
        header=Header(durable=True) if durable else None,
        properties=Properties(message_id="0123456789abcdef"),
        application_properties={"a": "one", "b": 2, "c": True},
        body=DataBody((bytes(BODY),)),
    ).encode()


class RawClient:
    """One connection; ``send`` and ``receive`` return the seconds they took."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        response = f"\0{endpoint.user}\0{endpoint.password}".encode()
        self._engine = Connection(
            role=ConnectionRole.CLIENT,
            container_id="sbpair-bench",
            hostname=endpoint.hostname,
            mechanisms=("PLAIN",),
            initial_response=response,
            now=time.monotonic(),
        )
        self._socket = socket.create_connection(("127.0.0.1", endpoint.port), timeout=WITHIN)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._session = self._engine.begin()
        self._links = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()
        self._write()
        self._socket.close()

    def _write(self) -> None:
        data = self._engine.data_to_send()
        if data:
            self._socket.sendall(data)

    def _read(self) -> list[Event]:
        """Write what is due, wait for bytes, and return what they say. Raises ConnectionError."""
        self._write()
        data = self._socket.recv(CHUNK)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._engine.receive_data(data, time.monotonic())
        events = self._engine.events()
        for event in events:
            if isinstance(event, ConnectionClosed | LinkDetached):
                raise ConnectionError(f"the broker ended: {event.condition}")
        return events

    def _name(self) -> str:
        self._links += 1
        return f"link-{self._links}"

    @contextmanager
    def sender(self, queue: str) -> Iterator[SenderLink]:
        """A link to ``queue``, open and with credit."""
        address = self._endpoint.prefix + queue
        link = self._session.attach_sender(self._name(), target=Target(address), snd_settle_mode=0)
        while not (link.is_open and link.credit):
            self._read()
        yield link
        self._close(link)

    @contextmanager
    def receiver(self, queue: str) -> Iterator[ReceiverLink]:
        """A link from ``queue``, open and without credit."""
        address = self._endpoint.prefix + queue
        link = self._session.attach_receiver(
            self._name(), source=Source(address), target=Target("bench"), snd_settle_mode=0
        )
        while not link.is_open:
            self._read()
        yield link
        self._close(link)

    def _close(self, link: SenderLink | ReceiverLink) -> None:
        link.detach()
        while not link.is_closed:
            self._write()
            self._engine.receive_data(self._socket.recv(CHUNK), time.monotonic())
            self._engine.events()

    def send(self, link: SenderLink, body: bytes, count: int, window: int = WINDOW) -> float:
        """Seconds until the last of ``count`` messages was accepted, up to ``window`` on their way."""
        begun = time.perf_counter()
        sent = accepted = 0
        while accepted < count:
            for _ in range(min(link.credit, window - (sent - accepted), count - sent)):
                link.transfer(body, tag=sent.to_bytes(4, "big"))
                sent += 1
            for event in self._read():
                if isinstance(event, DispositionReceived):
                    if not isinstance(event.state, Accepted):
                        raise ConnectionError(f"the broker answered {event.state}")
                    accepted += event.last - event.first + 1
        return time.perf_counter() - begun

    def receive(self, link: ReceiverLink, count: int, *, each: bool) -> float:
        """Seconds until ``count`` messages were received and settled, one by one or a chunk in one range."""
        begun = time.perf_counter()
        received = 0
        while received < count:
            if link.credit < WINDOW // 2 and received + link.credit < count:
                link.flow(min(WINDOW, count - received))
            for event in self._read():
                if isinstance(event, MessageReceived):
                    received += 1
                    link.dispose(event.delivery_id, event.delivery_id, ACCEPTED)
                    if each:
                        self._session.flush_acks()
        self._write()
        return time.perf_counter() - begun

    def acks(self, link: SenderLink, body: bytes, count: int) -> list[float]:
        """Seconds from each send to its acceptance, one message at a time."""
        return [self.send(link, body, 1) for _ in range(count)]

    def round_trips(self, out: SenderLink, back: ReceiverLink, body: bytes, count: int) -> list[float]:
        """Seconds from each send to its receipt, one message at a time, through a queue that is empty."""
        back.flow(WINDOW)
        spans = []
        for number in range(count):
            begun = time.perf_counter()
            out.transfer(body, tag=number.to_bytes(4, "big"))
            is_here = is_accepted = False
            while not (is_here and is_accepted):
                for event in self._read():
                    if isinstance(event, MessageReceived):
                        spans.append(time.perf_counter() - begun)
                        is_here = True
                        back.dispose(event.delivery_id, event.delivery_id, ACCEPTED)
                    elif isinstance(event, DispositionReceived):
                        is_accepted = True
            if back.credit < WINDOW // 2:
                back.flow(WINDOW)
        self._write()
        return spans
