"""Duplicate detection."""

from __future__ import annotations

import asyncio
import time

from sbpair.pair.amqp.performatives import Accepted

from ..entry import DifferenceError, Price, Queue, Tier, entry, expect
from ..scratch import Scratch, answer_text

ARTICLE = "duplicate-detection"
DETECTS = (Queue(duplicates_within=600.0),)
BACKLOG = "backlog/x-servicebus-transfer/0"


@entry(
    "duplicates-1",
    "A second message with an id that was seen is accepted and dropped.",
    falls=("G-6", "C-4"),
    source=ARTICLE,
    price=Price(sends=2, receives=1),
    entities=DETECTS,
    tier=Tier.STANDARD,
)
async def second_copy(at: Scratch) -> str:
    name = at.new_id()
    await at.send(at.message(b"1", id=name))
    answer = await at.answer(at.message(b"2", id=name))
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.body == b"1", f"it is {arrival.body!r}")
    await inbox.nothing()
    return "accepted, and only the first was delivered"


@entry(
    "duplicates-2",
    "A duplicate is detected on another connection, and after the first was completed.",
    falls=("G-6", "F-9"),
    source=ARTICLE,
    price=Price(sends=2, receives=1),
    entities=DETECTS,
    tier=Tier.STANDARD,
)
async def elsewhere(at: Scratch) -> str:
    name = at.new_id()
    await at.send(at.message(b"1", id=name))
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    other = await at.another_connection()
    sender = await other.open_sender(at.path())
    await sender.send(at.message(b"2", id=name).encode())
    await inbox.nothing()
    return "dropped"


@entry(
    "duplicates-3",
    "After the window an id is new again.",
    falls=("G-6",),
    source=ARTICLE,
    price=Price(sends=2, receives=2),
    entities=(Queue(duplicates_within=20.0),),
    tier=Tier.STANDARD,
    seconds=24.0,
)
async def window(at: Scratch) -> str:
    name = at.new_id()
    await at.send(at.message(b"1", id=name))
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    await asyncio.sleep(22.0)
    await at.send(at.message(b"2", id=name))
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.body == b"2", f"it is {arrival.body!r}")
    return "22 s after the first, in a window of 20 s, it was delivered"


@entry(
    "duplicates-4",
    "Without duplicate detection both copies are delivered.",
    falls=("G-4", "G-5"),
    source=ARTICLE,
    price=Price(sends=2, receives=2),
)
async def both(at: Scratch) -> str:
    name = at.new_id()
    await at.send(at.message(id=name), at.message(id=name))
    inbox = await at.inbox()
    for _ in range(2):
        await inbox.complete(await inbox.take())
    return "both came, with one id"


@entry(
    "duplicates-5",
    "A scheduled message counts from when it was sent: its copy is dropped.",
    falls=("G-6",),
    source="decided",
    price=Price(sends=2),
    entities=DETECTS,
    tier=Tier.STANDARD,
    seconds=2.0,
)
async def scheduled_copy(at: Scratch) -> str:
    from dataclasses import replace

    name = at.new_id()
    first = at.scheduled_message(time.time() + 300.0)
    assert first.properties is not None  # noqa: S101 - message() sets them
    await at.send(replace(first, properties=replace(first.properties, message_id=name)))
    await at.send(at.message(b"2", id=name))
    await (await at.inbox()).nothing()
    return "dropped"


@entry(
    "duplicates-6",
    "Ids that differ in case are different.",
    falls=("G-6",),
    source="inferred",
    price=Price(sends=2, receives=2),
    entities=DETECTS,
    tier=Tier.STANDARD,
)
async def case(at: Scratch) -> str:
    name = at.new_id()
    await at.send(at.message(id=name), at.message(id=name.upper()))
    inbox = await at.inbox()
    for _ in range(2):
        await inbox.complete(await inbox.take())
    return "both came"


@entry(
    "duplicates-7",
    "What a syphon restores is a duplicate of the message that was sent to the primary under its id.",
    falls=("G-5", "G-6", "F-9"),
    source="decided",
    price=Price(sends=3, receives=2),
    entities=(*DETECTS, Queue(label=BACKLOG)),
    tier=Tier.STANDARD,
    seconds=2.0,
)
async def across_a_syphon(at: Scratch) -> str:
    from azure.servicebus import ServiceBusMessage

    from sbpair.pair.envelope.copies import prepare
    from sbpair.pair.envelope.park import park
    from sbpair.pair.envelope.restore import Forward, restore

    path, backlog = at.path(), at.path(BACKLOG)
    original = prepare(ServiceBusMessage(b"1", message_id=at.new_id()))

    def send_twice() -> None:
        with at.target().sdk() as client:
            with client.get_queue_sender(path) as sender:
                sender.send_messages(original)
            with client.get_queue_sender(backlog) as sender:
                sender.send_messages(park(original, path))

    await at.in_thread(send_twice)
    away = await at.inbox(BACKLOG)
    held = await away.take()
    found = restore(held.event.payload, round(time.time() * 1000))
    if not isinstance(found, Forward):
        raise DifferenceError(f"it was restored as {found!r:.100}")
    answer = await (await at.sender()).send(found.payload)
    await away.complete(held)
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    await inbox.nothing()
    return "the restored one was dropped"
