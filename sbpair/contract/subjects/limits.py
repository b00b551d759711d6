"""Sizes and limits."""

from __future__ import annotations

from sbpair.pair.amqp.errors import MESSAGE_SIZE_EXCEEDED
from sbpair.pair.amqp.performatives import Accepted

from ..entry import Price, UndecidedError, entry, expect
from ..scratch import Scratch, answer_text, rejection_symbol

ARTICLE = "service-bus-quotas"
TRIED = 1024 * 1024 + 1024  # bytes; a larger limit would cost more operations than it is worth
OVERHEAD = 1024  # bytes of the sections beside the body


async def _largest(at: Scratch) -> int:
    attach = (await at.sender()).link.remote_attach
    return int(attach.max_message_size or 0) if attach is not None else 0


@entry(
    "limits-1",
    "The attach of a sender says the size of the largest message.",
    falls=("P-22", "R-84"),
    source=ARTICLE,
)
async def size_in_the_attach(at: Scratch) -> str:
    size = await _largest(at)
    expect(size >= 256 * 1024, f"it says {size}")
    return f"{size} bytes"


@entry(
    "limits-2",
    "A message of nearly that size is accepted, and comes back whole.",
    falls=("P-22",),
    source=ARTICLE,
    price=Price(sends=1, receives=1, blocks=6),  # 256 KB each way
)
async def large(at: Scratch) -> str:
    size = min(await _largest(at), 256 * 1024) - OVERHEAD
    await at.send(at.message(b"x" * size))
    inbox = await at.inbox()
    arrival = await inbox.take(30.0)
    await inbox.complete(arrival)
    expect(arrival.body == b"x" * size, "it came back otherwise")
    return f"{size} bytes"


@entry(
    "limits-3",
    "A larger message is refused with `message-size-exceeded`, or its link is detached with that.",
    falls=("P-22", "F-53"),
    source=ARTICLE,
)
async def too_large(at: Scratch) -> str:
    size = await _largest(at)
    if size > TRIED:
        raise UndecidedError(f"the limit of {size} bytes is too large to try")
    sender = await at.sender()
    answer = await sender.send(at.message(b"x" * (size + 1)).encode())
    condition = sender.detached.result() if sender.detached.done() else None
    found = rejection_symbol(answer) or (condition.symbol if condition else "")
    expect(
        found == MESSAGE_SIZE_EXCEEDED, f"the answer is {answer_text(answer)}, the link ended with {found!r}"
    )
    return found


@entry(
    "limits-4",
    "The attach of a sender says the size of the largest batch.",
    falls=("P-22",),
    source="the SDK",
)
async def batch(at: Scratch) -> str:
    attach = (await at.sender()).link.remote_attach
    found = (attach.properties or {}).get("com.microsoft:max-message-batch-size") if attach else None
    expect(isinstance(found, int), f"it says {found!r}")
    return f"{int(str(found)) if found.__class__ is int else found!r}"


@entry(
    "limits-5",
    "A property of 32 KB is kept.",
    falls=("R-84", "P-22"),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
)
async def long_property(at: Scratch) -> str:
    await at.send(at.message(properties={"p": "x" * 32_000}))
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.message.application_properties.get("p") == "x" * 32_000, "it came otherwise")
    return "32 000 characters"


@entry(
    "limits-6",
    "Properties of more than 64 KB in all are refused.",
    falls=("R-84", "P-22"),
    source=ARTICLE,
)
async def long_header(at: Scratch) -> str:
    sender = await at.sender()
    message = at.message(properties={str(n): "x" * 20_000 for n in range(4)})
    answer = await sender.send(message.encode())
    expect(not isinstance(answer, Accepted), "it was accepted")
    return answer_text(answer)


@entry(
    "limits-7",
    "A message id of 128 characters is kept.",
    falls=("G-5",),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
)
async def long_id(at: Scratch) -> str:
    name = (at.new_id() + "-" + "x" * 128)[:128]
    await at.send(at.message(id=name))
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    got = arrival.message.properties.message_id if arrival.message.properties else None
    expect(got == name, f"it came as {got!r}")
    return "128 characters"


@entry(
    "limits-8",
    "A longer message id is refused.",
    falls=("G-5", "F-53"),
    source=ARTICLE,
)
async def longer_id(at: Scratch) -> str:
    answer = await at.answer(at.message(id="x" * 129))
    expect(not isinstance(answer, Accepted), "129 characters were accepted")
    return answer_text(answer)


@entry(
    "limits-9",
    "A session id and a partition key of 128 characters are kept.",
    falls=("P-20", "O-2"),
    source=ARTICLE,
    price=Price(sends=1, receives=1),
)
async def long_session(at: Scratch) -> str:
    name = "s" * 128
    await at.send(at.message(session=name, annotations={"x-opt-partition-key": name}))
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    got = arrival.message.properties.group_id if arrival.message.properties else None
    expect(got == name, f"it came as {got!r}")
    return "128 characters"
