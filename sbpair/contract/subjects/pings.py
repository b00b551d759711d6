"""Pings: the service takes them, and hands them to nobody."""

from __future__ import annotations

import asyncio

from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.envelope.aliases import PING_CONTENT_TYPE

from ..entry import Price, Queue, Subscription, Tier, Topic, entry, expect
from ..scratch import DEAD, Scratch, answer_text

PAIRED = "paired namespaces; over AMQP it is not documented"


def _ping(at: Scratch) -> Message:
    return Message(
        header=Header(ttl=1000),
        properties=Properties(message_id=at.new_id(), content_type=PING_CONTENT_TYPE, group_id=at.new_id()),
        body=DataBody((b"",)),
    )


@entry(
    "pings-1",
    "A ping is accepted.",
    falls=("P-30", "P-33", "G-13"),
    source=PAIRED,
    price=Price(pings=1),
)
async def accepted_ping(at: Scratch) -> str:
    answer = await at.answer(_ping(at))
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    return "accepted"


@entry(
    "pings-2",
    'A ping is not delivered by a queue. (If it is: set probe="link".)',
    falls=("P-31", "G-13"),
    source=PAIRED,
    price=Price(pings=1),
    seconds=2.5,
)
async def hidden_ping(at: Scratch) -> str:
    inbox = await at.inbox()
    inbox.receiver.flow(1)
    await at.send(_ping(at))
    await inbox.nothing(1.5)
    return "a waiting receiver got nothing"


@entry(
    "pings-3",
    'The session of a ping is not offered by a queue with sessions. (If it is: set probe="link".)',
    falls=("P-31", "O-1"),
    source=PAIRED,
    price=Price(pings=1),
    entities=(Queue(sessions=True),),
    tier=Tier.STANDARD,
    seconds=2.5,
)
async def no_session(at: Scratch) -> str:
    from sbpair.pair.client.errors import SessionUnavailableError

    await at.send(_ping(at))
    try:
        _, receiver = await at.session_inbox(None, timeout=1.0)
    except SessionUnavailableError:
        return "the next session was none"
    expect(False, f"the session {receiver.session_id!r:.60} was offered")
    return ""


@entry(
    "pings-4",
    'A ping to a topic is not delivered by its subscription. (If it is: set probe="link".)',
    falls=("P-31", "G-13"),
    source=PAIRED,
    price=Price(pings=1),
    entities=(Topic(), Subscription()),
    tier=Tier.STANDARD,
    seconds=2.5,
)
async def not_published(at: Scratch) -> str:
    inbox = await at.inbox("s")
    inbox.receiver.flow(1)
    await at.send(_ping(at), to="t")
    await inbox.nothing(1.5)
    return "a waiting receiver got nothing"


@entry(
    "pings-5",
    "A ping is not dead-lettered when its second is over.",
    falls=("G-13", "P-30"),
    source="inferred",
    price=Price(pings=1, management=1),
    entities=(Queue(dead_letters_expired=True),),
    seconds=3.5,
)
async def not_dead(at: Scratch) -> str:
    await at.send(_ping(at))
    await asyncio.sleep(1.5)
    await (await at.inbox()).nothing()
    found = await at.peek(f"q{DEAD}")
    expect(not found, f"{len(found)} in the dead-letter queue")
    return "the dead-letter queue is empty"


@entry(
    "pings-6",
    "A link to an entity can be attached and detached without a message, as the probe by link does.",
    falls=("P-32", "P-33"),
    source="the AMQP standard",
)
async def by_link(at: Scratch) -> str:
    connection = await at.connection()
    sender = await connection.open_sender(at.path())
    await sender.close()
    expect(sender.detached.done() and sender.detached.result() is None, f"it ended with {sender.detached}")
    return "attached and detached"
