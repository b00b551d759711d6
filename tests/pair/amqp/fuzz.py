"""A fuzzer for the codec, the engine and a live broker: every mutated conversation must get an answer.

    python -m tests.pair.amqp.fuzz --runs 20000            # codec, client and server; exits with 1 on a finding
    python -m tests.pair.amqp.fuzz --seed 17 --runs 1      # one again, exactly
    python -m tests.pair.amqp.fuzz --broker --runs 2000    # the same against a live port

A run draws a recorded conversation, mutates its frames (malformed.py), splits the bytes anywhere and feeds them.
Allowed results are answers, events and, from the codec, `DecodeError`. Any other exception, more than `CPU_LIMIT`
seconds of work or more than `HELD_LIMIT` bytes held is a finding; for a live broker, so is an error in its log.
The broker must afterwards still serve a well-behaved client.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import random
import socket
import sys
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.errors import DecodeError, LocalProtocolError
from sbpair.pair.amqp.events import (
    CreditGranted,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SaslInitReceived,
)
from sbpair.pair.amqp.link import SenderLink
from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import Accepted, Rejected, Source, Target
from tests.costs import cpu_of
from tests.pair.amqp.malformed import FRAME_MUTATIONS, Conversation, conversation, mutated, pieces
from tests.waiting import PATIENCE

CPU_LIMIT = 2.0  # seconds of one run, on a slow machine
HELD_LIMIT = 16 * 1024 * 1024  # bytes that one run may allocate and hold
MEASURED = 25  # one run in so many has its memory looked at: it is slow


@dataclass(frozen=True, slots=True)
class Finding:
    """A run with a forbidden result: how to reproduce it, and what happened."""

    target: str
    seed: int
    what: str


# -- recordings: two engines of this package, whose interoperability other tests check


def recorded(queue: str = "q") -> tuple[Conversation, Conversation]:
    """What a client and what a server say in a conversation that has all of it: (client's, server's)."""
    client = Connection(role=ConnectionRole.CLIENT, container_id="client", now=0.0, max_frame_size=512)
    server = Connection(role=ConnectionRole.SERVER, container_id="server", now=0.0, first_delivery_id=2**30)
    said: tuple[list[bytes], list[bytes]] = ([], [])

    def exchange() -> None:
        while data := (client.data_to_send(), server.data_to_send()):
            if not any(data):
                return
            for at, (each, other) in enumerate(((data[0], server), (data[1], client))):
                if each:
                    said[at].append(each)
                    other.receive_data(each, 0.0)
                    answer(other, random.Random(0))

    session = client.begin()
    exchange()
    sender = session.attach_sender("out", target=Target(queue))
    receiver = session.attach_receiver("in", source=Source(queue))
    exchange()
    receiver.flow(10)
    exchange()
    for number, body in enumerate((DataBody((b"d" * 900,)), ValueBody({"n": [1, None, "x"]}), None)):
        message = Message(
            properties=Properties(message_id=f"m{number}"), body=body, application_properties={"n": number}
        )
        sender.transfer(message.encode(), tag=bytes([number]), force=True)
        exchange()
    exchange()
    sender.detach()
    exchange()
    session.end()
    exchange()
    client.close()
    exchange()
    return conversation(b"".join(said[0])), conversation(b"".join(said[1]))


# -- targets


def answer(connection: Connection, draw: random.Random) -> None:
    """React to an event as an application may, including misuse of a link that has ended meanwhile."""
    for event in connection.events():
        with suppress(LocalProtocolError):
            if isinstance(event, SaslInitReceived):
                connection.authenticate(draw.random() < 0.95)
            elif isinstance(event, LinkAttached):
                told = event.attach  # everything repeatable is repeated: what was decoded must encode
                event.link.attach(
                    source=told.source,
                    target=told.target,
                    properties=told.properties,
                    offered_capabilities=told.desired_capabilities,
                    desired_capabilities=told.offered_capabilities,
                    max_message_size=told.max_message_size,
                )
                if isinstance(event.link, SenderLink):
                    event.link.transfer(b"\x00\x53\x75\xa0\x01x", tag=b"t", force=True)
                else:
                    event.link.flow(10)
            elif isinstance(event, MessageReceived):
                with suppress(DecodeError):
                    Message.decode(event.payload)
                state = draw.choice((Accepted(), Rejected(), None, event.state))
                event.link.dispose(event.delivery_id, event.delivery_id, state)
            elif isinstance(event, DispositionReceived) and isinstance(event.link, SenderLink):
                event.link.settle(event.first, event.last, event.state)
            elif isinstance(event, CreditGranted) and event.drain:
                event.link.drained()
            elif isinstance(event, LinkDetached):
                event.link.session.end(event.condition)


def feed(connection: Connection, data: bytes, draw: random.Random) -> None:
    now = 0.0
    for piece in pieces(data, draw):
        connection.receive_data(piece, now)
        answer(connection, draw)
        connection.data_to_send()
        now += 30.0 if draw.random() < 0.003 else 0.0
        if draw.random() < 0.05 and connection.next_timer() is not None:
            connection.handle_timer(now)
    connection.receive_eof(now)
    connection.events()
    connection.data_to_send()


CLIENT_SAID, SERVER_SAID = recorded()
EVERY_FRAME = (*CLIENT_SAID.frames, *SERVER_SAID.frames)


def codec(draw: random.Random) -> None:
    """Decode a value or a whole message from mutated bytes."""
    body = draw.choice(EVERY_FRAME)
    for _ in range(draw.choice((1, 2, 5))):
        body = draw.choice(FRAME_MUTATIONS)(body, draw) or b"\x00"
    data = body[8:]
    for read in (decode, Message.decode):
        with suppress(DecodeError):
            read(data)
    with suppress(DecodeError):
        value, _ = decode(data)
        written = encode(value)
        assert encode(decode(written)[0]) == written, "what is written does not read as it was"


def server(draw: random.Random) -> None:
    """Feed a client's mutated bytes to the engine as a server."""
    feed(
        Connection(role=ConnectionRole.SERVER, container_id="s", now=0.0, first_delivery_id=2**30),
        mutated(CLIENT_SAID, EVERY_FRAME, draw),
        draw,
    )


def client(draw: random.Random) -> None:
    """Feed a server's mutated bytes to the engine as a client."""
    connection = Connection(role=ConnectionRole.CLIENT, container_id="c", now=0.0)
    session = connection.begin()
    session.attach_sender("out", target=Target("q")).transfer(b"\x00\x53\x75\xa0\x01x", tag=b"t", force=True)
    session.attach_receiver("in", source=Source("q")).flow(10)
    feed(connection, mutated(SERVER_SAID, EVERY_FRAME, draw), draw)


TARGETS: dict[str, Callable[[random.Random], None]] = {"codec": codec, "server": server, "client": client}


def run(name: str, seed: int) -> Finding | None:
    """Run a target once."""
    measures = seed % MEASURED == 0
    if measures:
        tracemalloc.start()
    try:
        took = cpu_of(lambda: TARGETS[name](random.Random(f"{name} {seed}")))
        held = tracemalloc.get_traced_memory()[1] if measures else 0
    except Exception:
        return Finding(name, seed, traceback.format_exc(limit=-6))
    finally:
        if measures:
            tracemalloc.stop()
    if took > CPU_LIMIT:
        return Finding(name, seed, f"it took {took:.1f} s of CPU")
    return Finding(name, seed, f"it held {held} bytes") if held > HELD_LIMIT else None


def findings(first: int, runs: int) -> Iterator[Finding]:
    """Yield the findings of the runs of all targets, starting with a seed."""
    for seed in range(first, first + runs):
        for name in TARGETS:
            if (found := run(name, seed)) is not None:
                yield found


# -- the live port


class Complaints(logging.Handler):
    """Collect logged errors, which include exceptions that reached the event loop."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


def assault(port: int, seed: int) -> None:
    """Send a mutated conversation to a live broker and read a little of its answer."""
    said, _ = recorded("orders")
    draw = random.Random(f"broker {seed}")
    data = mutated(said, EVERY_FRAME, draw)
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.settimeout(0.01)
        for piece in pieces(data, draw) if seed % 5 == 0 else (data,):
            sock.sendall(piece)
        sock.recv(65536)


def broker_findings(first: int, runs: int) -> list[Finding]:
    """Yield the errors that the runs cause in a live broker, or in serving a client afterwards."""
    from sbpair.broker import Broker

    complaints = Complaints()
    gc.collect()  # objects left behind by other code may warn when they are collected
    logging.getLogger().addHandler(complaints)
    found: list[Finding] = []
    try:
        with Broker({"contoso": 0}, open_access=True) as broker:
            namespace = broker.namespace("contoso")
            namespace.create_queue("orders")
            for seed in range(first, first + runs):
                assault(namespace.port, seed)
                found += [Finding("broker", seed, text) for text in complaints.texts]
                complaints.texts.clear()
            namespace.create_queue("after")
            serve_one(namespace.connection_string)
            found += [Finding("broker", first + runs - 1, text) for text in complaints.texts]
    finally:
        logging.getLogger().removeHandler(complaints)
    return found


def serve_one(connection_string: str) -> None:
    """Send and receive with a well-behaved client."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        with client.get_queue_sender("after") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("after", max_wait_time=PATIENCE) as receiver:
            (got,) = receiver.receive_messages(1)
            receiver.complete_message(got)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.pair.amqp.fuzz")
    options.add_argument("--runs", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0, help="the first of the runs")
    options.add_argument("--broker", action="store_true", help="a live broker, instead of the engine")
    asked = options.parse_args()
    count = 0
    for found in (broker_findings if asked.broker else findings)(asked.seed, asked.runs):
        count += 1
        print(f"{found.target} --seed {found.seed}: {found.what}")
    runs = asked.runs * (1 if asked.broker else len(TARGETS))
    print(json.dumps({"runs": runs, "findings": count}))
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
