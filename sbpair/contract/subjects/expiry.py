"""Time to live: its start, its end, and the fate of expired messages."""

from __future__ import annotations

import asyncio
import time

from sbpair.pair.amqp.message import Properties
from sbpair.pair.client.request import refusal_of

from ..entry import Price, Queue, Subject, expect
from ..scratch import DEAD, Scratch, expect_accepted

AS_BACKLOG = (Queue(dead_letters_expired=True),)
entry = Subject("expiry", source="message-expiration")


@entry(
    1, "A message is dropped after its time to live.", "T-2 G-15", Price(sends=1, management=1), seconds=2.5
)
async def expired_message(ctx: Scratch) -> str:
    await ctx.send(ctx.message(ttl=1000))
    await asyncio.sleep(1.5)
    await ctx.nothing()
    expect(not await ctx.peek(f"q{DEAD}"), "it was dead-lettered, which nobody asked for")
    return "nothing was delivered, and nothing dead-lettered"


@entry(
    2,
    "An expired message is dead-lettered as `TTLExpiredException` where the queue is configured so.",
    "T-10 P-11",
    Price(1, 1),
    entities=AS_BACKLOG,
    seconds=4.0,
)
async def dead(ctx: Scratch) -> str:
    await ctx.send(ctx.message(ttl=1000))
    await asyncio.sleep(1.5)
    await ctx.nothing()
    return await ctx.expect_dead("TTLExpiredException", within=30.0)


@entry(
    3,
    "A locked message does not expire: it can be completed.",
    "T-3",
    Price(1, 1),
    entities=AS_BACKLOG,
    seconds=2.5,
)
async def locked_message(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message(ttl=1000))
    await asyncio.sleep(1.5)
    expect_accepted(await inbox.complete(arrival))
    return "accepted after the time to live"


@entry(
    4,
    "An abandoned message past its time to live expires at once.",
    "T-3 T-11",
    Price(1, 2),
    entities=AS_BACKLOG,
    seconds=3.0,
)
async def abandoned_message(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message(ttl=1000))
    await asyncio.sleep(1.5)
    await inbox.abandon(arrival)
    await inbox.nothing()
    await ctx.receive(f"q{DEAD}", within=30.0)
    return "it was dead-lettered"


@entry(
    5,
    "The default time to live of the queue applies to messages without their own, and is the maximum.",
    "T-6 G-14",
    Price(2),
    entities=(Queue(time_to_live=2.0),),
    seconds=3.5,
)
async def ceiling(ctx: Scratch) -> str:
    await ctx.send(ctx.message(ttl=60_000), ctx.message())
    await asyncio.sleep(2.5)
    await ctx.nothing()
    return "of a queue of 2 s one of 60 s and one without were gone"


@entry(
    7, "A scheduled message's time to live counts from its due time.", "T-5 G-17", Price(2, 1), seconds=7.5
)
async def scheduled_message(ctx: Scratch) -> str:
    now = time.time()
    await ctx.send(
        ctx.scheduled_message(now + 3.0, b"1", ttl=5_000), ctx.scheduled_message(now + 0.5, b"2", ttl=1_000)
    )
    await asyncio.sleep(5.8)
    await ctx.expect_only(b"1")
    return "due after 3 s with 5 s to live it was delivered after 5.8 s, due after 0.5 s with 1 s it was gone"


@entry(
    8,
    "A peek shows the message's own time to live.",
    "T-7",
    Price(sends=1, management=1),
    source="issues of the SDKs",
)
async def ttl_in_a_peek(ctx: Scratch) -> str:
    await ctx.send(ctx.message(ttl=60_000))
    (found,) = await ctx.peek()
    span = found.header.ttl if found.header else None
    expect(span == 60_000, f"it shows {span}")
    return "60 000 ms"


@entry(
    9,
    "A time to live beyond the header's 49.7 days is taken from creation and expiry time.",
    "P-20 T-1",
    Price(1),
    source="issues of the SDKs",
    seconds=2.5,
)
async def by_properties(ctx: Scratch) -> str:
    now = round(time.time() * 1000)
    await ctx.send(ctx.message(fields=Properties(creation_time=now, absolute_expiry_time=now + 1000)))
    await asyncio.sleep(1.8)
    await ctx.nothing()
    return "a span of 1 s given by two times was observed"


@entry(
    10,
    "A dead-letter queue ignores the time to live.",
    "G-21",
    Price(1, 2),
    source="service-bus-dead-letter-queues",
    seconds=3.0,
)
async def dead_letters_stay(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message(ttl=1500))
    await inbox.dead_letter(arrival, "verify")
    await asyncio.sleep(2.0)
    await ctx.receive(f"q{DEAD}")
    return "it was delivered after its time to live"


@entry(
    6,
    "A deferred message expires when it is received by its number after its time to live.",
    "T-2 T-10",
    Price(1, 1, 2),
    entities=AS_BACKLOG,
    seconds=3.0,
)
async def deferred_message(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message(ttl=1000))
    await inbox.defer(arrival)
    await asyncio.sleep(1.5)
    refusal = refusal_of(await ctx.ask_for_deferred(arrival.number))
    expect(refusal is not None, "it was received after its time to live")
    dead = await ctx.peek(f"q{DEAD}")
    expect(len(dead) == 1, f"{len(dead)} in the dead-letter queue")
    return "refused, and dead-lettered"
