"""The capabilities of foreign clients against the broker, and the tests that prove them.

`@pytest.mark.does("sessions", "peek")` on a test names the capabilities it exercises; whose they are is what
`tests/tools/proofs.py` says of the test. docs/evidence/interop.md is written from these marks, and test_matrix.py asks
for every cell of its table: a test, or the reason in `CANNOT` why there is none.
"""

from __future__ import annotations

from functools import cache

from tests.tools.proofs import CLIENTS, tests_marked

PEERS = tuple(name for name in CLIENTS if name not in ("model", "sbpair", "amqp"))
"""The foreign clients, by the name of their `client` mark."""

CAPABILITIES = {
    "tcp": "connects by AMQP over TCP",
    "tls": "connects by AMQP over TLS, and verifies the certificate",
    "websocket": "connects by AMQP over WebSocket",
    "send": "sends a message with its properties",
    "batch": "sends a batch in one transfer",
    "receive": "receives under a lock",
    "receive-and-delete": "receives without a lock",
    "complete": "completes",
    "abandon": "abandons, and sees the delivery count go up",
    "defer": "defers, and receives by number",
    "dead-letter": "dead-letters, and reads the dead-letter queue",
    "renew": "renews the lock of a message",
    "peek": "peeks",
    "schedule": "schedules",
    "cancel": "cancels what is scheduled",
    "sessions": "accepts a session by name and the next one, with state and renewal",
    "topics": "sends to a topic, receives from a subscription",
    "rules": "manages rules over AMQP",
    "transactions": "commits and rolls back transactions",
    "admin queues": "creates, lists, updates and deletes queues",
    "admin topics": "creates, lists, updates and deletes topics",
    "admin subscriptions": "creates, lists, updates and deletes subscriptions",
    "admin rules": "creates, lists, updates and deletes rules",
}
"""What a client of a namespace does, by the name of the mark."""

CANNOT: dict[tuple[str, str], str] = {
    ("azure-servicebus", "rules"): "the Python SDK has no rule manager",
    ("azure-servicebus.aio", "rules"): "the Python SDK has no rule manager",
    ("azure-servicebus", "transactions"): "the Python SDK has no transactions",
    ("azure-servicebus.aio", "transactions"): "the Python SDK has no transactions",
    ("javascript", "transactions"): "the JavaScript SDK has no transactions",
    ("go", "rules"): "the Go SDK has no rule manager",
    ("go", "transactions"): "the Go SDK has no transactions",
    ("proton", "websocket"): "proton has no WebSocket",
    ("proton", "batch"): "proton sets no message format",
    ("rhea", "transactions"): "rhea has no transactions",
    **{
        (peer, f"admin {what}"): f"{peer} knows AMQP only"
        for peer in ("proton", "rhea")
        for what in ("queues", "topics", "subscriptions", "rules")
    },
}
"""Why a cell has no test: the client has no such thing."""


@cache
def cells() -> dict[tuple[str, str], list[str]]:
    """(peer, capability): the files of the tests that say it does that, each once."""
    found: dict[tuple[str, str], list[str]] = {}
    for test in tests_marked("does"):
        for capability in test.texts("does"):
            files = found.setdefault((test.client, capability), [])
            if test.file not in files:
                files.append(test.file)
    return found
