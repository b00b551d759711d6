"""Sending: outcomes, batches, order."""

from __future__ import annotations

import asyncio

from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.ground.side import Side

from ..entry import Price, Queue, entry, expect
from ..scratch import Scratch, answer_text, expect_refusal, expect_within, rejection_symbol

GUIDE = "service-bus-amqp-protocol-guide"


@entry(
    "sending-1",
    "A message that is stored is answered with *accepted*.",
    falls=("G-1", "P-2"),
    source=GUIDE,
    price=Price(sends=1),
)
async def accepted_message(at: Scratch) -> str:
    answer = await at.answer(at.message())
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    return "accepted"


@entry(
    "sending-2",
    "A batch is one transfer, and its messages arrive one by one, in order.",
    falls=("P-2", "C-1"),
    source="the SDK's batches",
    price=Price(sends=3, receives=3),
)
async def batch(at: Scratch) -> str:
    answer = await at.answer_to_batch([at.message(bytes([n])) for n in range(3)])
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    inbox = await at.inbox()
    bodies = []
    for _ in range(3):
        arrival = await inbox.take()
        bodies.append(arrival.body)
        await inbox.complete(arrival)
    expect(bodies == [bytes([n]) for n in range(3)], f"they came as {bodies}")
    return "three messages of one transfer arrived"


@entry(
    "sending-3",
    "Messages of one sender with one key are received in the order in which they were accepted.",
    falls=("G-8", "O-1"),
    source="message-sequencing",
    price=Price(sends=5, receives=5),
)
async def order(at: Scratch) -> str:
    key = {"x-opt-partition-key": "k"}
    await at.send(*(at.message(bytes([n]), annotations=key) for n in range(5)))
    inbox = await at.inbox()
    bodies = []
    for _ in range(5):
        arrival = await inbox.take()
        bodies.append(arrival.body)
        await inbox.complete(arrival)
    expect(bodies == [bytes([n]) for n in range(5)], f"they came as {bodies}")
    return "five came in order"


@entry(
    "sending-4",
    "Sequence numbers rise by one from message to message with one key.",
    falls=("Q-10", "O-4"),
    source="message-sequencing",
    price=Price(sends=3, receives=3),
)
async def numbers(at: Scratch) -> str:
    key = {"x-opt-partition-key": "k"}
    await at.send(*(at.message(annotations=key) for _ in range(3)))
    inbox = await at.inbox()
    found = []
    for _ in range(3):
        arrival = await inbox.take()
        found.append(int(str(arrival.annotation("x-opt-sequence-number"))))
        await inbox.complete(arrival)
    expect([found[0] + n for n in range(3)] == found, f"the numbers are {found}")
    return f"{found}"


@entry(
    "sending-5",
    "A link to a queue that does not exist is refused as missing, when it is authorised or attached.",
    falls=("F-42", "F-46"),
    source="service-bus-messaging-exceptions",
    entities=(),
)
async def nowhere(at: Scratch) -> str:
    from sbpair.pair.client.errors import LinkRefusedError, TokenRefusedError

    connection = await at.connection()
    try:
        await connection.open_sender(at.new_id())
    except (LinkRefusedError, TokenRefusedError) as error:
        return f"refused with {expect_refusal(error, 'amqp:not-found')}"
    expect(False, "the link was attached")
    return ""


@entry(
    "sending-6",
    "Many messages may be in flight on a link; every one is answered.",
    falls=("H-12", "P-42"),
    source=GUIDE,
    price=Price(sends=20, receives=20),
)
async def many(at: Scratch) -> str:
    sender = await at.sender()
    sends = asyncio.gather(*(sender.send(at.message().encode()) for _ in range(20)))
    answers = await expect_within(sends, "not all were answered")
    expect(all(isinstance(each, Accepted) for each in answers), f"answers: {set(map(answer_text, answers))}")
    inbox = await at.deleting_inbox()
    inbox.receiver.flow(20)
    for _ in range(20):
        await inbox.take()
    return "20 in flight, 20 accepted"


@entry(
    "sending-7",
    "A message whose session id and partition key differ is refused.",
    falls=("Q-7", "F-53"),
    source="service-bus-partitioning",
)
async def two_keys(at: Scratch) -> str:
    message = at.message(session="a", annotations={"x-opt-partition-key": "b"})
    answer = await at.answer(message)
    expect(bool(rejection_symbol(answer)), f"the answer is {answer_text(answer)}")
    return answer_text(answer)


@entry(
    "sending-8",
    "A message that the sender gave no id has one when it is delivered, or none: it is delivered either way.",
    falls=("G-5",),
    source="the SDK",
    price=Price(sends=1, receives=1),
    entities=(Queue(side=Side.SECONDARY),),
)
async def no_id(at: Scratch) -> str:
    from sbpair.pair.amqp.message import DataBody, Message

    await at.send(Message(body=DataBody((b"anonymous",))))
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    properties = arrival.message.properties
    return "it has an id" if properties is not None and properties.message_id else "it has no id"
