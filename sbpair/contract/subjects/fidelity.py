"""What a message keeps from sender to receiver: the rewrite of a parked message depends on it."""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import UUID

from sbpair.pair.amqp.message import PLACES, DataBody, Message, SequenceBody, ValueBody
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

from ..entry import DifferenceError, Price, Queue, entry, expect
from ..inbox import Arrival
from ..scratch import Scratch

GUIDE = "service-bus-amqp-protocol-guide"
ALIASES: dict[object, object] = {
    "x-ms-path": "orders",
    "x-ms-sessionid": "customer-7",
    "x-ms-timetolive": "PT5M",
    "x-ms-scheduledenqueuetimeutc": "2026-01-01T00:00:00Z",
    "x-sbpair-version": "1",
}
TYPED: dict[object, object] = {
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


async def _through(at: Scratch, message: Message) -> Arrival:
    await at.send(message)
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    return arrival


def _with_types(values: dict[object, object]) -> dict[object, tuple[str, object]]:
    return {str(key): (type(value).__name__, value) for key, value in values.items()}


@entry(
    "fidelity-1",
    "Application properties keep their AMQP types and values, bit for bit.",
    falls=("P-21", "G-22"),
    source=GUIDE,
    price=Price(sends=1, receives=1),
)
async def property_types(at: Scratch) -> str:
    arrival = await _through(at, at.message(properties=dict(TYPED)))
    sent, got = _with_types(TYPED), _with_types(dict(arrival.message.application_properties))
    changed = [f"{key}: {sent[key]} became {got.get(key)}" for key in sent if sent[key] != got.get(key)]
    expect(not changed, "; ".join(changed))
    return f"{len(TYPED)} types came back as they went"


@entry(
    "fidelity-2",
    "The application properties of a parked message are left alone.",
    falls=("P-20", "P-21"),
    source="paired namespaces",
    price=Price(sends=1, receives=1),
)
async def aliases(at: Scratch) -> str:
    arrival = await _through(at, at.message(properties=dict(ALIASES)))
    got = {key: arrival.message.application_properties.get(key) for key in ALIASES}
    expect(got == ALIASES, f"they are {got}")
    return "all came back"


@entry(
    "fidelity-3",
    "Unknown message annotations of the sender are delivered.",
    falls=("C-2", "P-21"),
    source=GUIDE,
    price=Price(sends=1, receives=1),
)
async def unknown_annotations(at: Scratch) -> str:
    arrival = await _through(at, at.message(annotations={"x-opt-sbpair-path": "orders"}))
    found = arrival.annotation("x-opt-sbpair-path")
    expect(found == "orders", f"x-opt-sbpair-path is {found!r}")
    return "it came back"


@entry(
    "fidelity-4",
    "The properties of a message are delivered as they were sent.",
    falls=("P-21", "G-22"),
    source=GUIDE,
    price=Price(sends=1, receives=1),
)
async def properties(at: Scratch) -> str:
    from dataclasses import replace

    message = at.message(content_type="application/json", session="s")
    assert message.properties is not None  # noqa: S101 - message() sets them
    wanted = replace(
        message.properties,
        subject="label",
        to="somebody",
        reply_to="answers",
        correlation_id="c-1",
        reply_to_group_id="rg",
        user_id=b"u",
        content_encoding="gzip",
    )
    arrival = await _through(at, replace(message, properties=wanted))
    got = arrival.message.properties
    names = [name for name in PLACES if getattr(wanted, name) is not None]
    changed = [f"{name}: {getattr(got, name, None)!r}" for name in names
               if getattr(got, name, None) != getattr(wanted, name)]  # fmt: skip
    expect(not changed, "; ".join(changed))
    return f"{len(names)} properties came back"


@entry(
    "fidelity-5",
    "A body of several data sections, of a value and of a sequence stays what it is.",
    falls=("P-21",),
    source=GUIDE,
    price=Price(sends=3, receives=3),
)
async def bodies(at: Scratch) -> str:
    value, sequence = ValueBody({"a": 1, "b": [Int(1), "x"]}), SequenceBody(([1, "two"], [3.0]))
    for body in (value, sequence, DataBody((b"one", b"two"))):
        arrival = await _through(at, at.message(body))
        expect(arrival.message.body == body, f"{body} became {arrival.message.body}")
    return "a value, a sequence and two data sections came back"


@entry(
    "fidelity-6",
    "A message id that is a uuid, a number or bytes keeps its type.",
    falls=("G-5", "P-21"),
    source=GUIDE,
    price=Price(sends=3, receives=3),
)
async def ids(at: Scratch) -> str:
    from dataclasses import replace

    seen = []
    for wanted in (UUID(int=7), ULong(9), b"\x01\x02"):
        message = at.message()
        assert message.properties is not None  # noqa: S101 - message() sets them
        arrival = await _through(
            at, replace(message, properties=replace(message.properties, message_id=wanted))
        )
        got = arrival.message.properties.message_id if arrival.message.properties else None
        seen.append(f"{type(wanted).__name__} {wanted!r} came as {type(got).__name__} {got!r}")
        expect((type(got), got) == (type(wanted), wanted), seen[-1])
    return "a uuid, a number and bytes came back"


@entry(
    "fidelity-7",
    "Durable and priority of the header do no harm, and the priority is delivered or dropped.",
    falls=("G-22",),
    source=GUIDE,
    price=Price(sends=1, receives=1),
)
async def header(at: Scratch) -> str:
    from dataclasses import replace

    from sbpair.pair.amqp.message import Header

    arrival = await _through(at, replace(at.message(), header=Header(durable=True, priority=7)))
    got = arrival.message.header
    return f"durable {got.durable}, priority {got.priority}" if got else "there is no header"


@entry(
    "fidelity-8",
    "What the SDK sends, this client receives with the same types.",
    falls=("P-21", "G-22"),
    source="the SDK",
    price=Price(sends=1, receives=1),
)
async def from_the_sdk(at: Scratch) -> str:
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
    path, name = at.path(), at.new_id()

    def send() -> None:
        with at.target().sdk() as client, client.get_queue_sender(path) as sender:
            sender.send_messages(ServiceBusMessage(b"sdk", message_id=name, application_properties=values))

    await at.in_thread(send)
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    got = arrival.message.application_properties
    changed = [f"{key!r}: {got.get(key)!r}" for key, value in values.items() if got.get(key) != value]
    expect(not changed, "; ".join(changed))
    return "seven types came as the SDK sent them"


@entry(
    "fidelity-9",
    "What this client sends, the SDK receives with the same values.",
    falls=("P-21", "G-22"),
    source="the SDK",
    price=Price(sends=1, receives=1),
)
async def to_the_sdk(at: Scratch) -> str:
    values: dict[object, object] = {
        "text": "täxt", "int": Int(7), "long": 2**40, "double": 2.5, "bool": True, "uuid": UUID(int=3)
    }  # fmt: skip
    await at.send(at.message(properties=dict(values)))
    path = at.path()

    def receive() -> dict[str, object]:
        with at.target().sdk() as client, client.get_queue_receiver(path) as receiver:
            for message in receiver.receive_messages(1, max_wait_time=10):
                receiver.complete_message(message)
                carried = message.application_properties or {}
                return {k.decode() if isinstance(k, bytes) else k: v for k, v in carried.items()}
        return {}

    got = await at.in_thread(receive)
    got = {key: value.decode() if isinstance(value, bytes) else value for key, value in got.items()}
    changed = [f"{key}: {got.get(str(key))!r}" for key, value in values.items() if got.get(str(key)) != value]
    expect(not changed, "; ".join(changed))
    return "six types came as they were sent"


@entry(
    "fidelity-10",
    "A message that was parked and restored by a syphon's rewrite is the message that was sent.",
    falls=("P-21", "G-22", "G-16"),
    source="decided",
    price=Price(sends=2, receives=2),
    entities=(Queue(), Queue(label="backlog/x-servicebus-transfer/0")),
)
async def rewritten(at: Scratch) -> str:
    from azure.servicebus import ServiceBusMessage

    from sbpair.pair.envelope.copies import prepare
    from sbpair.pair.envelope.park import park
    from sbpair.pair.envelope.restore import Forward, restore

    original = ServiceBusMessage(
        b"parked",
        message_id=at.new_id(),
        session_id="s-1",
        time_to_live=timedelta(minutes=5),
        subject="label",
        application_properties={"n": 7, "x": "y"},
    )
    backlog = "backlog/x-servicebus-transfer/0"
    path = at.path(backlog)

    def parked() -> None:
        with at.target().sdk() as client, client.get_queue_sender(path) as sender:
            sender.send_messages(park(prepare(original), "orders"))

    await at.in_thread(parked)
    away = await at.inbox(backlog)
    held = await away.take()
    found = restore(held.event.payload, round(time.time() * 1000))
    if not isinstance(found, Forward) or found.path != "orders":
        raise DifferenceError(f"it was restored as {found!r:.100}")
    await (await at.sender()).send(found.payload)
    await away.complete(held)
    home = await at.inbox()
    arrival = await home.take()
    await home.complete(arrival)
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
