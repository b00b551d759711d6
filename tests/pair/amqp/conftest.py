"""A client and a server connected in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import Event, LinkAttached, SaslInitReceived
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.link import ReceiverLink, SenderLink
from sbpair.pair.amqp.performatives import SENDER, Source, Target
from sbpair.pair.amqp.session import Session


@dataclass
class Pair:
    """Both ends of one connection; the server's application accepts everything."""

    client: Connection
    server: Connection
    session: Session
    now: float = 0.0
    step: int = 0
    """Bytes a read brings; 0 for all there are."""
    answers_links: bool = True
    client_events: list[Event] = field(default_factory=list)
    server_events: list[Event] = field(default_factory=list)

    def exchange(self) -> None:
        """Exchange bytes until neither end has any left."""
        for _ in range(10_000):
            to_server = self.client.data_to_send()
            to_client = self.server.data_to_send()
            if not to_server and not to_client:
                return
            self._carry(to_server, self.server, self.server_events)
            self._carry(to_client, self.client, self.client_events)
        raise AssertionError("the two never fall silent")

    def _carry(self, data: bytes, to: Connection, events: list[Event]) -> None:
        size = self.step or max(len(data), 1)
        for at in range(0, len(data), size):
            to.receive_data(data[at : at + size], self.now)
            while fresh := to.events():
                events += fresh
                self._answer(to, fresh)

    def _answer(self, connection: Connection, events: list[Event]) -> None:
        if connection.role is ConnectionRole.CLIENT:
            return
        for event in events:
            if isinstance(event, SaslInitReceived):
                connection.authenticate(True)
            elif isinstance(event, LinkAttached) and self.answers_links:
                event.link.attach(source=event.attach.source, target=event.attach.target)

    def client_saw(self, kind: type) -> list:
        return [event for event in self.client_events if isinstance(event, kind)]

    def server_saw(self, kind: type) -> list:
        return [event for event in self.server_events if isinstance(event, kind)]

    def sending_link(self, name: str = "link", credit: int = 100) -> tuple[SenderLink, ReceiverLink]:
        """Open a link from client to server; return both ends."""
        sender = self.session.attach_sender(name, target=Target("queue"), snd_settle_mode=0)
        self.exchange()
        receiver = next(
            e.link for e in self.server_saw(LinkAttached) if e.link.name == name and e.attach.role is SENDER
        )
        receiver.flow(credit)
        self.exchange()
        return sender, receiver

    def receiving_link(self, name: str = "link", credit: int = 100) -> tuple[SenderLink, ReceiverLink]:
        """Open a link from server to client; return both ends."""
        receiver = self.session.attach_receiver(name, source=Source("queue"), rcv_settle_mode=0)
        receiver.flow(credit)
        self.exchange()
        attached = [
            e for e in self.server_saw(LinkAttached) if e.link.name == name and e.attach.role is not SENDER
        ]
        return attached[-1].link, receiver


MakePair = Callable[..., Pair]


@pytest.fixture
def make_pair() -> MakePair:
    """Build a pair with the given settings; those with the prefix server_ apply to the server."""

    def make(*, opened: bool = True, step: int = 0, limits: Limits | None = None, **settings) -> Pair:
        of_server = {k.removeprefix("server_"): v for k, v in settings.items() if k.startswith("server_")}
        of_client = {k: v for k, v in settings.items() if not k.startswith("server_")}
        client = Connection(role=ConnectionRole.CLIENT, container_id="client", now=0.0, **of_client)
        server = Connection(
            role=ConnectionRole.SERVER,
            container_id="server",
            now=0.0,
            **{"first_delivery_id": 2**30, "limits": limits, **of_server},
        )
        pair = Pair(client, server, client.begin(), step=step)
        if opened:
            pair.exchange()
        return pair

    return make


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    """A client and a server, open, with one session."""
    return make_pair()
