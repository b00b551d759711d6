"""rhea, on which the JavaScript SDK stands: it knows AMQP only, and does by hand what the SDKs do.

One program (rhea_client.js) makes every check; each test reads what one of them saw.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.peers import found_by_node, rhea_directory, ws_directory

QUEUES = "settle batch defer renew schedule tls websocket"
PROGRAM = Path(__file__).with_name("rhea_client.js")
POLICY = "RootManageSharedAccessKey"

pytestmark = [pytest.mark.interop, pytest.mark.client("rhea")]


@pytest.fixture(scope="module")
def seen(broker, contoso) -> dict[str, Any]:
    """What each check saw, by its name."""
    for name in QUEUES.split():
        contoso.create_queue(f"rhea-{name}")
    contoso.create_queue("rhea-sessions", requires_session=True)
    contoso.create_topic("rhea-events")
    contoso.create_subscription("rhea-events", "dear")
    key = contoso.connection_string.split("SharedAccessKey=")[1].split(";")[0]
    packages = (rhea_directory(), ws_directory())
    found: dict[str, Any] = found_by_node(
        PROGRAM, "localhost", str(contoso.port), POLICY, key, str(broker.ca_file), packages=packages
    )
    return found


@pytest.mark.parametrize(
    ("check", "saw"),
    [
        pytest.param(
            "settle",
            ["hello", "one", 7, 1, 1, "hello"],
            marks=pytest.mark.does("tcp", "send", "receive", "abandon", "dead-letter", "complete"),
        ),
        pytest.param("batch", ["a", "b", "c"], marks=pytest.mark.does("batch", "receive-and-delete")),
        pytest.param("defer", "a", marks=pytest.mark.does("defer")),
        pytest.param("renew", True, marks=pytest.mark.does("renew")),
        pytest.param("schedule", [[1, 2], ["b"]], marks=pytest.mark.does("schedule", "cancel", "peek")),
        pytest.param(
            "sessions",
            ["a1", "a2", "b", "noted", True, "com.microsoft:session-cannot-be-locked"],
            marks=pytest.mark.does("sessions"),
        ),
        pytest.param("rules", [1, "at 11"], marks=pytest.mark.does("topics", "rules")),
        pytest.param("over TLS", "hello", marks=pytest.mark.does("tls")),
        pytest.param("over WebSocket", "hello", marks=pytest.mark.does("websocket")),
    ],
)
def test_rhea_sends_receives_and_settles(seen, check, saw):
    assert seen[check] == saw


@pytest.mark.spec("X-10")
def test_a_second_rhea_sender_on_the_claims_node_is_refused(seen):
    assert seen["claims"] == ["open", "amqp:not-allowed"]
