"""Forwarding by the service."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from azure.core.exceptions import HttpResponseError

from sbpair.pair.amqp.message import Properties

from ..entry import Price, Queue, Subject, Subscription, Tier, Topic, expect
from ..scratch import DEAD, Scratch, expect_refused
from .names import LIMITLESS

CHAIN = (Queue(), Queue(label="source", forward_to="q"))
entry = Subject("forwarding", source="service-bus-auto-forwarding", tier=Tier.STANDARD, manages=True)


async def _expect_forwarding(ctx: Scratch) -> None:
    """Raise DifferenceError unless the queue `source` forwards, which switches its deletion when idle off."""
    span = (await ctx.description("source")).auto_delete_on_idle
    expect(
        span is None or (isinstance(span, timedelta) and span >= LIMITLESS),
        f"auto_delete_on_idle is {span}: forwarding has not switched it off",
    )


@entry(
    1,
    "A message is forwarded with its properties, session and annotations.",
    "T-22 Q-15",
    Price(2, 1),
    entities=(Queue(sessions=True), Queue(label="source", forward_to="q")),
)
async def forward(ctx: Scratch) -> str:
    await _expect_forwarding(ctx)
    wanted, annotations = (
        Properties(message_id=ctx.new_id(), subject="label", group_id="s"),
        {"x-opt-own": "y"},
    )
    message = ctx.message(b"x", properties={"n": 1}, fields=wanted, ttl=60_000, annotations=annotations)
    await ctx.send(message, to="source")
    inbox, _ = await ctx.session_inbox("s")
    arrival = await inbox.receive()
    expect(arrival.annotation("x-opt-own") == "y", "the annotation is gone")
    expect(arrival.message.application_properties.get("n") == 1, "the property is gone")
    header = arrival.message.header
    kept = (arrival.message.properties, arrival.body, header and header.ttl)
    expect(kept == (wanted, b"x", 60_000), f"properties, body and time to live are {kept}")
    return "it came with its properties, body and time to live"


@entry(2, "A queue that forwards cannot be received from.", "P-14 H-55", entities=CHAIN)
async def no_receiver(ctx: Scratch) -> str:
    await _expect_forwarding(ctx)
    return await expect_refused(ctx.inbox("source"))


@entry(
    3,
    "Dead letters are forwarded where the queue is configured so.",
    "G-21",
    Price(2, 2),
    entities=(Queue(label="dead"), Queue(forward_dead_letters_to="dead")),
    manages=False,
)
async def dead_letters(ctx: Scratch) -> str:
    await ctx.dead_letter(ctx.message())
    dead = await ctx.inbox("dead")
    arrival = await dead.receive()
    reason = arrival.message.application_properties.get("DeadLetterReason")
    source = str(arrival.annotation("x-opt-deadletter-source"))
    expect(reason == "verify", f"the reason is {reason!r}")
    expect(source.casefold() == ctx.path().casefold(), f"x-opt-deadletter-source is {source!r}")
    return "it came with its reason"


@entry(4, "A target of forwarding must exist.", "P-14", entities=())
async def missing(ctx: Scratch) -> str:
    name = ctx.new_id()

    def create(client: object) -> str:
        try:
            client.create_queue(name, forward_to=f"{name}-none")  # type: ignore[attr-defined]
        except HttpResponseError as error:
            return f"{error.status_code}"
        client.delete_queue(name)  # type: ignore[attr-defined]
        return "a success"

    seen = await ctx.admin(create)
    expect(seen in ("400", "404"), f"the creation gave {seen}")
    return seen


@entry(
    5,
    "A message is forwarded when it is due and its queue is not disabled, and carries the number that it had first.",
    "G-22 G-17",
    Price(2, 1),
    entities=(Queue(label="target"), Queue(forward_to="target")),
    seconds=7.0,
)
async def number(ctx: Scratch) -> str:
    due = time.time() + 4.0
    await ctx.send(ctx.scheduled_message(due))
    await ctx.change("status", "Disabled")
    inbox = await ctx.inbox("target")
    await inbox.nothing(due - time.time() + 1.0)
    await ctx.change("status", "Active")
    arrival = await inbox.receive(20.0)
    found = arrival.annotation("x-opt-enqueue-sequence-number")
    expect(isinstance(found, int), f"x-opt-enqueue-sequence-number is {found!r}")
    return "x-opt-enqueue-sequence-number is set"


@entry(
    6,
    "A message without a session id that is forwarded to a queue with sessions is dead-lettered.",
    "G-21 O-2",
    Price(1, 1),
    source="service-bus-dead-letter-queues",
    entities=(Queue(sessions=True), Queue(label="source", forward_to="q")),
)
async def no_session(ctx: Scratch) -> str:
    await _expect_forwarding(ctx)
    await ctx.send(ctx.message(), to="source")
    arrival = await ctx.receive(f"source{DEAD}")
    return f"{arrival.message.application_properties.get('DeadLetterReason')}"


@entry(
    7,
    "The time to live of a message continues at its forwarding target.",
    "T-22 T-2",
    Price(sends=2, management=1),
    entities=(Queue(dead_letters_expired=True), Queue(label="source", forward_to="q")),
    seconds=3.5,
)
async def expires_there(ctx: Scratch) -> str:
    await _expect_forwarding(ctx)
    await ctx.send(ctx.message(ttl=1500), to="source")
    await asyncio.sleep(2.0)
    await ctx.nothing()
    dead = await ctx.peek(f"q{DEAD}")
    expect(len(dead) == 1, f"{len(dead)} in the dead-letter queue of the target")
    return "it was dead-lettered there after its time to live"


@entry(
    8,
    "A message is forwarded from a queue to a topic and from its subscription to a queue, in order, each once.",
    "T-22 G-8",
    Price(6, 2),
    entities=(Queue(), Topic(), Subscription(forward_to="q"), Queue(label="source", forward_to="t")),
)
async def chain(ctx: Scratch) -> str:
    await _expect_forwarding(ctx)
    await ctx.send(*(ctx.message(bytes([n])) for n in range(2)), to="source")
    await ctx.expect_only(b"\0", b"\1")
    return "two came by a topic, in order"
