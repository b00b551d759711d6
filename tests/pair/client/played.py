"""A connection over an in-memory transport whose peer the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import (
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SaslInitReceived,
)
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.link import Link, ReceiverLink, SenderLink
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import ACCEPTED, Condition, DeliveryState, Source
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.request import CREDIT
from sbpair.pair.syphon.land.transaction import NODE as COORDINATOR
from tests.waiting import PATIENCE

NAMESPACE = "Endpoint=sb://contoso.example:5671;SharedAccessKeyName=Root;SharedAccessKey=KEY"
Answer = Callable[[Message], Message | None]


class Peer(asyncio.Transport):
    """A namespace at the other end of an in-memory transport; ``nodes`` maps a node to its answers."""

    def __init__(self, protocol: asyncio.Protocol, limits: Limits | None = None) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self.engine = Connection(role=ConnectionRole.SERVER, container_id="peer", now=0.0, limits=limits)
        self.nodes: dict[str, Answer] = {"$cbs": lambda request: status(200)}
        self.links: dict[str, Link] = {}
        self.requests: list[tuple[str, Message]] = []
        self.received: list[MessageReceived] = []
        self.dispositions: list[DispositionReceived] = []
        self.detached: list[LinkDetached] = []
        self.refuses: dict[str, Condition] = {}
        self.silent: set[str] = set()
        self.is_lost = False
        self.high = 0

    # what the connection calls

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.engine.receive_data(data, 0.0)
        for event in self.engine.events():
            self._on_event(event)
        self.speak()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def is_closing(self) -> bool:
        return self.is_lost

    def close(self) -> None:
        self.lose()

    abort = close

    # what the peer does

    def speak(self) -> None:
        data = self.engine.data_to_send()
        if data:
            self._loop.call_soon(self._protocol.data_received, data)

    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def _on_event(self, event: object) -> None:
        if isinstance(event, SaslInitReceived):
            self.engine.authenticate(True)
        elif isinstance(event, LinkAttached):
            self._attach(event)
        elif isinstance(event, MessageReceived):
            self._on_message(event)
        elif isinstance(event, DispositionReceived):
            self.dispositions.append(event)
            if isinstance(event.link, SenderLink) and not event.settled:
                event.link.settle(event.first, event.last, event.state)
        elif isinstance(event, LinkDetached):
            self.detached.append(event)

    def _attach(self, event: LinkAttached) -> None:
        link, attach = event.link, event.attach
        is_theirs = isinstance(link, ReceiverLink)
        address = getattr(attach.target if is_theirs else attach.source, "address", COORDINATOR)
        path = str(address).removeprefix("amqps://contoso.example:5671/")
        if path in self.silent:
            return
        if path in self.refuses:
            link.refuse(self.refuses[path])
            return
        link.attach(source=attach.source or Source(), target=attach.target)
        self.links[("to " if is_theirs else "from ") + path] = link
        if isinstance(link, ReceiverLink):
            link.flow(CREDIT)

    def _on_message(self, event: MessageReceived) -> None:
        path = next(name for name, link in self.links.items() if link is event.link).removeprefix("to ")
        if path not in self.nodes:
            self.received.append(event)
            return
        event.link.dispose(event.delivery_id, event.delivery_id, ACCEPTED)
        request = Message.decode(event.payload)
        self.requests.append((path, request))
        answer = self.nodes[path](request)
        if answer is not None:
            self.answer(path, request, answer)

    def answer(self, path: str, request: Message, answer: Message) -> None:
        assert request.properties is not None
        properties = Properties(correlation_id=request.properties.message_id)
        whole = Message(
            properties=properties, application_properties=answer.application_properties, body=answer.body
        )
        self.send(path, whole.encode())

    def send(self, path: str, payload: bytes) -> int:
        link = self.links[f"from {path}"]
        assert isinstance(link, SenderLink)
        return link.transfer(payload, tag=b"t" * 16)


def status(code: object, description: str = "OK", body: object = None, **more: object) -> Message:
    said_in_both = {"status-code": code, "statusCode": code}
    texts = {"status-description": description, "statusDescription": description}
    return Message(application_properties={**said_in_both, **texts, **more}, body=ValueBody(body))


@dataclass
class Played:
    connection: NamespaceConnection
    peer: Peer
    received: list[MessageReceived] = field(default_factory=list)


@pytest.fixture
async def played() -> AsyncIterator[Played]:
    connection = NamespaceConnection(parse(NAMESPACE))
    peer = Peer(connection)
    connection.connection_made(peer)
    await asyncio.wait_for(connection.wait_open(), PATIENCE)
    async with asyncio.timeout(PATIENCE):
        yield Played(connection, peer)
    connection.abort()
    await turns()


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def outcomes(played: Played, *states: DeliveryState) -> None:
    """Let the peer answer what it received, in order."""
    for event, state in zip(played.peer.received, states, strict=True):
        event.link.dispose(event.delivery_id, event.delivery_id, state)
    played.peer.received.clear()
    played.peer.speak()
