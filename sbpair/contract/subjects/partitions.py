"""Partitioned entities of a Standard namespace."""

from __future__ import annotations

from sbpair.pair.amqp.message import Message, SequenceBody
from sbpair.pair.amqp.performatives import TransactionalState
from sbpair.pair.client.request import refusal_of
from sbpair.pair.syphon.watch.peeking import peek_all

from ..entry import Price, Queue, Subject, Tier, expect
from ..scratch import KEY, Scratch, expect_rejected, number_of

PARTITIONED = (Queue(partitioned=True),)
entry = Subject("partitions", source="service-bus-partitioning", entities=PARTITIONED)


@entry(
    1,
    "Messages with one key go to one partition: the high 16 bits of their numbers are equal.",
    "Q-6 Q-10",
    Price(2, 2),
)
async def one_key(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message(annotations=KEY) for _ in range(2)))
    highs = {each.number >> 48 for each in await ctx.receive_all(2)}
    expect(len(highs) == 1, f"the partitions are {highs}")
    return "one partition"


@entry(2, "Messages without a key are spread over partitions.", "Q-5 F-50", Price(3, 3))
async def spread(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message() for _ in range(3)))
    highs = {each.number >> 48 for each in await ctx.receive_all(3)}
    expect(len(highs) > 1, f"the partitions are {highs}")
    return f"{len(highs)} partitions for 3 messages"


@entry(3, "A batch of messages with several keys is refused.", "Q-7 Q-8", source="issues of the SDKs")
async def several_keys(ctx: Scratch) -> str:
    messages = [ctx.message(annotations={"x-opt-partition-key": key}) for key in ("a", "b")]
    return expect_rejected(await ctx.answer_to_batch(messages))


@entry(4, "Peeking to the end shows the messages of all partitions.", "Q-9 O-4", Price(sends=3, management=4))
async def all_partitions(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message() for _ in range(3)))
    pages = peek_all(await ctx.connection(), ctx.path(), Message.decode, number_of, most=40)
    seen = {number_of(each) async for each in pages}
    expect(len(seen) == 3, f"{len(seen)} of 3 were shown")
    return "all three were shown"


@entry(
    5,
    "Duplicates are detected only if their partition keys are equal.",
    "Q-11 G-6",
    Price(2, 1),
    entities=(Queue(partitioned=True, duplicates_within=600.0),),
    tier=Tier.STANDARD,
)
async def duplicates(ctx: Scratch) -> str:
    name = ctx.new_id()
    await ctx.send(ctx.message(b"1", id=name), ctx.message(b"2", id=name))
    inbox = await ctx.inbox()
    await inbox.receive()
    await inbox.nothing()
    return "one came"


@entry(
    6,
    "In a transaction a message without a key, or with another one, is refused, and one with a key is sent via its "
    "entity.",
    "Q-13 C-2",
    Price(1, 1),
    tier=Tier.STANDARD,
    entities=(*PARTITIONED, Queue(label="target")),
)
async def no_key(ctx: Scratch) -> str:
    first, second = (ctx.message(annotations={"x-opt-partition-key": key}) for key in ("a", "b"))
    await ctx.expect_no_commit((first, "q"), (second, "q"))
    refused = await ctx.expect_no_commit((ctx.message(), "q"))
    sender = await (await ctx.connection()).open_sender(ctx.path("target"), via=ctx.path())
    controller, txn = await ctx.transaction()
    via = ctx.message(SequenceBody(([1],)), annotations={"x-opt-via-partition-key": "k"})
    await sender.send(via.encode(), state=TransactionalState(txn))
    await controller.commit(txn)
    await ctx.receive("target")
    return f"{refused}; with a key it came"


@entry(
    7,
    "A session lives in one partition, and keeps its order.",
    "Q-12 O-1",
    Price(3, 3),
    entities=(Queue(partitioned=True, sessions=True),),
    tier=Tier.STANDARD,
)
async def session(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message(bytes([n]), session="a") for n in range(3)))
    inbox, _ = await ctx.session_inbox("a")
    await inbox.expect(*(bytes([n]) for n in range(3)))
    return "three in order"


@entry(
    8,
    "The size of a partitioned queue is sixteen times the requested one.",
    "P-14 H-52",
    entities=(Queue(partitioned=True, max_megabytes=1024),),
    manages=True,
    about_creation=True,
)
async def size(ctx: Scratch) -> str:
    found = (await ctx.description()).max_size_in_megabytes
    expect(found == 16 * 1024, f"it is {found} MB")
    return f"{found} MB"


@entry(
    9,
    "A batch of messages of several sessions is refused.",
    "Q-7 O-1",
    source="issues of the SDKs",
    entities=(Queue(partitioned=True, sessions=True),),
    tier=Tier.STANDARD,
)
async def several_sessions(ctx: Scratch) -> str:
    return expect_rejected(await ctx.answer_to_batch([ctx.message(session=name) for name in ("a", "b")]))


@entry(
    10,
    "Deferred messages of several partitions are received by one request, and one that is missing refuses all.",
    "Q-9 X-1",
    Price(2, 4, 2),
    source="message-deferral",
)
async def deferred_messages(ctx: Scratch) -> str:
    await ctx.send(ctx.message(), ctx.message())
    inbox = await ctx.inbox()
    taken = [await inbox.take(), await inbox.take()]
    for arrival in taken:
        await inbox.defer(arrival)
    numbers = [each.number for each in taken]
    refusal = refusal_of(await ctx.ask_for_deferred(*numbers, max(numbers) + 1))
    expect(refusal is not None, "with one that is missing they were received")
    found = await ctx.receive_deferred(*numbers, deletes=True)
    expect(len(found) == 2, f"{len(found)} of 2 were received")
    return "both were received by their numbers, and none beside one that is missing"
