"""`sbpair broker export`: what a live namespace has, as a file with which a broker has the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbpair.broker import (
    Broker,
    NamespaceControl,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from sbpair.broker.configuration import (
    NamespacePlan,
    SubscriptionPlan,
    TopicPlan,
    read_emulator_file,
    read_namespaces,
    write_emulator_file,
    write_toml,
)
from sbpair.broker.entities.rules import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter

DAY = 86_400_000
EVERY_KIND = NamespacePlan(
    "contoso",
    queues={
        "plain": QueueDescription(),
        "end": QueueDescription(status="SendDisabled", user_metadata='a "quoted" \\ text, é\x7f'),
        "a/b.c": QueueDescription(
            lock_duration=31_000,
            max_size_in_megabytes=2048,
            default_message_time_to_live=DAY + 1,
            dead_lettering_on_message_expiration=True,
            max_delivery_count=3,
            enable_batched_operations=False,
            enable_express=True,
            auto_delete_on_idle=DAY,
            forward_dead_lettered_messages_to="end",
        ),
        "once": QueueDescription(
            requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000
        ),
        "carts": QueueDescription(requires_session=True),
        "spread": QueueDescription(enable_partitioning=True),
        "source": QueueDescription(forward_to="end"),
    },
    topics={
        "bare": TopicPlan(TopicDescription(support_ordering=False, auto_delete_on_idle=DAY)),
        "events": TopicPlan(
            TopicDescription(requires_duplicate_detection=True, user_metadata="of ours"),
            {
                "all": SubscriptionPlan(SubscriptionDescription(requires_session=True)),
                "some": SubscriptionPlan(
                    SubscriptionDescription(
                        forward_to="end", dead_lettering_on_filter_evaluation_exceptions=False
                    ),
                    (
                        Rule(
                            "large",
                            SqlFilter("amount > @least", {"@least": 100}),
                            SqlAction("SET size = @word", {"@word": "large"}),
                        ),
                        Rule("never", FalseFilter()),
                        Rule(
                            "paid",
                            CorrelationFilter(label="paid", properties={"Region": "eu", "n": 1, "is": True}),
                        ),
                    ),
                ),
            },
        ),
    },
)


@pytest.fixture
def live() -> Iterator[tuple[Broker, NamespaceControl]]:
    with Broker({"contoso": 0}) as broker:
        yield broker, broker.namespace("contoso")


def exported(sbpair, live: tuple[Broker, NamespaceControl], form: str) -> str:
    broker, namespace = live
    flags = ("--from", "contoso=env:LIVE", "--form", form, "--ca-file", str(broker.ca_file))
    done = sbpair("broker", "export", *flags, LIVE=namespace.connection_string)
    assert (done.returncode, done.stderr) == (0, "")
    assert "SharedAccess" not in done.stdout
    return done.stdout


def read(form: str, text: str) -> NamespacePlan:
    if form == "emulator":
        (plan,) = read_emulator_file("Config.json", text)
        return plan
    import tomllib

    values = tomllib.loads(text)["broker"]["namespaces"]
    (plan,) = read_namespaces("broker.toml", values, lambda value, name: value)
    return plan


@pytest.mark.parametrize("form", ["toml", "emulator"])
def test_an_exported_plan_loads_and_exports_unchanged(sbpair, live, form: str) -> None:
    live[1].create_entities(EVERY_KIND)
    first = exported(sbpair, live, form)
    with Broker({"contoso": 0}) as loaded:
        loaded.namespace("contoso").create_entities(read(form, first))
        again = exported(sbpair, (loaded, loaded.namespace("contoso")), form)
    assert again == first
    plan = read(form, first)
    assert plan.queues == EVERY_KIND.queues
    assert {path: each.description for path, each in plan.topics.items()} == {
        path: each.description for path, each in EVERY_KIND.topics.items()
    }
    assert plan.topics["events"].subscriptions == EVERY_KIND.topics["events"].subscriptions


@pytest.mark.parametrize("form", ["toml", "emulator"])
def test_a_written_plan_reads_back_unchanged(form: str) -> None:
    text = write_emulator_file([EVERY_KIND]) if form == "emulator" else write_toml([EVERY_KIND], "Standard")
    found = read(form, text)
    assert (found.queues, found.topics) == (EVERY_KIND.queues, EVERY_KIND.topics)


def test_an_exported_file_starts_a_broker(sbpair, start, live, tmp_path: Path) -> None:
    live[1].create_queue("orders")
    file = tmp_path / "broker.toml"
    file.write_text(exported(sbpair, live, "toml"), "utf-8")
    running = start("broker", "--config", str(file), "--namespace", "contoso:0", "--json")
    assert json.loads(running.line())["namespaces"][0]["queues"] == ["orders"]
    assert running.stop() == (0, "")


def test_an_exported_partitioned_premium_namespace_stays_partitioned(sbpair) -> None:
    with Broker({"contoso": 0}, partitions={"contoso": 4}) as broker:
        namespace = broker.namespace("contoso")
        namespace.create_queue("orders", description=QueueDescription(enable_partitioning=True))
        text = exported(sbpair, (broker, namespace), "toml")
    assert 'tier = "Premium"' in text
    assert read("toml", text).partitions == 4


@pytest.mark.parametrize("source", ["contoso", "=env:LIVE", "Endpoint=sb://x.example/"])
def test_a_namespace_without_a_name_or_a_source_is_a_usage_error(sbpair, source: str) -> None:
    done = sbpair("broker", "export", "--from", source)
    assert done.returncode == 2
    assert "expected NAME=SOURCE" in done.stderr
