"""Clients that ask for more than they read: what the broker keeps for them is bounded, and nothing is lost (R-114)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.frontends.amqp.client_connection import MAX_UNREAD
from sbpair.broker.server.unread_limit import MAX_UNREAD_IN_ALL, UnreadLimit
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import Event, LinkAttached, MessageReceived
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import Source, Target
from sbpair.pair.amqp.types import Int
from tests.trials.bench.raw_client import endpoint_of
from tests.waiting import wait_until

pytestmark = pytest.mark.spec("R-114")

NODE = "orders/$management"
PEEKS = 200
ANSWER = 720_000  # bytes of an answer at least
WITHIN = 30.0  # seconds
PEEK = Message(
    properties=Properties(message_id="1", reply_to="here"),
    application_properties={"operation": "com.microsoft:peek-message"},
    body=ValueBody({"from-sequence-number": 1, "message-count": Int(3)}),
).encode()


@pytest.fixture
def contoso() -> Iterator[NamespaceControl]:
    """A namespace with a queue of three messages that one answer carries."""
    with Broker({"contoso": 0}, fast=True) as broker:  # its window lets a client ask on and on
        control = broker.namespace("contoso")
        control.create_queue("orders")
        with Asker(control) as sending:
            link = sending.session.attach_sender("to", target=Target("orders"))
            sending.read_until(lambda event: isinstance(event, LinkAttached))
            body = Message(body=DataBody((bytes(ANSWER // 3),))).encode()
            for number in range(3):
                link.transfer(body, tag=bytes([number]), settled=True, force=True)
            sending.write()
            wait_until(lambda: control.counts("orders").active == 3)
        yield control


class Asker:
    """A client that sends requests, and reads only when it is told to."""

    def __init__(self, control: NamespaceControl, limits: Limits | None = None) -> None:
        where = endpoint_of(control.connection_string)
        self.engine = Connection(
            role=ConnectionRole.CLIENT,
            container_id="asker",
            hostname="localhost",
            mechanisms=("PLAIN",),
            initial_response=f"\0{where.user}\0{where.password}".encode(),
            limits=limits,
            now=time.monotonic(),
        )
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.socket.settimeout(WITHIN)
        self.socket.connect(("127.0.0.1", where.port))
        self.session = self.engine.begin()
        self.seen: list[Event] = []

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def write(self) -> None:
        self.socket.sendall(self.engine.data_to_send())

    def read(self) -> list[Event]:
        """Read once; returns the events, none at the end of the stream."""
        if not (data := self.socket.recv(262_144)):
            raise EOFError
        self.engine.receive_data(data, time.monotonic())
        self.write()
        events = self.engine.events()
        self.seen += events
        return events

    def read_until(self, is_last: object) -> None:
        self.write()
        while not any(is_last(event) for event in self.read()):  # type: ignore[operator]
            pass

    def ask(self, count: int = PEEKS) -> None:
        """Attach to the node and pipeline requests."""
        answers = self.session.attach_receiver("in", source=Source(NODE), target=Target("here"))
        self.asks = self.session.attach_sender("out", target=Target(NODE))
        while sum(isinstance(event, LinkAttached) for event in self.seen) < 2:
            self.write()
            self.read()
        answers.flow(1000)
        self.ask_again(count)

    def ask_again(self, count: int) -> None:
        for _ in range(count):
            self.asks.transfer(PEEK, tag=b"t", settled=True, force=True)
        self.write()


def kept(control: NamespaceControl) -> int:
    """The bytes that the broker keeps for clients that do not read."""
    return control.inspect(
        lambda server: sum(wire.transport.get_write_buffer_size() for wire in server.wires.values())
    )


def clogged(control: NamespaceControl) -> int:
    return control.inspect(lambda server: sum(wire.client.is_clogged for wire in server.wires.values()))


def test_unread_answers_are_bounded_and_arrive_when_the_client_reads(contoso: NamespaceControl) -> None:
    with Asker(contoso) as client:
        client.ask()
        wait_until(lambda: clogged(contoso) == 1)
        assert 0 < kept(contoso) < MAX_UNREAD + 2 * ANSWER
        while sum(isinstance(event, MessageReceived) for event in client.seen) < PEEKS:
            client.read()
        wait_until(lambda: kept(contoso) == 0)
        assert contoso.inspect(lambda server: server.unread.total) == 0


def late(control: NamespaceControl) -> int:
    """The bytes of answers that an outage delays."""
    return control.inspect(
        lambda server: sum(len(data) for wire in server.wires.values() for _, data in wire._late)
    )


def test_answers_delayed_by_an_outage_are_bounded(contoso: NamespaceControl) -> None:
    with Asker(contoso) as client:
        contoso.take_down("slow", delay=0.3)
        client.ask(20)
        wait_until(lambda: late(contoso) > MAX_UNREAD)
        assert max(late(contoso) for _ in range(200)) < MAX_UNREAD + 2 * ANSWER
        contoso.bring_up()
        while sum(isinstance(event, MessageReceived) for event in client.seen) < 20:
            client.read()


def test_a_client_that_leaves_without_reading_leaves_no_state(contoso: NamespaceControl) -> None:
    with Asker(contoso) as client:
        client.ask()
        wait_until(lambda: clogged(contoso) == 1)
    wait_until(lambda: contoso.inspect(lambda server: not server.wires))
    assert contoso.inspect(lambda server: server.unread.total) == 0


@pytest.mark.slow
def test_unread_answers_of_all_clients_are_bounded_and_others_are_served(contoso: NamespaceControl) -> None:
    count = 2 * MAX_UNREAD_IN_ALL // MAX_UNREAD
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(Asker(contoso)).ask(20)
        wait_until(lambda: contoso.inspect(lambda server: len(server.wires)) < count)
        assert contoso.inspect(lambda server: server.unread.total) <= MAX_UNREAD_IN_ALL
        assert kept(contoso) <= MAX_UNREAD_IN_ALL
        with Asker(contoso) as other:
            other.ask(1)
            other.read_until(lambda event: isinstance(event, MessageReceived))


def test_the_client_that_has_not_read_for_longest_is_disconnected() -> None:
    gone: list[str] = []
    limit = UnreadLimit[str](gone.append)
    half = MAX_UNREAD_IN_ALL // 2
    for name in ("first", "second"):
        limit.note(name, half)
    limit.note("first", 0)  # it has read
    limit.note("first", half)
    assert gone == []
    limit.note("third", 1)
    assert gone == ["second"]
    assert limit.total == half + 1


def test_requests_wait_while_the_session_window_of_their_answers_is_closed(contoso: NamespaceControl) -> None:
    with Asker(contoso, Limits(incoming_window=2)) as client:
        client.ask()
        while sum(isinstance(event, MessageReceived) for event in client.seen) < PEEKS:
            client.read()


@pytest.mark.slow
def test_a_client_that_keeps_asking_behind_a_closed_window_is_disconnected(contoso: NamespaceControl) -> None:
    with Asker(contoso, Limits(incoming_window=1)) as client:
        client.ask(10)
        for _ in range(8):
            client.ask_again(1000)
        told = b""
        while data := client.socket.recv(262_144):  # its engine does not see them: the window stays closed
            told += data
        assert b"amqp:resource-limit-exceeded" in told
        assert len(told) < MAX_UNREAD
