"""What a strictly decoding client sent to a broker, frame by frame, sent again: the broker answers in the same frames.

``rust_frames.jsonl`` was recorded on 2026-11-29 between the live tests of the crate azservicebus and this broker, with
open access. All of the broker's answers go through the strict reader, as in every test here.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sbpair.broker import Broker

pytestmark = [pytest.mark.client("amqp"), pytest.mark.spec("W-9")]

RECORDED = [
    json.loads(line) for line in Path(__file__).with_name("rust_frames.jsonl").read_text().splitlines()
]
HEADER = b"AMQP"
PATIENCE = 20.0  # seconds
COMPARED = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
}
COMPARED |= {0x17: "end", 0x18: "close", 0x40: "mechanisms", 0x44: "outcome"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}, open_access=True) as broker:
        contoso = broker.namespace("contoso")
        for topic, subscription, settings in (("st", "ssub", {"requires_session": True}), ("rt", "rsub", {})):
            contoso.create_topic(topic)
            contoso.create_subscription(topic, subscription, **settings)
        yield broker


def kind_of(frame: bytes) -> str | None:
    if frame.startswith(HEADER):
        return "header"
    body = frame[4 * frame[4] :]
    return COMPARED.get(body[2]) if body else None


def test_a_strict_client_gets_its_recorded_answers(broker: Broker) -> None:
    for recording in RECORDED:
        assert replay(recording, broker.namespace("contoso").port) == kinds(recording["frames"]), recording[
            "does"
        ]


def kinds(frames: list[tuple[str, str]]) -> Counter[str | None]:
    return Counter(kind for side, frame in frames if side == "b" and (kind := kind_of(bytes.fromhex(frame))))


def replay(recording: dict[str, Any], port: int) -> Counter[str | None]:
    """Send the client's frames, each once the broker has said what it had said before it; return what it said."""
    due, said = Counter[str | None](), Counter[str | None]()
    with (
        closing(socket.create_connection(("127.0.0.1", port), PATIENCE)) as wire,
        wire.makefile("rb") as stream,
    ):
        for side, text in recording["frames"]:
            frame = bytes.fromhex(text)
            if side == "b":
                if kind := kind_of(frame):
                    due[kind] += 1
                continue
            while due - said:
                if kind := kind_of(read(stream)):
                    said[kind] += 1
            wire.sendall(frame)
        while due - said:
            if kind := kind_of(read(stream)):
                said[kind] += 1
    return said


def read(stream: Any) -> bytes:
    head: bytes = stream.read(8)
    assert len(head) == 8, "the broker has closed the connection"
    return head if head.startswith(HEADER) else head + stream.read(int.from_bytes(head[:4]) - 8)
