"""Errors by their cause, which decides whether they count as an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sbpair.pair.amqp.errors import (
    DETACH_FORCED,
    ENTITY_DISABLED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    SERVER_BUSY,
)
from sbpair.pair.amqp.performatives import Accepted, DeliveryState, Rejected
from sbpair.pair.client.errors import LinkRefusedError, TokenRefusedError
from sbpair.pair.ground.asked_pause import asked_pause

from ..entry import Price, Queue, Subject, Tier, UndecidedError, expect
from ..inbox import PATIENCE as ANSWER
from ..scratch import Scratch, expect_end, expect_refused, expect_within, rejection_symbol, symbol_of

PATIENCE = 20.0  # seconds for a change of an entity to reach its links
entry = Subject("errors", source="service-bus-messaging-exceptions", manages=True)


async def _symbol(ctx: Scratch, direction: str, of: str = "q") -> str:
    """The condition with which a link is refused; "" if it is attached."""
    connection = await ctx.another_connection()
    try:
        if direction == "send":
            await connection.open_sender(ctx.path(of))
        else:
            await connection.open_receiver(ctx.path(of), lambda event: None)
    except (LinkRefusedError, TokenRefusedError) as error:
        return symbol_of(error.condition)
    return ""


@entry(1, "Links to a disabled queue are refused with `entity-disabled`.", "F-43")
async def disabled_queue(ctx: Scratch) -> str:
    await ctx.change("status", "Disabled")
    found = {await _symbol(ctx, "send"), await _symbol(ctx, "receive")}
    expect(found == {ENTITY_DISABLED}, f"refused with {found}")
    return ENTITY_DISABLED


@entry(2, "A queue disabled for sends can be received from.", "F-43", Price(1, 1), source="entity-suspend")
async def no_sends(ctx: Scratch) -> str:
    await ctx.send(ctx.message())
    await ctx.change("status", "SendDisabled")
    found = await _symbol(ctx, "send")
    await ctx.receive()
    expect(found == ENTITY_DISABLED, f"a sender was refused with {found!r}")
    return "a sender was refused, a receiver got the message"


@entry(3, "A queue that is disabled for receiving can be sent to.", "F-43", Price(1), source="entity-suspend")
async def no_receives(ctx: Scratch) -> str:
    await ctx.change("status", "ReceiveDisabled")
    await ctx.send(ctx.message())
    found = await _symbol(ctx, "receive")
    expect(found == ENTITY_DISABLED, f"a receiver was refused with {found!r}")
    return "a send was accepted, a receiver refused"


@entry(4, "The links of a queue that is disabled are detached.", "F-43 H-11", source="inferred", seconds=2.0)
async def links_of_a_disabled_queue(ctx: Scratch) -> str:
    sender = await ctx.sender()
    await ctx.change("status", "Disabled")
    if not sender.detached.done():
        answer = await sender.send(ctx.message().encode())
        expect(not isinstance(answer, Accepted), "a send was accepted")
    await asyncio.wait([sender.detached], timeout=1.0)
    condition = sender.detached.result() if sender.detached.done() else None
    return f"detached with {condition.symbol}" if condition else "the send was refused"


@entry(5, "A link to a queue that was deleted is refused as missing.", "F-42 F-46")
async def missing_queue(ctx: Scratch) -> str:
    path = ctx.path()
    await ctx.admin(lambda client: client.delete_queue(path))
    found = await _symbol(ctx, "send")
    expect(found == NOT_FOUND, f"refused with {found!r}")
    return found


@entry(6, "The links of a queue that is deleted end.", "F-46 P-50", source="inferred", seconds=2.0)
async def deleted_under_a_link(ctx: Scratch) -> str:
    inbox = await ctx.inbox()
    path = ctx.path()
    await ctx.admin(lambda client: client.delete_queue(path))
    await asyncio.wait([inbox.receiver.detached], timeout=PATIENCE)
    expect(inbox.receiver.detached.done(), f"the link was there after {PATIENCE:g} s")
    condition = inbox.receiver.detached.result()
    return f"detached with {condition.symbol if condition else 'no condition'}"


@entry(
    7,
    "An update of a queue detaches its receivers with `detach-forced`; they attach again.",
    "X-11 P-41",
    source="the SDKs' own tests (Go)",
    seconds=2.0,
)
async def update(ctx: Scratch) -> str:
    inbox = await ctx.inbox()
    await ctx.change("max_delivery_count", 7)
    symbol = await expect_end(
        inbox.receiver.detached, DETACH_FORCED, "detached", within=PATIENCE, what="the link"
    )
    again = await ctx.inbox()
    expect(again.receiver.is_open, "no receiver can be attached")
    return f"{symbol}, and attached again"


@entry(
    8, "The refusal of a link has a description with a tracking id and a time.", "X-17 S-20", manages=False
)
async def tracking_id(ctx: Scratch) -> str:
    connection = await ctx.connection()
    try:
        await connection.open_receiver(ctx.path() + "-none", lambda event: None)
    except (LinkRefusedError, TokenRefusedError) as error:
        text = str(error.condition.description) if error.condition else ""
        expect("TrackingId" in text and "Timestamp" in text, f"the description is {text!r:.150}")
        return "TrackingId is there"
    expect(False, "it was attached")
    return ""


@entry(
    9,
    "A session filter on a queue without sessions is refused.",
    "O-6",
    source="message-sessions",
    tier=Tier.STANDARD,
    entities=(Queue(),),
    manages=False,
)
async def session_filter(ctx: Scratch) -> str:
    return await expect_refused(ctx.session_inbox("a", timeout=1.0))


async def _send_at_once(ctx: Scratch, bodies: Sequence[bytes]) -> list[DeliveryState | None]:
    """Send messages concurrently; return the answers."""
    sender = await ctx.sender()
    sends = asyncio.gather(*(sender.send(ctx.message(body).encode()) for body in bodies))
    return await expect_within(sends, "not all were answered", 3 * ANSWER)


@entry(
    10,
    "A namespace that is too busy refuses with `server-busy`, also among internal errors, and says how many seconds to "
    "wait.",
    "F-40 P-50",
    Price(4),
    source="service-bus-throttling",
    manages=False,
)
async def busy(ctx: Scratch) -> str:
    answers = await _send_at_once(ctx, [b"burst"] * 4)
    busy = [each for each in answers if isinstance(each, Rejected) and rejection_symbol(each) == SERVER_BUSY]
    if not busy:
        raise UndecidedError("it was not busy, and to make it so would cost more than it is worth")
    text = str(busy[0].error.description) if busy[0].error is not None else ""
    pause = asked_pause(text)
    expect(pause is not None, f"it names no time to wait: {text!r:.150}")
    return f"it asks to wait {pause:g} s"


FULL = 1024  # megabytes, the smallest queue there is
PIECE = 250 * 1024  # bytes; four operations
AT_ONCE = 16


@entry(
    11,
    "A full queue refuses messages with `resource-limit-exceeded`, and those in it can be received.",
    "F-44 F-45",
    Price(sends=4 * FULL * 1024**2 // PIECE, receives=4),
    source="service-bus-quotas",
    entities=(Queue(max_megabytes=FULL, partitioned=False),),
    seconds=900.0,
    slow=True,
    manages=False,
)
async def full(ctx: Scratch) -> str:
    pieces = [bytes(PIECE)] * AT_ONCE
    for sent in range(0, FULL * 1024**2 * 11 // 10, AT_ONCE * PIECE):
        refusals = {rejection_symbol(each) for each in await _send_at_once(ctx, pieces)} - {""}
        if refusals:
            expect(refusals == {RESOURCE_LIMIT_EXCEEDED}, f"refused with {refusals}")
            await ctx.receive(within=30.0)
            return f"{RESOURCE_LIMIT_EXCEEDED} after {sent // 1024**2} MB; a receiver got a message"
    expect(False, f"more than {FULL} MB were accepted")
    return ""
