"""Peeking: what it shows, and what it does not change."""

from __future__ import annotations

from ..entry import Price, Queue, Subject, Tier, expect
from ..scratch import KEY, Scratch, number_of

entry = Subject("peeking", source="message-browsing")


@entry(
    1,
    "A peek shows waiting messages without a receiver, a lock or a delivery count.",
    "O-4 P-42",
    Price(1, 1, 2),
)
async def harmless(ctx: Scratch) -> str:
    await ctx.send(ctx.message())
    for _ in range(2):
        expect(len(await ctx.peek()) == 1, "a peek does not show the message")
    arrival = await ctx.receive()
    expect(arrival.count == 0, f"the delivery count is {arrival.count}")
    return "two peeks, then delivered with delivery count 0"


@entry(2, "A peek of an empty queue is empty, not an error.", "O-4", Price(management=1))
async def empty(ctx: Scratch) -> str:
    found = await ctx.peek()
    expect(not found, f"it shows {len(found)} messages")
    return "nothing"


@entry(3, "A peek shows messages under a lock.", "O-4", Price(1, 1, 1))
async def locked_message(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message())
    found = await ctx.peek()
    await inbox.complete(arrival)
    expect(len(found) == 1, f"it shows {len(found)} messages")
    return "it shows the locked message"


@entry(
    4,
    "A peek starts at a sequence number and returns the oldest first, up to the requested number.",
    "O-4 Q-9",
    Price(sends=3, management=2),
)
async def by_number(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message(bytes([n]), annotations=KEY) for n in range(3)))
    numbers = [number_of(each) for each in await ctx.peek()]
    expect(numbers == sorted(numbers) and len(numbers) == 3, f"the numbers are {numbers}")
    later = [number_of(each) for each in await ctx.peek(start=numbers[1], most=1)]
    expect(later == numbers[1:2], f"from {numbers[1]} on, one of them, it shows {later}")
    return f"{numbers}, then {later}"


@entry(
    5,
    "A peek of a session shows only that session and does not need its lock.",
    "O-4",
    Price(sends=2, management=2),
    entities=(Queue(sessions=True),),
    tier=Tier.STANDARD,
)
async def of_a_session(ctx: Scratch) -> str:
    await ctx.send(ctx.message(b"a", session="a"), ctx.message(b"b", session="b"))
    found = await ctx.peek(session="a")
    expect(len(found) == 1, f"it shows {len(found)} messages")
    nothing = await ctx.peek(session="c")
    expect(not nothing, f"a peek of an empty session shows {len(nothing)}")
    return "one of two sessions, and nothing of a third"


@entry(
    6,
    "A peek of a session with `omit-message-body` has no bodies.",
    "X-8",
    Price(sends=1, management=1),
    source="the SDKs' own tests (JavaScript)",
    entities=(Queue(sessions=True),),
    tier=Tier.STANDARD,
)
async def without_body(ctx: Scratch) -> str:
    from sbpair.pair.amqp.message import Message
    from sbpair.pair.amqp.types import Int
    from sbpair.pair.client.request import value_of

    await ctx.send(ctx.message(b"a body", session="a"))
    asked: dict[object, object] = {
        "from-sequence-number": 0,
        "message-count": Int(1),
        "omit-message-body": True,
        "session-id": "a",
    }
    (shown,) = value_of(await ctx.ask("peek-message", asked)).get("messages") or [{}]
    body = Message.decode(shown["message"]).body
    expect(getattr(body, "data", b"") == b"", f"the body is {body}")
    return "no body"
