"""The unmodified JavaScript SDK: messages, schedules, sessions, entities and rules, over every transport."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sbpair.broker.auth import make_token
from tests import peers
from tests.broker.wire.elsewhere import entity_time

pytestmark = [pytest.mark.interop, pytest.mark.client("javascript")]
HERE = Path(__file__).parent
HOUR = 3_600_000  # milliseconds


def run(program: str, *arguments: str, **variables: str) -> Any:
    """What the program found, from its one line of JSON."""
    packages = [peers.service_bus_directory()]
    if program == "websocket":
        packages.append(peers.ws_directory())
    return peers.found_by_node(HERE / f"javascript_{program}.js", *arguments, packages=packages, **variables)


@pytest.mark.does("tcp", "send", "batch", "peek", "receive", "renew")
@pytest.mark.does("complete", "abandon", "dead-letter", "receive-and-delete", "topics")
def test_the_javascript_sdk_sends_receives_and_settles(contoso, queue):
    contoso.create_topic("paid-by-javascript")
    contoso.create_subscription("paid-by-javascript", "s")
    assert run("messages", contoso.connection_string, queue, "paid-by-javascript") == {
        "batch": [4, 262144],
        "peeked": [1, 2, 3, 4, 5],
        "received": [{"greeting": "hello"}, "one", "subject", 7],
        "renewed": True,
        "abandoned": ["batched 0", 1],
        "dead": [["batched 1", "because"], ["batched 2", "because"], ["batched 3", "because"]],
        "published": "paid",
    }
    assert contoso.counts(queue).total == 0


@pytest.mark.does("tls")
def test_the_javascript_sdk_uses_tls_without_the_emulator_flag(contoso, queue, broker):
    contoso.create_topic("paid-over-tls")
    contoso.create_subscription("paid-over-tls", "s")
    text = contoso.connection_string.replace(";UseDevelopmentEmulator=true", "")
    found = run("messages", text, queue, "paid-over-tls", NODE_EXTRA_CA_CERTS=str(broker.ca_file))
    assert found["published"] == "paid"


@pytest.mark.does("websocket")
def test_the_javascript_sdk_sends_and_receives_over_websocket(broker, contoso, queue):
    ca = str(broker.ca_file)
    assert run("websocket", contoso.connection_string, queue, NODE_EXTRA_CA_CERTS=ca) == ["a", "b"]
    assert contoso.counts(queue).active == 0


@pytest.mark.does("schedule", "cancel", "defer", "sessions")
def test_the_javascript_sdk_schedules_defers_and_uses_sessions(contoso, make_queue):
    plain, sessions = make_queue(), make_queue(requires_session=True)
    assert run("client", contoso.connection_string, plain, sessions) == {
        "scheduled": [1, 2],
        "cancelledTwice": "MessageNotFound",
        "deferred": ["aside", "deferred"],
        "peeked": [["y", "scheduled"]],
        "received": ["1", "3"],
        "state": {"step": 2},
        "renewed": True,
        "next": "b",
        "heldByAnother": "SessionCannotBeLocked",
    }
    assert (contoso.counts(plain).scheduled, contoso.counts(sessions).active) == (1, 3)


@pytest.mark.spec("T-1", "T-2", "T-4", "T-6", "T-7", "T-10")
def test_the_javascript_sdk_peeks_expired_messages_and_never_receives_them(contoso, make_queue, broker):
    queue = make_queue(dead_lettering_on_message_expiration=True, default_message_time_to_live=5 * HOUR)
    run("expiry", contoso.connection_string, queue, "send")
    broker.advance(2 * HOUR)
    assert contoso.counts(queue).active == 2

    assert run("expiry", contoso.connection_string, queue, "look") == {
        "peeked": [["short", HOUR], ["without", None]],
        "received": [["without", 5 * HOUR]],
    }
    dead = run("expiry", contoso.connection_string, queue, "bury")
    assert dead == ["short", "TTLExpiredException"]


@pytest.mark.does("admin queues", "admin topics", "admin subscriptions")
def test_the_javascript_sdk_creates_lists_changes_and_deletes_entities(contoso, broker):
    ca = str(broker.ca_file)
    assert run("entities", contoso.connection_string, NODE_EXTRA_CA_CERTS=ca) == {
        "queue": ["javascript-made", "PT30S", 5],
        "queueUpdated": 7,
        "queues": ["javascript-made"],
        "queueCount": 0,
        "queueTwice": ["MessageEntityAlreadyExistsError", 409],
        "queueExists": False,
        "topic": ["javascript-made", 2048],
        "topicUpdated": 3072,
        "topics": ["javascript-made"],
        "subscription": ["javascript-made", "billing", 3],
        "subscriptionUpdated": 4,
        "subscriptions": ["billing"],
        "topicCount": 1,
        "subscriptionExists": False,
        "topicExists": False,
    }


@pytest.mark.does("rules", "admin rules")
def test_the_javascript_sdk_creates_rules_by_administration_and_over_amqp(contoso, broker):
    contoso.create_topic("ruled-by-javascript")
    contoso.create_subscription("ruled-by-javascript", "s")
    ca = str(broker.ca_file)
    found = run("rules", contoso.connection_string, "ruled-by-javascript", NODE_EXTRA_CA_CERTS=ca)
    dear = {"sqlExpression": "price > @least", "sqlParameters": {"@least": 10}}
    red = {"subject": "red", "applicationProperties": {"n": 1}}
    assert found == {
        "created": ["dear", dear, "SET hot = 'yes'"],
        "got": ["red", {"n": 1, "sure": True, "s": "x"}],
        "updated": "a = 1",
        "exists": [True, False],
        "listed": ["s", "$Default", "dear"],
        "refused": "ServiceError",
        "managed": [
            ["correlation", red, {}],
            ["dear", {"sqlExpression": "price > @least"}, {"sqlExpression": "SET hot = 'yes'"}],
            ["sql", {"sqlExpression": "a = 1"}, {"sqlExpression": "SET b = 2"}],
        ],
        "twice": "MessagingEntityAlreadyExists",
        "unknown": "MessagingEntityNotFound",
        "received": [
            ["red", {"n": 1}],
            ["one", {"a": 1, "b": 2, "RuleName": "sql"}],
            ["dear", {"price": 11, "hot": "yes", "RuleName": "dear"}],
        ],
    }


@pytest.mark.spec("X-1", "X-2", "X-3", "X-5", "X-6", "X-7", "X-8")
def test_the_javascript_sdk_passes_its_own_live_tests(contoso, make_queue):
    plain, sessions = make_queue(), make_queue(requires_session=True)
    fields = dict(part.split("=", 1) for part in contoso.connection_string.split(";") if "=" in part)
    endpoint = fields["Endpoint"].rstrip("/")
    token = make_token(
        f"{endpoint}/", fields["SharedAccessKeyName"], fields["SharedAccessKey"], int(time.time()) + 600
    )
    soon = str(int(entity_time(contoso).timestamp() * 1000) + 2_000)
    signed = f"Endpoint={endpoint}/;SharedAccessSignature={token};UseDevelopmentEmulator=true"
    assert run("fidelity", contoso.connection_string, signed, plain, sessions, soon) == {
        "annotated": ["x", {"propFooter": "foot"}, False],
        "scheduled": "scheduled",
        "peeked": [True, {"n": 1}],
        "deferred": 1,
        "dead": [1, 1, 1],
        "session": [["x", "", "key"]],
        "signed": ["signed"],
    }
