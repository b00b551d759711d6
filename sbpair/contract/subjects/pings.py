"""Pings: the service accepts them and delivers them to no receiver."""

from __future__ import annotations

import asyncio

from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.pair.envelope.aliases import PING_CONTENT_TYPE

from ..entry import Price, Queue, Subject, Subscription, Tier, Topic, expect
from ..scratch import DEAD, Scratch, expect_accepted

entry = Subject("pings", source="paired namespaces; over AMQP it is not documented")


def ping(message_id: str, session_id: str) -> Message:
    """A ping, as senders send it."""
    return Message(
        header=Header(ttl=1000),
        properties=Properties(message_id=message_id, content_type=PING_CONTENT_TYPE, group_id=session_id),
        body=DataBody((b"",)),
    )


def _ping(ctx: Scratch) -> Message:
    return ping(ctx.new_id(), ctx.new_id())


@entry(1, "A ping is accepted.", "P-30 P-33 G-13", Price(pings=1))
async def accepted_ping(ctx: Scratch) -> str:
    expect_accepted(await ctx.answer(_ping(ctx)))
    return "accepted"


@entry(
    2,
    'A ping is not delivered by a queue. (If it is: set probe="link".)',
    "P-31 G-13",
    Price(pings=1),
    seconds=2.5,
)
async def hidden_ping(ctx: Scratch) -> str:
    inbox = await ctx.inbox()
    inbox.receiver.flow(1)
    await ctx.send(_ping(ctx))
    await inbox.nothing(1.5)
    return "a waiting receiver got nothing"


@entry(
    3,
    'The session of a ping is not offered by a queue with sessions. (If it is: set probe="link".)',
    "P-31 O-1",
    Price(pings=1),
    entities=(Queue(sessions=True),),
    tier=Tier.STANDARD,
    seconds=2.5,
)
async def no_session(ctx: Scratch) -> str:
    from sbpair.pair.client.errors import SessionUnavailableError

    await ctx.send(_ping(ctx))
    try:
        _, receiver = await ctx.session_inbox(None, timeout=1.0)
    except SessionUnavailableError:
        return "the next session was none"
    expect(False, f"the session {receiver.session_id!r:.60} was offered")
    return ""


@entry(
    4,
    'A ping to a topic is not delivered by its subscription. (If it is: set probe="link".)',
    "P-31 G-13",
    Price(pings=1),
    entities=(Topic(), Subscription()),
    tier=Tier.STANDARD,
    seconds=2.5,
)
async def not_published(ctx: Scratch) -> str:
    inbox = await ctx.inbox("s")
    inbox.receiver.flow(1)
    await ctx.send(_ping(ctx), to="t")
    await inbox.nothing(1.5)
    return "a waiting receiver got nothing"


@entry(
    5,
    "A ping is not dead-lettered when it expires after a second.",
    "G-13 P-30",
    Price(pings=1, management=1),
    source="inferred",
    entities=(Queue(dead_letters_expired=True),),
    seconds=3.5,
)
async def not_dead(ctx: Scratch) -> str:
    await ctx.send(_ping(ctx))
    await asyncio.sleep(1.5)
    await ctx.nothing()
    found = await ctx.peek(f"q{DEAD}")
    expect(not found, f"{len(found)} in the dead-letter queue")
    return "the dead-letter queue is empty"


@entry(
    6,
    "A link to an entity can be attached and detached without a message, as the probe by link does.",
    "P-32 P-33",
    source="the AMQP standard",
)
async def by_link(ctx: Scratch) -> str:
    connection = await ctx.connection()
    sender = await connection.open_sender(ctx.path())
    await sender.close()
    expect(sender.detached.done() and sender.detached.result() is None, f"it ended with {sender.detached}")
    return "attached and detached"
