"""Scheduling: by annotation, by request, and cancelling."""

from __future__ import annotations

import asyncio
import time

from sbpair.pair.amqp.errors import MESSAGE_NOT_FOUND
from sbpair.pair.amqp.message import Message
from sbpair.pair.amqp.types import Array
from sbpair.pair.client.request import refusal_of, value_of

from ..entry import DifferenceError, Price, entry, expect
from ..scratch import Scratch

ARTICLE = "message-sequencing"


async def _number(at: Scratch, delay: float) -> int:
    """Schedule a message by request; its sequence number."""
    message = at.scheduled_message(time.time() + delay)
    name = message.properties.message_id if message.properties else None
    found = await at.ask(
        "schedule-message", {"messages": [{"message-id": name, "message": message.encode()}]}
    )
    refusal = refusal_of(found)
    expect(refusal is None, f"it was refused: {refusal}")
    numbers = value_of(found).get("sequence-numbers")
    items = numbers.items if isinstance(numbers, Array) else numbers
    if not items:
        raise DifferenceError("the answer has no sequence number")
    return int(str(items[0]))


async def _cancel(at: Scratch, number: int) -> Message:
    return await at.ask("cancel-scheduled-message", {"sequence-numbers": Array(0x81, (number,))})


@entry(
    "schedule-1",
    "A message with a scheduled time is delivered when it is due, not before.",
    falls=("G-17", "P-20"),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
    seconds=4.0,
)
async def due(at: Scratch) -> str:
    await at.send(at.scheduled_message(time.time() + 2.5))
    inbox = await at.inbox()
    await inbox.nothing(1.0)
    await inbox.complete(await inbox.take(20.0))
    return "delivered when it was due"


@entry(
    "schedule-2",
    "A scheduled time that has passed delivers at once.",
    falls=("G-17",),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
)
async def past(at: Scratch) -> str:
    await at.send(at.scheduled_message(time.time() - 60.0))
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    return "delivered at once"


@entry(
    "schedule-3",
    "A scheduled message is shown by a peek, with the state *scheduled*.",
    falls=("G-17", "X-3"),
    source="message-browsing",
    price=Price(sends=1, management=3),
)
async def shown_state(at: Scratch) -> str:
    from sbpair.pair.amqp.types import Symbol

    number = await _number(at, 60.0)
    (found,) = await at.peek()
    state = found.message_annotations.get(Symbol("x-opt-message-state"))
    await _cancel(at, number)
    expect(state == 2, f"x-opt-message-state is {state!r}")
    return "its state is 2"


@entry(
    "schedule-4",
    "Scheduling by request returns the sequence number, and cancelling by it removes the message.",
    falls=("P-2",),
    source=ARTICLE,
    price=Price(sends=1, management=3),
)
async def cancellation(at: Scratch) -> str:
    number = await _number(at, 60.0)
    refusal = refusal_of(await _cancel(at, number))
    expect(refusal is None, f"cancelling was refused: {refusal}")
    expect(not await at.peek(), "it is still there")
    return "cancelled, and gone"


@entry(
    "schedule-5",
    "To cancel what is not there is refused with `message-not-found`.",
    falls=("P-2",),
    source=ARTICLE,
    price=Price(sends=1, management=3),
)
async def unknown(at: Scratch) -> str:
    number = await _number(at, 60.0)
    await _cancel(at, number)
    found = await _cancel(at, number)
    condition = found.application_properties.get("errorCondition")
    expect(str(condition) == MESSAGE_NOT_FOUND, f"the condition is {condition!r}")
    return str(condition)


@entry(
    "schedule-6",
    "A scheduled message gets a new number when it becomes active.",
    falls=("X-3", "G-22"),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=1),
    seconds=4.0,
)
async def new_number(at: Scratch) -> str:
    number = await _number(at, 2.0)
    await asyncio.sleep(2.2)
    inbox = await at.inbox()
    arrival = await inbox.take(20.0)
    await inbox.complete(arrival)
    found = arrival.annotation("x-opt-sequence-number")
    expect(found != number, f"it is still {found}")
    return f"{number} became {found}"


@entry(
    "schedule-7",
    "A message that was scheduled is delivered with the state *scheduled*.",
    falls=("X-3",),
    source="the SDKs' own tests (JavaScript)",
    price=Price(sends=1, receives=1),
    seconds=3.0,
)
async def state(at: Scratch) -> str:
    await at.send(at.scheduled_message(time.time() + 1.5))
    inbox = await at.inbox()
    arrival = await inbox.take(20.0)
    await inbox.complete(arrival)
    found = arrival.annotation("x-opt-message-state")
    expect(found == 2, f"x-opt-message-state is {found!r}")
    return "x-opt-message-state is 2"
