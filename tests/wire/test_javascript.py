"""The unmodified JavaScript SDK: schedules, deferral, sessions, messages that expire, and rules."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import peers

pytestmark = pytest.mark.client("javascript")
PROGRAM = Path(__file__).with_name("javascript_client.js")
EXPIRY = Path(__file__).with_name("javascript_expiry.js")
RULES = Path(__file__).with_name("javascript_rules.js")
HOUR = 3_600_000  # milliseconds


def run(program: Path, *arguments: str, **variables: str) -> object:
    """What the program found, from its one line of JSON."""
    environment = {
        **os.environ,
        "NODE_PATH": str(peers.service_bus_directory() / "node_modules"),
        **variables,
    }
    done = subprocess.run(
        ["node", str(program), *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_javascript_sdk_schedules_defers_and_works_in_sessions(contoso, make_queue):
    plain, sessions = make_queue(), make_queue(requires_session=True)
    assert run(PROGRAM, contoso.connection_string, plain, sessions) == {
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
def test_the_javascript_sdk_peeks_what_expired_and_never_receives_it(contoso, make_queue, broker):
    queue = make_queue(dead_lettering_on_message_expiration=True, default_message_time_to_live=5 * HOUR)
    run(EXPIRY, contoso.connection_string, queue, "send")
    broker.advance(2 * HOUR)
    assert contoso.counts(queue).active == 2

    assert run(EXPIRY, contoso.connection_string, queue, "look") == {
        "peeked": [["short", HOUR], ["without", None]],
        "received": [["without", 5 * HOUR]],
    }
    dead = run(EXPIRY, contoso.connection_string, queue, "bury")
    assert dead == ["short", "TTLExpiredException"]


def test_the_javascript_sdk_makes_rules_by_administration_and_over_amqp(contoso, broker):
    contoso.create_topic("ruled-by-javascript")
    contoso.create_subscription("ruled-by-javascript", "s")
    ca = str(broker.ca_file)
    found = run(RULES, contoso.connection_string, "ruled-by-javascript", NODE_EXTRA_CA_CERTS=ca)
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
