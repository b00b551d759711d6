"""Sizes and limits."""

from __future__ import annotations

from sbpair.pair.amqp.errors import MESSAGE_SIZE_EXCEEDED
from sbpair.pair.amqp.performatives import Accepted

from ..entry import Price, Subject, UndecidedError, expect
from ..scratch import NO_FIELDS, Scratch, answer_text, rejection_symbol

TRIED = 1024 * 1024 + 1024  # bytes; a larger limit would cost more operations than it is worth
OVERHEAD = 1024  # bytes of the sections beside the body
entry = Subject("limits", source="service-bus-quotas")


async def _largest(ctx: Scratch) -> int:
    attach = (await ctx.sender()).link.remote_attach
    return int(attach.max_message_size or 0) if attach is not None else 0


@entry(
    1, "The attach of a sender says the size of the largest message and of the largest batch.", "P-22 R-84"
)
async def size_in_the_attach(ctx: Scratch) -> str:
    size, attach = await _largest(ctx), (await ctx.sender()).link.remote_attach
    expect(size >= 256 * 1024, f"it says {size}")
    batch = (attach.properties or {}).get("com.microsoft:max-message-batch-size") if attach else None
    expect(isinstance(batch, int), f"of a batch it says {batch!r}")
    return f"{size} bytes"


@entry(2, "A message of nearly that size comes back whole.", "P-22", Price(sends=1, receives=1, blocks=6))
async def large(ctx: Scratch) -> str:
    size = min(await _largest(ctx), 256 * 1024) - OVERHEAD
    await ctx.send(ctx.message(b"x" * size))
    arrival = await ctx.receive(within=30.0)
    expect(arrival.body == b"x" * size, "it came back otherwise")
    return f"{size} bytes"


@entry(
    3, "A larger message is refused with `message-size-exceeded`, or its link detached with it.", "P-22 F-53"
)
async def too_large(ctx: Scratch) -> str:
    size = await _largest(ctx)
    if size > TRIED:
        raise UndecidedError(f"the limit of {size} bytes is too large to try")
    sender = await ctx.sender()
    answer = await sender.send(ctx.message(b"x" * (size + 1)).encode())
    condition = sender.detached.result() if sender.detached.done() else None
    found = rejection_symbol(answer) or (condition.symbol if condition else "")
    expect(
        found == MESSAGE_SIZE_EXCEEDED, f"the answer is {answer_text(answer)}, the link ended with {found!r}"
    )
    return found


@entry(5, "A property of 32 KB is kept.", "R-84 P-22", Price(1, 1))
async def long_property(ctx: Scratch) -> str:
    arrival = await ctx.through(ctx.message(properties={"p": "x" * 32_000}))
    expect(arrival.message.application_properties.get("p") == "x" * 32_000, "it came otherwise")
    return "32 000 characters"


@entry(6, "Properties of more than 64 KB in all are refused.", "R-84 P-22")
async def long_header(ctx: Scratch) -> str:
    answer = await ctx.answer(ctx.message(properties={str(n): "x" * 20_000 for n in range(4)}))
    expect(not isinstance(answer, Accepted), "it was accepted")
    return answer_text(answer)


@entry(
    4,
    "The size of the largest message in the attach is that of the administration API.",
    "P-22 R-84",
    source="the SDK",
    manages=True,
)
async def size_in_both(ctx: Scratch) -> str:
    size, told = await _largest(ctx), (await ctx.description()).max_message_size_in_kilobytes
    if told is None:
        raise UndecidedError("the administration API does not say it")
    expect(size == told * 1024, f"the attach says {size} bytes, the administration API {told} KB")
    return f"{size} bytes"


@entry(8, "A longer message id, session id or partition key is refused.", "G-5 F-53")
async def longer_id(ctx: Scratch) -> str:
    long = "x" * 129
    key = ctx.message(annotations={"x-opt-partition-key": long})
    for each in (key, ctx.message(session=long), ctx.message(id=long)):
        answer = await ctx.answer(each)
        expect(not isinstance(answer, Accepted), "129 characters were accepted")
    return answer_text(answer)


@entry(
    7,
    "A message id, a session id and a partition key of 128 characters are kept.",
    "G-5 P-20 O-2",
    Price(1, 1),
)
async def long_ids(ctx: Scratch) -> str:
    name = (ctx.new_id() + "-" + "x" * 128)[:128]
    arrival = await ctx.through(ctx.message(id=name, session=name, annotations={"x-opt-partition-key": name}))
    got, key = arrival.message.properties or NO_FIELDS, arrival.annotation("x-opt-partition-key")
    expect((got.message_id, got.group_id, key) == (name,) * 3, f"they came as {got}, {key!r}")
    return "128 characters"
