"""Scheduling: by annotation or request, and cancelling."""

from __future__ import annotations

import asyncio
import time

from sbpair.pair.amqp.errors import MESSAGE_NOT_FOUND
from sbpair.pair.amqp.types import Symbol

from ..entry import Price, Subject, expect
from ..scratch import Scratch, expect_accepted, expect_granted

entry = Subject("schedule", source="message-sequencing")


@entry(
    1,
    "A scheduled message is delivered when it is due, not before, and outlives the connection of its sender.",
    "G-17 P-20",
    Price(1, 1),
    seconds=4.0,
)
async def due(ctx: Scratch) -> str:
    connection = await ctx.another_connection()
    sender = await connection.open_sender(ctx.path())
    expect_accepted(await sender.send(ctx.scheduled_message(time.time() + 2.5).encode()))
    await connection.close()
    inbox = await ctx.inbox()
    await inbox.nothing(1.0)
    await inbox.receive(20.0)
    return "delivered when it was due"


@entry(2, "A scheduled time that has passed delivers at once.", "G-17", Price(1, 1))
async def past(ctx: Scratch) -> str:
    await ctx.send(ctx.scheduled_message(time.time() - 60.0))
    await ctx.receive()
    return "delivered at once"


@entry(
    3,
    "A scheduled message is shown by a peek, with the state *scheduled*.",
    "G-17 X-3",
    Price(sends=1, management=2),
    source="message-browsing",
)
async def shown_state(ctx: Scratch) -> str:
    await ctx.schedule(ctx.scheduled_message(time.time() + 60.0))
    (found,) = await ctx.peek()
    state = found.message_annotations.get(Symbol("x-opt-message-state"))
    expect(state == 2, f"x-opt-message-state is {state!r}")
    return "its state is 2"


@entry(
    4,
    "A schedule request returns a sequence number per message; cancelling by number removes it, once: then it is "
    "refused with `message-not-found`.",
    "P-2",
    Price(sends=2, management=4),
)
async def cancellation(ctx: Scratch) -> str:
    due = time.time() + 60.0
    numbers = await ctx.schedule(ctx.scheduled_message(due), ctx.scheduled_message(due))
    expect(len({*numbers}) == 2, f"the numbers of two are {numbers}")
    expect_granted(await ctx.cancel(*numbers), "cancelling")
    left = await ctx.peek()
    expect(not left, f"{len(left)} of 2 are still there")
    condition = (await ctx.cancel(numbers[0])).application_properties.get("errorCondition")
    expect(str(condition) == MESSAGE_NOT_FOUND, f"the condition is {condition!r}")
    return "two were scheduled and cancelled by one request each, and are gone"


@entry(
    5,
    "A scheduled message becomes active when due, with a new number, that enqueued time and the state *scheduled*.",
    "X-3 G-22",
    Price(1, 1, 1),
    seconds=4.0,
)
async def new_number(ctx: Scratch) -> str:
    due = time.time() + 2.0
    (number,) = await ctx.schedule(ctx.scheduled_message(due))
    await asyncio.sleep(2.2)
    arrival = await ctx.receive(within=20.0)
    late = arrival.time("x-opt-enqueued-time") - due
    expect(arrival.number != number, f"it is still {number}")
    state = arrival.annotation("x-opt-message-state")
    expect(state == 2, f"x-opt-message-state is {state!r}")
    expect(-0.1 < late < 15.0, f"it was enqueued {late:.1f} s after it was due")
    return f"{number} became {arrival.number}"
