"""Duplicate detection."""

from __future__ import annotations

import asyncio
import time

from ..entry import ONE_QUEUE, DifferenceError, Price, Queue, Subject, Tier, expect
from ..scratch import KEY, Scratch, expect_accepted

DETECTS = (Queue(duplicates_within=600.0),)
BACKLOG = "backlog/x-servicebus-transfer/0"
entry = Subject("duplicates", source="duplicate-detection", tier=Tier.STANDARD, entities=DETECTS)


@entry(
    2,
    "A duplicate on any connection is accepted and dropped, also after the first was completed.",
    "G-6 C-4 F-9",
    Price(2, 1),
)
async def elsewhere(ctx: Scratch) -> str:
    name = ctx.new_id()
    await ctx.send(ctx.message(b"1", id=name))
    inbox = await ctx.inbox()
    await inbox.receive()
    other = await ctx.another_connection()
    sender = await other.open_sender(ctx.path())
    expect_accepted(await sender.send(ctx.message(b"2", id=name).encode()))
    await inbox.nothing()
    return "accepted and dropped"


@entry(
    3,
    "An id is a duplicate within its window, which duplicates do not extend, and is new afterwards.",
    "G-6",
    Price(4, 2),
    entities=(Queue(duplicates_within=24.0),),
    seconds=28.0,
)
async def window(ctx: Scratch) -> str:
    name, began = ctx.new_id(), time.monotonic()
    inbox = await ctx.inbox()
    for after, body in ((0.0, b"1"), (13.0, b"2"), (22.0, b"3"), (26.5, b"4")):
        await asyncio.sleep(began + after - time.monotonic())
        await ctx.send(ctx.message(body, id=name))
    bodies = [each.body for each in await inbox.receive_all(2)]
    expect(bodies == [b"1", b"4"], f"of copies after 0, 13, 22 and 26 s came {bodies}")
    return "of copies after 0, 13, 22 and 26 s, in a window of 24 s, the first and the last came"


@entry(
    4,
    "Without duplicate detection both copies are delivered.",
    "G-4 G-5",
    Price(2, 2),
    tier=Tier.BASIC,
    entities=ONE_QUEUE,
)
async def both(ctx: Scratch) -> str:
    name = ctx.new_id()
    await ctx.send(ctx.message(id=name), ctx.message(id=name))
    await ctx.receive_all(2)
    return "both came, with one id"


@entry(
    5,
    "The duplicate window of a scheduled message starts when it is sent: a copy is dropped.",
    "G-6",
    Price(2),
    source="decided",
    seconds=2.0,
)
async def scheduled_copy(ctx: Scratch) -> str:
    name = ctx.new_id()
    await ctx.send(ctx.scheduled_message(time.time() + 300.0, id=name), ctx.message(b"2", id=name))
    await ctx.nothing()
    return "dropped"


@entry(6, "Ids that differ in case are different.", "G-6", Price(2, 2), source="inferred")
async def case(ctx: Scratch) -> str:
    name = ctx.new_id()
    await ctx.send(ctx.message(id=name), ctx.message(id=name.upper()))
    await ctx.receive_all(2)
    return "both came"


@entry(
    7,
    "A message restored by a syphon is a duplicate of one sent to the primary with the same id.",
    "G-5 G-6 F-9",
    Price(3, 2),
    source="decided",
    entities=(*DETECTS, Queue(label=BACKLOG)),
    seconds=2.0,
)
async def across_a_syphon(ctx: Scratch) -> str:
    from azure.servicebus import ServiceBusMessage

    from sbpair.pair.envelope.copies import prepare
    from sbpair.pair.envelope.park import park
    from sbpair.pair.envelope.restore import Forward, restore

    original = prepare(ServiceBusMessage(b"1", message_id=ctx.new_id()))
    await ctx.send_by_sdk(original)
    await ctx.send_by_sdk(park(original, ctx.path()), to=BACKLOG)
    away = await ctx.inbox(BACKLOG)
    held = await away.take()
    found = restore(held.event.payload, round(time.time() * 1000))
    if not isinstance(found, Forward):
        raise DifferenceError(f"it was restored as {found!r:.100}")
    answer = await (await ctx.sender()).send(found.payload)
    await away.complete(held)
    expect_accepted(answer)
    inbox = await ctx.inbox()
    await inbox.receive()
    await inbox.nothing()
    return "the restored one was dropped"


@entry(1, "Copies within one batch are duplicates too.", "G-6", Price(3, 2))
async def within_a_batch(ctx: Scratch) -> str:
    name = ctx.new_id()
    both = ctx.message(b"1", id=name, annotations=KEY), ctx.message(b"2", id=name, annotations=KEY)
    expect_accepted(await ctx.answer_to_batch([*both, ctx.message(b"3", annotations=KEY)]))
    await ctx.expect_only(b"1", b"3")
    return "of two copies the first came"
