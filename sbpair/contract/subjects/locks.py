"""Locks: their length, renewal and loss."""

from __future__ import annotations

import asyncio
import time

from sbpair.pair.amqp.errors import MESSAGE_LOCK_LOST
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.client.locks import renew_locks

from ..entry import DifferenceError, Price, Queue, entry, expect
from ..scratch import DEAD, Scratch, answer_text, rejection_symbol

ARTICLE = "message-transfers-locks-settlement"
SHORT = (Queue(lock=5.0),)  # seconds; the least that the service allows


@entry(
    "locks-1",
    "A message under a lock is delivered to nobody else.",
    falls=("P-44", "G-4"),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
)
async def exclusive(at: Scratch) -> str:
    await at.send(at.message())
    first, second = await at.inbox(), await at.inbox()
    arrival = await first.take()
    await second.nothing()
    await first.complete(arrival)
    return "a second receiver got nothing"


@entry(
    "locks-2",
    "A lock that ends makes the message available again, and counts a delivery.",
    falls=("F-7", "F-17"),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
    entities=SHORT,
    seconds=6.0,
)
async def over(at: Scratch) -> str:
    await at.send(at.message())
    first, second = await at.inbox(), await at.inbox()
    await first.take()
    again = await second.take(15.0)
    await second.complete(again)
    expect(again.count == 1, f"the delivery count is {again.count}")
    return "it came again with delivery count 1"


@entry(
    "locks-3",
    "To settle after the lock ended is refused with `message-lock-lost`.",
    falls=("C-3", "F-17", "G-20"),
    source="the SDK",
    price=Price(sends=1, receives=1),
    entities=SHORT,
    seconds=6.5,
)
async def lost_lock(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    arrival = await inbox.take()
    await asyncio.sleep(6.0)
    answer = await inbox.complete(arrival)
    expect(rejection_symbol(answer) == MESSAGE_LOCK_LOST, f"the answer is {answer_text(answer)}")
    return answer_text(answer)


@entry(
    "locks-4",
    "A delivery says until when it is locked, in `x-opt-locked-until`.",
    falls=("C-3",),
    source="the SDK",
    price=Price(sends=1, receives=1),
)
async def until(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    found = arrival.annotation("x-opt-locked-until")
    if not isinstance(found, int):
        raise DifferenceError(f"x-opt-locked-until is {found!r}")
    left = found / 1000 - time.time()
    return f"for {left:.0f} s by this machine's clock"


@entry(
    "locks-5",
    "A renewed lock lasts its whole span again.",
    falls=("C-3", "O-6"),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=2),
    entities=SHORT,
    seconds=7.5,
)
async def renewed_lock(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    arrival = await inbox.take()
    connection = await at.connection()
    for _ in range(2):
        await asyncio.sleep(3.5)
        (end,) = await renew_locks(connection, at.path(), [arrival.event.tag])
        expect(end is not None, "the renewal was refused: the lock is lost")
    answer = await inbox.complete(arrival)
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    return "settled after 7 s under a lock of 5 s"


@entry(
    "locks-6",
    "A lock that ended cannot be renewed.",
    falls=("C-3",),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=1),
    entities=SHORT,
    seconds=6.5,
)
async def too_late(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    arrival = await inbox.take()
    await asyncio.sleep(6.0)
    (end,) = await renew_locks(await at.connection(), at.path(), [arrival.event.tag])
    expect(end is None, f"it was renewed until {end}")
    return "refused"


@entry(
    "locks-7",
    "Several locks are renewed by one request.",
    falls=("C-3",),
    source="service-bus-amqp-request-response",
    price=Price(sends=2, receives=2, management=1),
)
async def several(at: Scratch) -> str:
    await at.send(at.message(), at.message())
    inbox = await at.inbox()
    inbox.receiver.flow(2)
    arrivals = [await inbox.take(), await inbox.take()]
    ends = await renew_locks(await at.connection(), at.path(), [each.event.tag for each in arrivals])
    for each in arrivals:
        await inbox.complete(each)
    expect(all(end is not None for end in ends), f"the ends are {ends}")
    return "two were renewed"


@entry(
    "locks-8",
    "After the maximum of deliveries a message is dead-lettered as `MaxDeliveryCountExceeded`.",
    falls=("X-1", "G-2"),
    source="service-bus-dead-letter-queues",
    price=Price(sends=1, receives=3),
    entities=(Queue(max_deliveries=2),),
)
async def maximum(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    for _ in range(2):
        await inbox.abandon(await inbox.take())
    await inbox.nothing()
    dead = await at.inbox(f"q{DEAD}")
    arrival = await dead.take()
    await dead.complete(arrival)
    reason = arrival.message.application_properties.get("DeadLetterReason")
    expect(reason == "MaxDeliveryCountExceeded", f"the reason is {reason!r}")
    return str(reason)


@entry(
    "locks-9",
    "A message that comes again comes before those behind it.",
    falls=("G-8", "R-92"),
    source="message-sequencing",
    price=Price(sends=2, receives=3),
)
async def in_front(at: Scratch) -> str:
    key = {"x-opt-partition-key": "k"}
    await at.send(at.message(b"1", annotations=key), at.message(b"2", annotations=key))
    inbox = await at.inbox()
    await inbox.abandon(await inbox.take())
    bodies = []
    for _ in range(2):
        arrival = await inbox.take()
        bodies.append(arrival.body)
        await inbox.complete(arrival)
    expect(bodies == [b"1", b"2"], f"they came as {bodies}")
    return "the abandoned one came first"


@entry(
    "locks-10",
    "A lock survives its link: it can be settled from another connection over the management node.",
    falls=("C-3", "H-13"),
    source="the SDK",
    price=Price(sends=1, receives=1, management=2),
)
async def elsewhere(at: Scratch) -> str:
    from uuid import UUID

    from sbpair.pair.amqp.types import Array
    from sbpair.pair.client.request import refusal_of

    await at.send(at.message())
    other = await at.another_connection()
    arrival = await (await at.inbox(on=other)).take()
    await other.close()
    token = UUID(bytes_le=arrival.event.tag)
    found = await at.ask(
        "update-disposition", {"disposition-status": "completed", "lock-tokens": Array(0x98, (token,))}
    )
    refusal = refusal_of(found)
    expect(refusal is None, f"it was refused: {refusal}")
    expect(not await at.peek(), "the message is still there")
    return "settled from another connection after its own had ended"
