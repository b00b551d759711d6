"""Rules through the unmodified SDK: set and read by administration clients, observed by receivers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from sbpair.broker import Broker, NamespaceControl
from tests.broker.wire.elsewhere import fresh

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
VALUES = {"@int": 1, "@long": 2**40, "@float": 0.5, "@text": "a <b> & c", "@yes": True, "@at": NOON}


@pytest.fixture
def admin(broker: Broker, contoso: NamespaceControl) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as opened:
        yield opened


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def topic(contoso: NamespaceControl, request: pytest.FixtureRequest) -> str:
    """A topic with the subscription ``s``."""
    path = fresh("ruled")
    contoso.create_topic(path, enable_partitioning=request.param)
    contoso.create_subscription(path, "s")
    return path


@pytest.fixture
def bare(admin: ServiceBusAdministrationClient, topic: str) -> str:
    """The same topic without the default rule."""
    admin.delete_rule(topic, "s", "$Default")
    return topic


def send(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    with client.get_topic_sender(topic) as sender:
        for message in messages:
            sender.send_messages(message)


def received(client: ServiceBusClient, topic: str, most: int = 10, wait: float = 20.0, **how: object):
    with client.get_subscription_receiver(topic, "s", **how) as receiver:
        messages = receiver.receive_messages(most, max_wait_time=wait)
        for message in messages:
            receiver.complete_message(message)
    return messages


@pytest.mark.does("admin rules")
def test_a_rule_reads_back_as_it_was_created(admin, topic):
    kinds = {
        "sql": (
            SqlRuleFilter("a = @int AND at < @at", parameters=VALUES),
            SqlRuleAction("SET b = @x", {"@x": 1}),
        ),
        "correlation": (
            CorrelationRuleFilter(label="<red>", session_id="s", properties={"n": 1, "f": 0.5}),
            None,
        ),
        "true": (TrueRuleFilter(), SqlRuleAction("REMOVE b")),
        "false": (FalseRuleFilter(), None),
    }
    for name, (condition, action) in kinds.items():
        created = admin.create_rule(topic, "s", name, filter=condition, action=action)
        for rule in (created, admin.get_rule(topic, "s", name)):
            assert type(rule.filter) is type(condition)
            assert (rule.action and rule.action.sql_expression) == (action and action.sql_expression)
    sql = admin.get_rule(topic, "s", "sql")
    assert (sql.filter.sql_expression, dict(sql.filter.parameters)) == ("a = @int AND at < @at", VALUES)
    assert dict(sql.action.parameters) == {"@x": 1}
    correlation = admin.get_rule(topic, "s", "correlation").filter
    assert (correlation.label, correlation.session_id, correlation.to) == ("<red>", "s", None)
    assert dict(correlation.properties) == {"n": 1, "f": 0.5}
    assert [rule.name for rule in admin.list_rules(topic, "s")] == [
        "$Default",
        "correlation",
        "false",
        "sql",
        "true",
    ]


@pytest.mark.does("admin rules")
def test_an_update_replaces_a_rule_and_a_deletion_removes_it(admin, client, bare):
    rule = admin.create_rule(bare, "s", "r", filter=SqlRuleFilter("a = 1"))
    rule.filter = SqlRuleFilter("a = 2")
    admin.update_rule(bare, "s", rule)
    send(client, bare, *(ServiceBusMessage(str(a), application_properties={"a": a}) for a in (1, 2)))
    assert [str(message) for message in received(client, bare, 1)] == ["2"]
    admin.delete_rule(bare, "s", "r")
    with pytest.raises(ResourceNotFoundError):
        admin.get_rule(bare, "s", "r")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_rule(bare, "s", "r")
    with pytest.raises(ResourceNotFoundError):
        admin.update_rule(bare, "s", rule)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (SqlRuleFilter("sys.Nope = 1"), "no system property 'Nope'"),
        (SqlRuleFilter("a ="), "found the end at character 4"),
        (SqlRuleFilter("a = @x"), "@x has no value"),
        (SqlRuleFilter("a = 1" + " " * 1020), "at most 1024"),
        (CorrelationRuleFilter(), "has no property"),
    ],
    ids=["system property", "half", "parameter", "long", "nothing"],
)
def test_an_invalid_rule_is_refused_with_the_position(admin, topic, condition, words):
    with pytest.raises(HttpResponseError, match="SubCode=40000") as caught:
        admin.create_rule(topic, "s", "r", filter=condition)
    assert caught.value.status_code == 400
    assert words in str(caught.value)


def test_a_taken_or_invalid_rule_name_is_refused(admin, topic):
    with pytest.raises(ResourceExistsError):
        admin.create_rule(topic, "s", "$default")
    with pytest.raises(HttpResponseError, match="rule name"):
        admin.create_rule(topic, "s", "x" * 51)


def test_filters_and_actions_see_the_properties_sent_by_the_sdk(admin, client, bare):
    admin.create_rule(
        bare, "s", "dear",
        filter=SqlRuleFilter("price > @p AND sys.Label LIKE 'or%' AND at >= @at", {"@p": 10, "@at": NOON}),
        action=SqlRuleAction("SET price = price * 2; SET sys.Label = 'dear'; REMOVE secret"),
    )  # fmt: skip
    admin.create_rule(
        bare, "s", "red", filter=CorrelationRuleFilter(label="order", properties={"color": "red"})
    )
    common = {"at": NOON + timedelta(hours=1), "secret": "x", "color": "red"}
    send(
        client, bare,
        ServiceBusMessage("both", subject="order", application_properties={**common, "price": 11}),
        ServiceBusMessage("red", subject="order", application_properties={**common, "price": 10}),
        ServiceBusMessage("none", subject="Order", application_properties={**common, "price": 11}),
    )  # fmt: skip
    got = sorted(
        (str(message), message.subject, message.application_properties[b"price"],
         message.application_properties.get(b"RuleName"), b"secret" in message.application_properties)
        for message in (*received(client, bare, 3), *received(client, bare, 3, wait=0.5))
    )  # fmt: skip
    assert got == [("both", "dear", 22, b"dear", False), ("both", "order", 11, None, True),
                   ("red", "order", 10, None, True)]  # fmt: skip


@pytest.mark.spec("X-26")
def test_a_message_on_which_a_filter_fails_is_in_the_dead_letter_queue(admin, client, bare):
    admin.create_rule(bare, "s", "odd", filter=SqlRuleFilter("a / b = 1"))
    send(client, bare, ServiceBusMessage("broken", application_properties={"a": 1, "b": 0}))
    (dead,) = received(client, bare, 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert (str(dead), dead.dead_letter_reason) == ("broken", "FilterEvaluationException")
    assert "division by zero" in dead.dead_letter_error_description


@pytest.mark.does("admin rules")
async def test_the_asyncio_client_manages_rules(broker, contoso):
    path = fresh("ruled")
    async with AsyncAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as admin:
        await admin.create_topic(path)
        await admin.create_subscription(path, "s")
        rule = await admin.create_rule(path, "s", "r", filter=SqlRuleFilter("a = @a", {"@a": 1}))
        rule.action = SqlRuleAction("SET b = 1")
        await admin.update_rule(path, "s", rule)
        assert (await admin.get_rule(path, "s", "r")).action.sql_expression == "SET b = 1"
        assert [each.name async for each in admin.list_rules(path, "s")] == ["$Default", "r"]
        await admin.delete_rule(path, "s", "r")
        with pytest.raises(ResourceNotFoundError):
            await admin.get_rule(path, "s", "r")
