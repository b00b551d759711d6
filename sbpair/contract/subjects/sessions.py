"""Sessions: one holder, order, state, and the lock."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from sbpair.pair.amqp.errors import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, TIMEOUT
from sbpair.pair.amqp.performatives import AmqpMap
from sbpair.pair.amqp.types import Int, Timestamp
from sbpair.pair.client.errors import SessionUnavailableError
from sbpair.pair.client.request import refusal_of, value_of

from ..entry import Price, Queue, Subject, Tier, expect
from ..inbox import SILENCE
from ..scratch import (
    DEAD,
    Scratch,
    expect_accepted,
    expect_end,
    expect_granted,
    expect_refused,
    expect_rejected,
    expect_within,
    items,
)

EVERY = Timestamp(253_402_300_800_000)  # the year 10000, which asks for all sessions
SESSIONS = (Queue(sessions=True),)
entry = Subject("sessions", source="message-sessions", tier=Tier.STANDARD, entities=SESSIONS)


@entry(
    1,
    "The messages of a session are received by its receiver, in the order in which they were sent.",
    "O-1 O-6",
    Price(3, 2),
    about_creation=True,
)
async def order(ctx: Scratch) -> str:
    await ctx.send(ctx.message(b"\0", session="a"))
    inbox, receiver = await ctx.session_inbox("a")
    await ctx.send(ctx.message(b"b", session="b"), ctx.message(b"\1", session="a"))
    expect(receiver.session_id == "a", f"the session {receiver.session_id!r} was granted")
    await inbox.expect_only(b"\0", b"\1")
    return "two in order, and none of another session"


@entry(2, "A second receiver of a session is refused with `session-cannot-be-locked`.", "O-6 C-16", Price(1))
async def one_holder(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a"))
    await ctx.session_inbox("a")
    return await expect_refused(
        ctx.session_inbox("a", on=await ctx.another_connection()),
        SESSION_CANNOT_BE_LOCKED,
        otherwise="two receivers hold the session",
    )


async def _send_later(ctx: Scratch, session: str) -> None:
    await asyncio.sleep(SILENCE)
    await ctx.send(ctx.message(session=session))


@entry(
    3,
    "The next available session is an unlocked one with messages; a receiver waits for it.",
    "O-6 C-16",
    Price(2),
)
async def next_one(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a"))
    _, first = await ctx.session_inbox(None)
    (_, second), _ = await asyncio.gather(ctx.session_inbox(None), _send_later(ctx, "b"))
    granted = (first.session_id, second.session_id)
    expect(granted == ("a", "b"), f"granted were {granted}")
    return "one was granted, and the other when it had a message"


@entry(
    4,
    "When no session is available, the link is refused with `timeout` after the requested time, a use of the queue.",
    "O-6 C-16 T-20",
    source="the SDK",
    seconds=2.5,
)
async def none(ctx: Scratch) -> str:
    began = time.monotonic()
    seen = await expect_refused(
        ctx.session_inbox(None, timeout=2.0), TIMEOUT, otherwise="a session was granted"
    )
    took = time.monotonic() - began
    expect(1.0 < took < 15.0, f"{seen} after {took:.1f} s")
    path = ctx.path()
    found = await ctx.admin(lambda client: client.get_queue_runtime_properties(path))
    used, born = found.accessed_at_utc, found.created_at_utc
    expect(used is not None and born is not None and used >= born, f"it was used last at {used}")
    return seen


@entry(
    5,
    "A session is free once its receiver detaches, and its message is redelivered without a delivery counted.",
    "O-6 R-103",
    Price(1, 2),
    source="inferred",
)
async def free_after_detach(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a"))
    first, _ = await ctx.session_inbox("a")
    await first.take()
    await first.receiver.close()
    second, _ = await ctx.session_inbox("a", timeout=30.0)
    again = await second.receive()
    expect(again.count == 0, f"the delivery count is {again.count}")
    return "granted at once; the delivery count is 0"


@entry(
    6,
    "The state of a session is set, read and cleared, is its own, and outlives its messages and its receiver.",
    "C-16",
    Price(sends=1, management=6),
    seconds=4.0,
)
async def state(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a", ttl=1500))
    _, receiver = await ctx.session_inbox("a")
    node = await ctx.node()
    expect(await node.ask(receiver.state) is None, "a new session has a state")
    wanted = bytes(range(256)) * 16
    await node.ask(lambda to: receiver.set_state(to, wanted))
    await receiver.close()
    await asyncio.sleep(1.8)
    with suppress(SessionUnavailableError):  # it has no message, or is granted without one
        inbox, _ = await expect_within(
            ctx.session_inbox(None, timeout=1.0), "the next session was not answered"
        )
        await inbox.close()
    (_, other), (_, again) = await ctx.session_inbox("b"), await ctx.session_inbox("a")
    strange, found = await node.ask(other.state), await node.ask(again.state)
    await node.ask(lambda to: again.set_state(to, None))
    after = await node.ask(again.state)
    expect(
        (strange, after) == (None, None), f"another has {strange!r:.60}, and once cleared it is {after!r:.60}"
    )
    expect(found == wanted, f"after its receiver it was {found!r:.60}")
    return "set, kept without messages and receivers, and cleared"


def _expect_full(locked_until: float, began: float, span: float) -> None:
    left = locked_until - began
    expect(abs(left - span) < 2.2, f"a lock of {span:g} s ends {left:.1f} s after the enqueued time")


@entry(
    7,
    "A session lock lasts the lock duration, is renewed by request for that duration, and covers its messages.",
    "O-6 C-16",
    Price(1, 1, 2),
    entities=(Queue(sessions=True, lock=5.0),),
    seconds=7.5,
)
async def renewed_lock(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a"))
    inbox, receiver = await ctx.session_inbox("a")
    arrival = await inbox.take()
    began = arrival.time("x-opt-enqueued-time")
    node = await ctx.node()
    _expect_full(receiver.locked_until, began, 5.0)
    for n in (1, 2):
        await asyncio.sleep(3.5)
        _expect_full(await node.ask(receiver.renew), began + 3.5 * n, 5.0)
    expect_accepted(await inbox.complete(arrival))
    return "settled after 7 s under a lock of 5 s"


@entry(
    8,
    "When the lock of a session expires, its link is detached with `session-lock-lost`, and a delivery is counted.",
    "O-6 C-16",
    Price(1, 2, 2),
    entities=(Queue(sessions=True, lock=5.0),),
    seconds=6.5,
)
async def lost_lock(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a", ttl=600_000))
    inbox, receiver = await ctx.session_inbox("a")
    await inbox.take()
    node = await ctx.node()
    await node.ask(lambda to: receiver.set_state(to, b"half"))
    seen = await expect_end(receiver.detached, SESSION_LOCK_LOST, "detached", within=20.0, what="the link")
    again, holder = await ctx.session_inbox("a")
    found = ((await again.receive()).count, await node.ask(holder.state))
    expect(found == (1, b"half"), f"delivery count and state are {found}")
    return f"{seen}, then delivered with delivery count 1; the state was kept"


@entry(
    9, "A queue that requires sessions refuses messages and receivers without a session.", "P-21 O-2 O-6 X-17"
)
async def without_id(ctx: Scratch) -> str:
    expect_rejected(await ctx.answer(ctx.message()))
    return await expect_refused(ctx.inbox())


@entry(
    11,
    "Sessions with messages are listed, by pages.",
    "O-4 X-22",
    Price(sends=2, management=2),
    source="the SDK",
)
async def listing(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a"), ctx.message(session="b"))
    pages = []
    for skip in range(2):
        asked: AmqpMap = {"last-updated-time": EVERY, "skip": Int(skip), "top": Int(1)}
        found = await ctx.ask("get-message-sessions", asked)
        expect_granted(found, "listing")
        pages.append([str(each) for each in items(value_of(found).get("sessions-ids"))])
    expect(sorted(pages) == [["a"], ["b"]], f"listed were {pages}")
    return "both are listed, one by one"


@entry(
    12, "The empty text is a session id too.", "X-7", Price(1, 1), source="the SDKs' own tests (JavaScript)"
)
async def empty_id(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session=""))
    inbox, _ = await ctx.session_inbox("")
    await inbox.receive()
    return "sent and received"


@entry(13, "An abandoned message of a session comes before those behind it.", "R-92 O-6", Price(2, 3))
async def abandoned_message(ctx: Scratch) -> str:
    await ctx.send(ctx.message(b"1", session="a"), ctx.message(b"2", session="a"))
    inbox, _ = await ctx.session_inbox("a")
    await inbox.abandon(await inbox.take())
    await inbox.expect(b"1", b"2")
    return "it came first"


@entry(
    14, "Session ids that differ in case are different sessions.", "O-1 O-6", Price(2, 1), source="inferred"
)
async def case(ctx: Scratch) -> str:
    await ctx.send(ctx.message(b"1", session="a"), ctx.message(b"2", session="A"))
    inbox, receiver = await ctx.session_inbox("A")
    expect(receiver.session_id == "A", f"the session is {receiver.session_id!r}")
    await inbox.expect_only(b"2")
    return "each was received in its own"


@entry(
    15,
    "A session message above the maximum delivery count is dead-lettered with its session id.",
    "X-1 O-6",
    Price(1, 2),
    entities=(Queue(sessions=True, max_deliveries=1),),
    source="service-bus-dead-letter-queues",
)
async def maximum(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a"))
    inbox, _ = await ctx.session_inbox("a")
    await inbox.abandon(await inbox.take())
    arrival = await ctx.receive(f"q{DEAD}")
    reason = arrival.message.application_properties.get("DeadLetterReason")
    session = arrival.message.properties and arrival.message.properties.group_id
    expect(
        (reason, session) == ("MaxDeliveryCountExceeded", "a"), f"reason and session are {(reason, session)}"
    )
    return str(reason)


@entry(
    10,
    "A deferred message of a session is received by its number only under the lock of that session.",
    "X-1 O-6",
    Price(1, 2, 5),
    source="message-deferral",
)
async def deferred_message(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a"))
    inbox, _ = await ctx.session_inbox("a")
    arrival = await inbox.take()
    await inbox.defer(arrival)
    await ctx.session_inbox("b")
    for session in ("b", None):
        refusal = refusal_of(await ctx.ask_for_deferred(arrival.number, session=session, deletes=True))
        expect(refusal is not None, f"it was received under the lock of {session!r}")
    ((_, token),) = await ctx.receive_deferred(arrival.number, session="a")
    expect_granted(await ctx.settle_by_token(token, "completed", session="a"), "completing it")
    expect(not await ctx.peek(), "it is still there")
    return "received under the lock of its session, and refused under another and without one"
