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
from sbpair.broker.entities.rules import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter

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


def test_our_file_describes_namespaces_entities_rules_and_policies() -> None:
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
def test_entities_of_a_partitioned_premium_namespace_are_partitioned() -> None:
    (plan,) = of_toml("[contoso]\npartitions = 2\n[contoso.queues.q]\n[contoso.topics.t]")
    namespace = Namespace("contoso", created_at=NOW, layout=Layout(2))
    plan.create_entities(namespace, NOW)
    assert namespace.queue("q").description.enable_partitioning
    assert namespace.queue("t").description.enable_partitioning


def test_the_emulator_file_describes_the_same_entities() -> None:
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
def test_an_error_in_our_file_is_reported_with_key_and_remedy(text: str, said: str) -> None:
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
        ('{"a": 1, "A": 2}', "the key 'A' is given twice"),
        ('{"UserConfig": {"a": NaN}}', "expected JSON: NaN"),
        ("{'UserConfig': {}}", "expected JSON"),
        ('{"UserConfig": {} // open\n "Logging" 1}', 'expected JSON: Expecting \',\' delimiter at \'"Logging" 1}'),
        (
            changed(lambda it: it["Queues"][0]["Properties"].update(RequiresSession="yes")),
            "Properties.RequiresSession: expected true or false, not 'yes'",
        ),
        ("[]", "expected a JSON object with UserConfig"),
        ("{}", "UserConfig.Namespaces: expected one or more namespaces"),
        ('{"UserConfig": []}', "UserConfig: expected a table, not a list"),
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
def test_an_error_in_the_emulator_file_is_reported_with_key_and_remedy(text: str, said: str) -> None:
    with pytest.raises(BadConfigurationError) as caught:
        read_emulator_file("config.json", text)
    assert said in str(caught.value)


def of_emulator(text: str) -> tuple[Namespace, list[str]]:
    """Return the only namespace of a file, with its entities, and the warnings about the file."""
    warnings: list[str] = []
    (plan,) = read_emulator_file("config.json", text, warnings.append)
    namespace = Namespace(plan.name, created_at=NOW)
    plan.create_entities(namespace, NOW)
    return namespace, warnings


# shapes of public files: annotated samples, an editor's byte order mark, camel case, values quoted by a generator
LENIENT = {
    "comments of both kinds": """// a suite's entities
        {"UserConfig": { /* one only */ "Namespaces": [{"Name": "sb", // no other
        "Queues": [{"Name": "q", "Properties": {"MaxDeliveryCount": 3, "RequiresSession": true,
        "UserMetadata": "http://a//b /*, ]*/"}}]}]}} // end""",
    "commas at the end": """{"UserConfig": {"Namespaces": [{"Name": "sb", "Queues": [{"Name": "q", "Properties":
        {"MaxDeliveryCount": 3, "RequiresSession": true, "UserMetadata": "http://a//b /*, ]*/", }, },
        ], }, ], }, }""",
    "a byte order mark": """\ufeff{"UserConfig": {"Namespaces": [{"Name": "sb", "Queues": [{"Name": "q", "Properties":
        {"MaxDeliveryCount": 3, "RequiresSession": true, "UserMetadata": "http://a//b /*, ]*/"}}]}]}}""",
    "keys in another case": """{"userConfig": {"namespaces": [{"name": "sb", "queues": [{"NAME": "q", "properties":
        {"maxDeliveryCount": 3, "requiressession": true, "usermetadata": "http://a//b /*, ]*/"}}]}]}}""",
    "strings for numbers and booleans": """{"UserConfig": {"Namespaces": [{"Name": "sb", "Queues": [{"Name": "q",
        "Properties": {"MaxDeliveryCount": " 3", "RequiresSession": "True", "LockDuration": "",
        "UserMetadata": "http://a//b /*, ]*/"}}]}]}}""",
    "null for what is not given": """{"UserConfig": {"Namespaces": [{"Name": "sb", "Topics": null, "Queues": [{"Name":
        "q", "Properties": {"MaxDeliveryCount": 3, "RequiresSession": true, "ForwardTo": null,
        "UserMetadata": "http://a//b /*, ]*/"}}]}], "Logging": null}}""",
}


@pytest.mark.parametrize("text", LENIENT.values(), ids=LENIENT)
def test_files_accepted_by_the_vendor_reader_give_no_warning(text: str) -> None:
    namespace, warnings = of_emulator(text)
    queue = namespace.queue("q").description
    assert (queue.max_delivery_count, queue.requires_session) == (3, True)
    assert (queue.user_metadata, queue.forward_to, queue.lock_duration) == (
        "http://a//b /*, ]*/",
        None,
        60_000,
    )
    assert warnings == []


def test_numbers_in_text_fields_of_the_emulator_file_are_read_as_text() -> None:
    text = changed(lambda it: (it.update(Name=7), it["Queues"].append({"Name": 8})))
    (plan,) = read_emulator_file("config.json", text)
    assert (plan.name, list(plan.queues)) == ("7", ["queue.1", "8"])


def test_system_property_names_keep_their_case() -> None:
    filtered = {
        "FilterType": "CORRELATION",
        "CorrelationFilter": {"properties": {"Region": "eu"}, "label": "a"},
    }
    namespace, warnings = of_emulator(
        changed(lambda it: it["Topics"][0]["Subscriptions"][0]["Rules"][1].update(Properties=filtered))
    )
    found = {each.name: each.filter for each in namespace.subscription("topic.1", "subscription.1").rules}
    assert found["sql"] == CorrelationFilter(label="a", properties={"Region": "eu"})
    assert warnings == []


PLACE = "config.json: UserConfig.Namespaces[0]"
UNKNOWN = {
    "an editor's schema": (
        '{"$schema": "https://example.invalid/s.json", "UserConfig": {"Namespaces": [{"Name": "sb"}]}}',
        "config.json: $schema: ignored: no such key; one of UserConfig",
    ),
    "a setting beside Properties": (
        changed(lambda it: it["Queues"][0].update(maxDeliveryCount=10)),
        f"{PLACE}.Queues[0].maxDeliveryCount: ignored: no such key; did you mean Properties.MaxDeliveryCount?",
    ),
    "a setting of a subscription beside Properties": (
        changed(lambda it: it["Topics"][0]["Subscriptions"][0].update(RequiresSession=True)),
        f"{PLACE}.Topics[0].Subscriptions[0].RequiresSession: ignored: no such key; "
        "did you mean Properties.RequiresSession?",
    ),
    "a misspelt setting": (
        changed(lambda it: it["Queues"][0]["Properties"].update(LockTime="PT1M")),
        f"{PLACE}.Queues[0].Properties.LockTime: ignored: no such key; one of AutoDeleteOnIdle, ",
    ),
    "a setting of another name": (
        changed(lambda it: it["Queues"][0]["Properties"].update(MaxDeliveries=2)),
        f"{PLACE}.Queues[0].Properties.MaxDeliveries: ignored: no such key; did you mean MaxDeliveryCount?",
    ),
    "properties of a namespace": (
        changed(lambda it: it.update(Properties={"Sku": "Standard"})),
        f"{PLACE}.Properties: ignored: no such key; one of Name, Queues, Topics",
    ),
    "a window of duplicates without their detection": (
        changed(
            lambda it: it["Queues"][0]["Properties"].update(DuplicateDetectionHistoryTimeWindow="PT0S")
        ),
        f"{PLACE}.Queues[0].Properties.DuplicateDetectionHistoryTimeWindow: ignored: a duration, from 20 s to 7 days, "
        "not 'PT0S'; it has no effect without detection of duplicates",
    ),
    "a filter of another type": (
        changed(lambda it: rule(it).update(CorrelationFilter={"Label": "x"})),
        f"{PLACE}.Topics[0].Subscriptions[0].Rules[1].Properties.CorrelationFilter: ignored: no filter of another",
    ),
    "an expression beside its filter": (
        changed(
            lambda it: rule(it).update(FilterType="SQL", SqlExpression="1=0") or rule(it).pop("SqlFilter")
        ),
        f"{PLACE}.Topics[0].Subscriptions[0].Rules[1].Properties.SqlExpression: "
        "read as SqlFilter.SqlExpression: no such key",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_meaningless_key_is_a_warning_that_suggests_a_valid_one(text: str, said: str) -> None:
    namespace, warnings = of_emulator(text)
    assert len(warnings) == 1
    assert warnings[0].startswith(said)
    if namespace.queues():
        assert namespace.queue("queue.1").description.max_delivery_count == 3


@pytest.mark.parametrize(("text", "said"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_meaningless_key_is_refused_in_strict_mode(text: str, said: str) -> None:
    with pytest.raises(BadConfigurationError) as caught:
        read_emulator_file("config.json", text)
    assert str(caught.value).startswith(said.partition(": ignored")[0].partition(": read")[0])


def test_the_type_of_a_filter_is_inferred_from_its_content() -> None:
    namespace, warnings = of_emulator(changed(lambda it: rule(it).pop("FilterType")))
    found = {each.name: each.filter for each in namespace.subscription("topic.1", "subscription.1").rules}
    assert isinstance(found["sql"], SqlFilter)
    assert warnings == []


def test_an_expression_beside_its_filter_is_used() -> None:
    namespace, _ = of_emulator(UNKNOWN["an expression beside its filter"][0])
    found = {each.name: each.filter for each in namespace.subscription("topic.1", "subscription.1").rules}
    assert isinstance(found["sql"], FalseFilter)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[contoso.queues.q]\nforward_to = "none"', "contoso/q: The messaging entity 'none'"),
        ("[contoso.queues.q]\nmax_size_in_megabytes = 10240", "contoso/q: "),
        ("[contoso.queues.q]\n[contoso.topics.q]", "contoso/q: The messaging entity 'q' already exists"),
    ],
)
def test_an_entity_that_cannot_be_created_is_named_by_its_path(text: str, said: str) -> None:
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
def test_a_failed_configuration_creates_nothing_and_can_be_corrected(broken: str) -> None:
    namespace = Namespace("contoso", created_at=NOW)
    namespace.create_topic("events", TopicDescription(), NOW)  # by an earlier start
    good = "[contoso.queues.late]\nforward_to = 'orders'\n[contoso.queues.orders]\n[contoso.topics.events]\n"
    (half,), (whole,) = of_toml(good + broken), of_toml(good)
    with pytest.raises(BadConfigurationError):
        half.create_entities(namespace, NOW)
    assert [each.path for each in namespace.directory.page(0, 9)[1]] == ["events"]

    whole.create_entities(namespace, NOW)
    assert namespace.queue("late").description.forward_to == "orders"
