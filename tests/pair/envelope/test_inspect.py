"""The summary of a parked message, whatever is wrong with it."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.types import Described, Symbol, Timestamp, ULong
from sbpair.pair.envelope.inspect import ParkedMessage, message_id_of, read_parked

pytestmark = pytest.mark.spec("R-66")

PARKED_AT = 1_700_000_000_000


def parked(
    carried: dict[object, object] | None = None,
    annotations: dict[object, object] | None = None,
    message_id: object = "m",
) -> bytes:
    return Message(
        message_annotations=annotations or {},
        properties=Properties(message_id=message_id),  # type: ignore[arg-type]
        application_properties=carried or {},
        body=DataBody((b"x",)),
    ).encode()


def test_everything_but_the_body_is_shown() -> None:
    carried = {
        "x-ms-path": "orders",
        "x-ms-sessionid": "s",
        "x-ms-timetolive": "PT90S",
        "x-ms-scheduledenqueuetimeutc": "2030-01-02T03:04:05Z",
        "x-sbpair-partitionkey": "p",
        "x-sbpair-deadline": Timestamp(PARKED_AT),
        "x-sbpair-absoluteexpirytime": PARKED_AT,
        "x-sbpair-version": "1",
        "mine": 5,
        "DeadLetterReason": "Expired",
        "DeadLetterErrorDescription": "too late",
    }
    annotations = {
        Symbol("x-opt-sequence-number"): 7,
        Symbol("x-opt-enqueued-time"): Timestamp(PARKED_AT),
    }
    assert read_parked(parked(carried, annotations)) == ParkedMessage(
        sequence_number=7,
        message_id="m",
        path="orders",
        aliases={
            "x-ms-sessionid": "s",
            "x-ms-timetolive": "PT1M30S",
            "x-ms-scheduledenqueuetimeutc": "2030-01-02T03:04:05Z",
            "x-sbpair-partitionkey": "p",
            "x-sbpair-deadline": "2023-11-14T22:13:20Z",
            "x-sbpair-absoluteexpirytime": "2023-11-14T22:13:20Z",
            "x-sbpair-version": "1",
        },
        parked_at=PARKED_AT,
        reason="Expired",
        description="too late",
        trouble=None,
    )


def test_a_missing_field_is_shown_as_none() -> None:
    assert read_parked(b"") == ParkedMessage(None, None, None, {}, None, None, None, None)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("x-ms-timetolive", 922_337_203_685_477, "no limit"),
        ("x-ms-timetolive", 1_500, "PT1.5S"),
        (
            "x-ms-timetolive",
            0,
            "unreadable: x-ms-timetolive must lie between 1 ms and 10675199 days: 0 ms (long)",
        ),
        ("x-ms-timetolive", "soon", "unreadable: x-ms-timetolive is a string that is not ISO 8601: 'soon'"),
        ("x-ms-scheduledenqueuetimeutc", -5, "past"),
        ("x-ms-sessionid", 5, "unreadable: x-ms-sessionid must be a string, not long"),
        ("x-sbpair-partitionkey", b"a\xff", "a\\xff"),
        (
            "x-sbpair-deadline",
            Described(Symbol("a:b"), 1),
            "unreadable: x-sbpair-deadline cannot be a described a:b",
        ),
    ],
)
def test_an_alias_is_shown_as_text_or_with_the_reason_for_its_absence(
    name: str, value: object, shown: str
) -> None:
    assert read_parked(parked({name: value})).aliases == {name: shown}


def test_a_path_that_cannot_be_read_is_shown_with_the_reason() -> None:
    assert read_parked(parked({"x-ms-path": 5})).path == "unreadable: x-ms-path must be a string, not long"


@pytest.mark.parametrize(("value", "shown"), [(True, None), ("7", None), (ULong(7), 7), (-1, -1)])
def test_a_number_is_shown_only_if_its_type_is_a_number(value: object, shown: int | None) -> None:
    message = read_parked(parked(annotations={Symbol("x-opt-sequence-number"): value}))
    assert message.sequence_number == shown
    assert message.sequence_number is None or type(message.sequence_number) is int


def test_an_undecodable_section_leaves_the_others_and_the_first_fault_is_shown() -> None:
    good = Message(application_properties={"x-ms-path": "orders"}).encode()
    bad_annotations = b"\x00\x53\x72\xc1\x03\x02\xa1\xff"
    bad_properties = b"\x00\x53\x73\xc0\x03\x01\x54\x05"
    message = read_parked(bad_annotations + bad_properties + good)
    assert message.path == "orders"
    assert message.trouble is not None
    assert message.trouble.startswith("not well-formed AMQP: a value is longer than its container")
    message = read_parked(bad_properties + good)
    assert message.trouble == "not well-formed AMQP: Properties.message_id is a message-id: not Int(5)"
    broken = read_parked(b"\xff")
    assert broken.trouble == "not well-formed AMQP: a section without a descriptor"
    assert broken.path is None


@given(st.binary(max_size=80))
@settings(max_examples=100, deadline=None)
def test_inspecting_any_bytes_never_raises(payload: bytes) -> None:
    read_parked(payload)
    message_id_of(payload)


IDENTITY = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        ("m", "m"),
        (None, ""),
        (ULong(7), "7"),
        (b"\x00\xff", "00ff"),
        (IDENTITY, str(IDENTITY)),
    ],
)
def test_a_message_id_is_text(message_id: object, text: str) -> None:
    assert message_id_of(parked(message_id=message_id)) == text
    assert read_parked(parked(message_id=message_id)).message_id == (text or None)


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x00\x53\x73\x45", b"\x00\x53\x73\xc0\x03\x01\xa1\xff"])
def test_a_message_id_that_is_not_there_or_cannot_be_read_is_empty(payload: bytes) -> None:
    assert message_id_of(payload) == ""
