"""Sending: outcomes, batches, order."""

from __future__ import annotations

import asyncio

from sbpair.pair.amqp.message import DataBody
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.amqp.types import Int, Symbol, Timestamp
from sbpair.pair.client.request import value_of
from sbpair.pair.ground.side import Side

from ..entry import Price, Queue, Subject, expect
from ..inbox import PATIENCE, whole
from ..scratch import (
    KEY,
    Scratch,
    answer_text,
    expect_accepted,
    expect_refused,
    expect_rejected,
    expect_same,
    expect_within,
    number_of,
)

MANY, SINGLY, DELETED = 202, 100, 198  # messages: enough to see an error that occurs once in two hundred
entry = Subject("sending", source="service-bus-amqp-protocol-guide")


@entry(1, "A message that is stored is answered with *accepted*.", "G-1 P-2", Price(1))
async def accepted_message(ctx: Scratch) -> str:
    expect_accepted(await ctx.answer(ctx.message()))
    return "accepted"


@entry(
    2,
    "A batch is one transfer, and its messages arrive one by one, in order.",
    "P-2 C-1",
    Price(3, 3),
    source="the SDK's batches",
)
async def batch(ctx: Scratch) -> str:
    expect_accepted(await ctx.answer_to_batch([ctx.message(bytes([n])) for n in range(3)]))
    await ctx.expect(*(bytes([n]) for n in range(3)))
    return "three messages of one transfer arrived"


@entry(
    4,
    "Sequence numbers rise by one from message to message with one key.",
    "Q-10 O-4",
    Price(3, 3),
    source="message-sequencing",
)
async def numbers(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message(annotations=KEY) for _ in range(3)))
    found = [each.number for each in await ctx.receive_all(3)]
    expect([found[0] + n for n in range(3)] == found, f"the numbers are {found}")
    return f"{found}"


@entry(
    5,
    "A link to a queue that does not exist is refused as missing, when it is authorised or attached.",
    "F-42 F-46",
    source="service-bus-messaging-exceptions",
    entities=(),
)
async def nowhere(ctx: Scratch) -> str:
    connection = await ctx.connection()
    return await expect_refused(connection.open_sender(ctx.new_id()), "amqp:not-found")


@entry(
    6,
    "Of many messages in flight on a link each is answered and stored once, in the order in which they were sent.",
    "H-12 P-42 G-8 O-1",
    Price(MANY, MANY - DELETED, 4),
    seconds=2.0,
)
async def many(ctx: Scratch) -> str:
    sender = await ctx.sender()
    wanted = [n.to_bytes(2, "big") for n in range(MANY)]
    singly = ctx.send(*(ctx.message(body, annotations=KEY) for body in wanted[:SINGLY]))
    await expect_within(singly, "not all were answered", 3 * PATIENCE)
    rest = wanted[SINGLY:]
    lasting = [ctx.message(body, annotations=KEY, ttl=600_000).encode() for body in rest]
    sends = asyncio.gather(*map(sender.send, lasting))
    answers = await expect_within(sends, "not all were answered", 3 * PATIENCE)
    expect(all(isinstance(each, Accepted) for each in answers), f"answers: {set(map(answer_text, answers))}")
    shown = await ctx.peek(most=MANY // 2)
    shown += await ctx.peek(most=MANY, start=(number_of(shown[-1]) if shown else 0) + 1)
    stored = [each.body.data for each in shown if isinstance(each.body, DataBody)]
    expect_same(stored, wanted, "stored")
    stamp = shown[0].message_annotations.get(Symbol("x-opt-enqueued-time"))
    early = Timestamp(whole("x-opt-enqueued-time", stamp) - 1000)
    none = await ctx.ask("batch-delete-messages", {"message-count": Int(1), "enqueued-time-utc": early})
    expect(
        not value_of(none).get("message-count"), "a message was deleted that was enqueued later than asked"
    )
    gone = 0 if number_of(shown[0]) >> 48 else DELETED  # a partitioned entity has no such request
    deleted = await ctx.ask("batch-delete-messages", {"message-count": Int(DELETED)})
    count = value_of(deleted).get("message-count", 0)
    expect(count == gone, f"of {gone} it deleted {count}")
    inbox = await ctx.deleting_inbox()
    inbox.receiver.flow(MANY - DELETED)
    left = [(await inbox.take()).body for _ in wanted[DELETED:]]
    expect_same(left, wanted[gone : gone + len(left)], "delivered")
    if gone:
        await inbox.nothing()
    return f"{SINGLY} sent singly and {MANY - SINGLY} in flight were accepted and stored, in order"


@entry(
    7, "A session id other than the partition key is refused.", "Q-7 F-53", source="service-bus-partitioning"
)
async def two_keys(ctx: Scratch) -> str:
    return expect_rejected(
        await ctx.answer(ctx.message(session="a", annotations={"x-opt-partition-key": "b"}))
    )


@entry(
    3,
    "A message sent without an id is delivered, with or without a generated id.",
    "G-5",
    Price(1, 1),
    source="the SDK",
    entities=(Queue(side=Side.SECONDARY),),
)
async def no_id(ctx: Scratch) -> str:
    from sbpair.pair.amqp.message import DataBody, Message

    await ctx.send(Message(body=DataBody((b"anonymous",))))
    arrival = await ctx.receive()
    properties = arrival.message.properties
    return "it has an id" if properties is not None and properties.message_id else "it has no id"
