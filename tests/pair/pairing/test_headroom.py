"""The check whether a message could be parked."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from sbpair.pair.envelope.copies import raw
from sbpair.pair.envelope.park import park
from sbpair.pair.pairing.request.headroom import SMALLEST_LIMIT, Headroom, encoded_size, largest_size
from sbpair.pair.pairing.request.sdk import is_smaller


def sent(message: AmqpAnnotatedMessage) -> int:
    """Return the bytes that the SDK sends."""
    return len(encode_payload(bytearray(), PyamqpTransport.to_outgoing_amqp_message(message)))


@pytest.mark.spec("P-22")
@pytest.mark.parametrize("size", [0, 1, 100, 180, 200, 240, 255, 256, 300, 5000, 70_000])
def test_the_computed_size_equals_the_size_sent_by_the_sdk(size: int) -> None:
    message = raw(ServiceBusMessage("x" * size, message_id="m", application_properties={"a": "ü", "b": 2}))
    assert encoded_size(message) == sent(message)


FULL = AmqpMessageProperties(
    message_id="m" * 128,
    user_id=b"u" * 64,
    to="to",
    subject="ü" * 40,
    reply_to="back",
    correlation_id=uuid.UUID(int=7),
    content_type="application/json",
    content_encoding="gzip",
    creation_time=1_700_000_000_000,
    absolute_expiry_time=1_800_000_000_000,
    group_id="s" * 128,
    group_sequence=7,
    reply_to_group_id="r",
)
VALUES = {
    "a": "ü€",
    "b": b"x" * 300,
    "c": 2**30,
    "d": -1,
    "e": 1.5,
    "f": True,
    "g": None,
    "h": uuid.UUID(int=5),
}


@pytest.mark.spec("H-52")
@pytest.mark.parametrize(
    "message",
    [
        AmqpAnnotatedMessage(data_body=b""),
        AmqpAnnotatedMessage(data_body=[b"x" * size for size in (0, 255, 256, 70_000)]),
        AmqpAnnotatedMessage(data_body=b"x", properties=FULL, application_properties=VALUES),
        AmqpAnnotatedMessage(
            data_body=b"x", header=AmqpMessageHeader(priority=4, delivery_count=3, durable=True)
        ),
        raw(ServiceBusMessage("x" * 1000, message_id="m", application_properties={"t": datetime.now(UTC)})),
    ],
    ids=["empty", "long", "full", "with a header", "with a time"],
)
def test_a_plain_message_is_sized_without_encoding_and_never_too_small(
    message: AmqpAnnotatedMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = encoded_size(message)
    monkeypatch.setattr(ServiceBusMessageBatch, "add_message", lambda *_: pytest.fail("it was encoded"))
    assert size <= largest_size(message) <= 1.2 * size + 300


@pytest.mark.spec("H-52")
@pytest.mark.parametrize(
    "message",
    [
        AmqpAnnotatedMessage(value_body={"a": [1, 2]}),
        AmqpAnnotatedMessage(sequence_body=[1, "two"]),
        AmqpAnnotatedMessage(data_body=b"x", annotations={"x-opt-partition-key": "k"}),
        AmqpAnnotatedMessage(data_body=b"x", delivery_annotations={"a": 1}),
        AmqpAnnotatedMessage(data_body=b"x", footer={"a": "b"}),
        AmqpAnnotatedMessage(data_body=b"x", application_properties={"a": {"TYPE": "BINARY", "VALUE": b"x"}}),
    ],
    ids=["value", "sequence", "annotations", "delivery annotations", "footer", "typed property"],
)
def test_an_unusual_message_is_encoded_to_size_it(message: AmqpAnnotatedMessage) -> None:
    assert largest_size(message) == encoded_size(message)


@pytest.mark.spec("P-22", "F-78")
def test_a_message_is_short_of_room_when_its_rewritten_copy_exceeds_the_smaller_limit() -> None:
    headroom = Headroom()
    message = ServiceBusMessage("x" * 1000, message_id="m", session_id="s" * 100)
    rewritten = sent(park(message, "orders"))
    assert headroom.shortage(message, "orders", None, None) is None  # no limit is known yet
    headroom.linked(rewritten, is_backlog=True)
    assert headroom.shortage(message, "orders", None, 2 * rewritten) is None
    headroom.linked(rewritten - 1, is_backlog=True)
    short = headroom.shortage(message, "orders", None, 2 * rewritten)
    assert short is not None
    assert (short.message_id, short.size, short.limit) == ("m", rewritten, rewritten - 1)
    assert headroom.shortage(message, "orders", None, 10) is not None


@pytest.mark.spec("P-22")
def test_a_smaller_limit_lowers_the_size_that_skips_the_check() -> None:
    headroom = Headroom()
    before = headroom.roomy
    headroom.linked(4 * SMALLEST_LIMIT, is_backlog=True)
    headroom.linked(None, is_backlog=False)
    assert headroom.roomy == before
    headroom.linked(100_000, is_backlog=False)
    assert headroom.roomy < before


@pytest.mark.spec("P-22")
def test_the_backlog_limit_is_queried_once_a_minute_until_known() -> None:
    headroom = Headroom()
    assert [headroom.must_learn(now) for now in (1.0, 2.0, 60.9, 61.0)] == [True, False, False, True]
    headroom.linked(SMALLEST_LIMIT, is_backlog=True)
    assert not headroom.must_learn(1000.0)


@pytest.mark.spec("P-22")
def test_the_cheap_look_is_never_lower_than_the_body_and_the_text_of_the_properties() -> None:
    small = raw(ServiceBusMessage("x" * 99))
    assert is_smaller(small, 100)
    assert not is_smaller(small, 99)
    assert not is_smaller(raw(ServiceBusMessage("x", application_properties={"a": "\U0001f600" * 25})), 100)
    assert not is_smaller(AmqpAnnotatedMessage(value_body="x"), 100)  # to be looked at
    assert not is_smaller(AmqpAnnotatedMessage(sequence_body=[["x"]]), 100)


@pytest.mark.spec("P-22")
def test_every_message_is_checked_where_the_sdk_hides_the_body(caplog: pytest.LogCaptureFixture) -> None:
    class Renamed:
        application_properties = None

    assert not is_smaller(Renamed(), 100)  # type: ignore[arg-type]
    assert "_data_body" in caplog.text


@pytest.mark.spec("R-66")
def test_the_deadline_that_a_parked_message_carries_counts_too() -> None:
    message = ServiceBusMessage("x" * 1000, message_id="m")
    limit = sent(park(message, "orders", 1_900_000_000_000)) - 1
    assert sent(park(message, "orders")) <= limit
    headroom = Headroom()
    assert headroom.shortage(message, "orders", None, limit) is None
    short = headroom.shortage(message, "orders", 1_900_000_000_000, limit)
    assert short is not None
    assert (short.size, short.limit) == (limit + 1, limit)


@pytest.mark.spec("R-84", "P-22")
def test_properties_too_large_for_the_header_once_rewritten_are_a_separate_shortage() -> None:
    def of(size: int) -> ServiceBusMessage:
        many = {"a": "x" * 30_000, "b": "x" * 30_000, "c": "x" * size}
        return ServiceBusMessage("y" * 70_000, message_id="m", application_properties=many)

    headroom = Headroom()
    assert not is_smaller(raw(of(1)), headroom.roomy)
    assert headroom.shortage(of(4000), "orders", None, None) is None
    short = headroom.shortage(of(5455), "orders", None, None)
    assert short is not None
    assert (short.message_id, short.limit, short.is_header) == ("m", 64 * 1024, True)
    assert "without its body, of which the service accepts 65536" in str(short)
