"""Throughput of the AMQP engine: messages per second through a client and a server in memory.

    python -m tests.trials.bench.bench_amqp [--rounds N]

One process does the work of both ends, so the engine of one end costs about half of what is shown.
Prints its settings, then one JSON line per figure (name, unit, n, median, p95).
"""

from __future__ import annotations

import gc
import platform
import time

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import DispositionReceived, LinkAttached, MessageReceived, SaslInitReceived
from sbpair.pair.amqp.link import ReceiverLink, SenderLink
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import ACCEPTED, Source, Target
from sbpair.pair.amqp.types import Symbol
from tests.trials.bench.report import figure, rounds

WINDOW = 1000
MESSAGES = 50_000
BODY = 1024
CHUNK = 65536


class Wire:
    """A client that sends to a server over a function call, 64 KiB at a time."""

    def __init__(self) -> None:
        self.client = Connection(role=ConnectionRole.CLIENT, container_id="client", now=0.0)
        self.server = Connection(
            role=ConnectionRole.SERVER, container_id="server", now=0.0, first_delivery_id=2**30
        )
        self.sender: SenderLink = self.client.begin().attach_sender(
            "l", target=Target("q"), snd_settle_mode=0
        )
        self.receiver: ReceiverLink | None = None
        self.accepted = 0
        self.client_seconds = 0.0
        self.turn()
        self.turn()

    def turn(self) -> None:
        """Everything the client has to say to the server, and the answers back."""
        begun = time.perf_counter()
        data = self.client.data_to_send()
        self.client_seconds += time.perf_counter() - begun
        for at in range(0, len(data), CHUNK):
            self.server.receive_data(data[at : at + CHUNK], 0.0)
            self.serve()
            answer = self.server.data_to_send()
            begun = time.perf_counter()
            self.client.receive_data(answer, 0.0)
            for event in self.client.events():
                if isinstance(event, DispositionReceived):
                    self.accepted += event.last - event.first + 1
            self.client_seconds += time.perf_counter() - begun

    def serve(self) -> None:
        events = self.server.events()
        while events:
            for event in events:
                if isinstance(event, MessageReceived):
                    event.link.dispose(event.delivery_id, event.delivery_id, ACCEPTED)
                elif isinstance(event, SaslInitReceived):
                    self.server.authenticate(True)
                elif isinstance(event, LinkAttached) and isinstance(event.link, ReceiverLink):
                    self.receiver = event.link
                    self.receiver.attach(source=Source(), target=Target("q"))
                    self.receiver.flow(WINDOW)
            events = self.server.events()
        if self.receiver is not None and self.receiver.credit < WINDOW // 2:
            self.receiver.flow(WINDOW)


def one_round(payload: bytes, messages: int = MESSAGES) -> tuple[float, float]:
    """Messages a second through both ends, and through the client's alone."""
    wire = Wire()
    wire.client_seconds = 0.0
    sent = 0
    begun = time.perf_counter()
    while wire.accepted < messages:
        start = time.perf_counter()
        for _ in range(min(wire.sender.credit, messages - sent)):
            wire.sender.transfer(payload, tag=sent.to_bytes(4, "big"))
            sent += 1
        wire.client_seconds += time.perf_counter() - start
        wire.turn()
    return messages / (time.perf_counter() - begun), messages / wire.client_seconds


def main(times: int) -> None:
    """Run and print."""
    message = Message(
        properties=Properties(message_id="0123456789abcdef"),
        application_properties={"a": "one", "b": 2, "c": True},
        message_annotations={Symbol("x-opt-partition-key"): "key"},
        body=DataBody((bytes(BODY),)),
    )
    payload = message.encode()
    print(
        f"# python {platform.python_version()}, "
        f"{MESSAGES} messages of {len(payload)} bytes, window {WINDOW}, chunk {CHUNK}"
    )
    gc.collect()
    gc.freeze()
    both, client = zip(*(one_round(payload) for _ in range(times)), strict=True)
    figure("amqp.send_accept.both_ends", "1/s", both, digits=0)
    figure("amqp.send_accept.client_alone", "1/s", client, digits=0)


if __name__ == "__main__":
    main(rounds(__doc__, 5))
