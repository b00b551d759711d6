"""Time to live: when it begins, what ends it, and what becomes of the message."""

from __future__ import annotations

import asyncio

from sbpair.pair.amqp.performatives import Accepted

from ..entry import Price, Queue, entry, expect
from ..scratch import DEAD, Scratch, answer_text

ARTICLE = "message-expiration"
AS_BACKLOG = (Queue(dead_letters_expired=True),)


@entry(
    "expiry-1",
    "A message is not delivered after its time to live.",
    falls=("T-2", "G-15"),
    source=ARTICLE,
    price=Price(sends=1),
    seconds=2.5,
)
async def expired_message(at: Scratch) -> str:
    await at.send(at.message(ttl=1000))
    await asyncio.sleep(1.5)
    await (await at.inbox()).nothing()
    return "nothing was delivered"


@entry(
    "expiry-2",
    "An expired message is dead-lettered as `TTLExpiredException` where the queue asks for it.",
    falls=("T-10", "P-11"),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
    entities=AS_BACKLOG,
    seconds=4.0,
)
async def dead(at: Scratch) -> str:
    await at.send(at.message(ttl=1000))
    await asyncio.sleep(1.5)
    await (await at.inbox()).nothing()
    inbox = await at.inbox(f"q{DEAD}")
    arrival = await inbox.take(30.0)
    await inbox.complete(arrival)
    reason = arrival.message.application_properties.get("DeadLetterReason")
    expect(reason == "TTLExpiredException", f"the reason is {reason!r}")
    return str(reason)


@entry(
    "expiry-3",
    "A locked message does not expire: it is completed as usual.",
    falls=("T-3",),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
    entities=AS_BACKLOG,
    seconds=2.5,
)
async def locked_message(at: Scratch) -> str:
    await at.send(at.message(ttl=1000))
    inbox = await at.inbox()
    arrival = await inbox.take()
    await asyncio.sleep(1.5)
    answer = await inbox.complete(arrival)
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    return "accepted after the time to live"


@entry(
    "expiry-4",
    "An abandoned message whose time is over expires at once.",
    falls=("T-3", "T-11"),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
    entities=AS_BACKLOG,
    seconds=3.0,
)
async def abandoned_message(at: Scratch) -> str:
    await at.send(at.message(ttl=1000))
    inbox = await at.inbox()
    arrival = await inbox.take()
    await asyncio.sleep(1.5)
    await inbox.abandon(arrival)
    await inbox.nothing()
    dead_inbox = await at.inbox(f"q{DEAD}")
    await dead_inbox.complete(await dead_inbox.take(30.0))
    return "it was dead-lettered"


@entry(
    "expiry-5",
    "The default of the queue is a ceiling for what messages ask for.",
    falls=("T-6", "G-14"),
    source=ARTICLE,
    price=Price(sends=1),
    entities=(Queue(time_to_live=2.0),),
    seconds=3.5,
)
async def ceiling(at: Scratch) -> str:
    await at.send(at.message(ttl=60_000))
    await asyncio.sleep(2.5)
    await (await at.inbox()).nothing()
    return "a message of 60 s in a queue of 2 s was gone"


@entry(
    "expiry-6",
    "A message without a time to live takes the default of the queue.",
    falls=("T-6",),
    source=ARTICLE,
    price=Price(sends=1),
    entities=(Queue(time_to_live=2.0),),
    seconds=3.5,
)
async def default(at: Scratch) -> str:
    await at.send(at.message())
    await asyncio.sleep(2.5)
    await (await at.inbox()).nothing()
    return "it was gone after 2 s"


@entry(
    "expiry-7",
    "The time to live of a scheduled message counts from its scheduled time.",
    falls=("T-5", "G-17"),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
    seconds=5.0,
)
async def scheduled_message(at: Scratch) -> str:
    import time

    await at.send(at.scheduled_message(time.time() + 3.0, ttl=2_500))
    await asyncio.sleep(3.2)
    inbox = await at.inbox()
    await inbox.complete(await inbox.take(10.0))
    return "due after 3 s with 2.5 s to live, it was delivered"


@entry(
    "expiry-8",
    "A peek shows the message's own time to live.",
    falls=("T-7",),
    source="issues of the SDKs",
    price=Price(sends=1, receives=1, management=1),
)
async def ttl_in_a_peek(at: Scratch) -> str:
    await at.send(at.message(ttl=60_000))
    (found,) = await at.peek()
    span = found.header.ttl if found.header else None
    expect(span == 60_000, f"it shows {span}")
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    return "60 000 ms"


@entry(
    "expiry-9",
    "A time to live beyond the header's 49.7 days is taken from creation and expiry time.",
    falls=("P-20", "T-1"),
    source="issues of the SDKs",
    price=Price(sends=1),
    seconds=2.5,
)
async def by_properties(at: Scratch) -> str:
    import time
    from dataclasses import replace

    message = at.message()
    assert message.properties is not None  # noqa: S101 - message() sets them
    now = round(time.time() * 1000)
    span = replace(message.properties, creation_time=now, absolute_expiry_time=now + 1000)
    await at.send(replace(message, properties=span))
    await asyncio.sleep(1.8)
    await (await at.inbox()).nothing()
    return "a span of 1 s given by two times was observed"


@entry(
    "expiry-10",
    "A dead-letter queue ignores the time to live.",
    falls=("G-21",),
    source="service-bus-dead-letter-queues",
    price=Price(sends=1, receives=2),
    seconds=3.0,
)
async def dead_letters_stay(at: Scratch) -> str:
    await at.send(at.message(ttl=1500))
    inbox = await at.inbox()
    await inbox.dead_letter(await inbox.take(), "verify")
    await asyncio.sleep(2.0)
    dead_inbox = await at.inbox(f"q{DEAD}")
    await dead_inbox.complete(await dead_inbox.take())
    return "it was delivered after its time to live"
