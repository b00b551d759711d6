"""Settling: each outcome, its confirmation, and what it does to the message."""

from __future__ import annotations

from sbpair.pair.amqp.performatives import Accepted, Modified, Rejected, Released

from ..entry import Price, Queue, entry, expect
from ..scratch import DEAD, Scratch, answer_text, expect_within

ARTICLE = "message-transfers-locks-settlement"


@entry(
    "settling-1",
    "To complete is confirmed with *accepted*, and the message is gone.",
    falls=("G-20", "P-42"),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=1),
)
async def complete(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    answer = await inbox.complete(await inbox.take())
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    left = await at.peek()
    expect(not left, f"{len(left)} messages are left")
    return "accepted; a peek shows nothing"


@entry(
    "settling-2",
    "To abandon is confirmed, and the message is delivered again, with one more delivery.",
    falls=("G-2", "R-92"),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
)
async def abandon(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    answer = await inbox.abandon(await inbox.take())
    expect(answer is not None, f"the answer is {answer_text(answer)}")
    again = await inbox.take()
    await inbox.complete(again)
    expect(again.count == 1, f"the delivery count is {again.count}")
    return f"{answer_text(answer)}; delivered again with delivery count 1"


@entry(
    "settling-3",
    "To release gives the message back without counting a delivery.",
    falls=("G-27", "P-44"),
    source="inferred from AMQP",
    price=Price(sends=1, receives=2),
)
async def release(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    arrival = await inbox.take()
    inbox.receiver.give_back(arrival.event.delivery_id, arrival.event.delivery_id, Released())
    again = await inbox.take()
    await inbox.complete(again)
    expect(again.count == 0, f"the delivery count is {again.count}")
    return "it came again with delivery count 0"


@entry(
    "settling-4",
    "A deferred message is not delivered, and is received by its number.",
    falls=("C-4", "X-1"),
    source="message-deferral",
    price=Price(sends=1, receives=2, management=1),
)
async def defer(at: Scratch) -> str:
    from sbpair.pair.amqp.types import Array, UInt
    from sbpair.pair.client.request import refusal_of, value_of

    await at.send(at.message(b"deferred"))
    inbox = await at.inbox()
    arrival = await inbox.take()
    number = arrival.annotation("x-opt-sequence-number")
    answer = await inbox.defer(arrival)
    expect(answer is not None, f"the answer is {answer_text(answer)}")
    await inbox.nothing()
    found = await at.ask(
        "receive-by-sequence-number",
        {"sequence-numbers": Array(0x81, (number,)), "receiver-settle-mode": UInt(0)},
    )
    refusal = refusal_of(found)
    expect(refusal is None, f"receiving by number gave {refusal}")
    expect(len(value_of(found).get("messages") or []) == 1, "receiving by number gave no message")
    return "received by its number only"


@entry(
    "settling-5",
    "To defer counts a delivery.",
    falls=("X-1",),
    source="the SDKs' own tests (JavaScript, Go)",
    price=Price(sends=1, receives=2, management=1),
)
async def defer_counts(at: Scratch) -> str:
    from sbpair.pair.amqp.message import Message
    from sbpair.pair.amqp.types import Array, UInt
    from sbpair.pair.client.request import value_of

    await at.send(at.message())
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.defer(arrival)
    found = await at.ask(
        "receive-by-sequence-number",
        {
            "sequence-numbers": Array(0x81, (arrival.annotation("x-opt-sequence-number"),)),
            "receiver-settle-mode": UInt(0),
        },
    )
    (got,) = value_of(found).get("messages") or [{}]
    header = Message.decode(got["message"]).header
    count = 0 if header is None else int(header.delivery_count or 0)
    expect(count == 1, f"the delivery count is {count}")
    return "the delivery count is 1"


@entry(
    "settling-6",
    "To dead-letter moves the message to the dead-letter queue, with reason and description.",
    falls=("G-21", "P-42"),
    source="service-bus-dead-letter-queues",
    price=Price(sends=1, receives=2),
)
async def dead_letter(at: Scratch) -> str:
    await at.send(at.message(b"poison"))
    inbox = await at.inbox()
    answer = await inbox.dead_letter(await inbox.take(), "Poison", "it cannot be read")
    expect(isinstance(answer, Rejected), f"the answer is {answer_text(answer)}")
    dead = await at.inbox(f"q{DEAD}")
    arrival = await dead.take()
    await dead.complete(arrival)
    carried = arrival.message.application_properties
    seen = (carried.get("DeadLetterReason"), carried.get("DeadLetterErrorDescription"))
    expect(seen == ("Poison", "it cannot be read"), f"reason and description are {seen}")
    return "it is there with reason and description"


@entry(
    "settling-7",
    "One disposition settles a range of deliveries, and each of them is confirmed.",
    falls=("P-42", "H-12"),
    source="the AMQP standard, 2.7.6",
    price=Price(sends=4, receives=4, management=1),
)
async def ranges(at: Scratch) -> str:
    await at.send(*(at.message() for _ in range(4)))
    inbox = await at.inbox()
    inbox.receiver.flow(4)
    numbers = [(await inbox.take()).event.delivery_id for _ in range(4)]
    run = inbox.receiver.settled_run(min(numbers), max(numbers), Accepted())
    answers = await expect_within(run, "not all were confirmed")
    expect(all(isinstance(each, Accepted) for each in answers), f"answers: {list(map(answer_text, answers))}")
    expect(not await at.peek(), "messages are left")
    return "four settled by one disposition"


@entry(
    "settling-8",
    "Without locks a message is deleted as it is sent to the receiver.",
    falls=("G-3",),
    source=ARTICLE,
    price=Price(sends=1, receives=1, management=1),
)
async def deleting(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.deleting_inbox()
    arrival = await inbox.take()
    expect(arrival.event.settled, "it came unsettled")
    expect(not await at.peek(), "it is still there")
    return "it came settled, and is gone"


@entry(
    "settling-9",
    "The delivery tag is the lock token: a GUID of 16 bytes.",
    falls=("C-3", "H-13"),
    source="the SDK, measured",
    price=Price(sends=1, receives=1),
)
async def tag(at: Scratch) -> str:
    await at.send(at.message())
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(len(arrival.event.tag) == 16, f"the tag has {len(arrival.event.tag)} bytes")
    return "16 bytes"


@entry(
    "settling-10",
    "An abandon may change application properties.",
    falls=("C-4",),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
)
async def changed_properties(at: Scratch) -> str:
    await at.send(at.message(properties={"kept": 1}))
    inbox = await at.inbox()
    state = Modified(True, False, {"added": "x"})
    answer = await inbox.settle(await inbox.take(), state)
    again = await inbox.take()
    await inbox.complete(again)
    carried = again.message.application_properties
    expect(answer is not None and carried.get("kept") == 1, f"the properties are {carried}")
    expect(carried.get("added") == "x", f"the properties are {carried}")
    return "the added property came with the next delivery"


@entry(
    "settling-11",
    "A message that is not settled when its connection ends is delivered again.",
    falls=("G-2", "F-7"),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
    entities=(Queue(lock=5.0),),
    seconds=6.0,
)
async def ended_connection(at: Scratch) -> str:
    await at.send(at.message())
    other = await at.another_connection()
    first = await at.inbox(on=other)
    await first.take()
    await other.close()
    inbox = await at.inbox()
    again = await inbox.take(20.0)
    await inbox.complete(again)
    return f"delivered again, with delivery count {again.count}"
