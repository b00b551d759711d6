"""A redriven dead letter equals the parked message; and the summary of a dead letter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, ValueBody
from sbpair.pair.amqp.sections import split
from sbpair.pair.amqp.types import Described, Int, Symbol, Timestamp, UInt, ULong
from sbpair.pair.envelope.inspect import read_parked
from sbpair.pair.envelope.restore import Forward, redriven, restore

PARKED = Message(
    header=Header(durable=True, priority=7, ttl=5000),
    message_annotations={Symbol("mine"): Int(4)},
    properties=Properties(message_id="m1", correlation_id=ULong(9), creation_time=123),
    application_properties={
        "x-ms-path": "orders",
        "x-ms-timetolive": "PT5M",
        "x-ms-scheduledenqueuetimeutc": Timestamp(1_700_000_000_000),
        "width": Int(3),
    },
    body=ValueBody({"a": [1, Int(2)]}),
    footer={Symbol("crc"): b"\x01"},
)


def dead(message: Message, reason: str | None = "DestinationNotFound") -> bytes:
    """The message as a broker shows it in a dead-letter queue."""
    why: dict[object, object] = (
        {}
        if reason is None
        else {
            "DeadLetterReason": reason,
            "DeadLetterErrorDescription": "no such queue",
        }
    )
    header = message.header or Header()
    return replace(
        message,
        header=replace(header, first_acquirer=False, delivery_count=UInt(3)),
        message_annotations=message.message_annotations
        | {
            Symbol("x-opt-sequence-number"): 42,
            Symbol("x-opt-enqueued-time"): Timestamp(1000),
            Symbol("x-opt-locked-until"): Timestamp(2000),
            Symbol("x-opt-deadletter-source"): "contoso/x-servicebus-transfer/0",
        },
        application_properties=message.application_properties | why,
    ).encode()


def assert_same(payload: bytes, message: Message) -> None:
    """Bit for bit, but for the header, whose trailing nulls may or may not be written."""
    assert split(payload)[1:] == split(message.encode())[1:]
    assert Message.decode(payload).header == message.header


@pytest.mark.spec("G-22")
def test_a_redriven_message_equals_the_parked_one():
    assert_same(redriven(dead(PARKED)), PARKED)


def test_a_dead_letter_without_a_reason_is_redriven():
    assert_same(redriven(dead(PARKED, reason=None)), PARKED)


def test_redriving_twice_changes_nothing_more():
    once = redriven(dead(PARKED))
    assert redriven(dead(Message.decode(once), "Another")) == once


@given(
    body=st.binary(max_size=300),
    properties=st.dictionaries(
        st.text(min_size=1, max_size=12), st.one_of(st.text(), st.binary(), st.booleans()), max_size=5
    ),
)
def test_the_body_and_the_application_properties_keep_their_bytes(body, properties):
    carried = {key: value for key, value in properties.items() if not key.startswith("DeadLetter")}
    message = Message(
        header=Header(durable=True),
        application_properties={"x-ms-path": "orders", **carried},
        body=DataBody((body,)),
    )
    assert_same(redriven(dead(message)), message)


def test_the_syphon_forwards_the_same_bytes_after_a_redrive():
    before, after = restore(PARKED.encode(), 0), restore(redriven(dead(PARKED)), 0)
    assert isinstance(before, Forward)
    assert after == before


def test_bytes_that_are_no_message_are_refused():
    with pytest.raises((DecodeError, IndexError)):
        redriven(b"\x00\x53\x70\xc0\xff")


def test_inspecting_a_dead_letter_shows_destination_content_and_reason():
    found = read_parked(dead(PARKED))

    assert (found.sequence_number, found.message_id, found.path, found.parked_at) == (
        42,
        "m1",
        "orders",
        1000,
    )
    assert found.aliases == {
        "x-ms-timetolive": "PT5M",
        "x-ms-scheduledenqueuetimeutc": "2023-11-14T22:13:20Z",
    }
    assert (found.reason, found.description, found.trouble) == ("DestinationNotFound", "no such queue", None)


@pytest.mark.parametrize(
    "value", [True, b"x", "", 0, -1, 2**62, "PT", Described("odd", 1), None, 10**15], ids=repr
)
def test_an_unreadable_alias_is_shown_with_its_fault(value):
    message = replace(PARKED, application_properties={"x-ms-path": "a", "x-ms-timetolive": value})
    assert read_parked(message.encode()).aliases["x-ms-timetolive"].startswith("unreadable: x-ms-timetolive")


@given(st.binary(max_size=200))
def test_looking_at_any_bytes_never_fails(payload):
    read_parked(payload)


def test_a_message_with_broken_properties_still_shows_its_destination():
    sections = split(PARKED.encode())
    broken = b"".join(sections._replace(properties=b"\x00\x53\x73\xc0\x03\x01\x52\x09"))
    found = read_parked(broken)
    assert (found.message_id, found.path) == (None, "orders")
    assert found.trouble
