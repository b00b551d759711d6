"""A namespace in virtual time, and AMQP clients connected to its frontend without a socket."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sbpair.broker.access import OpenAccess, SharedAccess, Verifier
from sbpair.broker.auth import Right, SharedAccessPolicy
from sbpair.broker.clock import ClockReading
from sbpair.broker.entities import Namespace, Queue, QueueDescription, StoredMessage
from sbpair.broker.entities.stored_message import LockToken
from sbpair.broker.frontends.amqp.client_connection import ClientConnection
from sbpair.broker.frontends.namespace_frontend import NamespaceFrontend
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import DispositionReceived, Event, MessageReceived
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.link import ReceiverLink, SenderLink
from sbpair.pair.amqp.message import Message
from sbpair.pair.amqp.performatives import Accepted, Source, Target
from tests.strict_frames import strictly_read

NOON = 1_800_000_000_000  # ms
FIRST_PARTITIONS = "home"  # a key of the partition whose sequence numbers are a plain queue's


@pytest.fixture(autouse=True)
def frames_are_strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the broker sends in a test has the types of the standard."""
    with strictly_read(monkeypatch):
        yield


@pytest.fixture
def namespace() -> Namespace:
    """A namespace with consecutive numbers as lock tokens."""
    tokens = itertools.count(1)
    return Namespace("contoso", new_token=lambda: LockToken(next(tokens).to_bytes(16, "big")))


@pytest.fixture(params=["plain", "partitioned"])
def is_partitioned(request: pytest.FixtureRequest) -> bool:
    """Run the test twice, with plain and with partitioned entities."""
    return request.param == "partitioned"


@pytest.fixture
def make_queue(namespace: Namespace, is_partitioned: bool) -> Callable[..., Queue]:
    """Return a function that creates the queue `orders` with the given fields of its description."""

    def make(**fields: object) -> Queue:
        description = replace(QueueDescription(enable_partitioning=is_partitioned), **fields)
        return namespace.create_queue("orders", description, NOON)

    return make


@pytest.fixture
def message() -> Callable[..., StoredMessage]:
    """Return a function that creates a small message with the given fields, by default for partition 0."""

    def make(**fields: object) -> StoredMessage:
        fields.setdefault("partition_key", fields.get("session_id", FIRST_PARTITIONS))
        return StoredMessage(bare=fields.pop("bare", b"body"), **fields)

    return make


class Client:
    """A client built on the AMQP engine and connected to a frontend by function calls."""

    def __init__(
        self,
        lab: Lab,
        mechanism: str = "ANONYMOUS",
        response: bytes = b"",
        *,
        is_refused: bool = False,
        limits: Limits | None = None,
        properties: dict[object, object] | None = None,
    ) -> None:
        self.lab = lab
        self.server = ClientConnection(lab.frontend, lab.now, is_refused=is_refused)
        self.engine = Connection(
            role=ConnectionRole.CLIENT,
            container_id="test",
            mechanisms=(mechanism,),
            initial_response=response,
            limits=limits,
            properties=properties,
            now=lab.now.connection,
        )
        self.events: list[Event] = []
        self.nodes: dict[str, tuple[ReceiverLink, SenderLink]] = {}
        lab.clients.append(self)
        self.session = self.engine.begin()
        lab.run()

    def sender(self, path: str, **how: object) -> SenderLink:
        """Attach a sender link to ``path``."""
        name = how.pop("name", f"to-{path}-{next(_NAMES)}")
        link = self.session.attach_sender(name, target=Target(path), source=Source(name), **how)
        self.lab.run()
        return link

    def receiver(self, path: str, *, credit: int = 0, deletes: bool = False, **how: object) -> ReceiverLink:
        """Attach a receiver link to ``path`` and grant credit."""
        name = how.pop("name", f"from-{path}-{next(_NAMES)}")
        link = self.session.attach_receiver(
            name,
            source=how.pop("source", Source(path)),
            target=Target(name),
            rcv_settle_mode=0 if deletes else 1,
            snd_settle_mode=1 if deletes else 0,
            **how,
        )
        self.lab.run()
        if credit:
            link.flow(credit)
            self.lab.run()
        return link

    def send(self, link: SenderLink, payload: bytes, *, message_format: int = 0) -> object:
        """Send a message; return the state that the broker answered, or None."""
        delivery_id = link.transfer(
            payload, tag=next(_NAMES).to_bytes(4, "big"), message_format=message_format
        )
        self.lab.run()
        for event in self.take(DispositionReceived):
            if event.first <= delivery_id <= event.last:
                assert event.settled
                return event.state
        return None

    def settle(self, delivery: MessageReceived, state: object) -> object:
        """Settle as the SDK does; return the state that the broker answered."""
        delivery.link.dispose(delivery.delivery_id, delivery.delivery_id, state, settled=False)
        self.lab.run()
        (answer,) = self.take(DispositionReceived)
        assert answer.settled
        return answer.state

    def take(self, kind: type) -> list:
        """Return the events of this kind and remove them."""
        taken = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return taken

    def ask(self, node: str, message: Message) -> Message:
        """Send one request to a node and return its response."""
        if node not in self.nodes:
            self.nodes[node] = (self.receiver(node), self.sender(node))
        sender = self.nodes[node][1]
        assert isinstance(self.send(sender, message.encode()), Accepted)
        (response,) = self.take(MessageReceived)
        return Message.decode(response.payload)


_NAMES = itertools.count(1)


class Lab:
    """A namespace's frontend with its clients and its three clocks."""

    def __init__(self, namespace: Namespace, verifier: Verifier) -> None:
        self.namespace = namespace
        self.frontend = NamespaceFrontend(namespace, verifier)
        self.clients: list[Client] = []
        self.now = ClockReading(1000.0, NOON // 1000, NOON)

    def queue(self, path: str = "orders", **fields: object) -> Queue:
        """Create a queue."""
        return self.namespace.create_queue(path, QueueDescription(**fields), self.now.entity)

    def client(self, **how: object) -> Client:
        """Connect a client."""
        return Client(self, **how)

    def run(self) -> None:
        """Exchange bytes until neither end has any left."""
        busy = True
        while busy:
            busy = False
            for client in self.clients:
                if data := client.engine.data_to_send():
                    client.server.receive_data(data, self.now)
                    busy = True
            busy = self.frontend.deliver(self.now) or busy
            self.frontend.take_pending()
            for client in self.clients:
                if data := b"".join(client.server.pieces_to_send()):
                    client.engine.receive_data(data, self.now.connection)
                    client.events += client.engine.events()
                    client.server.answers.passed_on()
                    busy = True

    def advance(self, *, entity: int = 0, wall: int = 0, connection: float = 0.0, ahead: float = 0.0) -> None:
        """Advance the clocks and run what is due; ``ahead`` is connection time without heartbeats."""
        now = self.now
        self.now = ClockReading(
            now.connection + connection, now.wall + wall, now.entity + entity, now.ahead + ahead
        )
        self.namespace.handle_timer(self.now.entity)
        for client in self.clients:
            client.server.handle_timer(self.now)
        self.run()


@pytest.fixture
def lab(namespace: Namespace) -> Lab:
    """A lab with open access."""
    return Lab(namespace, OpenAccess())


POLICY = SharedAccessPolicy("Root", "a2V5", "b3RoZXI=")
LISTENER = SharedAccessPolicy("Listener", "bGlzdGVu", "bGlzdGVuMg==", frozenset({Right.LISTEN}))


@pytest.fixture
def guarded(namespace: Namespace) -> Lab:
    """A lab that checks tokens: policies Root (key a2V5) and Listener (key bGlzdGVu, Listen only)."""
    return Lab(namespace, SharedAccess((POLICY, LISTENER)))
