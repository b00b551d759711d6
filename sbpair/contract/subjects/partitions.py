"""Partitioned entities of a Standard namespace."""

from __future__ import annotations

from sbpair.pair.amqp.performatives import Accepted, TransactionalState
from sbpair.pair.syphon.land.transaction import TransactionController

from ..entry import Price, Queue, Tier, entry, expect
from ..scratch import Scratch, answer_text, rejection_symbol

ARTICLE = "service-bus-partitioning"
PARTITIONED = (Queue(partitioned=True),)


async def _numbers(at: Scratch, count: int) -> list[int]:
    inbox = await at.inbox()
    found = []
    for _ in range(count):
        arrival = await inbox.take()
        number = arrival.annotation("x-opt-sequence-number")
        found.append(number if isinstance(number, int) else -1)
        await inbox.complete(arrival)
    return found


@entry(
    "partitions-1",
    "Messages with one key go to one partition: the high 16 bits of their numbers are equal.",
    falls=("Q-6", "Q-10"),
    source=ARTICLE,
    price=Price(sends=3, receives=3),
    entities=PARTITIONED,
)
async def one_key(at: Scratch) -> str:
    await at.send(*(at.message(annotations={"x-opt-partition-key": "k"}) for _ in range(3)))
    highs = {number >> 48 for number in await _numbers(at, 3)}
    expect(len(highs) == 1, f"the partitions are {highs}")
    return "one partition"


@entry(
    "partitions-2",
    "Messages without a key are spread over partitions.",
    falls=("Q-5", "F-50"),
    source=ARTICLE,
    price=Price(sends=6, receives=6),
    entities=PARTITIONED,
)
async def spread(at: Scratch) -> str:
    await at.send(*(at.message() for _ in range(6)))
    highs = {number >> 48 for number in await _numbers(at, 6)}
    expect(len(highs) > 1, f"the partitions are {highs}")
    return f"{len(highs)} partitions for 6 messages"


@entry(
    "partitions-3",
    "A batch of messages with several keys is refused.",
    falls=("Q-7", "Q-8"),
    source="issues of the SDKs",
    entities=PARTITIONED,
)
async def several_keys(at: Scratch) -> str:
    messages = [at.message(annotations={"x-opt-partition-key": key}) for key in ("a", "b")]
    answer = await at.answer_to_batch(messages)
    expect(bool(rejection_symbol(answer)), f"the answer is {answer_text(answer)}")
    return answer_text(answer)


@entry(
    "partitions-4",
    "Peeking until nothing comes shows the messages of all partitions.",
    falls=("Q-9", "O-4"),
    source=ARTICLE,
    price=Price(sends=4, receives=4, management=5),
    entities=PARTITIONED,
)
async def all_partitions(at: Scratch) -> str:
    from sbpair.pair.amqp.types import Symbol

    await at.send(*(at.message() for _ in range(4)))
    seen: set[object] = set()
    start = 0
    for _ in range(40):
        found = await at.peek(start=start)
        if not found:
            break
        numbers = [each.message_annotations[Symbol("x-opt-sequence-number")] for each in found]
        seen.update(numbers)
        start = max(number for number in numbers if isinstance(number, int)) + 1
    await _numbers(at, 4)
    expect(len(seen) == 4, f"{len(seen)} of 4 were shown")
    return "all four were shown"


@entry(
    "partitions-5",
    "Duplicates are detected where their key is the same.",
    falls=("Q-11", "G-6"),
    source=ARTICLE,
    price=Price(sends=2, receives=1),
    entities=(Queue(partitioned=True, duplicates_within=600.0),),
    tier=Tier.STANDARD,
)
async def duplicates(at: Scratch) -> str:
    name = at.new_id()
    await at.send(at.message(b"1", id=name), at.message(b"2", id=name))
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    await inbox.nothing()
    return "one came"


@entry(
    "partitions-6",
    "A message without a key is refused in a transaction.",
    falls=("Q-13",),
    source=ARTICLE,
    entities=PARTITIONED,
    tier=Tier.STANDARD,
)
async def no_key(at: Scratch) -> str:
    from sbpair.pair.client.errors import ClientError

    controller = TransactionController(await at.connection())
    txn = await controller.declare()
    answer = await at.answer(at.message(), state=TransactionalState(txn))
    if rejection_symbol(answer):
        await controller.roll_back(txn)
        return answer_text(answer)
    try:
        await controller.commit(txn)
    except ClientError as error:
        return f"the commit: {type(error).__name__}"
    expect(False, f"it was committed after {answer_text(answer)}")
    return ""


@entry(
    "partitions-7",
    "A session lives in one partition, and keeps its order.",
    falls=("Q-12", "O-1"),
    source=ARTICLE,
    price=Price(sends=4, receives=4),
    entities=(Queue(partitioned=True, sessions=True),),
    tier=Tier.STANDARD,
)
async def session(at: Scratch) -> str:
    await at.send(*(at.message(bytes([n]), session="a") for n in range(4)))
    inbox, _ = await at.session_inbox("a")
    bodies = []
    for _ in range(4):
        arrival = await inbox.take()
        bodies.append(arrival.body)
        expect(isinstance(await inbox.complete(arrival), Accepted), "it was not completed")
    expect(bodies == [bytes([n]) for n in range(4)], f"they came as {bodies}")
    return "four in order"


@entry(
    "partitions-8",
    "The size of a partitioned queue is sixteen times what was asked for.",
    falls=("P-14", "H-52"),
    source=ARTICLE,
    entities=(Queue(partitioned=True, max_megabytes=1024),),
    manages=True,
)
async def size(at: Scratch) -> str:
    path = at.path()
    found = (await at.admin(lambda client: client.get_queue(path))).max_size_in_megabytes
    expect(found == 16 * 1024, f"it is {found} MB")
    return f"{found} MB"
