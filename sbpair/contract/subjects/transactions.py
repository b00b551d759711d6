"""Transactions, and sending via an entity: the syphon lands messages with them."""

from __future__ import annotations

from sbpair.pair.amqp.errors import TRANSACTION_UNKNOWN_ID
from sbpair.pair.amqp.performatives import Accepted, TransactionalState
from sbpair.pair.client.errors import ClientError, RolledBackError
from sbpair.pair.syphon.land.transaction import TransactionController

from ..entry import Price, Queue, Tier, entry, expect
from ..scratch import DEAD, Scratch, answer_text, expect_refusal

ARTICLE = "service-bus-transactions"
PAIR = (Queue(), Queue(label="target"))


@entry(
    "transactions-1",
    "Messages of a transaction are there after its commit, not before.",
    falls=("C-2", "C-4"),
    source=ARTICLE,
    price=Price(sends=2, receives=2, management=2),
    tier=Tier.STANDARD,
)
async def commit(at: Scratch) -> str:
    controller = TransactionController(await at.connection())
    txn = await controller.declare()
    key = {"x-opt-partition-key": "k"}
    for body in (b"1", b"2"):
        answer = await at.answer(at.message(body, annotations=key), state=TransactionalState(txn))
        expect(isinstance(answer, TransactionalState | Accepted), f"the answer is {answer_text(answer)}")
    before = await at.peek()
    await controller.commit(txn)
    after = await at.peek()
    inbox = await at.inbox()
    for _ in after:
        await inbox.complete(await inbox.take())
    expect((len(before), len(after)) == (0, 2), f"{len(before)} before and {len(after)} after the commit")
    return "none before, two after"


@entry(
    "transactions-2",
    "Nothing of a transaction that is rolled back is stored.",
    falls=("C-2", "C-4"),
    source=ARTICLE,
    price=Price(management=1),
    tier=Tier.STANDARD,
)
async def roll_back(at: Scratch) -> str:
    controller = TransactionController(await at.connection())
    txn = await controller.declare()
    key = {"x-opt-partition-key": "k"}
    await at.answer(at.message(annotations=key), state=TransactionalState(txn))
    await controller.roll_back(txn)
    found = await at.peek()
    expect(not found, f"{len(found)} are there")
    return "nothing is there"


@entry(
    "transactions-3",
    "A message is completed and another one sent via its queue in one transaction.",
    falls=("C-2", "C-4"),
    source=ARTICLE,
    price=Price(sends=2, receives=2, management=1),
    entities=PAIR,
    tier=Tier.STANDARD,
)
async def via(at: Scratch) -> str:
    key = {"x-opt-partition-key": "k", "x-opt-via-partition-key": "k"}
    await at.send(at.message(b"parked", annotations={"x-opt-partition-key": "k"}))
    connection = await at.connection()
    inbox = await at.inbox()
    arrival = await inbox.take()
    sender = await connection.open_sender(at.path("target"), via=at.path())
    controller = TransactionController(connection)
    txn = await controller.declare()
    state = TransactionalState(txn)
    await sender.send(at.message(b"landed", annotations=key).encode(), state=state)
    await inbox.settle(arrival, TransactionalState(txn, Accepted()))
    await controller.commit(txn)
    landed = await at.inbox("target")
    got = await landed.take()
    await landed.complete(got)
    left = await at.peek()
    expect(got.body == b"landed" and not left, f"{got.body!r} came, and {len(left)} are left")
    return "one came, and nothing is left behind"


@entry(
    "transactions-4",
    "Completing in a transaction that is rolled back leaves the message.",
    falls=("C-4",),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
    tier=Tier.STANDARD,
    entities=(Queue(lock=5.0),),
    seconds=6.5,
)
async def completion_undone(at: Scratch) -> str:
    await at.send(at.message(annotations={"x-opt-partition-key": "k"}))
    inbox = await at.inbox()
    arrival = await inbox.take()
    controller = TransactionController(await at.connection())
    txn = await controller.declare()
    await inbox.settle(arrival, TransactionalState(txn, Accepted()))
    await controller.roll_back(txn)
    again = await inbox.take(15.0)
    await inbox.complete(again)
    return "it was delivered again"


@entry(
    "transactions-5",
    "A transaction on two entities is refused.",
    falls=("C-2",),
    source=ARTICLE,
    entities=PAIR,
    tier=Tier.STANDARD,
)
async def two_entities(at: Scratch) -> str:
    controller = TransactionController(await at.connection())
    txn = await controller.declare()
    key = {"x-opt-partition-key": "k"}
    first = await at.answer(at.message(annotations=key), state=TransactionalState(txn))
    second = await at.answer(at.message(annotations=key), to="target", state=TransactionalState(txn))
    try:
        await controller.commit(txn)
    except RolledBackError as error:
        return (
            f"{answer_text(second)}; the commit: {error.condition.symbol if error.condition else 'refused'}"
        )
    except ClientError as error:
        return f"{answer_text(second)}; the commit: {type(error).__name__}"
    expect(False, f"it was committed after {answer_text(first)} and {answer_text(second)}")
    return ""


@entry(
    "transactions-6",
    "A transaction that was never declared is `amqp:transaction:unknown-id`.",
    falls=("C-2",),
    source="the AMQP standard, 4.5",
    tier=Tier.STANDARD,
)
async def unknown(at: Scratch) -> str:
    controller = TransactionController(await at.connection())
    txn = await controller.declare()
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
    "transactions-7",
    "A message sent via a queue that its target does not take is in the transfer dead-letter queue.",
    falls=("C-2", "R-124"),
    source="service-bus-dead-letter-queues",
    price=Price(receives=1),
    entities=(Queue(), Queue(label="target", sessions=True)),
    tier=Tier.STANDARD,
)
async def transfer_dead_letter(at: Scratch) -> str:
    connection = await at.connection()
    await at.sender()
    sender = await connection.open_sender(at.path("target"), via=at.path())
    controller = TransactionController(connection)
    txn = await controller.declare()
    key = {"x-opt-via-partition-key": "k", "x-opt-partition-key": "k"}
    await sender.send(at.message(annotations=key).encode(), state=TransactionalState(txn))
    await controller.commit(txn)
    dead = await at.inbox(f"q/$Transfer{DEAD}")
    arrival = await dead.take()
    await dead.complete(arrival)
    return f"{arrival.message.application_properties.get('DeadLetterReason')}"
