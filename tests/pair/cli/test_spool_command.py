"""`sbpair spool` counts the messages on disk and, on explicit request, deletes them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from sbpair.pair.amqp.message import Message
from sbpair.pair.cli.form import to_send
from sbpair.pair.pairing.spool.codec import to_bytes
from sbpair.pair.pairing.spool.store import Entry, Spool


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A spool without an owner, with messages for two destinations."""
    file = tmp_path / "spool"
    spool, now = Spool(file, primary="contoso"), time.time_ns() // 1_000_000
    spool.append("orders", [Entry("a", b"x" * 10), Entry("b", b"y" * 20)], now - 90_000)
    spool.append("invoices", [Entry("huge", b"z")], now)
    spool.refuse("invoices", spool.oldest("invoices", 1)[0], "MessageSizeExceededError: too large")
    spool.close()
    return str(file)


def test_list_counts_by_destination_and_says_how_old_the_oldest_is(sbpair, path):
    done = sbpair("spool", "list", path)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("invoices: 0 waiting, 1 refused, 1 bytes, oldest ")
    assert lines[1].startswith("orders: 2 waiting, 0 refused, 30 bytes, oldest 9")
    assert lines[2:] == [
        "refused: invoices 'huge': MessageSizeExceededError: too large",
        "2 waiting, 1 refused",
    ]


def test_list_as_json_prints_one_object_per_line(sbpair, path):
    lines = sbpair("spool", "list", "--json", path).stdout.splitlines()

    found = {each["path"]: each for each in map(json.loads, lines)}
    assert found["orders"]["waiting"] == 2
    assert 90 <= found["orders"]["oldest_age_seconds"] < 150


def test_purge_needs_yes_and_says_what_it_would_delete(sbpair, path):
    done = sbpair("spool", "purge", path)

    assert done.returncode == 2
    assert "would permanently delete 3 messages; add --yes" in done.stderr
    assert "2 waiting, 1 refused" in sbpair("spool", "list", path).stdout


@pytest.mark.parametrize(
    ("flags", "deleted", "left"),
    [
        ((), 3, "0 waiting, 0 refused"),
        (("--path", "ORDERS"), 2, "0 waiting, 1 refused"),
        (("--refused",), 1, "2 waiting, 0 refused"),
        (("--path", "orders", "--refused"), 0, "2 waiting, 1 refused"),
    ],
)
def test_purge_deletes_the_chosen_messages(sbpair, path, flags, deleted, left):
    done = sbpair("spool", "purge", path, *flags, "--yes")

    assert (done.returncode, done.stdout) == (0, f"deleted {deleted}\n")
    assert left in sbpair("spool", "list", path).stdout


@pytest.mark.spec("R-2")
@pytest.mark.parametrize(
    ("flags", "said", "left"),
    [
        ((), "1 waiting again\n", "3 waiting, 0 refused"),
        (("--path", "Invoices"), "1 waiting again\n", "3 waiting, 0 refused"),
        (("--path", "orders"), "0 waiting again\n", "2 waiting, 1 refused"),
    ],
)
def test_redrive_queues_set_aside_messages_again(sbpair, path, flags, said, left):
    done = sbpair("spool", "redrive", path, *flags)

    assert (done.returncode, done.stdout) == (0, said)
    assert left in sbpair("spool", "list", path).stdout


def test_a_spool_in_use_is_not_touched_and_its_owner_is_named(sbpair, path):
    owner = Spool(path, primary="contoso")
    try:
        done = sbpair("spool", "purge", path, "--yes")
    finally:
        owner.close()

    assert done.returncode == 3
    assert f"{path} is in use by process " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_file_or_one_that_is_no_spool_is_a_configuration_error(sbpair, tmp_path):
    missing = sbpair("spool", "list", str(tmp_path / "missing"))
    assert (missing.returncode, "does not exist" in missing.stderr) == (3, True)
    assert not (tmp_path / "missing").exists()
    (tmp_path / "text").write_text("not a spool\n" * 100)
    other = sbpair("spool", "list", str(tmp_path / "text"))
    assert (other.returncode, "is not a spool" in other.stderr) == (3, True)


@pytest.mark.spec("R-127")
def test_set_aside_messages_with_one_reason_are_listed_together(sbpair, tmp_path):
    spool, now = Spool(tmp_path / "spool", primary="contoso"), time.time_ns() // 1_000_000
    spool.append("orders", [Entry(f"m{number}", b"x") for number in range(10)], now)
    for number, message in enumerate(spool.oldest("orders", 10)):
        spool.refuse("orders", message, "ValueError: odd" if number == 9 else "TooLarge: 300000 bytes")
    spool.close()

    lines = sbpair("spool", "list", str(tmp_path / "spool")).stdout.splitlines()

    assert lines[1:] == [
        "refused: orders 'm0' and 8 more: TooLarge: 300000 bytes",
        "refused: orders 'm9': ValueError: odd",
        "0 waiting, 10 refused",
    ]


@pytest.mark.spec("R-127")
def test_an_exported_message_can_be_edited_and_sent(sbpair, tmp_path):
    due = datetime(2026, 11, 24, 12, tzinfo=UTC)
    original = ServiceBusMessage(
        "two shoes",
        message_id="m1",
        session_id="cart-7",
        subject="order",
        time_to_live=timedelta(minutes=5),
        application_properties={"amount": 5, "due": due, b"raw": b"\x00\xff", "id": UUID(int=7)},
    )
    spool, now = Spool(tmp_path / "spool", primary="contoso"), time.time_ns() // 1_000_000
    stored = [
        Entry("m1", to_bytes(original.raw_amqp_message)),
        Entry("m2", to_bytes(AmqpAnnotatedMessage(value_body={"a": [1, None]}))),
        Entry("m3", b"damaged"),
    ]
    spool.append("orders", stored, now)
    spool.append("invoices", stored[:1], now)
    spool.refuse("orders", spool.oldest("orders", 1)[0], "too odd")
    spool.close()

    done = sbpair("spool", "export", str(tmp_path / "spool"), "--path", "orders")
    refused = sbpair("spool", "export", str(tmp_path / "spool"), "--refused").stdout.splitlines()

    assert done.returncode == 0, done.stderr
    first, value, damaged = map(json.loads, done.stdout.splitlines())
    assert [json.loads(line)["message_id"] for line in refused] == ["m1"]
    assert first.pop("spooled_at").startswith("20")
    assert first == {
        "body": "two shoes",
        "message_id": "m1",
        "session_id": "cart-7",
        "subject": "order",
        "time_to_live": 300.0,
        "application_properties": {
            "amount": 5,
            "due": {"$timestamp": "2026-11-24T12:00:00.000Z"},
            "raw": {"$binary": "AP8="},
            "id": {"$uuid": str(UUID(int=7))},
        },
        "destination": "orders",
        "refused": "too odd",
    }
    assert (value["body"], value["body_type"], value["message_id"]) == ({"a": [1, None]}, "value", "m2")
    assert set(damaged) == {"message_id", "destination", "spooled_at", "unreadable"}
    sent = Message.decode(to_send(first | {"body": "two boots"}, datetime.now(UTC), "new"))
    assert sent.properties is not None
    assert (sent.properties.message_id, sent.properties.group_id) == ("m1", "cart-7")
    assert "0 waiting" not in sbpair("spool", "list", str(tmp_path / "spool")).stdout
