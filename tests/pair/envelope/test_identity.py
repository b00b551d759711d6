"""Parking and restoring a message returns what was sent (G-22, P-21).

The SDK's encoder produces the bytes and the engine's codec restores them, so two codecs check each other.
"""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.amqp.message import Header, Message, decode_header, decode_properties
from sbpair.pair.amqp.sections import split
from sbpair.pair.amqp.types import Timestamp
from sbpair.pair.envelope.copies import prepare
from sbpair.pair.envelope.park import park
from sbpair.pair.envelope.restore import Forward, restore

NOW = 1_795_219_200_000
DAY = dt.timedelta(days=1)


def encoded(message: ServiceBusMessage | AmqpAnnotatedMessage) -> bytes:
    """The bytes the SDK sends for a message."""
    inner = message if isinstance(message, AmqpAnnotatedMessage) else message.raw_amqp_message
    out = bytearray()
    encode_payload(out, PyamqpTransport.to_outgoing_amqp_message(inner))
    return bytes(out)


def there_and_back(message: ServiceBusMessage | AmqpAnnotatedMessage) -> tuple[bytes, bytes, bytes]:
    """As sent to the primary, as parked, and as the syphon forwards it."""
    prepared = prepare(message)
    parked = encoded(park(prepared, "orders"))
    restored = restore(parked, NOW)
    assert isinstance(restored, Forward), restored
    assert restored.path == "orders"
    return encoded(prepared), parked, restored.payload


def assert_same(sent: bytes, restored: bytes) -> None:
    before, after = split(sent), split(restored)
    assert after.application_properties == before.application_properties
    assert after.body == before.body
    assert after.footer == before.footer
    old, new = decode_header(before.header), decode_header(after.header)
    assert (new.durable, new.priority, new.ttl) == (old.durable, old.priority, old.ttl)
    assert annotations(restored) == annotations(sent)
    if old.ttl:
        was, now = decode_properties(before.properties), decode_properties(after.properties)
        if now.creation_time is not None:  # the SDK writes them anew, to the second, when it encodes
            assert now.absolute_expiry_time is not None
            assert now.absolute_expiry_time - now.creation_time == old.ttl
            assert abs(now.creation_time - (was.creation_time or 0)) <= 2000
    else:
        assert decode_properties(after.properties) == decode_properties(before.properties)


def annotations(payload: bytes) -> set[tuple[str, object, str]]:
    found = Message.decode(payload).message_annotations
    return {(str(key), value, type(value).__name__) for key, value in found.items()}


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)
values = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    st.uuids(),
    st.builds(lambda n: {"TYPE": "LONG", "VALUE": n}, st.integers(-(2**63), 2**63 - 1)),
)
keys = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20)
instants = st.datetimes(dt.datetime(2001, 1, 1), dt.datetime(2090, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001


@st.composite
def messages(draw: st.DrawFn) -> ServiceBusMessage:
    session = draw(st.none() | keys)
    return ServiceBusMessage(
        draw(st.binary(max_size=100)),
        application_properties=draw(st.none() | st.dictionaries(keys, values, max_size=5)),
        session_id=session,
        message_id=draw(st.none() | keys),
        content_type=draw(st.none() | keys),
        correlation_id=draw(st.none() | keys),
        subject=draw(st.none() | texts),
        to=draw(st.none() | keys),
        reply_to=draw(st.none() | keys),
        reply_to_session_id=draw(st.none() | keys),
        partition_key=session
        if session and draw(st.booleans())
        else (None if session else draw(st.none() | keys)),
        time_to_live=draw(st.none() | st.timedeltas(dt.timedelta(seconds=1), 49 * DAY)),
        scheduled_enqueue_time_utc=draw(st.none() | instants),
    )


@pytest.mark.slow
@pytest.mark.spec("P-21", "G-22")
@given(messages())
def test_every_field_a_sender_can_set_is_restored(message: ServiceBusMessage) -> None:
    sent, parked, restored = there_and_back(message)

    assert_same(sent, restored)
    waiting = Message.decode(parked)
    assert (waiting.header or Header()).ttl is None
    assert waiting.properties is not None
    assert waiting.properties.group_id is None
    assert waiting.properties.absolute_expiry_time is None


@pytest.mark.spec("P-21", "G-22")
@given(
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 9),
    user_id=st.none() | st.binary(max_size=20),
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
    creation_time=st.none() | st.integers(0, 2**40),
    message_id=st.uuids(),
    footer=st.none() | st.dictionaries(keys, st.integers(0, 9), min_size=1, max_size=2),
)
def test_every_field_an_annotated_message_adds_is_restored(
    durable: bool | None,
    priority: int | None,
    user_id: bytes | None,
    group_sequence: int | None,
    creation_time: int | None,
    message_id: uuid.UUID,
    footer: dict[str, int] | None,
) -> None:
    message = AmqpAnnotatedMessage(
        data_body=[b"a", b"b"],
        header=AmqpMessageHeader(durable=durable, priority=priority),
        properties=AmqpMessageProperties(
            message_id=message_id, user_id=user_id, group_sequence=group_sequence, creation_time=creation_time
        ),
        footer=footer,
    )
    sent, _, restored = there_and_back(message)

    assert_same(sent, restored)


@pytest.mark.spec("F-81", "G-22")
@pytest.mark.parametrize("body", [{"value_body": {"k": [1, "a", None]}}, {"sequence_body": [[1, "a"], [2]]}])
def test_the_other_kinds_of_body_come_back_too(body: dict[str, object]) -> None:
    sent, _, restored = there_and_back(AmqpAnnotatedMessage(**body))  # type: ignore[arg-type]

    assert split(restored).body == split(sent).body
    assert split(restored).body


@pytest.mark.spec("G-17", "P-21")
def test_a_scheduled_time_is_restored_as_a_timestamp_in_milliseconds() -> None:
    due = dt.datetime(2026, 11, 21, 10, 0, 0, 123000, tzinfo=dt.UTC)
    _, _, restored = there_and_back(ServiceBusMessage(b"x", scheduled_enqueue_time_utc=due))

    found = Message.decode(restored).message_annotations["x-opt-scheduled-enqueue-time"]
    assert isinstance(found, Timestamp)
    assert found == int(due.timestamp() * 1000)
