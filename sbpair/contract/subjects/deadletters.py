"""Dead-letter queues."""

from __future__ import annotations

import time

from ..entry import Price, Queue, Subject, Tier, expect
from ..inbox import PATIENCE
from ..scratch import DEAD, Scratch
from .locks import LOCK

entry = Subject("deadletters", source="service-bus-dead-letter-queues")


@entry(1, "A dead-letter queue takes no sends.", "G-21")
async def no_sends(ctx: Scratch) -> str:
    return await ctx.expect_no_sends(f"q{DEAD}")


@entry(
    2,
    "A dead-letter queue counts no delivery: an abandoned message stays in it.",
    "X-2",
    Price(1, 4),
    source="the SDKs' own tests (JavaScript, Go)",
    entities=(Queue(max_deliveries=1),),
)
async def no_count(ctx: Scratch) -> str:
    await ctx.dead_letter(ctx.message())
    dead = await ctx.inbox(f"q{DEAD}")
    counts = []
    for _ in range(2):
        arrival = await dead.take()
        counts.append(arrival.count)
        left = arrival.time("x-opt-locked-until") - time.time()
        expect(abs(left - LOCK) < 2 * PATIENCE, f"its lock has {left:.0f} s left")
        await dead.abandon(arrival)
    last = await dead.receive()
    expect({last.count} == set(counts), f"the delivery counts are {[*counts, last.count]}")
    return f"after two abandons it is there, with delivery count {last.count}"


@entry(3, "A reason of 4 096 characters is kept.", "G-21 R-84", Price(1, 2))
async def long_reason(ctx: Scratch) -> str:
    await ctx.dead_letter(ctx.message(), reason="r" * 4096, text="why")
    arrival = await ctx.receive(f"q{DEAD}")
    found = str(arrival.message.application_properties.get("DeadLetterReason"))
    expect(found == "r" * 4096, f"it has {len(found)} characters")
    return "4 096 characters"


@entry(4, "The path of a dead-letter queue is compared without regard to case.", "R-119", Price(1, 2))
async def any_case(ctx: Scratch) -> str:
    await ctx.dead_letter(ctx.message())
    connection = await ctx.connection()
    receiver = await connection.open_receiver(ctx.path("q/$deadletterqueue"), lambda event: None)
    await receiver.close()
    await ctx.receive(f"q{DEAD}")
    return "attached in lower case"


@entry(
    6,
    "The dead-letter queue of a session queue requires no sessions.",
    "O-6 G-21",
    Price(1, 2),
    entities=(Queue(sessions=True),),
    tier=Tier.STANDARD,
)
async def no_session(ctx: Scratch) -> str:
    await ctx.send(ctx.message(session="a"))
    inbox, _ = await ctx.session_inbox("a")
    await inbox.dead_letter(await inbox.take(), "verify")
    await ctx.receive(f"q{DEAD}")
    return "received without a session"


@entry(
    5,
    "The transfer dead-letter queue of a queue can be peeked.",
    "C-2",
    Price(management=1),
    source="service-bus-dead-letter-queues",
)
async def transfer(ctx: Scratch) -> str:
    found = await ctx.peek("q/$Transfer/$DeadLetterQueue")
    expect(not found, f"it shows {len(found)}")
    return "it is empty"
