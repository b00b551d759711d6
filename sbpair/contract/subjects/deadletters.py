"""Dead-letter queues."""

from __future__ import annotations

from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.client.errors import LinkRefusedError, TokenRefusedError

from ..entry import Price, Queue, Tier, entry, expect
from ..scratch import DEAD, Scratch, answer_text

ARTICLE = "service-bus-dead-letter-queues"


async def _dead(at: Scratch, reason: str = "verify", text: str = "") -> None:
    await at.send(at.message(b"dead"))
    inbox = await at.inbox()
    await inbox.dead_letter(await inbox.take(), reason, text)
    await inbox.close()


@entry(
    "deadletters-1",
    "A dead-letter queue takes no sends.",
    falls=("G-21",),
    source=ARTICLE,
)
async def no_sends(at: Scratch) -> str:
    connection = await at.connection()
    try:
        sender = await connection.open_sender(at.path(f"q{DEAD}"))
    except (LinkRefusedError, TokenRefusedError) as error:
        return f"refused with {error.condition.symbol if error.condition else 'no condition'}"
    answer = await sender.send(at.message().encode())
    expect(not isinstance(answer, Accepted), "a send was accepted")
    return answer_text(answer)


@entry(
    "deadletters-2",
    "A dead-letter queue counts no delivery: an abandoned message stays in it.",
    falls=("X-2",),
    source="the SDKs' own tests (JavaScript, Go)",
    price=Price(sends=1, receives=5),
    entities=(Queue(max_deliveries=1),),
)
async def no_count(at: Scratch) -> str:
    await _dead(at)
    dead = await at.inbox(f"q{DEAD}")
    counts = []
    for _ in range(3):
        arrival = await dead.take()
        counts.append(arrival.count)
        await dead.abandon(arrival)
    last = await dead.take()
    await dead.complete(last)
    expect({last.count} == set(counts), f"the delivery counts are {[*counts, last.count]}")
    return f"after three abandons it is there, with delivery count {last.count}"


@entry(
    "deadletters-3",
    "A reason of 4 096 characters is kept.",
    falls=("G-21", "R-84"),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
)
async def long_reason(at: Scratch) -> str:
    await _dead(at, "r" * 4096, "why")
    dead = await at.inbox(f"q{DEAD}")
    arrival = await dead.take()
    await dead.complete(arrival)
    found = str(arrival.message.application_properties.get("DeadLetterReason"))
    expect(found == "r" * 4096, f"it has {len(found)} characters")
    return "4 096 characters"


@entry(
    "deadletters-4",
    "The path of a dead-letter queue is compared without regard to case.",
    falls=("R-119",),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
)
async def any_case(at: Scratch) -> str:
    await _dead(at)
    connection = await at.connection()
    receiver = await connection.open_receiver(at.path("q/$deadletterqueue"), lambda event: None)
    await receiver.close()
    dead = await at.inbox(f"q{DEAD}")
    await dead.complete(await dead.take())
    return "attached in lower case"


@entry(
    "deadletters-5",
    "The properties of a dead-lettered message are kept beside the reason.",
    falls=("G-21", "R-124"),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
)
async def all_properties(at: Scratch) -> str:
    await at.send(at.message(properties={"x-ms-path": "orders", "n": 1}))
    inbox = await at.inbox()
    await inbox.dead_letter(await inbox.take(), "verify")
    dead = await at.inbox(f"q{DEAD}")
    arrival = await dead.take()
    await dead.complete(arrival)
    carried = arrival.message.application_properties
    expect(carried.get("x-ms-path") == "orders" and carried.get("n") == 1, f"they are {carried}")
    return "they are kept"


@entry(
    "deadletters-6",
    "A queue that needs sessions has a dead-letter queue that needs none.",
    falls=("O-6", "G-21"),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
    entities=(Queue(sessions=True),),
    tier=Tier.STANDARD,
)
async def no_session(at: Scratch) -> str:
    await at.send(at.message(session="a"))
    inbox, _ = await at.session_inbox("a")
    await inbox.dead_letter(await inbox.take(), "verify")
    dead = await at.inbox(f"q{DEAD}")
    await dead.complete(await dead.take())
    return "received without a session"


@entry(
    "deadletters-7",
    "The transfer dead-letter queue of a queue can be peeked.",
    falls=("C-2",),
    source="service-bus-dead-letter-queues",
    price=Price(management=1),
)
async def transfer(at: Scratch) -> str:
    found = await at.peek("q/$Transfer/$DeadLetterQueue")
    expect(not found, f"it shows {len(found)}")
    return "it is empty"
