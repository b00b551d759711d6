"""The spool's format of a message, from which the SDK encodes the same bytes again."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sbpair.pair.envelope.copies import snapshot
from sbpair.pair.envelope.park import park
from sbpair.pair.pairing.spool.codec import from_bytes, to_bytes


def encoded(message: AmqpAnnotatedMessage) -> bytes:
    """Return the bytes that the SDK sends."""
    out = bytearray()
    return bytes(encode_payload(out, PyamqpTransport.to_outgoing_amqp_message(snapshot(message))))


def typed(kind: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a value with an explicit AMQP type, as the SDK represents it."""
    return values.map(lambda value: {"TYPE": kind, "VALUE": value})


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
WHEN = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.none() | OFFSETS)  # noqa: DTZ001
SIMPLE = st.one_of(
    st.none(), st.booleans(), INT32, TEXT, st.floats(), st.uuids(), WHEN,
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9),
    typed("LONG", st.integers(-(2**63), 2**63 - 1)),
    typed("ULONG", st.integers(0, 2**64 - 1)),
    typed("UINT", st.integers(0, 2**32 - 1)),
    typed("UBYTE", st.integers(0, 255)),
    typed("SHORT", st.integers(-(2**15), 2**15 - 1)),
    typed("FLOAT", st.floats(width=32)),
    typed("TIMESTAMP", st.integers(-(2**40), 2**40) | WHEN),
    typed("SYMBOL", st.text("abc:-", max_size=9)),
    typed("BINARY", st.binary(max_size=300)),
    typed("UUID", st.uuids()),
    typed("NULL", st.none()),
)  # fmt: skip
BINARY = st.binary(max_size=300) | st.binary(max_size=9).map(bytearray)
NESTED = st.recursive(
    SIMPLE | BINARY,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(TEXT | INT32 | st.binary(max_size=5) | st.uuids(), inner, max_size=4),
        st.tuples(typed("ULONG", st.integers(0, 2**40)), inner),
    ),
    max_leaves=12,
)
IDS = TEXT | st.uuids() | st.binary(max_size=12) | st.integers(0, 2**63)
PROPERTIES = st.fixed_dictionaries(
    {"message_id": IDS},
    optional={
        "user_id": st.binary(max_size=9),
        "correlation_id": IDS,
        "creation_time": st.integers(0, 2**45),
        "absolute_expiry_time": st.integers(0, 2**45),
        "group_sequence": st.integers(0, 2**32 - 1),
        **{
            name: TEXT | TEXT.map(str.encode)
            for name in ("to", "subject", "reply_to", "content_type", "group_id", "reply_to_group_id")
        },
    },
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "durable": st.booleans(),
        "priority": st.integers(0, 255),
        "first_acquirer": st.booleans(),
        "delivery_count": st.integers(0, 2**32 - 1),
    },
)
KEYS = st.text("abcx-", min_size=1, max_size=12)
BODIES = st.one_of(
    st.fixed_dictionaries(
        {"data_body": BINARY | TEXT | st.lists(st.binary(max_size=300) | TEXT, max_size=4)}
    ),
    st.fixed_dictionaries({"sequence_body": st.lists(NESTED, max_size=4)}),
    st.fixed_dictionaries({"sequence_body": st.lists(st.lists(NESTED, max_size=3), max_size=3)}),
    st.fixed_dictionaries({"value_body": NESTED}),
)
MESSAGES = st.builds(
    lambda body, header, properties, **maps: AmqpAnnotatedMessage(
        **body,
        header=AmqpMessageHeader(**header),
        properties=AmqpMessageProperties(**properties),
        **maps,
    ),
    body=BODIES,
    header=HEADERS,
    properties=PROPERTIES,
    application_properties=st.none() | st.dictionaries(KEYS | KEYS.map(str.encode), SIMPLE, max_size=5),
    annotations=st.none()
    | st.dictionaries(KEYS | KEYS.map(str.encode) | st.integers(0, 99), NESTED, max_size=3),
    delivery_annotations=st.none() | st.dictionaries(KEYS, SIMPLE, max_size=2),
    footer=st.none() | st.dictionaries(KEYS, SIMPLE, max_size=2),
)


def encoded_or_none(message: AmqpAnnotatedMessage) -> bytes | None:
    try:
        return encoded(message)
    except Exception:  # the SDK refuses it: it would not have been spooled
        return None


@pytest.mark.slow
@pytest.mark.spec("G-5", "G-22")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MESSAGES)
def test_a_restored_message_is_encoded_to_the_same_bytes(message: AmqpAnnotatedMessage) -> None:
    before = encoded_or_none(message)
    assume(before is not None)
    restored = from_bytes(to_bytes(message))
    assert encoded(restored) == before
    assert restored.body_type == message.body_type
    assert encoded(park(restored, "orders")) == encoded(park(message, "orders"))
    assert to_bytes(restored) == to_bytes(message)


@pytest.mark.spec("G-5", "G-22")
def test_every_field_a_user_can_set_on_an_sdk_message_is_stored() -> None:
    message = ServiceBusMessage(
        b"\x00body\xff",
        application_properties={"long": {"TYPE": "LONG", "VALUE": 2**40}, b"bytes": "x", "none": None},
        session_id="s-1", message_id="m-1", correlation_id="c", content_type="text/plain", subject="sub",
        scheduled_enqueue_time_utc=datetime(2026, 11, 21, tzinfo=UTC), time_to_live=timedelta(minutes=5),
        partition_key="s-1", to="there", reply_to="back", reply_to_session_id="r",
    )  # fmt: skip
    inner = message.raw_amqp_message
    restored = from_bytes(to_bytes(inner))
    for name in ("header", "properties", "application_properties", "annotations", "footer"):
        assert getattr(restored, name) == getattr(inner, name)
    assert list(restored.body) == list(inner.body)
    assert restored.properties.message_id == "m-1"


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


def test_subclasses_of_plain_types_are_stored_as_their_encoded_type() -> None:
    message = AmqpAnnotatedMessage(
        value_body=[Colour.RED, Number.ONE, memoryview(b"m").tobytes(), True],
        properties={"message_id": "m"},
    )
    assert encoded(from_bytes(to_bytes(message))) == encoded(message)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), -0.0, 5e-324])
def test_every_float_keeps_its_bits(value: float) -> None:
    message = AmqpAnnotatedMessage(value_body=value, properties={"message_id": "m"})
    assert encoded(from_bytes(to_bytes(message))) == encoded(message)


def test_a_type_unknown_to_amqp_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match="type object"):
        to_bytes(AmqpAnnotatedMessage(value_body=object()))


def whole() -> bytes:
    return to_bytes(
        AmqpAnnotatedMessage(
            data_body=[b"one", b"two"],
            properties={"message_id": uuid.UUID(int=7)},
            application_properties={"when": datetime(2026, 1, 1, tzinfo=UTC), "n": Decimal("1.50")},
        )
    )


def test_bytes_that_are_no_message_are_a_value_error_wherever_they_end() -> None:
    stored = whole()
    for length in range(len(stored)):
        with pytest.raises(ValueError):
            from_bytes(stored[:length])
    with pytest.raises(ValueError, match="trailing bytes"):
        from_bytes(stored + b"x")


def test_a_layout_of_a_later_version_is_named() -> None:
    stored = whole()
    (length,) = (int.from_bytes(stored[:4], "big"),)
    head = json.loads(stored[4 : 4 + length]) | {"layout": 9}
    text = json.dumps(head).encode()
    with pytest.raises(ValueError, match="layout 9"):
        from_bytes(len(text).to_bytes(4, "big") + text + stored[4 + length :])


@pytest.mark.spec("R-66", "G-22")
def test_the_disk_layout_equals_that_of_the_first_version() -> None:
    message = AmqpAnnotatedMessage(
        value_body=[
            None, True, 7, "ü", b"\x01\x02", 1.5, uuid.UUID(int=7), Decimal("1.50"), ({"TYPE": "ULONG", "VALUE": 1}, 2),
            datetime(2026, 1, 2, 3, 4, 5, 6), datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1))),  # noqa: DTZ001
        ],
        header=AmqpMessageHeader(priority=4),
        annotations={b"k": b"v"},
    )  # fmt: skip
    stored = to_bytes(message)
    length = int.from_bytes(stored[:4], "big")
    head = stored[4 : 4 + length]
    assert stored[4 + length :] == b"kv\x01\x02"  # the byte strings, in the order in which they are read
    assert head == json.dumps(json.loads(head), separators=(",", ":")).encode("ascii")
    assert json.loads(head) == {
        "layout": 1,
        "header": {"priority": 4},
        "properties": None,
        "application_properties": None,
        "annotations": ["m", [[["b", 1], ["b", 1]]]],
        "delivery_annotations": None,
        "footer": None,
        "kind": "value_body",
        "body": [
            "l",
            [
                None, True, 7, "ü", ["b", 2], ["f", "3ff8000000000000"], ["u", f"{7:032x}"], ["n", "1.50"],
                ["t", [["m", [["TYPE", "ULONG"], ["VALUE", 1]]], 2]],
                ["d", ["2026-01-02T03:04:05.000006", None]],
                ["d", ["2026-01-02T00:00:00", 3_600_000_000]],
            ],
        ],
    }  # fmt: skip
    restored = from_bytes(stored)
    assert list(restored.body) == list(message.body)
    assert restored.properties is None
    assert restored.header is not None
    assert (restored.header.priority, restored.annotations) == (4, {b"k": b"v"})


@pytest.mark.spec("R-66", "F-90")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"body": ["l", [["b", 9]]]}, "^a spooled message is truncated$"),
        ({"body": ["l", []]}, "^a spooled message has trailing bytes$"),
        ({"body": ["x", 1]}, "^not a spooled message: 'x'$"),
        ({"layout": 0}, "^a spooled message has the unknown layout 0; this sbpair reads 1$"),
    ],
)
def test_a_malformed_stored_message_is_reported_with_its_fault(change: dict[str, object], told: str) -> None:
    stored = to_bytes(AmqpAnnotatedMessage(data_body=[b"one"]))
    length = int.from_bytes(stored[:4], "big")
    text = json.dumps(json.loads(stored[4 : 4 + length]) | change).encode()
    with pytest.raises(ValueError, match=told):
        from_bytes(len(text).to_bytes(4, "big") + text + stored[4 + length :])


@pytest.mark.spec("R-66")
def test_a_value_unknown_to_amqp_is_quoted_in_part() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "odd" * 100

    with pytest.raises(TypeError) as told:
        to_bytes(AmqpAnnotatedMessage(value_body=Odd()))
    assert str(told.value) == f"a value of type Odd cannot be encoded: {('odd' * 100)[:100]}"
