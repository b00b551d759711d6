"""A message that landed and was refused after the commit is parked again as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, ValueBody
from sbpair.pair.amqp.sections import split
from sbpair.pair.amqp.types import Int, Symbol, Timestamp, UInt
from sbpair.pair.envelope.aliases import ANNOTATION_DESTINATION, ANNOTATION_SCHEDULED
from sbpair.pair.envelope.inspect import read_parked
from sbpair.pair.envelope.restore import Forward, restore
from sbpair.pair.syphon.land.transfer import DestinationUnknownError, address, park_again

NOW = 1_795_219_200_000
DAY = 86_400_000
RESTORED = Message(
    header=Header(durable=True, priority=7),
    message_annotations={Symbol("mine"): Int(4), Symbol("x-opt-partition-key"): "s1"},
    properties=Properties(message_id="m1", group_id="s1"),
    application_properties={"width": Int(3)},
    body=ValueBody({"a": [1, Int(2)]}),
    footer={Symbol("crc"): b"\x01"},
)


def refused(payload: bytes) -> bytes:
    """The message as a broker shows it in a transfer dead-letter queue."""
    message = Message.decode(payload)
    header = message.header or Header()
    return replace(
        message,
        header=replace(header, first_acquirer=False, delivery_count=UInt(1)),
        message_annotations=message.message_annotations
        | {
            Symbol("x-opt-sequence-number"): 42,
            Symbol("x-opt-enqueued-time"): Timestamp(1000),
            Symbol("x-opt-locked-until"): Timestamp(2000),
        },
        application_properties=message.application_properties
        | {"DeadLetterReason": "QuotaExceededException", "DeadLetterErrorDescription": "it is full"},
    ).encode()


def round_trip(message: Message) -> Forward:
    """Restored, sent via the backlog, refused, parked again, and restored again."""
    restored = restore(park_again(refused(address(message.encode(), "orders"))), NOW)
    assert isinstance(restored, Forward), restored
    return restored


def assert_same(payload: bytes, message: Message) -> None:
    """Bit for bit, but for header and properties, whose trailing nulls may or may not be written."""
    assert split(payload)[4:] == split(message.encode())[4:]
    assert Message.decode(payload) == message


LIFETIMES = {
    "none": (None, None, None),
    "of a header": (300_000, None, None),
    "of a header and a creation time": (300_000, NOW - 5, NOW - 5 + 300_000),
    "longer than a header can hold": (UInt(2**32 - 1), NOW - 5, NOW - 5 + 90 * DAY),
    "an absolute expiry only": (None, None, NOW + DAY),
}


@pytest.mark.spec("C-2", "G-22")
@pytest.mark.parametrize("lifetime", LIFETIMES)
@pytest.mark.parametrize("scheduled", [None, NOW + DAY])
def test_a_message_returns_bit_for_bit_with_its_lifetime_and_schedule(lifetime, scheduled):
    span, created, expires = LIFETIMES[lifetime]
    annotations = {} if scheduled is None else {Symbol(ANNOTATION_SCHEDULED): Timestamp(scheduled)}
    message = replace(
        RESTORED,
        header=replace(RESTORED.header, ttl=span),
        message_annotations=RESTORED.message_annotations | annotations,
        properties=replace(RESTORED.properties, creation_time=created, absolute_expiry_time=expires),
    )
    again = park_again(refused(address(message.encode(), "orders")))
    held = Message.decode(again)
    assert held.header.ttl is None, "or it would expire in the backlog"
    assert held.properties.absolute_expiry_time is None
    assert Symbol(ANNOTATION_SCHEDULED) not in held.message_annotations
    back = round_trip(message)
    assert back.path == "orders"
    assert_same(back.payload, message)


@pytest.mark.spec("G-22")
@given(
    path=st.sampled_from(["orders", "a/b", "größe", "x" * 260]),
    body=st.binary(max_size=300),
    properties=st.dictionaries(
        st.text(min_size=1, max_size=12), st.one_of(st.text(), st.binary(), st.booleans()), max_size=5
    ),
)
def test_any_body_and_properties_keep_their_bytes(path, body, properties):
    message = Message(
        header=Header(durable=True),
        application_properties={k: v for k, v in properties.items() if not k.startswith("DeadLetter")},
        body=DataBody((body,)),
    )
    back = restore(park_again(refused(address(message.encode(), path))), NOW)
    assert isinstance(back, Forward)
    assert back.path == path
    assert_same(back.payload, message)


@pytest.mark.spec("C-2")
def test_a_landed_message_equals_the_restored_one_except_for_one_annotation():
    before, after = split(RESTORED.encode()), split(address(RESTORED.encode(), "orders"))
    assert after._replace(message_annotations=b"") == before._replace(message_annotations=b"")
    said = Message.decode(address(RESTORED.encode(), "orders")).message_annotations
    assert said == RESTORED.message_annotations | {Symbol(ANNOTATION_DESTINATION): "orders"}


def test_a_destination_of_an_earlier_landing_is_replaced():
    twice = address(address(RESTORED.encode(), "bills"), "orders")
    assert twice == address(RESTORED.encode(), "orders")


def test_peeking_shows_the_destination_and_the_reason_of_a_failed_transfer():
    found = read_parked(refused(address(RESTORED.encode(), "orders")))
    assert (found.path, found.reason) == ("orders", "QuotaExceededException")


def test_a_transfer_without_a_destination_is_refused():
    with pytest.raises(DestinationUnknownError, match="x-opt-sbpair-path"):
        park_again(refused(RESTORED.encode()))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_by_name(payload):
    try:
        park_again(payload)
    except (DecodeError, IndexError, DestinationUnknownError):
        pass
