"""The parts of a message that survive delivery, on which the rewrite of parked messages depends."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from sbpair.pair.amqp.message import PLACES, DataBody, Header, Properties, SequenceBody, ValueBody
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

from ..entry import DifferenceError, Price, Queue, Subject, expect
from ..scratch import Scratch

TYPED: dict[object, object] = {
    "x-ms-path": "orders",
    "x-ms-timetolive": "PT5M",
    "x-sbpair-version": "1",
    "bool": True,
    "byte": Byte(-5),
    "short": Short(-300),
    "int": Int(-70_000),
    "long": -(2**40),
    "ubyte": UByte(200),
    "ushort": UShort(60_000),
    "uint": UInt(2**31),
    "ulong": ULong(2**63),
    "float": Float(1.5),
    "double": 2.25,
    "char": Char("x"),
    "timestamp": Timestamp(1_700_000_000_123),
    "uuid": UUID(int=2**100),
    "binary": b"\x00\xff",
    "string": "täxt",
    "symbol": Symbol("sym"),
    "null": None,
}
entry = Subject("fidelity", source="service-bus-amqp-protocol-guide")


def _with_types(values: dict[object, object]) -> dict[object, tuple[str, object]]:
    return {str(key): (type(value).__name__, value) for key, value in values.items()}


@entry(
    1,
    "Application properties, those of a parked message too, keep their AMQP types and values, bit for bit.",
    "P-20 P-21 G-22",
    Price(1, 1),
)
async def property_types(ctx: Scratch) -> str:
    arrival = await ctx.through(ctx.message(properties=dict(TYPED)))
    sent, got = _with_types(TYPED), _with_types(dict(arrival.message.application_properties))
    changed = [f"{key}: {sent[key]} became {got.get(key)}" for key in sent if sent[key] != got.get(key)]
    expect(not changed, "; ".join(changed))
    return f"{len(TYPED)} properties came back as they went"


@entry(
    3,
    "The partition key and unknown delivery and message annotations of the sender are delivered.",
    "C-2 P-21",
    Price(1, 1),
)
async def unknown_annotations(ctx: Scratch) -> str:
    wanted = {"x-opt-sbpair-path": "orders", "x-opt-partition-key": "k"}
    message = replace(ctx.message(annotations=wanted), delivery_annotations={Symbol("x-opt-sbpair-hop"): 1})
    arrival = await ctx.through(message)
    expect(arrival.message.delivery_annotations.get("x-opt-sbpair-hop") == 1, "that of the delivery is gone")
    for name, value in wanted.items():
        expect(arrival.annotation(name) == value, f"{name} is {arrival.annotation(name)!r}")
    return "both came back"


@entry(4, "The properties of a message are delivered as they were sent.", "P-21 G-22", Price(1, 1))
async def properties(ctx: Scratch) -> str:
    wanted = Properties(
        message_id=ctx.new_id(),
        content_type="application/json",
        group_id="s",
        subject="label",
        to="somebody",
        reply_to="answers",
        correlation_id="c-1",
        reply_to_group_id="rg",
        user_id=b"u",
        content_encoding="gzip",
    )
    arrival = await ctx.through(ctx.message(fields=wanted))
    got = arrival.message.properties
    names = [name for name in PLACES if getattr(wanted, name) is not None]
    changed = [f"{name}: {getattr(got, name, None)!r}" for name in names
               if getattr(got, name, None) != getattr(wanted, name)]  # fmt: skip
    expect(not changed, "; ".join(changed))
    return f"{len(names)} properties came back"


@entry(
    5, "A body of several data sections, of a value and of a sequence stays what it is.", "P-21", Price(3, 3)
)
async def bodies(ctx: Scratch) -> str:
    value, sequence = ValueBody({"a": 1, "b": [Int(1), "x"]}), SequenceBody(([1, "two"], [3.0]))
    for body in (value, sequence, DataBody((b"one", b"two"))):
        arrival = await ctx.through(ctx.message(body))
        expect(arrival.message.body == body, f"{body} became {arrival.message.body}")
    return "a value, a sequence and two data sections came back"


@entry(6, "A message id that is a uuid, a number or bytes keeps its type.", "G-5 P-21", Price(3, 3))
async def ids(ctx: Scratch) -> str:
    seen = []
    for wanted in (UUID(int=7), ULong(9), b"\x01\x02"):
        arrival = await ctx.through(ctx.message(fields=Properties(message_id=wanted)))
        got = arrival.message.properties.message_id if arrival.message.properties else None
        seen.append(f"{type(wanted).__name__} {wanted!r} came as {type(got).__name__} {got!r}")
        expect((type(got), got) == (type(wanted), wanted), seen[-1])
    return "a uuid, a number and bytes came back"


@entry(7, "Durable and priority do no harm, and the priority is delivered or dropped.", "G-22", Price(1, 1))
async def header(ctx: Scratch) -> str:
    arrival = await ctx.through(replace(ctx.message(), header=Header(durable=True, priority=7)))
    got = arrival.message.header
    return f"durable {got.durable}, priority {got.priority}" if got else "there is no header"


@entry(8, "What the SDK sends arrives here with the same types.", "P-21 G-22", Price(1, 1), source="the SDK")
async def from_the_sdk(ctx: Scratch) -> str:
    from azure.servicebus import ServiceBusMessage

    values: dict[str | bytes, int | float | bytes | bool | str | UUID] = {
        "text": "täxt",
        "int": 7,
        "negative": -(2**31),
        "float": 2.5,
        "bool": True,
        "uuid": UUID(int=3),
        "bin": b"\x00",
    }
    await ctx.send_by_sdk(ServiceBusMessage(b"sdk", message_id=ctx.new_id(), application_properties=values))
    arrival = await ctx.receive()
    got = arrival.message.application_properties
    changed = [f"{key!r}: {got.get(key)!r}" for key, value in values.items() if got.get(key) != value]
    expect(not changed, "; ".join(changed))
    return "seven types came as the SDK sent them"


@entry(
    9, "What is sent here, the SDK receives with the same values.", "P-21 G-22", Price(1, 1), source="the SDK"
)
async def to_the_sdk(ctx: Scratch) -> str:
    values: dict[object, object] = {
        "text": "täxt", "int": Int(7), "long": 2**40, "double": 2.5, "bool": True, "uuid": UUID(int=3)
    }  # fmt: skip
    await ctx.send(ctx.message(properties=dict(values)))
    path = ctx.path()

    def receive() -> dict[str, object]:
        with ctx.sdk() as client, client.get_queue_receiver(path) as receiver:
            for message in receiver.receive_messages(1, max_wait_time=10):
                receiver.complete_message(message)
                carried = message.application_properties or {}
                return {k.decode() if isinstance(k, bytes) else k: v for k, v in carried.items()}
        return {}

    got = await ctx.in_thread(receive)
    got = {key: value.decode() if isinstance(value, bytes) else value for key, value in got.items()}
    changed = [f"{key}: {got.get(str(key))!r}" for key, value in values.items() if got.get(str(key)) != value]
    expect(not changed, "; ".join(changed))
    return "six types came as they were sent"


@entry(
    2,
    "A message parked and restored by a syphon equals the message sent.",
    "P-21 G-22 G-16",
    Price(2, 2),
    source="decided",
    entities=(Queue(), Queue(label="backlog/x-servicebus-transfer/0")),
)
async def rewritten(ctx: Scratch) -> str:
    from azure.servicebus import ServiceBusMessage

    from sbpair.pair.envelope.copies import prepare
    from sbpair.pair.envelope.park import park
    from sbpair.pair.envelope.restore import Forward, restore

    original = ServiceBusMessage(
        b"parked",
        message_id=ctx.new_id(),
        session_id="s-1",
        time_to_live=timedelta(minutes=5),
        subject="label",
        application_properties={"n": 7, "x": "y"},
    )
    backlog = "backlog/x-servicebus-transfer/0"
    await ctx.send_by_sdk(park(prepare(original), "orders"), to=backlog)
    away = await ctx.inbox(backlog)
    held = await away.take()
    found = restore(held.event.payload, round(time.time() * 1000))
    if not isinstance(found, Forward) or found.path != "orders":
        raise DifferenceError(f"it was restored as {found!r:.100}")
    await (await ctx.sender()).send(found.payload)
    await away.complete(held)
    home = await ctx.inbox()
    arrival = await home.receive()
    got = arrival.message
    seen = (
        got.properties.group_id if got.properties else None,
        got.header.ttl if got.header else None,
        got.properties.subject if got.properties else None,
        dict(got.application_properties),
        arrival.body,
    )
    expect(seen == ("s-1", 300_000, "label", {"n": 7, "x": "y"}, b"parked"), f"it came home as {seen}")
    return "session id, time to live, label, properties and body are those that were sent"
