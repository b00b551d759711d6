"""Transactions, and sending via an entity: the syphon lands messages with them."""

from __future__ import annotations

from sbpair.pair.amqp.errors import TRANSACTION_UNKNOWN_ID
from sbpair.pair.amqp.performatives import (
    Accepted,
    Condition,
    Modified,
    Outcome,
    Rejected,
    TransactionalState,
)
from sbpair.pair.client.errors import ClientError, RolledBackError
from sbpair.pair.client.link import DEAD_LETTER
from sbpair.pair.syphon.land.transaction import TransactionController

from ..entry import Price, Queue, Subject, Tier, expect
from ..scratch import DEAD, KEY, Scratch, answer_text, expect_refusal

VIA = {**KEY, "x-opt-via-partition-key": "k"}
PAIR = (Queue(), Queue(label="target"))
entry = Subject("transactions", source="service-bus-transactions", tier=Tier.STANDARD)


@entry(
    1, "What a transaction sends is there after its commit, in order, not before.", "C-2 C-4", Price(2, 2, 1)
)
async def commit(ctx: Scratch) -> str:
    controller, txn = await ctx.transaction()
    for body in (b"1", b"2"):
        answer = await ctx.answer(ctx.message(body, annotations=KEY), state=TransactionalState(txn))
        expect(isinstance(answer, TransactionalState | Accepted), f"the answer is {answer_text(answer)}")
    before = await ctx.peek()
    expect(not before, f"{len(before)} were there before the commit")
    await controller.commit(txn)
    await ctx.expect_only(b"1", b"2")
    return "none before, two after, in order"


@entry(
    2,
    "Nothing is stored of a transaction that is rolled back, or whose connection ends.",
    "C-2 C-4",
    Price(management=1),
)
async def roll_back(ctx: Scratch) -> str:
    other = await ctx.another_connection()
    state = TransactionalState(await TransactionController(other).declare())
    await (await other.open_sender(ctx.path())).send(ctx.message(annotations=KEY).encode(), state=state)
    await other.close()
    controller, txn = await ctx.transaction()
    await ctx.answer(ctx.message(annotations=KEY), state=TransactionalState(txn))
    await controller.roll_back(txn)
    found = await ctx.peek()
    expect(not found, f"{len(found)} are there")
    return "nothing is there"


@entry(
    3,
    "A message is completed and another one sent via its queue in one transaction.",
    "C-2 C-4",
    Price(2, 2, 1),
    entities=PAIR,
)
async def via(ctx: Scratch) -> str:
    await ctx.send(ctx.message(b"parked", annotations=KEY))
    connection = await ctx.connection()
    inbox = await ctx.inbox()
    arrival = await inbox.take()
    sender = await connection.open_sender(ctx.path("target"), via=ctx.path())
    controller, txn = await ctx.transaction()
    state = TransactionalState(txn)
    await sender.send(ctx.message(b"landed", annotations=VIA).encode(), state=state)
    await inbox.settle(arrival, TransactionalState(txn, Accepted()))
    await controller.commit(txn)
    landed = await ctx.inbox("target")
    got = await landed.receive()
    left = await ctx.peek()
    expect(got.body == b"landed" and not left, f"{got.body!r} came, and {len(left)} are left")
    return "one came, and nothing is left behind"


@entry(
    4,
    "Completing in a transaction that is rolled back leaves the message.",
    "C-4",
    Price(1, 2),
    entities=(Queue(lock=5.0),),
    seconds=6.5,
)
async def completion_undone(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message(annotations=KEY))
    controller, txn = await ctx.transaction()
    await inbox.settle(arrival, TransactionalState(txn, Accepted()))
    await controller.roll_back(txn)
    await inbox.receive(15.0)
    return "it was delivered again"


@entry(5, "A transaction on two entities is refused.", "C-2", entities=PAIR)
async def two_entities(ctx: Scratch) -> str:
    return await ctx.expect_no_commit(*((ctx.message(annotations=KEY), label) for label in ("q", "target")))


@entry(
    6,
    "A transaction that was never declared is `amqp:transaction:unknown-id`.",
    "C-2",
    source="the AMQP standard, 4.5",
)
async def unknown(ctx: Scratch) -> str:
    controller, txn = await ctx.transaction()
    await controller.commit(txn)
    try:
        await controller._room.acquire()
        await controller.commit(txn)
    except RolledBackError as error:
        return expect_refusal(error, TRANSACTION_UNKNOWN_ID)
    except ClientError as error:
        return f"the link ended: {error.condition.symbol if error.condition else type(error).__name__}"
    expect(False, "a second commit was accepted")
    return ""


@entry(
    7,
    "A message sent via a queue and refused by its target is in the transfer dead-letter queue.",
    "C-2 R-124",
    Price(receives=1),
    source="service-bus-dead-letter-queues",
    entities=(Queue(), Queue(label="target", sessions=True)),
)
async def transfer_dead_letter(ctx: Scratch) -> str:
    connection = await ctx.connection()
    await ctx.sender()
    sender = await connection.open_sender(ctx.path("target"), via=ctx.path())
    controller, txn = await ctx.transaction()
    await sender.send(ctx.message(annotations=VIA).encode(), state=TransactionalState(txn))
    await controller.commit(txn)
    arrival = await ctx.receive(f"q/$Transfer{DEAD}")
    return f"{arrival.message.application_properties.get('DeadLetterReason')}"


@entry(
    8,
    "Dead-lettering, deferring and abandoning take effect with the commit of their transaction.",
    "C-4 G-21",
    Price(3, 5, 2),
)
async def settlements(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message(body, annotations=KEY) for body in (b"dead", b"deferred", b"again")))
    controller, txn = await ctx.transaction()
    inbox = await ctx.inbox()
    taken = [await inbox.take() for _ in range(3)]
    abandoned = Modified(delivery_failed=True, undeliverable_here=False)
    deferred = Modified(delivery_failed=True, undeliverable_here=True)
    outcomes: tuple[Outcome, ...] = (Rejected(Condition(DEAD_LETTER)), deferred, abandoned)
    for arrival, outcome in zip(taken, outcomes, strict=True):
        await inbox.settle(arrival, TransactionalState(txn, outcome))
    await inbox.nothing()
    await controller.commit(txn)
    again = await inbox.receive()
    dead = await ctx.peek(f"q{DEAD}")
    found = await ctx.receive_deferred(taken[1].number, deletes=True)
    seen = (again.body, again.count, len(dead), len(found))
    expect(seen == (b"again", 1, 1, 1), f"body, count, dead letters and deferred ones are {seen}")
    return "nothing came before the commit, and after it each is where it was sent"
