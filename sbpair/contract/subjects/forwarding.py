"""Forwarding by the service."""

from __future__ import annotations

from datetime import timedelta

from azure.core.exceptions import HttpResponseError

from sbpair.client.errors import LinkRefusedError, TokenRefusedError

from ..entry import Price, Queue, Tier, entry, expect
from ..scratch import DEAD, Scratch, symbol_of

ARTICLE = "service-bus-auto-forwarding"
LIMITLESS = timedelta(days=10_000_000)  # the SDK parses the longest span as more than this
CHAIN = (Queue(), Queue(label="source", forward_to="q"))


async def _expect_forwarding(at: Scratch) -> None:
    """Raise DifferenceError unless the queue `source` forwards, which switches its deletion when idle off."""
    path = at.path("source")
    found = await at.admin(lambda client: client.get_queue(path))
    span = found.auto_delete_on_idle
    expect(
        span is None or (isinstance(span, timedelta) and span >= LIMITLESS),
        f"auto_delete_on_idle is {span}: forwarding has not switched it off",
    )


@entry(
    "forwarding-1",
    "A message is forwarded, with its properties.",
    falls=("T-22", "Q-15"),
    source=ARTICLE,
    price=Price(sends=2, receives=1),
    entities=CHAIN,
    tier=Tier.STANDARD,
    manages=True,
)
async def forward(at: Scratch) -> str:
    await _expect_forwarding(at)
    await at.send(at.message(b"x", properties={"n": 1}), to="source")
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.message.application_properties.get("n") == 1, "the property is gone")
    return "it came with its property"


@entry(
    "forwarding-2",
    "A queue that forwards cannot be received from.",
    falls=("P-14", "H-55"),
    source=ARTICLE,
    entities=CHAIN,
    tier=Tier.STANDARD,
    manages=True,
)
async def no_receiver(at: Scratch) -> str:
    await _expect_forwarding(at)
    try:
        await at.inbox("source")
    except (LinkRefusedError, TokenRefusedError) as error:
        return f"refused with {symbol_of(error.condition)}"
    expect(False, "it was attached")
    return ""


@entry(
    "forwarding-3",
    "Dead letters are forwarded where the queue says so.",
    falls=("G-21",),
    source=ARTICLE,
    price=Price(sends=2, receives=2),
    entities=(Queue(label="dead"), Queue(forward_dead_letters_to="dead")),
    tier=Tier.STANDARD,
)
async def dead_letters(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    await inbox.dead_letter(await inbox.take(), "verify")
    dead = await at.inbox("dead")
    arrival = await dead.take()
    await dead.complete(arrival)
    reason = arrival.message.application_properties.get("DeadLetterReason")
    expect(reason == "verify", f"the reason is {reason!r}")
    return "it came with its reason"


@entry(
    "forwarding-4",
    "A target of forwarding must exist.",
    falls=("P-14",),
    source=ARTICLE,
    tier=Tier.STANDARD,
    entities=(),
    manages=True,
)
async def missing(at: Scratch) -> str:
    name = at.new_id()

    def create(client: object) -> str:
        try:
            client.create_queue(name, forward_to=f"{name}-none")  # type: ignore[attr-defined]
        except HttpResponseError as error:
            return f"{error.status_code}"
        client.delete_queue(name)  # type: ignore[attr-defined]
        return "a success"

    seen = await at.admin(create)
    expect(seen in ("400", "404"), f"the creation gave {seen}")
    return seen


@entry(
    "forwarding-5",
    "A forwarded message carries the number that it had first.",
    falls=("G-22",),
    source=ARTICLE,
    price=Price(sends=2, receives=1),
    entities=CHAIN,
    tier=Tier.STANDARD,
    manages=True,
)
async def number(at: Scratch) -> str:
    await _expect_forwarding(at)
    await at.send(at.message(), to="source")
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    found = arrival.annotation("x-opt-enqueue-sequence-number")
    expect(isinstance(found, int), f"x-opt-enqueue-sequence-number is {found!r}")
    return "x-opt-enqueue-sequence-number is set"


@entry(
    "forwarding-6",
    "A message without a session id that is forwarded to a queue with sessions is dead-lettered.",
    falls=("G-21", "O-2"),
    source="service-bus-dead-letter-queues",
    price=Price(sends=1, receives=1),
    entities=(Queue(sessions=True), Queue(label="source", forward_to="q")),
    tier=Tier.STANDARD,
    manages=True,
)
async def no_session(at: Scratch) -> str:
    await _expect_forwarding(at)
    await at.send(at.message(), to="source")
    dead = await at.inbox(f"source{DEAD}")
    arrival = await dead.take()
    await dead.complete(arrival)
    return f"{arrival.message.application_properties.get('DeadLetterReason')}"
