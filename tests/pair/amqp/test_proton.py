"""Interoperability with qpid-proton, in both roles, in memory."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest

from tests.peers import needs_proton

needs_proton()

import proton  # noqa: E402

from sbpair.pair.amqp.connection import Connection, ConnectionRole  # noqa: E402
from sbpair.pair.amqp.events import (  # noqa: E402
    ConnectionClosed,
    CreditDrained,
    CreditGranted,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SaslInitReceived,
)
from sbpair.pair.amqp.link import ReceiverLink, SenderLink  # noqa: E402
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, ValueBody  # noqa: E402
from sbpair.pair.amqp.performatives import ACCEPTED, Condition, Modified, Rejected, Released, Source, Target  # noqa: E402
from sbpair.pair.amqp.types import (  # noqa: E402
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

pytestmark = pytest.mark.interop


@dataclass
class Joined:
    """This package's engine and a proton transport, connected by function calls."""

    ours: Connection
    transport: proton.Transport
    connection: proton.Connection
    collector: proton.Collector
    seen: list = field(default_factory=list)
    proton_seen: list = field(default_factory=list)

    def exchange(self) -> None:
        """Exchange bytes until neither end has any left."""
        for _ in range(2000):
            out = self.ours.data_to_send()
            for at in range(0, len(out), 1000):
                self.transport.push(out[at : at + 1000])
                self._hear_proton()
            self._hear_proton()
            pending = max(0, self.transport.pending())
            data = self.transport.peek(pending) if pending else b""
            if data:
                self.transport.pop(len(data))
                self.ours.receive_data(data, 0.0)
                self._hear_ours()
            if not out and not data:
                return
        raise AssertionError("the two never fall silent")

    def _hear_ours(self) -> None:
        while events := self.ours.events():
            self.seen += events
            for event in events:
                if isinstance(event, SaslInitReceived):
                    self.ours.authenticate(True)
                elif isinstance(event, LinkAttached) and self.ours.role is ConnectionRole.SERVER:
                    if (event.attach.target and event.attach.target.address) == "refused":
                        event.link.refuse(Condition("amqp:not-found", "no such node"))
                        continue
                    event.link.attach(source=event.attach.source, target=event.attach.target)
                    if isinstance(event.link, ReceiverLink):
                        event.link.flow(100)

    def _hear_proton(self) -> None:
        while event := self.collector.peek():
            self.proton_seen.append(event.type.name)
            if self.ours.role is ConnectionRole.CLIENT:
                self._serve(event)
            self.collector.pop()

    def _serve(self, event) -> None:
        kind = event.type
        if kind == proton.Event.CONNECTION_REMOTE_OPEN:
            self.connection.open()
        elif kind == proton.Event.SESSION_REMOTE_OPEN:
            event.session.open()
        elif kind == proton.Event.LINK_REMOTE_OPEN:
            event.link.source.copy(event.link.remote_source)
            event.link.target.copy(event.link.remote_target)
            event.link.open()
            if event.link.is_receiver:
                event.link.flow(100)
        elif kind == proton.Event.LINK_REMOTE_CLOSE:
            event.link.close()
        elif kind == proton.Event.CONNECTION_REMOTE_CLOSE:
            self.connection.close()

    def saw(self, kind: type) -> list:
        return [event for event in self.seen if isinstance(event, kind)]

    def proton_links(self) -> list:
        link, found = self.connection.link_head(0), []
        while link is not None:
            found.append(link)
            link = link.next(0)
        return found


def join(role: ConnectionRole, *, proton_frame: int = 0, our_frame: int = 65536) -> Joined:
    client = role is ConnectionRole.CLIENT
    transport = proton.Transport(proton.Transport.SERVER if client else proton.Transport.CLIENT)
    if proton_frame:
        transport.max_frame_size = proton_frame
    collector, connection = proton.Collector(), proton.Connection()
    connection.collect(collector)
    connection.container = "proton"
    transport.sasl().allowed_mechs("ANONYMOUS")
    if not client:
        connection.open()
    transport.bind(connection)
    ours = Connection(
        role=role,
        container_id="ours",
        now=0.0,
        max_frame_size=our_frame,
        first_delivery_id=0 if client else 2**30,
    )
    return Joined(ours, transport, connection, collector)


@pytest.fixture
def with_proton_server() -> Joined:
    """The engine is the client."""
    return join(ConnectionRole.CLIENT, proton_frame=1024)


@pytest.fixture
def with_proton_client() -> Joined:
    """The engine is the server."""
    return join(ConnectionRole.SERVER, proton_frame=1024, our_frame=1024)


def test_our_client_sends_and_a_proton_server_receives_in_many_frames(with_proton_server):
    joined = with_proton_server
    sender = joined.ours.begin().attach_sender("s", target=Target("q"), snd_settle_mode=0)
    joined.exchange()
    assert sender.credit == 100
    payload = Message(properties=Properties(message_id="m"), body=DataBody((bytes(5000),))).encode()
    first = sender.transfer(payload, tag=b"1")
    second = sender.transfer(payload, tag=b"2")
    joined.exchange()
    (link,) = joined.proton_links()
    for _ in range(2):
        delivery = link.current
        assert not delivery.partial
        message = proton.Message()
        message.decode(link.recv(delivery.pending))
        assert (message.id, bytes(message.body)) == ("m", bytes(5000))
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()  # and advance to the next delivery
    joined.exchange()
    dispositions = joined.saw(DispositionReceived)
    assert [d.state for d in dispositions] == [ACCEPTED] * len(dispositions)
    assert (dispositions[0].first, dispositions[-1].last) == (first, second)
    assert not sender.unsettled
    sender.detach()
    joined.exchange()
    assert joined.saw(LinkDetached)[0].closed
    joined.ours.close()
    joined.exchange()
    assert joined.saw(ConnectionClosed) == [ConnectionClosed(None)]


def test_our_client_receives_from_a_proton_server_drains_and_settles(with_proton_server):
    joined = with_proton_server
    receiver = joined.ours.begin().attach_receiver("r", source=Source("q"))
    receiver.flow(10)
    joined.exchange()
    (link,) = joined.proton_links()
    assert link.credit == 10
    deliveries = []
    for tag in ("one", "two", "three"):
        deliveries.append(link.delivery(tag))
        link.send(tag.encode() * 1000)
        link.advance()
    joined.exchange()
    messages = joined.saw(MessageReceived)
    assert [(m.tag, m.payload) for m in messages] == [(t, t * 1000) for t in (b"one", b"two", b"three")]
    receiver.flow(receiver.credit, drain=True)
    joined.exchange()
    link.drained()
    joined.exchange()
    assert joined.saw(CreditDrained) == [CreditDrained(receiver)]
    states = [ACCEPTED, Rejected(Condition("a:b", "bad")), Modified(True, False)]
    for message, state in zip(messages, states, strict=True):
        receiver.dispose(message.delivery_id, message.delivery_id, state)
    joined.exchange()
    assert all(delivery.settled for delivery in deliveries)
    remote = [int(delivery.remote_state) for delivery in deliveries]
    assert remote == [proton.Delivery.ACCEPTED, proton.Delivery.REJECTED, proton.Delivery.MODIFIED]
    assert deliveries[1].remote.condition.name == "a:b"
    assert deliveries[2].remote.failed


def test_a_proton_client_sends_to_our_server(with_proton_client):
    joined = with_proton_client
    session = joined.connection.session()
    session.open()
    link = session.sender("same name")
    link.target.address = "q"
    link.open()
    back = session.receiver("same name")
    back.source.address = "q"
    back.open()
    back.flow(5)
    joined.exchange()
    assert link.credit == 100
    delivery = link.delivery("tag")
    link.send(b"payload" * 1000)
    link.advance()
    joined.exchange()
    (message,) = joined.saw(MessageReceived)
    assert (message.tag, message.payload) == (b"tag", b"payload" * 1000)
    message.link.dispose(
        message.delivery_id, message.delivery_id, Rejected(Condition("com.microsoft:server-busy", "later"))
    )
    joined.exchange()
    assert delivery.settled
    assert delivery.remote.condition.name == "com.microsoft:server-busy"

    sender = next(e.link for e in joined.saw(LinkAttached) if isinstance(e.link, SenderLink))
    assert sender.credit == 5
    number = sender.transfer(b"answer" * 1000, tag=bytes(16))
    joined.exchange()
    assert back.recv(back.current.pending) == b"answer" * 1000
    back.current.update(proton.Delivery.RELEASED)  # decided, not settled
    joined.exchange()
    assert joined.saw(DispositionReceived) == [DispositionReceived(sender, number, number, Released(), False)]
    sender.settle(number, number, Released())
    joined.exchange()
    assert back.current.settled
    back.advance()

    back.drain(0)
    joined.exchange()
    assert joined.saw(CreditGranted)[-1].drain
    sender.drained()
    joined.exchange()
    assert back.credit == 0

    link.close()
    joined.connection.close()
    joined.exchange()
    assert joined.saw(ConnectionClosed) == [ConnectionClosed(None)]
    assert joined.transport.condition is None


def test_a_proton_client_understands_a_refusal(with_proton_client):
    joined = with_proton_client
    session = joined.connection.session()
    session.open()
    link = session.sender("s")
    link.target.address = "refused"
    link.open()
    joined.exchange()
    assert link.state & proton.Endpoint.REMOTE_CLOSED
    assert link.remote_condition.name == "amqp:not-found"
    assert link.remote_target.address is None


ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
TYPES = {
    "null": (None, None),
    "boolean": (True, True),
    "ubyte": (UByte(200), proton.ubyte(200)),
    "ushort": (UShort(60000), proton.ushort(60000)),
    "uint": (UInt(4_000_000_000), proton.uint(4_000_000_000)),
    "ulong": (ULong(2**63 + 1), proton.ulong(2**63 + 1)),
    "byte": (Byte(-100), proton.byte(-100)),
    "short": (Short(-30000), proton.short(-30000)),
    "int": (Int(-2_000_000_000), proton.int32(-2_000_000_000)),
    "long": (-(2**62), -(2**62)),
    "float": (Float(1.5), proton.float32(1.5)),
    "double": (2.25, 2.25),
    "decimal32": (Decimal32(bytes.fromhex("22500001")), proton.decimal32(0x22500001)),
    "decimal64": (Decimal64(bytes.fromhex("2234000000000001")), proton.decimal64(0x2234000000000001)),
    "decimal128": (Decimal128(bytes(range(16))), proton.decimal128(bytes(range(16)))),
    "char": (Char("\u20ac"), proton.char("\u20ac")),
    "timestamp": (Timestamp(1_700_000_000_123), proton.timestamp(1_700_000_000_123)),
    "uuid": (ID, ID),
    "binary": (b"\x00\xff", b"\x00\xff"),
    "string": ("h\u00e9llo", "h\u00e9llo"),
    "symbol": (Symbol("sym"), proton.symbol("sym")),
    "list": ([1, "a", UInt(3)], [1, "a", proton.uint(3)]),
    "map": ({"k": UByte(1)}, {"k": proton.ubyte(1)}),
    "array": (
        Array(0xA1, ("a", "b")),
        proton.Array(proton.UNDESCRIBED, proton.Data.STRING, "a", "b"),
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_proton_reads_every_type_we_write(name):
    ours, theirs = TYPES[name]
    payload = Message(
        header=Header(durable=True, priority=7, ttl=60_000),
        properties=Properties(message_id=ID, creation_time=5),
        application_properties={"p": ours},
        body=ValueBody(ours),
    ).encode()
    message = proton.Message()
    message.decode(payload)
    assert (message.id, message.durable, message.priority, message.ttl) == (ID, True, 7, 60.0)
    for value in (message.properties["p"], message.body):
        value = bytes(value) if isinstance(value, memoryview) else value  # how proton shows binary
        assert value == theirs
        assert type(value) is type(theirs)


@pytest.mark.parametrize("name", TYPES)
def test_we_read_every_type_proton_writes(name):
    ours, theirs = TYPES[name]
    source = proton.Message(body=theirs, properties={"p": theirs}, id=ID, inferred=False)
    message = Message.decode(source.encode())
    assert message.properties.message_id == ID
    for value in (message.application_properties["p"], _body(message)):
        assert type(value) is type(ours)
        if isinstance(value, Array):  # proton writes strings with four bytes of size
            assert (value.code, value.items) == (0xB1, ours.items)
        else:
            assert value == ours


def _body(message: Message) -> object:
    match message.body:
        case None:
            return None
        case ValueBody(value):
            return value
        case DataBody() as body:
            return body.data
    raise AssertionError(f"a body of {message.body!r}")
