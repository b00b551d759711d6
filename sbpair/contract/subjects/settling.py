"""Settling: each outcome, its confirmation, and what it does to the message."""

from __future__ import annotations

import asyncio

from sbpair.pair.amqp.message import DataBody
from sbpair.pair.amqp.performatives import Accepted, Modified, Rejected, Released
from sbpair.pair.amqp.types import Symbol
from sbpair.pair.client.request import refusal_of

from ..entry import Price, Queue, Subject, expect
from ..scratch import DEAD, Scratch, answer_text, expect_accepted, expect_granted, expect_within

STATE = Symbol("x-opt-message-state")
entry = Subject("settling", source="message-transfers-locks-settlement")


@entry(
    1,
    "A delivery has its 16-byte lock token as the tag; completing it is *accepted* and removes the message.",
    "C-3 H-13 G-20 P-42",
    Price(1, 1, 1),
)
async def complete(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message())
    expect(len(arrival.event.tag) == 16, f"the tag has {len(arrival.event.tag)} bytes")
    expect_accepted(await inbox.complete(arrival))
    left = await ctx.peek()
    expect(not left, f"{len(left)} messages are left")
    return "accepted; a peek shows nothing"


@entry(
    2,
    "To abandon is confirmed; the message comes again with one more delivery, and with properties that were added.",
    "G-2 R-92 C-4",
    Price(1, 2),
)
async def abandon(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message(properties={"kept": 1}))
    answer = await inbox.settle(arrival, Modified(True, False, {"added": "x"}))
    expect(answer is not None, f"the answer is {answer_text(answer)}")
    again = await inbox.receive()
    expect(again.count == 1, f"the delivery count is {again.count}")
    carried = again.message.application_properties
    expect(carried == {"kept": 1, "added": "x"}, f"the properties are {carried}")
    return f"{answer_text(answer)}; delivered again with delivery count 1 and the added property"


@entry(
    3,
    "Releasing returns the message without counting a delivery, with and without an answer.",
    "G-27 P-44",
    Price(1, 3),
    source="inferred from AMQP",
)
async def release(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message())
    answer = await inbox.settle(arrival, Released())
    expect(isinstance(answer, Released), f"the answer is {answer_text(answer)}")
    number = (await inbox.take()).event.delivery_id
    inbox.receiver.give_back(number, number, Released())
    again = await inbox.receive()
    expect(again.count == 0, f"the delivery count is {again.count}")
    return "it came again with delivery count 0"


async def _deferred(ctx: Scratch, body: bytes = b"deferred") -> int:
    """Send a message and defer it on a connection that ends then; its number."""
    await ctx.send(ctx.message(body))
    connection = await ctx.another_connection()
    inbox = await ctx.inbox(on=connection)
    arrival = await inbox.take()
    answer = await inbox.settle(arrival, Modified(True, True, {"added": "x"}))
    expect(answer is not None, f"the answer is {answer_text(answer)}")
    await inbox.nothing()
    await connection.close()
    return arrival.number


@entry(
    4,
    "A deferred message is not delivered: it is peeked as *deferred* and received by its number under a lock.",
    "C-4 X-1",
    Price(1, 2, 4),
    source="message-deferral",
)
async def defer(ctx: Scratch) -> str:
    number = await _deferred(ctx)
    (shown,) = await ctx.peek()
    state = shown.message_annotations.get(STATE)
    expect(state == 1, f"x-opt-message-state is {state!r}")
    ((got, token),) = await ctx.receive_deferred(number)
    seen = (got.body, got.application_properties.get("added"), got.message_annotations.get(STATE))
    expect(seen == (DataBody((b"deferred",)), "x", 1), f"body, added property and state are {seen}")
    again = refusal_of(await ctx.ask_for_deferred(number))
    expect(again is not None, "under its lock it was handed out again")
    expect_granted(await ctx.settle_by_token(token, "completed"), "completing it")
    return "received by its number only, and once"


@entry(
    5,
    "Deferring counts a delivery, and a deferred message that is abandoned or deferred again stays deferred.",
    "X-1",
    Price(1, 4, 6),
    source="the SDKs' own tests (JavaScript, Go)",
    seconds=3.0,
)
async def defer_counts(ctx: Scratch) -> str:
    number, counts = await _deferred(ctx), []
    for status in ("abandoned", "defered", "completed"):  # as they are spelled on the wire
        ((found, token),) = await ctx.receive_deferred(number)
        counts.append(found.header and found.header.delivery_count)
        expect_granted(await ctx.settle_by_token(token, status), status)
        await ctx.nothing()
    expect(counts == [1, 2, 3], f"the delivery counts are {counts}")
    return "the delivery count is 1, 2 after an abandon, and 3 once deferred again"


@entry(
    6,
    "Dead-lettering moves the message to the dead-letter queue, with reason and description beside its properties.",
    "G-21 P-42 R-124",
    Price(1, 2),
    source="service-bus-dead-letter-queues",
)
async def dead_letter(ctx: Scratch) -> str:
    name = ctx.new_id()
    inbox, arrival = await ctx.take(ctx.message(b"poison", id=name, properties={"x-ms-path": "orders"}))
    answer = await inbox.dead_letter(arrival, "Poison", "it cannot be read", {"added": 7})
    expect(isinstance(answer, Rejected), f"the answer is {answer_text(answer)}")
    arrival = await ctx.receive(f"q{DEAD}")
    carried = arrival.message.application_properties
    seen = (carried.get("DeadLetterReason"), carried.get("DeadLetterErrorDescription"))
    expect(seen == ("Poison", "it cannot be read"), f"reason and description are {seen}")
    properties = arrival.message.properties
    kept = (arrival.body, properties and properties.message_id, arrival.count)
    expect(kept == (b"poison", name, 0), f"body, id and delivery count are {kept}")
    others = (carried.get("added"), carried.get("x-ms-path"))
    expect(others == (7, "orders"), f"the property that was added and the one that was there are {others}")
    return "it is there with reason and description"


@entry(
    7,
    "One disposition settles a range of deliveries, each of which is confirmed, and nothing between two of them.",
    "P-42 H-12",
    Price(4, 4, 1),
    source="the AMQP standard, 2.7.6",
)
async def ranges(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message() for _ in range(4)))
    inbox = await ctx.inbox()
    inbox.receiver.flow(4)
    first, second, _, last = [(await inbox.take()).event.delivery_id for _ in range(4)]
    runs = [inbox.receiver.settled_run(*each, Accepted()) for each in ((first, second), (last, last))]
    pairs = await expect_within(asyncio.gather(*runs), "not all were confirmed")
    answers = [answer_text(each) for answers in pairs for each in answers]
    expect(answers == ["accepted"] * 3, f"answers: {answers}")
    left = await ctx.peek()
    expect(len(left) == 1, f"{len(left)} messages are left")
    return "three settled by two dispositions, and one between them left"


@entry(8, "Without locks a message is deleted as it is sent to the receiver.", "G-3", Price(1, 1, 1))
async def deleting(ctx: Scratch) -> str:
    await ctx.send(ctx.message())
    inbox = await ctx.deleting_inbox()
    arrival = await inbox.take()
    expect(arrival.event.settled, "it came unsettled")
    expect(not await ctx.peek(), "it is still there")
    return "it came settled, and is gone"


@entry(
    9,
    "A message that is not settled when its connection ends is delivered again.",
    "G-2 F-7",
    Price(1, 2),
    entities=(Queue(lock=5.0),),
    seconds=6.0,
)
async def ended_connection(ctx: Scratch) -> str:
    await ctx.send(ctx.message())
    other = await ctx.another_connection()
    first = await ctx.inbox(on=other)
    await first.take()
    await other.close()
    again = await ctx.receive(within=20.0)
    return f"delivered again, with delivery count {again.count}"
