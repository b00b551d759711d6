"""Topics, subscriptions and rules."""

from __future__ import annotations

from sbpair.pair.client.request import refusal_of

from ..entry import Price, Queue, Subscription, Tier, Topic, entry, expect
from ..scratch import DEAD, Scratch, symbol_of

ARTICLE = "topic-filters"
ONE = (Topic(), Subscription())
TWO = (Topic(), Subscription(), Subscription(label="s2"))


async def _rule(at: Scratch, name: str, described: dict[object, object], *, only: bool = True) -> None:
    """Add a rule to the subscription `s`, instead of the default one."""
    body: dict[object, object] = {"rule-name": name, "rule-description": described}
    refusal = refusal_of(await at.ask("add-rule", body, "s"))
    expect(refusal is None, f"the rule was refused: {refusal}")
    if only:
        refusal = refusal_of(await at.ask("remove-rule", {"rule-name": "$Default"}, "s"))
        expect(refusal is None, f"removing the default rule was refused: {refusal}")


def _sql(expression: str, action: str | None = None) -> dict[object, object]:
    described: dict[object, object] = {"sql-filter": {"expression": expression}}
    if action is not None:
        described["sql-rule-action"] = {"expression": action}
    return described


@entry(
    "topics-1",
    "Every subscription gets a copy of its own.",
    falls=("P-2", "C-1"),
    source=ARTICLE,
    price=Price(sends=1, receives=2),
    entities=TWO,
    tier=Tier.STANDARD,
)
async def copies(at: Scratch) -> str:
    await at.send(at.message(b"news"), to="t")
    for label in ("s", "s2"):
        inbox = await at.inbox(label)
        arrival = await inbox.take()
        await inbox.complete(arrival)
        expect(arrival.body == b"news", f"it is {arrival.body!r}")
    return "both got one"


@entry(
    "topics-2",
    "A topic without subscriptions accepts messages.",
    falls=("P-2", "P-42"),
    source=ARTICLE,
    price=Price(sends=1),
    entities=(Topic(),),
    tier=Tier.STANDARD,
)
async def nobody(at: Scratch) -> str:
    await at.send(at.message(), to="t")
    return "accepted"


@entry(
    "topics-3",
    "A rule with an SQL filter, added over AMQP, chooses messages by their properties.",
    falls=("P-21",),
    source="service-bus-messaging-sql-filter",
    price=Price(sends=2, receives=1, management=2),
    entities=ONE,
    tier=Tier.STANDARD,
)
async def sql(at: Scratch) -> str:
    await _rule(at, "big", _sql("n > 5"))
    await at.send(at.message(b"3", properties={"n": 3}), at.message(b"7", properties={"n": 7}), to="t")
    inbox = await at.inbox("s")
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.body == b"7", f"it is {arrival.body!r}")
    await inbox.nothing()
    return "of 3 and 7 it let 7 through"


@entry(
    "topics-4",
    "A correlation filter matches properties exactly, with regard to case.",
    falls=("P-21",),
    source=ARTICLE,
    price=Price(sends=2, receives=1, management=2),
    entities=ONE,
    tier=Tier.STANDARD,
)
async def correlation(at: Scratch) -> str:
    await _rule(at, "red", {"correlation-filter": {"properties": {"colour": "red"}}})
    await at.send(
        at.message(b"1", properties={"colour": "Red"}), at.message(b"2", properties={"colour": "red"}), to="t"
    )
    inbox = await at.inbox("s")
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.body == b"2", f"it is {arrival.body!r}")
    await inbox.nothing()
    return "it let the exact one through"


@entry(
    "topics-5",
    "The action of a rule changes the copy.",
    falls=("P-21",),
    source="service-bus-messaging-sql-rule-action",
    price=Price(sends=1, receives=1, management=2),
    entities=ONE,
    tier=Tier.STANDARD,
)
async def action(at: Scratch) -> str:
    await _rule(at, "marked", _sql("1=1", "SET mark = 'x'"))
    await at.send(at.message(), to="t")
    inbox = await at.inbox("s")
    arrival = await inbox.take()
    await inbox.complete(arrival)
    carried = arrival.message.application_properties
    expect(carried.get("mark") == "x", f"the properties are {carried}")
    return "the copy has the property"


@entry(
    "topics-6",
    "A filter sees the properties that a parked message carried, once it is restored.",
    falls=("P-21", "G-22"),
    source="paired namespaces",
    price=Price(sends=1, receives=1, management=2),
    entities=ONE,
    tier=Tier.STANDARD,
)
async def typed_filter(at: Scratch) -> str:
    from sbpair.pair.amqp.types import Int

    await _rule(at, "seven", _sql("i = 7 AND sys.Label = 'l'"))
    from dataclasses import replace

    message = at.message(properties={"i": Int(7)})
    assert message.properties is not None  # noqa: S101 - message() sets them
    await at.send(replace(message, properties=replace(message.properties, subject="l")), to="t")
    inbox = await at.inbox("s")
    await inbox.complete(await inbox.take())
    return "an int and the label were matched"


@entry(
    "topics-7",
    "The dead letters of a subscription are below its path.",
    falls=("G-21",),
    source="service-bus-dead-letter-queues",
    price=Price(sends=1, receives=2),
    entities=ONE,
    tier=Tier.STANDARD,
)
async def dead_letters(at: Scratch) -> str:
    await at.send(at.message(), to="t")
    inbox = await at.inbox("s")
    await inbox.dead_letter(await inbox.take(), "verify")
    dead = await at.inbox(f"s{DEAD}")
    await dead.complete(await dead.take())
    return "received from there"


@entry(
    "topics-8",
    "A subscription may require sessions.",
    falls=("O-1", "C-16"),
    source="message-sessions",
    price=Price(sends=1, receives=1),
    entities=(Topic(), Subscription(sessions=True)),
    tier=Tier.STANDARD,
)
async def sessions(at: Scratch) -> str:
    await at.send(at.message(session="a"), to="t")
    inbox, receiver = await at.session_inbox(None, "s")
    await inbox.complete(await inbox.take())
    expect(receiver.session_id == "a", f"the session is {receiver.session_id!r}")
    return "its session was granted"


@entry(
    "topics-9",
    "The smaller time to live of topic and subscription applies.",
    falls=("T-9",),
    source="message-expiration",
    price=Price(sends=1),
    entities=(Topic(time_to_live=2.0), Subscription(time_to_live=60.0)),
    tier=Tier.STANDARD,
    seconds=3.5,
)
async def smaller(at: Scratch) -> str:
    import asyncio

    await at.send(at.message(), to="t")
    await asyncio.sleep(2.5)
    await (await at.inbox("s")).nothing()
    return "it was gone after 2 s"


@entry(
    "topics-10",
    "A subscription takes no sends of its own.",
    falls=("C-1",),
    source="service-bus-queues-topics-subscriptions",
    entities=ONE,
    tier=Tier.STANDARD,
)
async def no_sends(at: Scratch) -> str:
    from sbpair.pair.amqp.performatives import Accepted
    from sbpair.pair.client.errors import LinkRefusedError, TokenRefusedError

    connection = await at.connection()
    try:
        sender = await connection.open_sender(at.path("s"))
    except (LinkRefusedError, TokenRefusedError) as error:
        return f"refused with {symbol_of(error.condition)}"
    answer = await sender.send(at.message().encode())
    expect(not isinstance(answer, Accepted), "a send was accepted")
    return "the send was refused"


@entry(
    "topics-11",
    "Duplicates are detected on a topic.",
    falls=("G-6",),
    source="duplicate-detection",
    price=Price(sends=2, receives=1),
    entities=(Topic(duplicates_within=600.0), Subscription()),
    tier=Tier.STANDARD,
)
async def duplicates(at: Scratch) -> str:
    name = at.new_id()
    await at.send(at.message(b"1", id=name), at.message(b"2", id=name), to="t")
    inbox = await at.inbox("s")
    await inbox.complete(await inbox.take())
    await inbox.nothing()
    return "one copy came"


@entry(
    "topics-12",
    "A subscription forwards to a queue.",
    falls=("T-22",),
    source="service-bus-auto-forwarding",
    price=Price(sends=2, receives=1),
    entities=(Queue(), Topic(), Subscription(forward_to="q")),
    tier=Tier.STANDARD,
)
async def forwards(at: Scratch) -> str:
    await at.send(at.message(b"news"), to="t")
    inbox = await at.inbox("q")
    arrival = await inbox.take()
    await inbox.complete(arrival)
    return "it came there"
