"""The unmodified Java SDK: it administers, sends, receives, and works in transactions, which other SDKs lack.

One Java program makes every check, for a JVM takes its time to start; each test reads what one of them saw.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers import run_java

PROGRAM = Path(__file__).with_name("JavaClient.java")
QUEUES = (
    "settle batch schedule delete renew processor tls",
    "commit rollback all hundred here there later deferred from to",
)

pytestmark = [pytest.mark.interop, pytest.mark.client("java")]


@pytest.fixture(scope="module")
def seen(broker, contoso) -> dict[str, str]:
    """What each check saw, by its name."""
    for name in " ".join(QUEUES).split():
        contoso.create_queue(f"java-{name}")
    contoso.create_queue("java-sessions", requires_session=True)
    contoso.create_topic("java-ruled")
    contoso.create_subscription("java-ruled", "s")
    secure = f"localhost:{contoso.port}"
    printed = run_java(PROGRAM, contoso.connection_string, secure, str(broker.ca_file), "java-", within=150)
    return dict(line.split("\t")[:2] for line in printed.splitlines())


@pytest.mark.parametrize(
    ("check", "saw"),
    [
        pytest.param(
            "admin queue",
            "[true, PT30S, 5, 7, 0, true, ResourceExistsException, false]",
            marks=pytest.mark.does("admin queues"),
        ),
        pytest.param(
            "admin topic",
            "[true, 3, 0, 1, 1]",
            marks=pytest.mark.does("admin topics", "admin subscriptions"),
        ),
        pytest.param(
            "admin lives",
            "[2048, 4, true, false, false]",
            marks=pytest.mark.does("admin topics", "admin subscriptions"),
        ),
        pytest.param(
            "admin rules",
            "[price > @least{@least=10}, red{n=1}, a = 1, [$Default, dear]]",
            marks=pytest.mark.does("admin rules"),
        ),
        ("admin namespace", "contoso"),
        ("admin missing", "false"),
    ],
)
def test_the_java_sdk_administers_over_https(seen, check, saw):
    assert seen[check] == saw


@pytest.mark.parametrize(
    ("check", "saw"),
    [
        pytest.param(
            "send and settle",
            "[hello/one/greeting/7, 1, 1, because]",
            marks=pytest.mark.does("tcp", "send", "receive", "complete", "abandon", "defer", "dead-letter"),
        ),
        pytest.param("batch", "262144 20", marks=pytest.mark.does("batch", "peek")),
        pytest.param("schedule", "1 2", marks=pytest.mark.does("schedule", "cancel")),
        pytest.param("receive and delete", "[a, b]", marks=pytest.mark.does("receive-and-delete")),
        pytest.param("renew", "true", marks=pytest.mark.does("renew")),
        pytest.param(
            "sessions",
            "[GENERAL_ERROR, a1, a2, noted, true, com.microsoft:session-cannot-be-locked, b]",
            marks=pytest.mark.does("sessions"),
        ),
        pytest.param("topic", "paid", marks=pytest.mark.does("topics")),
        pytest.param(
            "rule manager",
            "[red CorrelationRuleFilter: sys.Label = 'red' false, sql SqlRuleFilter: a = 1 true, "
            "MESSAGING_ENTITY_NOT_FOUND]",
            marks=pytest.mark.does("rules"),
        ),
        ("processor", "true"),
        pytest.param("over TLS", "sent 1", marks=pytest.mark.does("tls")),
        pytest.param("over WebSocket", "sent 1", marks=pytest.mark.does("websocket")),
    ],
)
def test_the_java_sdk_sends_receives_and_settles(seen, check, saw):
    assert seen[check] == saw


@pytest.mark.spec("X-23")
def test_a_footer_with_string_keys_comes_back_unchanged(seen):
    assert seen["footer"] == "footed {foot=note}"


def test_the_java_sdk_gets_descriptive_errors(seen):
    assert seen["wrong key"].startswith("UNAUTHORIZED ")
    assert seen["no entity"].startswith("FAILED MESSAGING_ENTITY_NOT_FOUND ")


@pytest.mark.does("transactions")
class TestTransactions:
    def test_a_commit_applies_all_operations(self, contoso, seen):
        assert seen["commit"] == "1 in it 2"
        assert contoso.counts("java-commit").active == 0

    def test_a_rollback_changes_nothing_and_keeps_the_lock(self, contoso, seen):
        assert seen["rollback"].startswith(
            "[before, GENERAL_ERROR errorCondition[amqp:transaction:unknown-id]"
        )
        assert contoso.counts("java-rollback").active == 1

    def test_every_kind_of_settlement_works_in_a_transaction(self, contoso, seen):
        assert seen["all settlements"] == "abandon 1 defer"
        counts = contoso.counts("java-all")
        assert (counts.active, counts.deferred, counts.dead_letter) == (1, 1, 1)

    def test_a_deferred_message_is_settled_in_a_transaction_by_its_lock_token(self, seen):
        assert seen["deferred in one"] == "true true"

    def test_scheduling_in_a_transaction_returns_the_sequence_number_at_once(self, contoso, seen):
        assert seen["scheduled in one"] == "1"
        assert contoso.counts("java-later").scheduled == 0

    @pytest.mark.parametrize(
        ("check", "queue", "words"),
        [
            ("hundred", "java-hundred", "Can't send more than 100 messages in a single transaction"),
            ("two entities", "java-here", "Local transactions cannot span multiple top-level entities"),
        ],
    )
    def test_a_refused_send_ignored_by_the_sdk_undoes_the_transaction(
        self, contoso, seen, check, queue, words
    ):
        assert "errorCondition[amqp:transaction:rollback]" in seen[check]
        assert words in seen[check]
        assert contoso.counts(queue).active == 0

    def test_a_cross_entity_transaction_goes_via_the_first_entity(self, contoso, seen):
        assert seen["across entities"] == "x committed"
        assert (contoso.counts("java-from").active, contoso.counts("java-to").active) == (0, 1)
