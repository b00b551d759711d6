"""Topics, subscriptions and rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sbpair.pair.amqp.message import Properties
from sbpair.pair.amqp.performatives import AmqpMap
from sbpair.pair.amqp.types import Int
from sbpair.pair.client.request import value_of

from ..entry import Price, Queue, Subject, Subscription, Tier, Topic, expect
from ..inbox import PATIENCE
from ..scratch import KEY, Scratch, expect_granted
from .locks import LOCK

if TYPE_CHECKING:
    from azure.servicebus.management import (
        CorrelationRuleFilter,
        ServiceBusAdministrationClient,
        SqlRuleAction,
        SqlRuleFilter,
    )

ONE = (Topic(), Subscription())
TWO = (Topic(), Subscription(), Subscription(label="s2"))
entry = Subject("topics", source="topic-filters", tier=Tier.STANDARD)


async def _rule(ctx: Scratch, name: str, described: dict[object, object], *, only: bool = True) -> None:
    """Add a rule to the subscription `s`, instead of the default one."""
    body: dict[object, object] = {"rule-name": name, "rule-description": described}
    expect_granted(await ctx.ask("add-rule", body, "s"), "the rule")
    if only:
        expect_granted(
            await ctx.ask("remove-rule", {"rule-name": "$Default"}, "s"), "removing the default rule"
        )


def _sql(expression: str, action: str | None = None) -> dict[object, object]:
    described: dict[object, object] = {"sql-filter": {"expression": expression}}
    if action is not None:
        described["sql-rule-action"] = {"expression": action}
    return described


@entry(1, "Every subscription gets a copy of its own.", "P-2 C-1", Price(1, 2), entities=TWO)
async def copies(ctx: Scratch) -> str:
    await ctx.send(ctx.message(b"news"), to="t")
    for label in ("s", "s2"):
        arrival = await ctx.receive(label)
        span = arrival.time("x-opt-locked-until") - arrival.time("x-opt-enqueued-time")
        expect(abs(span - LOCK) < PATIENCE, f"it is locked until {span:.0f} s after its enqueued time")
        first = arrival.annotation("x-opt-enqueue-sequence-number")
        expect(
            (arrival.body, first) == (b"news", 1), f"body and first number are {arrival.body!r}, {first!r}"
        )
    return "both got one"


@entry(2, "A topic without subscriptions accepts messages.", "P-2 P-42", Price(1), entities=(Topic(),))
async def nobody(ctx: Scratch) -> str:
    await ctx.send(ctx.message(), to="t")
    return "accepted"


@entry(
    3,
    "Rules with SQL filters added over AMQP select messages by their properties: one copy however many match.",
    "P-21",
    Price(2, 1, 3),
    source="service-bus-messaging-sql-filter",
    entities=ONE,
)
async def sql(ctx: Scratch) -> str:
    await _rule(ctx, "big", _sql("n > 5"))
    await _rule(ctx, "odd", _sql("n % 2 = 1 AND n > 6"), only=False)
    await ctx.send(ctx.message(b"3", properties={"n": 3}), ctx.message(b"7", properties={"n": 7}), to="t")
    await ctx.expect_only(b"7", of="s")
    return "of 3 and 7 it let 7 through"


@entry(
    4, "A correlation filter compares properties with regard to case.", "P-21", Price(2, 1, 2), entities=ONE
)
async def correlation(ctx: Scratch) -> str:
    await _rule(ctx, "red", {"correlation-filter": {"properties": {"colour": "red"}}})
    await ctx.send(
        ctx.message(b"1", properties={"colour": "Red"}),
        ctx.message(b"2", properties={"colour": "red"}),
        to="t",
    )
    await ctx.expect_only(b"2", of="s")
    return "it let the exact one through"


@entry(
    5,
    "The action of a rule changes the copy.",
    "P-21",
    Price(1, 1, 2),
    source="service-bus-messaging-sql-rule-action",
    entities=ONE,
)
async def action(ctx: Scratch) -> str:
    change = "SET mark = 'x'; SET n = n + 1; REMOVE colour; SET sys.Label = 'l'; SET f = 'true'; SET m = '2'"
    await _rule(ctx, "marked", _sql("1=1", change))
    given: AmqpMap = {"n": Int(7), "m": Int(1), "f": False, "colour": "red", "kept": "k"}
    sent = ctx.message(properties=given, fields=Properties(subject="old"))
    await ctx.send(sent, to="t")
    arrival = await ctx.receive("s")
    carried, properties = dict(arrival.message.application_properties), arrival.message.properties
    carried.pop("RuleName", None)
    seen = (carried, properties and properties.subject)
    expect(seen == ({"mark": "x", "n": 8, "m": 2, "f": True, "kept": "k"}, "l"), f"they are {seen}")
    return "the copy has the properties that the action left"


@entry(
    6,
    "A filter sees the properties that a parked message carried, once it is restored.",
    "P-21 G-22",
    Price(1, 1, 2),
    source="paired namespaces",
    entities=ONE,
)
async def typed_filter(ctx: Scratch) -> str:
    await _rule(ctx, "seven", _sql("i = 7 AND sys.Label = 'l'"))
    await ctx.send(ctx.message(properties={"i": Int(7)}, fields=Properties(subject="l")), to="t")
    await ctx.receive("s")
    return "an int and the label were matched"


@entry(
    8,
    "A subscription may require sessions, and the action of a rule chooses the session.",
    "O-1 C-16",
    Price(1, 1),
    source="message-sessions",
    entities=(Topic(), Subscription(sessions=True)),
    manages=True,
)
async def sessions(ctx: Scratch) -> str:
    from azure.servicebus.management import SqlRuleAction, TrueRuleFilter

    await _only_rules(ctx, "s", TrueRuleFilter(), action=SqlRuleAction("SET sys.SessionId = 'b'"))
    await ctx.send(ctx.message(session="a"), to="t")
    inbox, receiver = await ctx.session_inbox(None, "s")
    await inbox.receive()
    expect(receiver.session_id == "b", f"the session is {receiver.session_id!r}")
    return "its session was granted"


@entry(
    9,
    "The smaller time to live of topic and subscription applies.",
    "T-9",
    Price(1),
    source="message-expiration",
    entities=(Topic(time_to_live=2.0), Subscription(time_to_live=60.0)),
    seconds=3.5,
)
async def smaller(ctx: Scratch) -> str:
    await ctx.send(ctx.message(), to="t")
    await asyncio.sleep(2.5)
    await ctx.nothing("s")
    return "it was gone after 2 s"


@entry(
    10,
    "Sending to a subscription is refused.",
    "C-1",
    source="service-bus-queues-topics-subscriptions",
    entities=ONE,
)
async def no_sends(ctx: Scratch) -> str:
    return await ctx.expect_no_sends("s")


@entry(
    11,
    "Duplicates are detected on a topic.",
    "G-6",
    Price(2, 1),
    source="duplicate-detection",
    entities=(Topic(duplicates_within=600.0), Subscription()),
)
async def duplicates(ctx: Scratch) -> str:
    name = ctx.new_id()
    await ctx.send(ctx.message(b"1", id=name), ctx.message(b"2", id=name), to="t")
    await ctx.expect_only(b"1", of="s")
    return "one copy came"


@entry(
    12,
    "A subscription forwards its dead letters to a queue.",
    "T-22 G-21",
    Price(2, 2),
    source="service-bus-auto-forwarding",
    entities=(Queue(), Topic(), Subscription(max_deliveries=1, forward_dead_letters_to="q")),
)
async def forwards_dead_letters(ctx: Scratch) -> str:
    await ctx.send(ctx.message(), to="t")
    inbox = await ctx.inbox("s")
    await inbox.abandon(await inbox.take())
    await ctx.receive()
    return "it came there"


@entry(
    13,
    "A message that is scheduled on a topic is delivered by its subscription when it is due, not before.",
    "G-17 P-20",
    Price(2, 1, 2),
    source="message-sequencing",
    entities=ONE,
    seconds=6.5,
)
async def scheduled_message(ctx: Scratch) -> str:
    due = time.time() + 5.0
    (number,) = await ctx.schedule(ctx.scheduled_message(due, b"cancelled"), of="t")
    await ctx.send(ctx.scheduled_message(due, b"due"), to="t")
    topic = ctx.path("t")
    found = await ctx.admin(lambda client: client.get_topic_runtime_properties(topic))
    waiting = found.scheduled_message_count
    expect(waiting == 2, f"the topic counts {waiting} scheduled messages of 2")
    expect_granted(await ctx.cancel(number, of="t"), "cancelling")
    inbox = await ctx.inbox("s")
    await inbox.nothing(1.0)
    arrival = await inbox.receive(20.0)
    expect(arrival.body == b"due", f"it is {arrival.body!r}")
    await inbox.nothing()
    return "delivered when it was due, and another one was cancelled"


@entry(
    14,
    "A subscription has its own time to live beside that of the message, and dead-letters and counts what expires.",
    "T-9 T-10",
    Price(2, 1),
    source="message-expiration",
    entities=(
        Topic(),
        Subscription(time_to_live=2.0, dead_letters_expired=True),
        Subscription(label="s2", dead_letters_expired=True),
    ),
    manages=True,
    seconds=4.0,
)
async def own_time_to_live(ctx: Scratch) -> str:
    short, long = ctx.message(b"short", ttl=1500, annotations=KEY), ctx.message(b"long", annotations=KEY)
    await ctx.send(short, long, to="t")
    await asyncio.sleep(2.5)
    await ctx.nothing("s")
    await ctx.expect_only(b"long", of="s2")
    topic = ctx.path("t")
    seen = await ctx.admin(lambda client: list(client.list_subscriptions_runtime_properties(topic)))
    counts = sorted((each.name, each.active_message_count, each.dead_letter_message_count) for each in seen)
    expect(counts == [("s", 0, 2), ("s2", 0, 1)], f"active and dead-lettered are {counts}")
    return "of two messages both expired after 2 s in one, and in the other the one of 1.5 s"


@entry(
    15,
    "A subscription has its own lock and maximum of deliveries, and its dead letters are below its path.",
    "X-1 F-17 G-21",
    Price(1, 2),
    source="message-transfers-locks-settlement",
    entities=(Topic(), Subscription(lock=5.0, max_deliveries=1)),
    seconds=6.5,
)
async def own_lock(ctx: Scratch) -> str:
    await ctx.send(ctx.message(), to="t")
    await (await ctx.inbox("s")).take()
    return await ctx.expect_dead("MaxDeliveryCountExceeded", "s", within=15.0)


TRUE = (
    "n = 7 AND n <> 8 AND n != 8 AND n > 6 AND n >= 7 AND n < 8 AND n <= 7 AND (n = 8 OR n = 7) AND "
    "NOT n = 8 AND (n = 7 OR n = 8) AND s = 'abc' AND s <> 'abd' AND flag = TRUE AND NOT flag = FALSE AND "
    "d > 2 AND d < 2.75 AND d % 2 = 0.5",
    "n IN (1, 7) AND n NOT IN (1, 2) AND s IN ('x', 'abc') AND s LIKE 'a%' AND s LIKE '%c' AND s LIKE '_bc' AND "
    "s LIKE '%b%' AND s LIKE '%_b%' AND s NOT LIKE 'b%' AND s NOT LIKE 'ab' AND p LIKE '10!%' ESCAPE '!' AND "
    "missing IS NULL AND n IS NOT NULL AND EXISTS(n) AND NOT EXISTS(missing)",
    "n + 1 = 8 AND n - 1 = 6 AND n * 2 = 14 AND n / 7 = 1 AND n % 4 = 3 AND -n = -7 AND n + 1 * 2 = 9 AND "
    "(n + 1) * 2 = 16 AND sys.Label = 'l' AND sys.CorrelationId = 'c' AND sys.ContentType = 't' AND sys.To = 'to' "
    "AND sys.ReplyTo = 'r' AND user.n = 7 AND [n] = 7 AND property('n') = 7 AND quoted = 'it''s'",
)
FALSE = (
    "n = 8 OR n <> 7 OR n > 7 OR n < 7 OR n >= 8 OR n <= 6 OR NOT n = 7 OR (n = 7 AND n = 8) OR s = 'abd' OR "
    "flag = FALSE OR d > 3 OR n IN (1, 2) OR n NOT IN (1, 7) OR s LIKE 'b%' OR s LIKE 'ab' OR s LIKE 'abc_' OR "
    "s NOT LIKE 'a%' OR p LIKE '10!_' ESCAPE '!' OR missing IS NOT NULL OR n IS NULL OR EXISTS(missing) OR "
    "missing = 1 OR s LIKE '%_a%'",
    "missing <> 1",
    "NOT missing = 1",
    "n % 2 = 0 OR sys.Label = 'c' OR sys.To = 'r' OR user.missing = 7",
)
FIELDS = Properties(
    subject="l",
    correlation_id="c",
    content_type="t",
    to="to",
    reply_to="r",
    reply_to_group_id="rs",
    group_id="ss",
)


def _named(fields: Mapping[str, Any], properties: Mapping[str, str] | None = None) -> CorrelationRuleFilter:
    from azure.servicebus.management import CorrelationRuleFilter

    return CorrelationRuleFilter(**fields, properties=dict(properties or {}))


async def _only_rules(
    ctx: Scratch,
    label: str,
    *filters: SqlRuleFilter | CorrelationRuleFilter,
    action: SqlRuleAction | None = None,
) -> None:
    """Give a subscription these rules, instead of the default one."""
    topic = ctx.path("t")

    def change(client: ServiceBusAdministrationClient) -> None:
        for n, each in enumerate(filters):
            client.create_rule(topic, label, f"rule-{n}", filter=each, action=action)
        client.delete_rule(topic, label, "$Default")

    await ctx.admin(change)


@entry(
    16,
    "SQL filters compare, search, calculate and treat missing properties as documented.",
    "P-21",
    Price(1, 3),
    source="service-bus-messaging-sql-filter",
    entities=(Topic(), *(Subscription(label=f"s{n}") for n in range(4))),
    manages=True,
    seconds=2.0,
)
async def operators(ctx: Scratch) -> str:
    from azure.servicebus.management import SqlRuleFilter

    for n, expression in enumerate(TRUE):
        await _only_rules(ctx, f"s{n}", SqlRuleFilter(expression))
    await _only_rules(ctx, "s3", *map(SqlRuleFilter, FALSE))
    properties: AmqpMap = {"n": Int(7), "d": 2.5, "s": "abc", "p": "10%", "quoted": "it's", "flag": True}
    await ctx.send(ctx.message(properties=properties, fields=FIELDS), to="t")
    for n in range(3):
        await ctx.receive(f"s{n}")
    await ctx.nothing("s3")
    return "what is true was selected, and nothing else"


@entry(
    17,
    "A correlation filter compares every system property and application property it names.",
    "P-21",
    Price(1, 1),
    entities=TWO,
    manages=True,
)
async def fields(ctx: Scratch) -> str:
    name = ctx.new_id()
    given = {"correlation_id": "c", "message_id": name, "to": "to", "reply_to": "r", "label": "l",
             "session_id": "ss", "reply_to_session_id": "rs", "content_type": "t"}  # fmt: skip
    matching = {"colour": "red", "size": "xl"}
    await _only_rules(ctx, "s", _named(given, matching))
    wrong = [_named({**given, each: "other"}) for each in given]
    await _only_rules(ctx, "s2", *wrong, _named(given, {**matching, "size": "s"}))
    await ctx.send(
        ctx.message(id=name, properties={"colour": "red", "size": "xl", "more": "m"}, fields=FIELDS), to="t"
    )
    await ctx.receive("s")
    await ctx.nothing("s2")
    return f"{len(given)} system properties and two others matched, and one that differs did not"


@entry(
    7,
    "Rules are read back as they were created and updated, over both APIs, and are gone once deleted.",
    "P-21",
    Price(management=1),
    source="the SDK's administration client",
    entities=(Topic(label="a/t"), Subscription(topic="a/t")),
    manages=True,
)
async def read_back(ctx: Scratch) -> str:
    from azure.servicebus.management import FalseRuleFilter, SqlRuleAction, SqlRuleFilter

    topic, changed = ctx.path("a/t"), SqlRuleFilter("n > 6")

    def check(client: ServiceBusAdministrationClient) -> None:
        named = _named({"label": "l", "to": "to"}, {"colour": "red"})
        client.create_rule(
            topic, "s", "sql", filter=SqlRuleFilter("n > 5"), action=SqlRuleAction("SET m = 1")
        )
        client.create_rule(topic, "s", "named", filter=named)
        client.create_rule(topic, "s", "none", filter=FalseRuleFilter())
        found: Any = client.get_rule(topic, "s", "sql")
        seen: tuple[object, ...] = (found.filter.sql_expression, found.action and found.action.sql_expression)
        expect(seen == ("n > 5", "SET m = 1"), f"expression and action are {seen}")
        expect(found.created_at_utc is not None, "it has no time of creation")
        found.filter = changed
        client.update_rule(topic, "s", found)
        listed: dict[str, Any] = {each.name: each for each in client.list_rules(topic, "s")}
        expect(sorted(listed) == ["$Default", "named", "none", "sql"], f"listed are {sorted(listed)}")
        again = listed["named"].filter
        of_sql = listed["sql"].filter.sql_expression
        seen = (again.label, again.to, again.correlation_id, again.properties, of_sql)
        expect(seen == ("l", "to", None, {"colour": "red"}, "n > 6"), f"they are {seen}")
        client.delete_rule(topic, "s", "none")

    await ctx.admin(check)
    answer = await ctx.ask("enumerate-rules", {"skip": Int(0), "top": Int(10)}, "s")
    expect_granted(answer, "listing the rules")
    rules = [each["rule-description"].value for each in value_of(answer).get("rules") or ()]
    told = {str(rule[2]): list(rule[0].value) for rule in rules}
    expect(sorted(told) == ["$Default", "named", "sql"], f"over AMQP they are {sorted(told)}")
    expect(told["sql"] == ["n > 6"] and "l" in told["named"], f"over AMQP the filters are {told}")
    return "as created, as updated, and deleted"
