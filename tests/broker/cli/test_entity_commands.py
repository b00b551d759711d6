"""`sbpair send`, `receive`, `peek` and `purge` against a broker, as processes where they keep running."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

import pytest

from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.pair.cli import group
from tests.pair.cli.conftest import CANARY, assert_clean, connection_string, environment
from tests.pair.syphon.pair import put

pytestmark = pytest.mark.spec("E-1")


@dataclass(frozen=True, slots=True)
class Done:
    """The exit code and the output of a command."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def contoso(broker: Broker) -> NamespaceControl:
    return broker.namespace("contoso")


@pytest.fixture
def command(
    contoso: NamespaceControl,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Command:
    """Run a command in this process, with contoso as `primary/...`."""
    monkeypatch.setenv("SBPAIR_PRIMARY", contoso.connection_string)
    monkeypatch.delenv("SBPAIR_SECONDARY", raising=False)

    def run(*arguments: str, lines: str = "", **env: str) -> Done:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "input").write_text(lines)
        with (tmp_path / "input").open() as stdin, monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", stdin)
            code = group.run(list(arguments))
        written = capfd.readouterr()
        assert_clean(written.out + written.err)
        return Done(code, written.out, written.err)

    return run


def fill(namespace: NamespaceControl, path: str, *messages: Message) -> None:
    asyncio.run(put(namespace, path, [each.encode() for each in messages]))


def plain(*bodies: str) -> list[Message]:
    return [Message(body=DataBody((each.encode(),))) for each in bodies]


def test_each_line_of_input_is_a_message_and_is_received_in_order(command, contoso):
    sent = command("send", "primary/orders", lines="one\ntwo\n\nfour")
    assert (sent.returncode, sent.stdout) == (0, "sent 4\n"), sent.stderr

    received = command("receive", "primary/orders", "--count", "4")
    assert (received.returncode, received.stdout) == (0, "one\ntwo\n\nfour\n"), received.stderr
    assert contoso.counts("orders").total == 0


def test_a_message_received_as_json_can_be_sent_again(command, contoso):
    contoso.create_queue("carts", requires_session=True)
    flags = (
        "--session",
        "cart-7",
        "--property",
        "amount=5",
        "--property",
        'size="7"',
        "--property",
        "note=a=b",
    )
    more = ("--subject", "shoes", "--ttl", "1h", "--correlation-id", "c", "--content-type", "text/plain")
    assert command("send", "primary/carts", "--body", "two shoes", *flags, *more).stdout == "sent 1\n"

    first = command("receive", "primary/carts", "--next-session", "--json").stdout
    assert command("send", "primary/carts", "--json", lines=first).stdout == "sent 1\n"
    second = command("receive", "primary/carts", "--session", "cart-7", "--json").stdout

    once, again = json.loads(first), json.loads(second)
    assert once["application_properties"] == {"amount": 5, "size": "7", "note": "a=b"}
    assert (once["body"], once["session_id"], once["subject"]) == ("two shoes", "cart-7", "shoes")
    assert once["time_to_live"] == 3600
    differ = {"sequence_number", "enqueued_time_utc", "locked_until_utc"}
    assert {name: value for name, value in once.items() if name not in differ} == {
        name: value for name, value in again.items() if name not in differ
    }


def test_dead_letters_are_received_and_sent_again_without_their_reason(command, contoso):
    contoso.create_queue("late", dead_lettering_on_message_expiration=True)
    assert command("send", "primary/late", "--body", "x", "--ttl", "1ms").returncode == 0
    assert (
        command("receive", "primary/late", "--wait", "0").returncode == 1
    )  # expired messages move when read
    dead = command("receive", "primary/late", "--dead-letter", "--json").stdout
    assert json.loads(dead)["dead_letter_reason"] == "TTLExpiredException"
    assert command("send", "primary/orders", "--json", lines=dead.replace("0.001", "60")).stdout == "sent 1\n"
    assert "dead_letter_reason" not in json.loads(command("receive", "primary/orders", "--json").stdout)


def test_a_bad_input_line_is_named_and_earlier_lines_are_sent(command, contoso):
    lines = '{"body": "a"}\n{"bodi": "b"}\n{"body": "c"}\n'
    done = command("send", "primary/orders", "--json", lines=lines)
    assert (done.returncode, done.stdout) == (1, "sent 1\n")
    assert "line 2: unknown name 'bodi'; there are: body, body_base64" in done.stderr
    assert contoso.counts("orders").active == 1


def test_a_message_that_the_broker_refuses_is_named_by_its_line(command, contoso):
    contoso.create_queue("carts", requires_session=True)
    lines = '{"body": "a", "session_id": "s"}\n{"body": "b"}\n'
    done = command("send", "primary/carts", "--json", lines=lines)
    assert (done.returncode, done.stdout) == (1, "sent 1\n")
    assert "line 2 was refused: amqp:not-allowed" in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--ttl", "soon"), "time_to_live must be seconds or a duration such as 90s"),
        (("--schedule", "tomorrow"), "scheduled_enqueue_time_utc must be a time such as"),
        (("--property", "amount"), "'amount' is not NAME=VALUE"),
        (("--body", "x", "--json"), "--body and --json exclude each other"),
    ],
)
def test_an_invalid_flag_is_refused_before_anything_is_sent(command, contoso, flags, said):
    done = command("send", "primary/orders", *flags)
    assert done.returncode == 2
    assert said in done.stderr
    assert contoso.counts("orders").total == 0


def test_a_scheduled_message_is_peeked_with_its_time_and_is_not_received(command, contoso):
    assert command("send", "primary/orders", "--body", "later", "--schedule", "10m").returncode == 0
    shown = command("peek", "primary/orders").stdout
    assert "[scheduled]" in shown
    assert shown.endswith("later\n")
    received = command("receive", "primary/orders", "--wait", "0s")
    assert (received.returncode, received.stdout) == (1, "")


def test_peek_shows_ten_messages_from_a_sequence_number_and_changes_nothing(command, contoso):
    fill(contoso, "orders", *plain(*map(str, range(12))))
    bodies = [
        json.loads(line)["body"] for line in command("peek", "primary/orders", "--json").stdout.splitlines()
    ]
    assert bodies == list(map(str, range(10)))
    assert "orders has more messages than these 10" in command("peek", "primary/orders", "--json").stderr
    rest = command("peek", "primary/orders", "--from", "11", "--count", "5")
    assert [line.split()[0] for line in rest.stdout.splitlines()] == ["11", "12"]
    assert rest.stderr == ""
    assert command("peek", "primary/orders", "--count", "12").stderr == ""
    assert contoso.counts("orders").active == 12


def test_a_reader_that_closes_the_pipe_leaves_the_untaken_messages(contoso):
    fill(contoso, "orders", *plain(*("x" * 50_000 for _ in range(20))))
    process = subprocess.Popen(
        [sys.executable, "-m", "sbpair", "receive", "primary/orders", "--count", "20"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        env=environment(SBPAIR_PRIMARY=contoso.connection_string),
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        taken = process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()  # type: ignore[union-attr]
    assert taken == b"x" * 50_000 + b"\n"
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert (
        contoso.counts("orders").active >= 17
    )  # a pipe holds 64 KiB: one printed, one within it, one being printed


def test_follow_prints_arriving_messages_until_a_signal(start, contoso):
    running = start("receive", "primary/orders", "--follow", SBPAIR_PRIMARY=contoso.connection_string)
    for body in ("one", "two"):
        fill(contoso, "orders", *plain(body))
        assert running.line() == f"{body}\n"
    peeking = start("peek", "primary/orders", "--follow", SBPAIR_PRIMARY=contoso.connection_string)
    code, _ = running.stop(SIGTERM)
    assert code == 0
    fill(contoso, "orders", *plain("three"))
    assert peeking.line().endswith("three\n")
    assert peeking.stop(SIGTERM)[0] == 0
    assert contoso.counts("orders").total == 1


def test_follow_with_sessions_moves_from_one_session_to_the_next(start, contoso):
    contoso.create_queue("carts", requires_session=True)
    fill(
        contoso,
        "carts",
        *(Message(properties=Properties(group_id=each), body=DataBody((each.encode(),))) for each in "ab"),
    )
    running = start(
        "receive", "primary/carts", "--next-session", "--follow", "--count", "2",
        SBPAIR_PRIMARY=contoso.connection_string,
    )  # fmt: skip
    assert {running.line(), running.line()} == {"a\n", "b\n"}
    assert running.wait()[0] == 0


def test_an_entity_that_requires_sessions_says_which_flag_is_missing(command, contoso):
    contoso.create_queue("carts", requires_session=True)
    done = command("receive", "primary/carts")
    assert done.returncode == 3
    assert "--session ID or --next-session" in done.stderr


def test_purge_counts_first_and_deletes_only_after_confirmation(command, contoso):
    fill(contoso, "orders", *plain("a", "b", "c"))
    asked = command("purge", "primary/orders")
    assert asked.returncode == 2
    assert "permanently delete 3 messages; add --yes" in asked.stderr
    assert contoso.counts("orders").active == 3
    assert command("send", "primary/orders", "--body", "later", "--schedule", "1h").returncode == 0
    done = command("purge", "primary/orders", "--yes")
    assert (done.returncode, done.stdout) == (1, "deleted 3, 1 left: locked, deferred or scheduled\n"), (
        done.stderr
    )


def test_a_purge_empties_every_session(command, contoso):
    contoso.create_queue("carts", requires_session=True)
    names = [f"s{number % 3}" for number in range(9)]
    fill(
        contoso,
        "carts",
        *(Message(properties=Properties(group_id=name), body=DataBody((b"x",))) for name in names),
    )
    done = command("purge", "primary/carts", "--yes")
    assert (done.returncode, done.stdout) == (0, "deleted 9\n"), done.stderr


def test_a_subscription_is_received_from_by_its_path(command, contoso):
    contoso.create_topic("events")
    contoso.create_subscription("events", "billing")
    assert command("send", "primary/events", "--body", "paid").returncode == 0
    assert command("receive", "primary/events/Subscriptions/billing").stdout == "paid\n"


def test_a_file_target_splits_at_the_existing_file(command, contoso, tmp_path):
    file = tmp_path / "contoso"
    file.write_text(contoso.connection_string)
    assert command("send", f"file:{file}/orders", "--body", "x").stdout == "sent 1\n"
    done = command("send", f"file:{tmp_path}/missing/orders", "--body", "x")
    assert done.returncode == 2
    assert "is a file; expected file:PATH/ENTITY" in done.stderr


@pytest.mark.parametrize(
    ("target", "env", "code", "said"),
    [
        ("orders", {}, 2, "'orders' is not NAMESPACE/ENTITY"),
        (f"{connection_string()}/orders", {}, 2, "use env:NAME/ENTITY"),
        ("secondary/orders", {}, 2, "needs --secondary or SBPAIR_SECONDARY"),
        ("env:NOWHERE/orders", {}, 3, "'NOWHERE' is not set or empty"),
        ("primary/orders/", {}, 2, "'orders/' is not the path of an entity"),
        ("primary/missing", {}, 3, "create the entity or correct its name"),
        ("env:GONE/orders", {"GONE": connection_string(key=CANARY)}, 5, "check the address and the network"),
    ],
)
def test_an_unreachable_target_is_reported_with_the_reason(command, target, env, code, said):
    done = command("receive", target, **env)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_value_body_is_shown_and_is_not_sent_as_bytes(command, contoso):
    fill(contoso, "orders", Message(body=ValueBody({"a": [1, None]})))
    shown = command("receive", "primary/orders", "--json").stdout
    assert json.loads(shown)["body"] == {"a": [1, None]}
    done = command("send", "primary/orders", "--json", lines=shown)
    assert done.returncode == 1
    assert "line 1: only bodies of bytes can be sent" in done.stderr


def test_a_thousand_lines_are_accepted_one_by_one(command, contoso):
    done = command("send", "primary/orders", "--count", "2", lines="x\n" * 500)
    assert (done.returncode, done.stdout) == (0, "sent 1000\n"), done.stderr
    assert contoso.counts("orders").active == 1000


def test_a_bare_name_in_a_pair_is_explained(sbpair) -> None:
    string = (
        "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=YWFh;UseDevelopmentEmulator=true"
    )
    done = sbpair("peek", "contoso/orders", SBPAIR_PRIMARY=string)
    assert (
        "contoso is contoso.servicebus.windows.net; did you mean primary/orders (localhost:1)?" in done.stderr
    )
