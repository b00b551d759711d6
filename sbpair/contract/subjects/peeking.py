"""Peeking: what it shows, and what it leaves alone."""

from __future__ import annotations

from sbpair.pair.amqp.types import Symbol

from ..entry import Price, Queue, Tier, entry, expect
from ..scratch import Scratch

ARTICLE = "message-browsing"
NUMBER = Symbol("x-opt-sequence-number")


@entry(
    "peeking-1",
    "A peek shows what waits, and neither locks nor counts it.",
    falls=("O-4", "P-42"),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=2),
)
async def harmless(at: Scratch) -> str:
    await at.send(at.message())
    for _ in range(2):
        expect(len(await at.peek()) == 1, "a peek does not show the message")
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.count == 0, f"the delivery count is {arrival.count}")
    return "two peeks, then delivered with delivery count 0"


@entry(
    "peeking-2",
    "A peek of an empty queue is empty, not an error.",
    falls=("O-4",),
    source=ARTICLE,
    price=Price(management=1),
)
async def empty(at: Scratch) -> str:
    found = await at.peek()
    expect(not found, f"it shows {len(found)} messages")
    return "nothing"


@entry(
    "peeking-3",
    "A peek shows messages under a lock.",
    falls=("O-4",),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=1),
)
async def locked_message(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    arrival = await inbox.take()
    found = await at.peek()
    await inbox.complete(arrival)
    expect(len(found) == 1, f"it shows {len(found)} messages")
    return "it shows the locked message"


@entry(
    "peeking-4",
    "A peek begins at a sequence number, and the oldest comes first.",
    falls=("O-4", "Q-9"),
    source=ARTICLE,
    price=Price(sends=3, receives=3, management=2),
)
async def by_number(at: Scratch) -> str:
    key = {"x-opt-partition-key": "k"}
    await at.send(*(at.message(bytes([n]), annotations=key) for n in range(3)))
    numbers = [int(str(each.message_annotations[NUMBER])) for each in await at.peek()]
    expect(numbers == sorted(numbers) and len(numbers) == 3, f"the numbers are {numbers}")
    later = [int(str(each.message_annotations[NUMBER])) for each in await at.peek(start=numbers[1])]
    inbox = await at.inbox()
    for _ in range(3):
        await inbox.complete(await inbox.take())
    expect(later == numbers[1:], f"from {numbers[1]} on it shows {later}")
    return f"{numbers}, then {later}"


@entry(
    "peeking-5",
    "A peek of a session shows that session, and needs no lock of it.",
    falls=("O-4",),
    source=ARTICLE,
    price=Price(sends=2, management=2),
    entities=(Queue(sessions=True),),
    tier=Tier.STANDARD,
)
async def of_a_session(at: Scratch) -> str:
    await at.send(at.message(b"a", session="a"), at.message(b"b", session="b"))
    found = await at.peek(session="a")
    expect(len(found) == 1, f"it shows {len(found)} messages")
    nothing = await at.peek(session="c")
    expect(not nothing, f"a peek of an empty session shows {len(nothing)}")
    return "one of two sessions, and nothing of a third"


@entry(
    "peeking-6",
    "A peek goes over the link pair of a sender's connection, without a receiver.",
    falls=("O-4",),
    source="service-bus-amqp-request-response",
    price=Price(sends=1, receives=1, management=1),
)
async def beside_a_sender(at: Scratch) -> str:
    await at.send(at.message())
    found = await at.peek(most=1)
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    expect(len(found) == 1, f"it shows {len(found)} messages")
    return "it shows the message that this connection sent"


@entry(
    "peeking-7",
    "A peek of a dead-letter queue shows its messages.",
    falls=("G-21", "R-124"),
    source=ARTICLE,
    price=Price(sends=1, receives=2, management=1),
)
async def of_dead_letters(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    await inbox.dead_letter(await inbox.take(), "verify")
    found = await at.peek("q/$DeadLetterQueue")
    dead = await at.inbox("q/$DeadLetterQueue")
    await dead.complete(await dead.take())
    expect(len(found) == 1, f"it shows {len(found)} messages")
    return "one"


@entry(
    "peeking-8",
    "A peek of a session with `omit-message-body` has no bodies.",
    falls=("X-8",),
    source="the SDKs' own tests (JavaScript)",
    price=Price(sends=1, management=1),
    entities=(Queue(sessions=True),),
    tier=Tier.STANDARD,
)
async def without_body(at: Scratch) -> str:
    from sbpair.pair.amqp.message import Message
    from sbpair.pair.amqp.types import Int
    from sbpair.pair.client.request import value_of

    await at.send(at.message(b"a body", session="a"))
    asked: dict[object, object] = {
        "from-sequence-number": 0,
        "message-count": Int(1),
        "omit-message-body": True,
        "session-id": "a",
    }
    (shown,) = value_of(await at.ask("peek-message", asked)).get("messages") or [{}]
    body = Message.decode(shown["message"]).body
    expect(getattr(body, "data", b"") == b"", f"the body is {body}")
    return "no body"
