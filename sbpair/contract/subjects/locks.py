"""Locks: their length, renewal and loss."""

from __future__ import annotations

import asyncio
from uuid import UUID

from sbpair.pair.amqp.errors import MESSAGE_LOCK_LOST
from sbpair.pair.client.link import DESCRIPTION, REASON
from sbpair.pair.client.locks import renew_locks

from ..entry import DifferenceError, Price, Queue, Subject, expect
from ..inbox import PATIENCE
from ..scratch import DEAD, KEY, Scratch, expect_accepted, expect_granted, expect_rejected

SHORT = (Queue(lock=5.0),)  # seconds; the least that the service allows
LOCK = 60.0  # seconds, unless a queue has another
entry = Subject("locks", source="message-transfers-locks-settlement")


@entry(1, "A message under a lock is delivered to nobody else.", "P-44 G-4", Price(1, 1))
async def exclusive(ctx: Scratch) -> str:
    await ctx.send(ctx.message())
    first, second = await ctx.inbox(), await ctx.inbox()
    arrival = await first.take()
    await second.nothing()
    await first.complete(arrival)
    return "a second receiver got nothing"


@entry(
    2,
    "An expired lock makes the message available and increments its delivery count.",
    "F-7 F-17",
    Price(1, 2),
    entities=SHORT,
    seconds=6.0,
)
async def expired_lock(ctx: Scratch) -> str:
    await ctx.send(ctx.message())
    first, second = await ctx.inbox(), await ctx.inbox()
    await first.take()
    again = await second.receive(15.0)
    expect(again.count == 1, f"the delivery count is {again.count}")
    return "it came again with delivery count 1"


@entry(
    3,
    "Settling after the lock expired is rejected with `message-lock-lost`, and it cannot be renewed.",
    "C-3 F-17 G-20",
    Price(1, 1, 1),
    source="the SDK",
    entities=SHORT,
    seconds=6.5,
)
async def lost_lock(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message())
    await asyncio.sleep(6.0)
    (end,) = await renew_locks(await ctx.connection(), ctx.path(), [arrival.event.tag])
    expect(end is None, f"it was renewed until {end}")
    return expect_rejected(await inbox.complete(arrival), MESSAGE_LOCK_LOST)


@entry(
    4,
    "A delivery carries its enqueued time and its lock expiry, one full lock duration later.",
    "C-3",
    Price(1, 1),
    source="the SDK",
)
async def locked_until(ctx: Scratch) -> str:
    arrival = await ctx.through(ctx.message())
    first = arrival.annotation("x-opt-enqueue-sequence-number")
    expect(first in (0, None), f"it was sent here, and x-opt-enqueue-sequence-number is {first!r}")
    span = arrival.time("x-opt-locked-until") - arrival.time("x-opt-enqueued-time")
    expect(LOCK - 2.0 < span < LOCK + PATIENCE, f"{span:.1f} s after its enqueued time")
    return f"{span:.1f} s after its enqueued time"


@entry(
    5,
    "Renewal extends the lock by its full duration and returns the new expiry.",
    "C-3 O-6",
    Price(1, 1, 2),
    entities=SHORT,
    seconds=7.5,
)
async def renewed_lock(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message())
    connection = await ctx.connection()
    for n in (1, 2):
        await asyncio.sleep(3.5)
        (end,) = await renew_locks(connection, ctx.path(), [arrival.event.tag])
        if end is None:
            raise DifferenceError("the renewal was refused: the lock is lost")
        later = end - arrival.time("x-opt-locked-until")
        expect(abs(later - 3.5 * n) < 2.5, f"the renewal after {3.5 * n} s ends {later:.1f} s later")
    expect_accepted(await inbox.complete(arrival))
    return "settled after 7 s under a lock of 5 s"


@entry(
    7, "One request renews several locks.", "C-3", Price(2, 2, 1), source="service-bus-amqp-request-response"
)
async def several(ctx: Scratch) -> str:
    await ctx.send(ctx.message(), ctx.message())
    inbox = await ctx.inbox()
    inbox.receiver.flow(2)
    arrivals = [await inbox.take(), await inbox.take()]
    ends = await renew_locks(await ctx.connection(), ctx.path(), [each.event.tag for each in arrivals])
    for each in arrivals:
        await inbox.complete(each)
    expect(all(end is not None for end in ends), f"the ends are {ends}")
    return "two were renewed"


@entry(
    8,
    "A message above the maximum delivery count is dead-lettered as `MaxDeliveryCountExceeded`.",
    "X-1 G-2",
    Price(1, 2),
    source="service-bus-dead-letter-queues",
    entities=(Queue(max_deliveries=1),),
)
async def maximum(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message())
    await inbox.abandon(arrival)
    await inbox.nothing()
    return await ctx.expect_dead("MaxDeliveryCountExceeded")


@entry(
    9,
    "An abandoned or released message is redelivered before later ones.",
    "G-8 R-92",
    Price(2, 3),
    source="message-sequencing",
)
async def in_front(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message(b"1", annotations=KEY), ctx.message(b"2", annotations=KEY))
    await inbox.abandon(arrival)
    await inbox.expect(b"1", b"2")
    return "the abandoned one came first"


@entry(
    6,
    "A lock survives its link: it can be settled from another connection over the management node.",
    "C-3 H-13",
    Price(1, 1, 2),
    source="the SDK",
)
async def elsewhere(ctx: Scratch) -> str:
    await ctx.send(ctx.message())
    other = await ctx.another_connection()
    arrival = await (await ctx.inbox(on=other)).take()
    await other.close()
    token = UUID(bytes_le=arrival.event.tag)
    expect_granted(await ctx.settle_by_token(token, "suspended", reason="verify"), "it")
    (dead,) = await ctx.peek(f"q{DEAD}") or [ctx.message()]
    said = [dead.application_properties.get(name) for name in (REASON, DESCRIPTION)]
    expect(said == ["verify"] * 2, f"reason and description of the dead letter are {said}")
    return "settled from another connection after its own had ended"
