"""Twins on the secondary: created from the primary's descriptions, compared by the doctor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure.servicebus.management import (
    CorrelationRuleFilter,
    QueueProperties,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)

from sbpair.broker import Broker
from sbpair.pair.cli.twins import TwinComparison, compare, create_missing, read
from tests.pair.cli.conftest import make_backlogs

FLAGS = ("--backlogs", "2", "--primary-namespace-name", "contoso")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        make_backlogs(running.namespace("contoso-dr"))
        yield running


@contextmanager
def both(broker: Broker) -> Iterator[tuple[ServiceBusAdministrationClient, ServiceBusAdministrationClient]]:
    strings = [broker.namespace(name).connection_string for name in ("contoso", "contoso-dr")]
    settings = {"connection_verify": str(broker.ca_file)}
    with (
        ServiceBusAdministrationClient.from_connection_string(strings[0], **settings) as primary,
        ServiceBusAdministrationClient.from_connection_string(strings[1], **settings) as secondary,
    ):
        yield primary, secondary


def twins(broker: Broker) -> dict[str, TwinComparison]:
    with both(broker) as (primary, secondary):
        return {twin.path: twin for twin in compare(read(primary), read(secondary))}


def described(primary: ServiceBusAdministrationClient) -> None:
    """Describe entities of every kind, one of which forwards to a later one."""
    primary.create_queue("z-archive", requires_duplicate_detection=True)
    primary.create_queue("orders", requires_session=True, max_delivery_count=3)
    primary.create_queue("a-letters", forward_to="z-archive", lock_duration="PT30S")
    primary.create_topic("prices", max_size_in_megabytes=2048)
    primary.create_subscription("prices", "all", requires_session=True)
    primary.create_subscription("prices", "some")
    primary.delete_rule("prices", "some", "$Default")
    primary.create_rule(
        "prices", "some", "cheap", filter=SqlRuleFilter("price < 10"), action=SqlRuleAction("SET a = 1")
    )
    primary.create_rule("prices", "some", "red", filter=CorrelationRuleFilter(label="red"))


@pytest.mark.spec("C-3")
def test_missing_twins_are_created_with_the_description_of_the_primary(broker: Broker) -> None:
    with both(broker) as (primary, secondary):
        described(primary)
        made = create_missing(primary, secondary)
        assert sorted(made) == [
            "a-letters", "orders", "prices", "prices/Subscriptions/all", "prices/Subscriptions/some", "z-archive",
        ]  # fmt: skip
        assert made.index("z-archive") < made.index("a-letters")
        assert create_missing(primary, secondary) == []
        rules = {rule.name: (rule.filter, rule.action) for rule in secondary.list_rules("prices", "some")}
        assert rules.keys() == {"cheap", "red"}
        assert (rules["cheap"][0].sql_expression, rules["cheap"][1].sql_expression) == (
            "price < 10",
            "SET a = 1",
        )
        assert [rule.name for rule in secondary.list_rules("prices", "all")] == ["$Default"]
        orders: QueueProperties = secondary.get_queue("orders")
        assert (orders.requires_session, orders.max_delivery_count) == (True, 3)
        assert str(secondary.get_queue("a-letters").forward_to).endswith("/z-archive")
    assert all(twin == TwinComparison(path) for path, twin in twins(broker).items()), (
        "none missing, none different"
    )


@pytest.mark.spec("C-3")
def test_differing_settings_are_named(broker: Broker) -> None:
    with both(broker) as (primary, secondary):
        primary.create_queue("orders", requires_session=True)
        primary.create_queue("bills", requires_duplicate_detection=True)
        primary.create_queue("fine")
        primary.create_topic("prices")
        secondary.create_queue("orders")
        secondary.create_queue("bills", max_size_in_megabytes=2048)
        secondary.create_queue("fine", max_delivery_count=1)
        secondary.create_queue("prices")  # of another kind
    found = twins(broker)
    assert found["orders"].differences == ("requires_session is False, on the primary True",)
    assert found["bills"].differences[0] == "requires_duplicate_detection is False, on the primary True"
    assert found["bills"].differences[-1] == "max_size_in_megabytes is 2048, on the primary 1024"
    assert found["fine"] == TwinComparison("fine"), (
        "how often a message is delivered is the operator's choice"
    )
    assert found["prices"].is_missing


@pytest.mark.spec("C-3")
def test_the_commands_create_twins_and_find_differences(broker: Broker, sbpair, keys) -> None:
    with both(broker) as (primary, secondary):
        primary.create_queue("orders")
        primary.create_queue("bills", requires_session=True)
        secondary.create_queue("bills")
    flags = (*FLAGS, "--ca-file", str(broker.ca_file))

    def found() -> dict[str, str]:
        done = sbpair("doctor", "--json", "--land", *flags, **keys)
        findings = json.loads(done.stdout)["findings"]
        return {each["about"]: each["severity"] for each in findings if each["severity"] != "note"}

    assert found() == {"orders": "warning", "bills on the secondary": "error"}
    done = sbpair("backlog", "create", "--twins", *flags, **keys)
    assert done.returncode == 0, done.stderr
    assert "created orders\ntwins created: 1" in done.stdout
    assert found() == {"bills on the secondary": "error"}


@pytest.mark.spec("W-2")
def test_twins_forward_and_the_doctor_names_those_that_do_not(broker: Broker, sbpair, keys) -> None:
    flags = (*FLAGS, "--ca-file", str(broker.ca_file))
    broker.namespace("contoso").create_queue("archive")
    broker.namespace("contoso").create_queue("orders", forward_to="archive", enable_partitioning=True)
    done = sbpair("backlog", "create", "--twins", *flags, **keys)
    assert done.returncode == 0, done.stderr
    twin = broker.namespace("contoso-dr")._server.frontend.namespace.queue("orders")
    assert (twin.description.forward_to or "").endswith("archive")

    with both(broker) as (primary, _):
        primary.create_queue("shown", forward_to="archive", enable_express=False)  # in the SDK's order
    done = sbpair("doctor", "--json", "--land", *flags, **keys)
    findings = json.loads(done.stdout)["findings"]
    told = {each["about"]: each["severity"] for each in findings if "not in force" in each["what"]}
    assert told == {"primary shown": "error"}
