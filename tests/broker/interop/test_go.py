"""The unmodified Go SDK: it administers, sends, receives, settles, works in sessions, over each transport.

One Go program (go_client/) makes every check; each test reads what one of them saw.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sbpair.broker import Broker
from tests.peers import go_program

SOURCE = Path(__file__).with_name("go_client")
QUEUES = "settle dead defer renew lost batch schedule tls websocket updated"

pytestmark = [pytest.mark.interop, pytest.mark.client("go"), pytest.mark.timeout(240)]  # its first build


@pytest.fixture(scope="module")
def seen(broker, contoso, tmp_path_factory) -> dict[str, Any]:
    """What each check saw, by its name."""
    program = go_program(SOURCE, tmp_path_factory.mktemp("go"))
    for name in QUEUES.split():
        contoso.create_queue(f"go-{name}")
    contoso.create_queue("go-sessions", requires_session=True)
    for topic, subscription in (("go-topic", "billing"), ("go-ruled", "s")):
        contoso.create_topic(topic)
        contoso.create_subscription(topic, subscription)
    contoso.create_topic("go-subscribed")
    contoso.create_topic("go-failing")
    listener = contoso.add_policy("go-listener", ("Listen",))
    with Broker({"contoso": 0}, tier="Premium") as dear:
        premium = (dear.namespace("contoso").connection_string, str(dear.ca_file))
        command = [str(program), contoso.connection_string, str(broker.ca_file), listener, *premium]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("check", "saw"),
    [
        pytest.param(
            "settle",
            ["hello", "one", "greeting", 7, 1, 2],  # it counts deliveries from 1
            marks=pytest.mark.does("tcp", "send", "receive", "abandon", "complete"),
        ),
        pytest.param("dead letter", ["because", "it is bad"], marks=pytest.mark.does("dead-letter")),
        pytest.param("defer", [["hello"], 1], marks=pytest.mark.does("defer")),
        pytest.param("renew", True, marks=pytest.mark.does("renew")),
        ("lost lock", "locklost"),
        pytest.param("batch", [20, 20], marks=pytest.mark.does("batch", "peek", "receive-and-delete")),
        pytest.param("schedule", [[1, 2], True], marks=pytest.mark.does("schedule", "cancel")),
        pytest.param("sessions", ["a1", "a2", "noted", True, "b", True], marks=pytest.mark.does("sessions")),
        pytest.param("topic", "paid", marks=pytest.mark.does("topics")),
        pytest.param("over TLS", "hello", marks=pytest.mark.does("tls")),
        pytest.param("over WebSocket", "hello", marks=pytest.mark.does("websocket")),
    ],
)
def test_the_go_sdk_sends_receives_and_settles(seen, check, saw):
    assert seen[check] == saw


@pytest.mark.parametrize(
    ("check", "saw"),
    [
        pytest.param(
            "admin queues",
            ["go-made", "PT30S", 5, 7, 7, 0, ["go-made"], True, True],
            marks=pytest.mark.does("admin queues"),
        ),
        pytest.param(
            "admin topics", ["go-news", 2048, 3072, 0, True, True], marks=pytest.mark.does("admin topics")
        ),
        pytest.param(
            "admin subscriptions",
            ["go-subscribed", "audit", 3, 4, 0, ["audit"], True],
            marks=pytest.mark.does("admin subscriptions"),
        ),
        pytest.param(
            "admin rules",
            ["dear", "price > @least", 10, "SET hot = 'yes'", "red", 1, "a = 1", ["$Default", "dear"]],
            marks=pytest.mark.does("admin rules"),
        ),
        ("admin namespace", ["contoso", "Standard"]),
        ("admin missing", [True, True, True]),
    ],
)
def test_the_go_sdk_administers_over_https(seen, check, saw):
    assert seen[check] == saw


def test_the_go_sdk_gets_descriptive_errors(seen):
    assert seen["wrong key"] == "FAILED unauthorized"
    assert seen["no entity"] == "FAILED notfound"


@pytest.mark.spec("X-9", "X-11", "X-13")
def test_the_go_sdk_passes_its_own_live_tests(seen):
    assert seen["admin unmanaged"] == [True] * 5
    assert seen["empty state"] is True
    assert seen["updated"] == ["before", "after"]


@pytest.mark.spec("X-12", "X-14", "X-15", "X-16", "X-17", "X-18", "X-24", "X-26")
def test_the_go_administration_client_passes_the_live_tests_of_the_sdks(seen):
    assert seen["admin described"] == ["sb://localhost/go-Settle", 1, True, True, "<Error><Code>"]
    assert seen["admin versionless"] == 1
    assert seen["admin premium"] == ["Premium", 1, True]
    assert seen["failing filter"] == ["broken", "FilterEvaluationException"]
