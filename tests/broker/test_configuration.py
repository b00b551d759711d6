"""What files say there is to be: what is read, and what is said of what cannot be."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable

import pytest

from sbpair.broker.auth import Right
from sbpair.broker.configuration import BadConfigurationError, read_emulator_file, read_namespaces
from sbpair.broker.configuration.plan import NamespacePlan
from sbpair.broker.entities import Namespace, TopicDescription
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.rules import CorrelationFilter, SqlFilter, TrueFilter

pytestmark = pytest.mark.client("amqp")  # that is, nobody's
NOW = 1_800_000_000_000
TOML = """
[contoso]
port = 5672
policies = [{ name = "sender", key = "env:KEY", rights = ["Send"] }]
[contoso.queues.late]
forward_to = "orders"
[contoso.queues.orders]
lock_duration = "30s"
max_message_size_in_kilobytes = 64
default_message_time_to_live = "PT1H"
requires_session = true
[contoso.queues."a/b"]
[contoso.topics.events]
[contoso.topics.events.subscriptions.all]
[contoso.topics.events.subscriptions.billing]
max_delivery_count = 3
forward_to = "a/b"
rules.large = { sql = "amount > 100", action = "SET size = 'large'" }
rules.paid = { correlation = { label = "paid", properties = { region = "eu", n = 1 } } }
[premium]
partitions = 4
"""
EMULATOR = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            {
                                "Name": "subscription.1",
                                "Properties": {"LockDuration": "PT1M", "MaxDeliveryCount": 3},
                                "Rules": [
                                    {
                                        "Name": "app-prop-filter-1",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "Label": "subject1",
                                                "Properties": {"region": "eu"},
                                            },
                                        },
                                    },
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "x > 1"},
                                            "Action": {"SqlExpression": "SET y = 'z'"},
                                        },
                                    },
                                ],
                            }
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def resolve(value: str, name: str) -> str:
    if value != "env:KEY":
        raise ValueError(f"{name}: {value} is not there")
    return "secret"


def of_toml(text: str) -> list[NamespacePlan]:
    return read_namespaces("sbpair.toml", tomllib.loads(text), resolve)


def test_our_file_says_namespaces_entities_rules_and_policies() -> None:
    contoso, premium = of_toml(TOML)
    assert (contoso.port, premium.port, premium.partitions) == (5672, None, 4)
    (policy,) = contoso.policies
    assert (policy.name, policy.primary_key, policy.rights) == ("sender", "secret", {Right.SEND})
    namespace = Namespace("contoso", created_at=NOW)
    contoso.create_entities(namespace, NOW)
    contoso.create_entities(namespace, NOW)  # existing entities stay
    orders = namespace.queue("orders").description
    assert (orders.lock_duration, orders.default_message_time_to_live) == (30_000, 3_600_000)
    assert (orders.requires_session, orders.max_message_size_in_kilobytes) == (True, 64)
    assert namespace.queue("late").description.forward_to == "orders"
    assert [queue.path for queue in namespace.queues()] == ["a/b", "late", "orders"]
    (default,) = namespace.subscription("events", "all").rules
    assert isinstance(default.filter, TrueFilter)
    large, paid = sorted(namespace.subscription("events", "billing").rules, key=lambda rule: rule.name)
    assert isinstance(large.filter, SqlFilter)
    assert large.action is not None
    assert paid.filter == CorrelationFilter(label="paid", properties={"region": "eu", "n": 1})


@pytest.mark.spec("Q-2")
def test_what_is_in_a_premium_namespace_of_partitions_is_partitioned() -> None:
    (plan,) = of_toml("[contoso]\npartitions = 2\n[contoso.queues.q]\n[contoso.topics.t]")
    namespace = Namespace("contoso", created_at=NOW, layout=Layout(2))
    plan.create_entities(namespace, NOW)
    assert namespace.queue("q").description.enable_partitioning
    assert namespace.queue("t").description.enable_partitioning


def test_the_emulators_file_says_the_same_in_its_words() -> None:
    (plan,) = read_emulator_file("config.json", json.dumps(EMULATOR))
    namespace = Namespace(plan.name, created_at=NOW)
    plan.create_entities(namespace, NOW)
    queue = namespace.queue("queue.1").description
    assert (queue.max_delivery_count, queue.default_message_time_to_live) == (3, 3_600_000)
    assert (queue.forward_to, queue.duplicate_detection_history_time_window) == (None, 20_000)
    first, second = sorted(
        namespace.subscription("topic.1", "subscription.1").rules, key=lambda rule: rule.name
    )
    assert first.filter == CorrelationFilter(
        content_type="application/text", label="subject1", properties={"region": "eu"}
    )
    assert isinstance(second.filter, SqlFilter)
    assert second.action is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("contoso = 1", "broker.namespaces.contoso: expected a table, not a number"),
        ("[contoso]\nport = 70000", "contoso.port: expected a whole number, 0 to 65535, not 70000"),
        ("[contoso]\nport = true", "contoso.port: expected a whole number"),
        ("[contoso]\npartitions = 3", "contoso.partitions: expected a whole number, 1 or 2 or 4, not 3"),
        ("[contoso]\nqueue = 1", "contoso.queue: expected no such key; did you mean queues?"),
        (
            "[contoso.queues.q]\nlock_durations = 1",
            "queues.q.lock_durations: expected no such key; did you mean lock_duration?",
        ),
        (
            "[contoso.queues.q]\nlock_duration = 30",
            'queues.q.lock_duration: expected a duration such as "PT5M" or "90s"',
        ),
        ('[contoso.queues.q]\nlock_duration = "P"', "expected a duration"),
        (
            '[contoso.queues.q]\nlock_duration = "10m"',
            "contoso.queues.q.lock_duration: expected a duration, from 5 seconds to the allowed maximum of "
            "'5' minutes, not '10m'",
        ),
        (
            "[contoso.queues.q]\nrequires_session = 1",
            "queues.q.requires_session: expected true or false, not 1",
        ),
        ("[contoso.queues.q]\nmax_delivery_count = true", "expected a whole number, not True"),
        ("[contoso.queues.q]\nforward_to = 1", "queues.q.forward_to: expected a string, not 1"),
        (
            '[[contoso.policies]]\nname = "p"\nkey = "spelt out"\nrights = ["Send"]',
            "policies[0].key: expected env:NAME or file:PATH",
        ),
        (
            '[[contoso.policies]]\nname = "p"\nkey = "env:NONE"\nrights = ["Send"]',
            "policies[0].key: expected a key: ",
        ),
        (
            '[[contoso.policies]]\nname = "p"\nkey = "env:KEY"\nrights = ["All"]',
            "policies[0].rights: expected a list of Send",
        ),
        (
            '[[contoso.policies]]\nname = "p"\nkey = "env:KEY"\nrights = ["Manage"]',
            "policies[0].rights: expected Send and Listen in addition to Manage",
        ),
        (
            '[[contoso.policies]]\nname = "RootManageSharedAccessKey"\nkey = "env:KEY"\nrights = ["Send"]',
            "policies: expected at most 11 policies, with unique names other than the root policy's",
        ),
        ('[contoso.queues.q]\nauthorization_rules = "p"', "authorization_rules: expected no such key"),
        (
            '[contoso.topics.t.subscriptions.s.rules.r]\nsql = "a ="',
            "rules.r: expected a valid rule",
        ),
        (
            '[contoso.topics.t.subscriptions.s.rules.r]\nsql = "a"\ncorrelation = {label = "x"}',
            "expected sql or correlation, not both",
        ),
        (
            "[contoso.topics.t.subscriptions.s.rules.r]\ncorrelation = {subject = 1}",
            "correlation.subject: expected no such key",
        ),
    ],
)
def test_a_bad_file_of_ours_is_told_by_key_and_remedy(text: str, said: str) -> None:
    with pytest.raises(BadConfigurationError) as caught:
        of_toml(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("sbpair.toml: ")
    assert "spelt out" not in str(caught.value)


def rule(config: dict[str, object]) -> dict[str, object]:
    return config["Topics"][0]["Subscriptions"][0]["Rules"][1]["Properties"]


def subscription(config: dict[str, object]) -> dict[str, object]:
    return config["Topics"][0]["Subscriptions"][0]["Properties"]


def changed(change: Callable[[dict[str, object]], object]) -> str:
    config = json.loads(json.dumps(EMULATOR))
    change(config["UserConfig"]["Namespaces"][0])
    return json.dumps(config)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "config.json: expected JSON"),
        ("[" * 100_000, "config.json: expected JSON"),
        ('{"a": 1, "a": 2}', "a key is given twice"),
        ("[]", "expected a JSON object with UserConfig"),
        ("{}", "UserConfig.Namespaces: expected one or more namespaces"),
        ('{"UserConfig": []}', "UserConfig: expected a table, not a list"),
        ('{"UserConfig": {"Namespace": []}}', "UserConfig.Namespace: expected no such key; did you mean"),
        (changed(lambda it: it.pop("Name")), "UserConfig.Namespaces[0].Name: expected a string"),
        (
            changed(lambda it: it["Queues"][0]["Properties"].update(LockDuration="1 min")),
            "Namespaces[0].Queues[0].Properties.LockDuration: expected a duration",
        ),
        (
            changed(lambda it: it["Queues"][0]["Properties"].update(LockDuration="30s")),
            "config.json: UserConfig.Namespaces[0].Queues[0].Properties.LockDuration: "
            "expected a duration such as \"PT5M\", not '30s'",
        ),
        (
            changed(lambda it: it["Queues"][0]["Properties"].update(LockDuration="PT10M")),
            "Namespaces[0].Queues[0].Properties.LockDuration: expected a duration, from 5 seconds to the "
            "allowed maximum of '5' minutes, not 'PT10M'",
        ),
        (
            changed(lambda it: subscription(it).update(DefaultMessageTimeToLive="PT0.5S")),
            "Properties.DefaultMessageTimeToLive: expected a duration, at least 1 second, not 'PT0.5S'",
        ),
        (
            changed(lambda it: subscription(it).update(MaxDeliveryCount=0)),
            "Topics[0].Subscriptions[0].Properties.MaxDeliveryCount: expected a whole number from 1 to "
            "2147483647, not 0",
        ),
        (
            changed(lambda it: it["Queues"][0]["Properties"].update(LockTime="PT1M")),
            "Properties.LockTime: expected no such key",
        ),
        (
            changed(lambda it: it["Queues"].append({"Name": "queue.1"})),
            "UserConfig.Namespaces[0].Queues: expected each name once, not 'queue.1' again",
        ),
        (
            changed(lambda it: it["Topics"][0]["Subscriptions"].append(it["Topics"][0]["Subscriptions"][0])),
            "Namespaces[0].Topics[0].Subscriptions: expected each name once",
        ),
        (
            changed(lambda it: rule(it).update(FilterType="X")),
            "Rules[1].Properties.FilterType: expected Sql, Correlation, or nothing, not 'X'",
        ),
        (
            changed(lambda it: rule(it).pop("SqlFilter")),
            "SqlFilter.SqlExpression: expected an SQL expression",
        ),
    ],
)  # fmt: skip
def test_a_bad_file_of_the_emulators_is_told_by_key_and_remedy(text: str, said: str) -> None:
    with pytest.raises(BadConfigurationError) as caught:
        read_emulator_file("config.json", text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[contoso.queues.q]\nforward_to = "none"', "contoso/q: The messaging entity 'none'"),
        ("[contoso.queues.q]\nmax_size_in_megabytes = 10240", "contoso/q: "),
        ("[contoso.queues.q]\n[contoso.topics.q]", "contoso/q: The messaging entity 'q' already exists"),
    ],
)
def test_what_cannot_be_made_is_told_by_its_path(text: str, said: str) -> None:
    (plan,) = of_toml(text)
    with pytest.raises(BadConfigurationError) as caught:
        plan.create_entities(Namespace("contoso", created_at=NOW), NOW)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "broken",
    [
        "[contoso.queues.z]\nmax_size_in_megabytes = 10240",
        "[contoso.queues.z]\nforward_to = 'none'",
        "[contoso.topics.t.subscriptions.s]\nforward_to = 'none'",
        "[contoso.topics.events.subscriptions.s.rules]\na = { sql = '1 = 1' }\nA = { sql = '1 = 1' }",
    ],
    ids=["a queue", "a target", "a subscription", "a rule"],
)
def test_what_cannot_be_made_whole_leaves_nothing_behind_and_is_made_when_it_is_mended(broken: str) -> None:
    namespace = Namespace("contoso", created_at=NOW)
    namespace.create_topic("events", TopicDescription(), NOW)  # by an earlier start
    good = "[contoso.queues.late]\nforward_to = 'orders'\n[contoso.queues.orders]\n[contoso.topics.events]\n"
    (half,), (whole,) = of_toml(good + broken), of_toml(good)
    with pytest.raises(BadConfigurationError):
        half.create_entities(namespace, NOW)
    assert [each.path for each in namespace.directory.page(0, 9)[1]] == ["events"]

    whole.create_entities(namespace, NOW)
    assert namespace.queue("late").description.forward_to == "orders"
