"""A peeked message as a row: typed values, durations and malformed messages."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from sbpair.data.spark.glimpse import Glimpse, glimpse
from sbpair.data.spark.message_columns import batch_of
from sbpair.data.spark.message_rows import TYPES
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, SequenceBody, ValueBody
from sbpair.pair.amqp.types import Int, Symbol, Timestamp, UByte, ULong
from sbpair.pair.envelope import aliases
from tests.data.spark import message_rows
from tests.data.spark.message_rows import schema

POSITION = {Symbol("x-opt-sequence-number"): 7, Symbol("x-opt-enqueued-time"): Timestamp(1_000)}


def batch(*payloads: bytes, columns: tuple[str, ...] = (), with_body: bool = True) -> pa.RecordBatch:
    wanted = to_arrow_schema(schema(*columns), timezone="UTC")
    return batch_of("contoso", "orders", [glimpse(each) for each in payloads], wanted, with_body=with_body)


def row(message: Message | bytes, *columns: str) -> dict[str, object]:
    payload = message if isinstance(message, bytes) else message.encode()
    (found,) = message_rows.rows([batch(payload, columns=columns)])
    return found


def test_an_empty_message_is_a_row_of_nulls() -> None:
    found = row(Message(message_annotations=POSITION))

    given = {name: value for name, value in found.items() if value not in (None, {})}
    assert given == {
        "namespace": "contoso",
        "queue": "orders",
        "sequence_number": 7,
        "enqueued_time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "delivery_count": 0,
        "state": "active",
    }


BODIES = {
    "data": (DataBody((b"a", b"b")), (b"ab", "data")),
    "bytes": (ValueBody(b"a"), (b"a", "value")),
    "text": (ValueBody("ü"), ("ü".encode(), "value")),
    "map": (ValueBody({"n": [1, None]}), (b'{"n": [1, null]}', "value")),
    "sequence": (SequenceBody(([1], ["a"])), (b'[1, "a"]', "sequence")),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_kind_of_body_is_read_as_bytes(name: str) -> None:
    body, expected = BODIES[name]
    found = row(Message(message_annotations=POSITION, body=body))

    assert (found["body"], found["body_type"]) == expected


def test_an_expiry_is_the_messages_own_or_its_enqueue_time_plus_time_to_live() -> None:
    both = Message(Header(ttl=500), {}, POSITION, Properties(absolute_expiry_time=Timestamp(9_000)))
    relative = Message(Header(ttl=500), {}, POSITION)

    assert row(both)["expires_at"] == datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)
    assert row(relative)["expires_at"] == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert row(relative)["time_to_live"] == 0.5


NEVER = Timestamp(253_402_300_799_999)  # what .NET calls never
FAR = Timestamp(10_000_000_000_000)  # in the year 2286: more nanoseconds than pandas holds


@pytest.mark.spec("R-231")
@pytest.mark.parametrize("columns", [(), ("expires_at", "trouble")], ids=["all columns", "two columns"])
def test_an_expiry_of_never_is_null_and_one_too_large_for_a_table_is_reported(
    columns: tuple[str, ...],
) -> None:
    never, far = (
        row(Message(None, {}, POSITION, Properties(absolute_expiry_time=at)), *columns) for at in (NEVER, FAR)
    )

    assert (never["expires_at"], never["trouble"]) == (None, None)
    assert far["expires_at"] is None
    assert far["trouble"] == "expires_at is 10000000000000 ms since 1970, which no table holds"


@pytest.mark.spec("R-79")
def test_properties_have_their_types_and_their_text() -> None:
    sent = Message(
        message_annotations=POSITION, application_properties={"n": Int(7), "b": b"\x01", "no": None}
    )
    found = row(sent, "application_properties", "typed_properties")

    assert found["application_properties"] == {"n": "7", "b": "01", "no": None}
    assert found["typed_properties"] == {
        "n": {"type": "int", "value": "7"},
        "b": {"type": "binary", "value": "01"},
        "no": {"type": "null", "value": None},
    }


MALFORMED = {
    "nothing": (b"", None),
    "not AMQP": (b"\xff\xff", "not well-formed AMQP: "),
    "a property of no type": (
        Message(message_annotations=POSITION).encode() + b"\x00\x53\x74\xc1\x05\x02\xa1\x01n\x0f",
        "not well-formed AMQP: ",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_is_a_row_with_the_reason(name: str) -> None:
    payload, reason = MALFORMED[name]
    whole = Message(message_annotations=POSITION, properties=Properties(message_id="m")).encode()
    found = message_rows.rows([batch(whole, payload, whole)])

    assert [each["message_id"] for each in found] == ["m", None, "m"]
    assert [each["trouble"] for each in found][::2] == [None, None]
    assert str(found[1]["trouble"] or "").startswith(reason or "")
    assert found[1]["sequence_number"] == (7 if name == "a property of no type" else 0)


@pytest.mark.parametrize("state", [-1, -128, 7])
def test_an_unknown_state_is_shown_as_a_number(state: int) -> None:
    sent = Message(message_annotations={**POSITION, Symbol("x-opt-message-state"): Int(state)})

    assert row(sent, "state") == {"state": str(state)}


def test_a_mistyped_alias_is_reported_and_leaves_the_other_columns() -> None:
    sent = Message(
        message_annotations=POSITION, application_properties={"x-ms-timetolive": "soon", "x-ms-path": "q"}
    )
    found = row(sent, "transfer_path", "transfer_time_to_live", "trouble")

    assert (found["transfer_path"], found["transfer_time_to_live"]) == ("q", None)
    assert "x-ms-timetolive" in str(found["trouble"])


@given(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, unique=True))
def test_any_selection_of_columns_equals_that_part_of_the_whole_row(columns: list[str]) -> None:
    sent = Message(
        Header(ttl=500, delivery_count=2),
        {},
        {**POSITION, Symbol("x-opt-partition-key"): "k"},
        Properties(message_id="m", group_id="s", subject="sub"),
        {"n": Int(7), "x-ms-path": "q", "DeadLetterReason": "why"},
        DataBody((b"a",)),
    )

    whole = row(sent)
    assert row(sent, *columns) == {name: whole[name] for name in columns}
    assert None not in (whole["partition_key"], whole["dead_letter_reason"], whole["subject"])


def test_unrequested_bodies_are_null() -> None:
    sent = Message(message_annotations=POSITION, body=DataBody((b"a",))).encode()
    (found,) = message_rows.rows([batch(sent, columns=("body", "message_id", "body_type"), with_body=False)])

    assert found == {"body": None, "message_id": None, "body_type": None}


KEYS = st.sampled_from(["n", "tenant", "DeadLetterReason", *aliases.RESERVED]) | st.text(max_size=3)
VALUES_OF_ANY_TYPE = (
    st.none()
    | st.booleans()
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(2**31), 2**31 - 1).map(Int)
    | st.integers(0, 255).map(UByte)
    | st.integers(0, 2**64 - 1).map(ULong)
    | st.integers(-(2**62), 2**62).map(Timestamp)
    | st.floats(allow_nan=False)
    | st.uuids()
    | st.sampled_from(["P1D", "PT0.5S", "2026-01-01T00:00:00Z"])
    | st.just(Symbol("s"))
    | st.lists(st.integers(0, 9), max_size=2)
)
IDS = st.none() | st.text(max_size=4) | st.binary(max_size=4) | st.uuids() | st.integers(0, 99).map(ULong)
TEXTS = st.none() | st.text(max_size=300)
TIMES = st.none() | st.integers(-(2**62), 2**62).map(Timestamp)
MESSAGES = st.builds(
    Message,
    header=st.none()
    | st.builds(Header, ttl=st.none() | st.integers(0, 2**32 - 1), delivery_count=st.integers(0, 9)),
    message_annotations=st.builds(
        lambda number, enqueued, state, key: {
            Symbol("x-opt-sequence-number"): number,
            Symbol("x-opt-enqueued-time"): Timestamp(enqueued),
            Symbol("x-opt-message-state"): Int(state),
            Symbol("x-opt-partition-key"): key,
        },
        st.integers(1, 2**62),
        st.integers(-(2**62), 2**62),
        st.integers(-2, 4),
        IDS,
    ),
    properties=st.none()
    | st.builds(
        Properties,
        message_id=IDS,
        user_id=st.none() | st.binary(max_size=4),
        to=TEXTS,
        subject=TEXTS,
        correlation_id=IDS,
        content_type=st.none() | st.just("text/plain"),
        absolute_expiry_time=TIMES,
        creation_time=TIMES,
        group_id=TEXTS,
        group_sequence=st.none() | st.integers(0, 9),
        reply_to_group_id=TEXTS,
    ),
    application_properties=st.dictionaries(KEYS, VALUES_OF_ANY_TYPE, max_size=5),
    body=st.none() | st.binary(max_size=4).map(lambda data: DataBody((data,))) | st.builds(ValueBody, TEXTS),
)


@given(
    st.lists(MESSAGES, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2),
)
def test_fast_columns_equal_those_of_the_general_decoder(
    messages: list[Message], damage: list[tuple[int, int]]
) -> None:
    payloads = []
    for message in messages:
        payload = bytearray(message.encode())
        for place, value in damage:
            payload[place % len(payload)] = value
        payloads.append(bytes(payload))

    def only_rows(found: Glimpse) -> Glimpse:
        return found._replace(trouble=found.trouble or "")

    seen = [glimpse(each) for each in payloads]
    wanted = to_arrow_schema(schema(), timezone="UTC")
    columns = batch_of("contoso", "orders", seen, wanted)
    general = batch_of("contoso", "orders", [only_rows(each) for each in seen], wanted)

    assert message_rows.rows([columns]) == message_rows.rows([general])
