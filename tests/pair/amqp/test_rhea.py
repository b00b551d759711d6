"""Interoperability with rhea (JavaScript), in both roles, over a socket."""

from __future__ import annotations

import json
import os
import select
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import (
    ConnectionClosed,
    CreditDrained,
    CreditGranted,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SaslInitReceived,
)
from sbpair.pair.amqp.link import ReceiverLink, SenderLink
from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import ACCEPTED, Accepted, Condition, Modified, Rejected, Source, Target
from sbpair.pair.amqp.types import (
    Byte,
    Char,
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
from tests.peers import run_node
from tests.waiting import PATIENCE

pytestmark = pytest.mark.interop

SCRIPT = Path(__file__).parent / "rhea_peer.js"
TYPED = {
    "null": None,
    "boolean": True,
    "ubyte": UByte(200),
    "ushort": UShort(60000),
    "uint": UInt(4_000_000_000),
    "ulong": ULong(2**63 + 1),
    "byte": Byte(-100),
    "short": Short(-30000),
    "int": Int(-2_000_000_000),
    "long": -1_234_567_890_123,
    "float": Float(1.5),
    "double": 2.25,
    "char": Char("\u20ac"),
    "timestamp": Timestamp(1_700_000_000_123),
    "uuid": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
    "binary": b"\x00\xff",
    "string": "h\u00e9llo",
    "symbol": Symbol("sym"),
}
SHOWN = {
    "null": None, "boolean": True, "ubyte": 200, "ushort": 60000, "uint": 4_000_000_000,
    "ulong": "hex:8000000000000001",
    "byte": -100, "short": -30000, "int": -2_000_000_000, "long": -1_234_567_890_123, "float": 1.5,
    "double": 2.25, "char": 0x20AC, "timestamp": "date:1700000000123",
    "uuid": "hex:00112233445566778899aabbccddeeff",
    "binary": "hex:00ff", "string": "h\u00e9llo", "symbol": "sym",
}  # fmt: skip


class Driver:
    """The engine on a socket, and the lines that the node program prints."""

    def __init__(self, ours: Connection, sock: socket.socket, process) -> None:
        self.ours, self.sock, self.process = ours, sock, process
        self.events: list[Event] = []
        self.heard: list[dict] = []
        self._line = ""

    def until(self, done: Callable[[], object], answer: Callable[[Event], None] = lambda event: None) -> None:
        """Exchange bytes until `done`; after a bounded wait, fail with what was seen."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, (self.events, self.heard)
            self._flush()
            readable, _, _ = select.select([self.sock, self.process.stdout], [], [], 0.05)
            if self.process.stdout in readable:
                self._line += os.read(self.process.stdout.fileno(), 65536).decode()
                *lines, self._line = self._line.split("\n")
                self.heard += map(json.loads, lines)
            if self.sock in readable:
                data = self.sock.recv(65536)
                if data:
                    self.ours.receive_data(data, 0.0)
                else:
                    self.ours.receive_eof(0.0)
            while fresh := self.ours.events():
                self.events += fresh
                for event in fresh:
                    answer(event)
        self._flush()

    def _flush(self) -> None:
        try:
            self.sock.sendall(self.ours.data_to_send())
        except OSError:
            self.ours.receive_eof(0.0)

    def saw(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def heard_of(self, name: str) -> list[dict]:
        return [line for line in self.heard if line["event"] == name]

    def command(self, text: str) -> None:
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()


@contextmanager
def running(*arguments: str) -> Iterator:
    process = run_node(SCRIPT, *arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def rhea_client() -> Iterator[Driver]:
    """rhea connects to the engine, which is the server."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, running("client", str(listener.getsockname()[1])) as process:
        listener.settimeout(PATIENCE)
        sock, _ = listener.accept()
        with sock:
            ours = Connection(
                role=ConnectionRole.SERVER,
                container_id="ours",
                now=0.0,
                max_frame_size=1024,
                first_delivery_id=2**30,
            )
            yield Driver(ours, sock, process)


@pytest.fixture
def rhea_server() -> Iterator[Driver]:
    """The engine connects to rhea as the client."""
    with running("server") as process:
        port = json.loads(process.stdout.readline())["port"]
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as sock:
            yield Driver(
                Connection(role=ConnectionRole.CLIENT, container_id="ours", now=0.0, max_frame_size=1024),
                sock,
                process,
            )


def test_a_rhea_client_works_with_our_server(rhea_client):
    driver = rhea_client
    links: dict[str, SenderLink] = {}

    def answer(event: Event) -> None:
        match event:
            case SaslInitReceived():
                driver.ours.authenticate(True)
            case LinkAttached(link=link, attach=attach):
                if link.name == "refused":
                    link.refuse(Condition("amqp:not-found", "no such queue"))
                    return
                link.attach(source=attach.source, target=attach.target)
                if isinstance(link, ReceiverLink):
                    link.flow(10)
                else:
                    links["inward"] = link
            case MessageReceived(link=link, delivery_id=number):
                busy = Rejected(Condition("com.microsoft:server-busy", "later"))
                link.dispose(number, number, busy if number else ACCEPTED)
            case DispositionReceived(
                link=SenderLink() as link, first=first, last=last, state=state, settled=False
            ):
                link.settle(first, last, state)

    driver.until(lambda: driver.heard_of("accepted") and driver.heard_of("rejected"), answer)
    typed, batch = driver.saw(MessageReceived)
    message = Message.decode(typed.payload)
    assert message.body == DataBody((b"x" * 5000,))
    properties = {key: value for key, value in message.application_properties.items() if key in TYPED}
    assert properties == TYPED
    assert {key: type(value) for key, value in properties.items()} == {k: type(v) for k, v in TYPED.items()}
    assert message.application_properties["map"] == {"k": "v"}
    assert message.application_properties["array"].items == ("a", "b")
    assert (batch.tag, batch.message_format) == (b"tag", 0x80013700)
    assert driver.heard_of("rejected")[0]["condition"] == "com.microsoft:server-busy"

    driver.until(lambda: driver.heard_of("receiver_error"), answer)
    assert driver.heard_of("receiver_error")[0]["condition"] == "amqp:not-found"

    driver.until(lambda: links["inward"].credit == 10, answer)
    for outcome in ("accept", "reject", "release"):
        payload = Message(
            properties=Properties(message_id=outcome),
            application_properties={**TYPED, "outcome": outcome},
            body=ValueBody("y" * 3000),
        ).encode()
        links["inward"].transfer(payload, tag=uuid.uuid4().bytes_le)
        # one at a time: rhea 3.0 puts different outcomes of one turn into one range
        driver.until(lambda: not links["inward"].unsettled, answer)
    driver.until(lambda: len(driver.heard_of("message")) == 3, answer)
    heard = driver.heard_of("message")
    assert [line["id"] for line in heard] == ["accept", "reject", "release"]
    assert {k: v for k, v in heard[0]["properties"].items() if k != "outcome"} == SHOWN
    assert heard[0]["body"] == "y" * 3000
    accepted, rejected, modified = (event.state for event in driver.saw(DispositionReceived))
    assert isinstance(accepted, Accepted)
    assert rejected == Rejected(Condition("a:b", "bad"))
    assert modified == Modified(True, True)

    driver.command("drain")
    driver.until(lambda: any(event.drain for event in driver.saw(CreditGranted)), answer)
    links["inward"].drained()
    driver.until(lambda: driver.heard_of("drained"), answer)
    driver.command("close")
    driver.until(lambda: driver.saw(ConnectionClosed), answer)
    assert driver.saw(ConnectionClosed) == [ConnectionClosed(None)]


def test_a_rhea_server_works_with_our_client(rhea_server):
    driver = rhea_server
    session = driver.ours.begin()
    sender = session.attach_sender("outward", target=Target("q"), snd_settle_mode=0)
    receiver = session.attach_receiver("inward", source=Source("q"))
    driver.until(lambda: receiver.is_open)  # with earlier credit, rhea sends before its attach
    receiver.flow(5)
    driver.until(lambda: sender.credit and driver.saw(MessageReceived))
    (received,) = driver.saw(MessageReceived)
    message = Message.decode(received.payload)
    assert message.body == ValueBody("z" * 5000)
    properties = message.application_properties
    assert {key: properties[key] for key in TYPED} == TYPED
    assert {key: type(properties[key]) for key in TYPED} == {k: type(v) for k, v in TYPED.items()}
    receiver.dispose(received.delivery_id, received.delivery_id, ACCEPTED)
    driver.until(lambda: driver.heard_of("accepted"))

    for outcome in ("accept", "reject", "release"):
        payload = Message(
            properties=Properties(message_id=outcome),
            application_properties={**TYPED, "outcome": outcome},
            body=DataBody((bytes(3000),)),
        ).encode()
        sender.transfer(payload, tag=outcome.encode())
        driver.until(lambda: not sender.unsettled)
    driver.until(lambda: len(driver.heard_of("message")) == 3)
    heard = driver.heard_of("message")
    assert [line["id"] for line in heard] == ["accept", "reject", "release"]
    assert {k: v for k, v in heard[0]["properties"].items() if k != "outcome"} == SHOWN
    assert heard[0]["body"] == "hex:" + "00" * 3000
    states = [event.state for event in driver.saw(DispositionReceived)]
    assert states == [ACCEPTED, Rejected(Condition("a:b", "bad")), Modified(True, True)]

    receiver.flow(receiver.credit, drain=True)
    driver.until(lambda: driver.saw(CreditDrained))
    sender.detach()
    driver.until(lambda: driver.saw(LinkDetached))
    driver.ours.close()
    driver.until(lambda: driver.saw(ConnectionClosed))
    assert driver.saw(ConnectionClosed) == [ConnectionClosed(None)]
    assert not driver.heard_of("protocol_error")
