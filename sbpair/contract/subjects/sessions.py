"""Sessions: one holder, order, state, and the lock."""

from __future__ import annotations

from sbpair.pair.amqp.errors import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, TIMEOUT
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.amqp.types import Int, Timestamp
from sbpair.pair.client.errors import LinkRefusedError, SessionUnavailableError
from sbpair.pair.client.request import refusal_of, value_of

from ..entry import Price, Queue, Tier, entry, expect
from ..scratch import Scratch, answer_text, expect_end, expect_refusal, rejection_symbol, symbol_of

ARTICLE = "message-sessions"
SESSIONS = (Queue(sessions=True),)


@entry(
    "sessions-1",
    "The messages of a session are received by its receiver, in the order in which they were sent.",
    falls=("O-1", "O-6"),
    source=ARTICLE,
    price=Price(sends=4, receives=3),
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def order(at: Scratch) -> str:
    await at.send(*(at.message(bytes([n]), session="a") for n in range(3)), at.message(b"b", session="b"))
    inbox, receiver = await at.session_inbox("a")
    expect(receiver.session_id == "a", f"the session {receiver.session_id!r} was granted")
    bodies = []
    for _ in range(3):
        arrival = await inbox.take()
        bodies.append(arrival.body)
        await inbox.complete(arrival)
    expect(bodies == [b"\x00", b"\x01", b"\x02"], f"they came as {bodies}")
    await inbox.nothing()
    return "three in order, and none of another session"


@entry(
    "sessions-2",
    "A session has one receiver: a second one is refused with `session-cannot-be-locked`.",
    falls=("O-6", "C-16"),
    source=ARTICLE,
    price=Price(sends=1),
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def one_holder(at: Scratch) -> str:
    await at.send(at.message(session="a"))
    await at.session_inbox("a")
    try:
        await at.session_inbox("a", on=await at.another_connection())
    except SessionUnavailableError as error:
        return expect_refusal(error, SESSION_CANNOT_BE_LOCKED)
    expect(False, "two receivers hold the session")
    return ""


@entry(
    "sessions-3",
    "The next available session is one that has messages and that nobody holds.",
    falls=("O-6", "C-16"),
    source=ARTICLE,
    price=Price(sends=2),
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def next_one(at: Scratch) -> str:
    await at.send(at.message(session="a"), at.message(session="b"))
    _, first = await at.session_inbox(None)
    _, second = await at.session_inbox(None)
    granted = {first.session_id, second.session_id}
    expect(granted == {"a", "b"}, f"granted were {granted}")
    return "both were granted, once each"


@entry(
    "sessions-4",
    "When no session is available, the link is refused with `timeout` after the time that it asked for.",
    falls=("O-6", "C-16"),
    source="the SDK",
    entities=SESSIONS,
    tier=Tier.STANDARD,
    seconds=2.5,
)
async def none(at: Scratch) -> str:
    import time

    began = time.monotonic()
    try:
        await at.session_inbox(None, timeout=2.0)
    except SessionUnavailableError as error:
        symbol = symbol_of(error.condition)
        took = time.monotonic() - began
        expect(symbol == TIMEOUT and 1.0 < took < 15.0, f"refused with {symbol} after {took:.1f} s")
        return f"refused with {symbol}"
    expect(False, "a session was granted")
    return ""


@entry(
    "sessions-5",
    "A session is free again as soon as its receiver detaches, and its message comes with no delivery counted.",
    falls=("O-6", "R-103"),
    source="inferred",
    price=Price(sends=1, receives=2),
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def free_after_detach(at: Scratch) -> str:
    await at.send(at.message(session="a"))
    first, _ = await at.session_inbox("a")
    await first.take()
    await first.receiver.close()
    second, _ = await at.session_inbox("a", timeout=30.0)
    again = await second.take()
    await second.complete(again)
    expect(again.count == 0, f"the delivery count is {again.count}")
    return "granted at once; the delivery count is 0"


@entry(
    "sessions-6",
    "The state of a session is set, read and cleared, and outlives its messages.",
    falls=("C-16",),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=5),
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def state(at: Scratch) -> str:
    await at.send(at.message(session="a"))
    inbox, receiver = await at.session_inbox("a")
    node = await at.node()
    expect(await node.ask(receiver.state) is None, "a new session has a state")
    await node.ask(lambda to: receiver.set_state(to, b"half"))
    await inbox.complete(await inbox.take())
    found = await node.ask(receiver.state)
    await node.ask(lambda to: receiver.set_state(to, None))
    after = await node.ask(receiver.state)
    expect((found, after) == (b"half", None), f"it was {found!r}, and once cleared {after!r}")
    return "set, kept without messages, and cleared"


@entry(
    "sessions-7",
    "The lock of a session is renewed by request, and covers its messages.",
    falls=("O-6", "C-16"),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=2),
    entities=(Queue(sessions=True, lock=5.0),),
    tier=Tier.STANDARD,
    seconds=7.5,
)
async def renewed_lock(at: Scratch) -> str:
    import asyncio

    await at.send(at.message(session="a"))
    inbox, receiver = await at.session_inbox("a")
    arrival = await inbox.take()
    node = await at.node()
    for _ in range(2):
        await asyncio.sleep(3.5)
        await node.ask(receiver.renew)
    answer = await inbox.complete(arrival)
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    return "settled after 7 s under a lock of 5 s"


@entry(
    "sessions-8",
    "When the lock of a session ends, its link is detached with `session-lock-lost`.",
    falls=("O-6", "C-16"),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
    entities=(Queue(sessions=True, lock=5.0),),
    tier=Tier.STANDARD,
    seconds=6.5,
)
async def lost_lock(at: Scratch) -> str:

    await at.send(at.message(session="a"))
    inbox, receiver = await at.session_inbox("a")
    await inbox.take()
    return await expect_end(receiver.detached, SESSION_LOCK_LOST, "detached", within=20.0, what="the link")


@entry(
    "sessions-9",
    "A message without a session id is refused by a queue that requires sessions.",
    falls=("P-21", "O-2"),
    source=ARTICLE,
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def without_id(at: Scratch) -> str:
    answer = await at.answer(at.message())
    expect(bool(rejection_symbol(answer)), f"the answer is {answer_text(answer)}")
    return answer_text(answer)


@entry(
    "sessions-10",
    "A receiver without a session is refused by a queue that requires sessions.",
    falls=("O-6", "X-17"),
    source=ARTICLE,
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def no_session(at: Scratch) -> str:
    try:
        await at.inbox()
    except LinkRefusedError as error:
        return f"refused with {symbol_of(error.condition)}"
    expect(False, "it was attached")
    return ""


@entry(
    "sessions-11",
    "Sessions with messages are listed.",
    falls=("O-4", "X-22"),
    source="the SDK",
    price=Price(sends=2, management=1),
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def listing(at: Scratch) -> str:
    await at.send(at.message(session="a"), at.message(session="b"))
    found = await at.ask(
        "get-message-sessions",
        {"last-updated-time": Timestamp(253_402_300_800_000), "skip": Int(0), "top": Int(10)},
    )
    refusal = refusal_of(found)
    expect(refusal is None, f"refused: {refusal}")
    names = value_of(found).get("sessions-ids")
    got = sorted(map(str, getattr(names, "items", names) or ()))
    expect(got == ["a", "b"], f"listed were {got}")
    return "both are listed"


@entry(
    "sessions-12",
    "The empty text is a session id like any other.",
    falls=("X-7",),
    source="the SDKs' own tests (JavaScript)",
    price=Price(sends=1, receives=1),
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def empty_id(at: Scratch) -> str:
    await at.send(at.message(session=""))
    inbox, _ = await at.session_inbox("")
    await inbox.complete(await inbox.take())
    return "sent and received"


@entry(
    "sessions-13",
    "An abandoned message of a session comes before those behind it.",
    falls=("R-92", "O-6"),
    source=ARTICLE,
    price=Price(sends=2, receives=3),
    entities=SESSIONS,
    tier=Tier.STANDARD,
)
async def abandoned_message(at: Scratch) -> str:
    await at.send(at.message(b"1", session="a"), at.message(b"2", session="a"))
    inbox, _ = await at.session_inbox("a")
    await inbox.abandon(await inbox.take())
    bodies = []
    for _ in range(2):
        arrival = await inbox.take()
        bodies.append(arrival.body)
        await inbox.complete(arrival)
    expect(bodies == [b"1", b"2"], f"they came as {bodies}")
    return "it came first"
