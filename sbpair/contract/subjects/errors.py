"""Errors by their cause: on them it depends what counts as an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbpair.amqp.errors import (
    DETACH_FORCED,
    ENTITY_DISABLED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    SERVER_BUSY,
)
from sbpair.amqp.performatives import Accepted, DeliveryState, Rejected
from sbpair.asked_pause import asked_pause
from sbpair.client.errors import LinkRefusedError, TokenRefusedError

from ..entry import Price, Queue, Tier, UndecidedError, entry, expect
from ..inbox import PATIENCE as ANSWER
from ..scratch import Scratch, expect_end, expect_within, rejection_symbol, symbol_of

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

EXCEPTIONS = "service-bus-messaging-exceptions"
PATIENCE = 20.0  # seconds for a change of an entity to reach its links


async def _symbol(at: Scratch, direction: str, of: str = "q") -> str:
    """The condition with which a link is refused; "" if it is attached."""
    connection = await at.another_connection()
    try:
        if direction == "send":
            await connection.open_sender(at.path(of))
        else:
            await connection.open_receiver(at.path(of), lambda event: None)
    except (LinkRefusedError, TokenRefusedError) as error:
        return symbol_of(error.condition)
    return ""


async def _status(at: Scratch, status: str) -> None:
    path = at.path()

    def changed(client: ServiceBusAdministrationClient) -> None:
        found = client.get_queue(path)
        found.status = status
        client.update_queue(found)

    await at.admin(changed)


@entry(
    "errors-1",
    "Links to a disabled queue are refused with `entity-disabled`.",
    falls=("F-43",),
    source=EXCEPTIONS,
    manages=True,
)
async def disabled_queue(at: Scratch) -> str:
    await _status(at, "Disabled")
    found = {await _symbol(at, "send"), await _symbol(at, "receive")}
    expect(found == {ENTITY_DISABLED}, f"refused with {found}")
    return ENTITY_DISABLED


@entry(
    "errors-2",
    "A queue that is disabled for sends can be received from.",
    falls=("F-43",),
    source="entity-suspend",
    price=Price(sends=1, receives=1),
    manages=True,
)
async def no_sends(at: Scratch) -> str:
    await at.send(at.message())
    await _status(at, "SendDisabled")
    found = await _symbol(at, "send")
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    expect(found == ENTITY_DISABLED, f"a sender was refused with {found!r}")
    return "a sender was refused, a receiver got the message"


@entry(
    "errors-3",
    "A queue that is disabled for receiving can be sent to.",
    falls=("F-43",),
    source="entity-suspend",
    price=Price(sends=1),
    manages=True,
)
async def no_receives(at: Scratch) -> str:
    await _status(at, "ReceiveDisabled")
    await at.send(at.message())
    found = await _symbol(at, "receive")
    expect(found == ENTITY_DISABLED, f"a receiver was refused with {found!r}")
    return "a send was accepted, a receiver refused"


@entry(
    "errors-4",
    "The links of a queue that is disabled are detached.",
    falls=("F-43", "H-11"),
    source="inferred",
    manages=True,
    seconds=2.0,
)
async def links_of_a_disabled_queue(at: Scratch) -> str:
    sender = await at.sender()
    await _status(at, "Disabled")
    if not sender.detached.done():
        answer = await sender.send(at.message().encode())
        expect(not isinstance(answer, Accepted), "a send was accepted")
    await asyncio.wait([sender.detached], timeout=1.0)
    condition = sender.detached.result() if sender.detached.done() else None
    return f"detached with {condition.symbol}" if condition else "the send was refused"


@entry(
    "errors-5",
    "A link to a queue that was deleted is refused as missing.",
    falls=("F-42", "F-46"),
    source=EXCEPTIONS,
    manages=True,
)
async def missing_queue(at: Scratch) -> str:
    path = at.path()
    await at.admin(lambda client: client.delete_queue(path))
    found = await _symbol(at, "send")
    expect(found == NOT_FOUND, f"refused with {found!r}")
    return found


@entry(
    "errors-6",
    "The links of a queue that is deleted end.",
    falls=("F-46", "P-50"),
    source="inferred",
    manages=True,
    seconds=2.0,
)
async def deleted_under_a_link(at: Scratch) -> str:
    inbox = await at.inbox()
    path = at.path()
    await at.admin(lambda client: client.delete_queue(path))
    await asyncio.wait([inbox.receiver.detached], timeout=PATIENCE)
    expect(inbox.receiver.detached.done(), f"the link was there after {PATIENCE:g} s")
    condition = inbox.receiver.detached.result()
    return f"detached with {condition.symbol if condition else 'no condition'}"


@entry(
    "errors-7",
    "An update of a queue detaches its receivers with `detach-forced`; they attach again.",
    falls=("X-11", "P-41"),
    source="the SDKs' own tests (Go)",
    manages=True,
    seconds=2.0,
)
async def update(at: Scratch) -> str:
    inbox = await at.inbox()
    path = at.path()

    def changed(client: ServiceBusAdministrationClient) -> None:
        found = client.get_queue(path)
        found.max_delivery_count = 7
        client.update_queue(found)

    await at.admin(changed)
    symbol = await expect_end(
        inbox.receiver.detached, DETACH_FORCED, "detached", within=PATIENCE, what="the link"
    )
    again = await at.inbox()
    expect(again.receiver.is_open, "no receiver can be attached")
    return f"{symbol}, and attached again"


@entry(
    "errors-8",
    "The refusal of a link has a description with a tracking id and a time.",
    falls=("X-17", "S-20"),
    source=EXCEPTIONS,
)
async def tracking_id(at: Scratch) -> str:
    connection = await at.connection()
    try:
        await connection.open_receiver(at.path() + "-none", lambda event: None)
    except (LinkRefusedError, TokenRefusedError) as error:
        text = str(error.condition.description) if error.condition else ""
        expect("TrackingId" in text and "Timestamp" in text, f"the description is {text!r:.150}")
        return "TrackingId is there"
    expect(False, "it was attached")
    return ""


@entry(
    "errors-9",
    "A session filter on a queue without sessions is refused.",
    falls=("O-6",),
    source="message-sessions",
    tier=Tier.STANDARD,
    entities=(Queue(),),
)
async def session_filter(at: Scratch) -> str:
    try:
        await at.session_inbox("a", timeout=1.0)
    except LinkRefusedError as error:
        return f"refused with {symbol_of(error.condition)}"
    expect(False, "it was attached")
    return ""


async def _send_at_once(at: Scratch, bodies: Sequence[bytes]) -> list[DeliveryState | None]:
    """Send messages without waiting for each other; the answers."""
    sender = await at.sender()
    sends = asyncio.gather(*(sender.send(at.message(body).encode()) for body in bodies))
    return await expect_within(sends, "not all were answered", 3 * ANSWER)


@entry(
    "errors-10",
    "A namespace that is too busy refuses with `server-busy`, also among internal errors, and says how many seconds to "
    "wait.",
    falls=("F-40", "P-50"),
    source="service-bus-throttling",
    price=Price(sends=10),
)
async def busy(at: Scratch) -> str:
    answers = await _send_at_once(at, [b"burst"] * 10)
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
    "errors-11",
    "A queue that has reached its size refuses with `resource-limit-exceeded`, and what is in it can be received.",
    falls=("F-44", "F-45"),
    source="service-bus-quotas",
    price=Price(sends=4 * FULL * 1024**2 // PIECE, receives=4),
    entities=(Queue(max_megabytes=FULL, partitioned=False),),
    seconds=900.0,
    slow=True,
)
async def full(at: Scratch) -> str:
    pieces = [bytes(PIECE)] * AT_ONCE
    for sent in range(0, FULL * 1024**2 * 11 // 10, AT_ONCE * PIECE):
        refusals = {rejection_symbol(each) for each in await _send_at_once(at, pieces)} - {""}
        if refusals:
            expect(refusals == {RESOURCE_LIMIT_EXCEEDED}, f"refused with {refusals}")
            inbox = await at.inbox()
            await inbox.complete(await inbox.take(30.0))
            return f"{RESOURCE_LIMIT_EXCEEDED} after {sent // 1024**2} MB; a receiver got a message"
    expect(False, f"more than {FULL} MB were accepted")
    return ""
