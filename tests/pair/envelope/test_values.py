"""Reading the aliases of a parked message."""

from __future__ import annotations

import uuid

import pytest

from sbpair.pair.amqp.types import Char, Described, Int, Symbol, Timestamp, UInt, ULong
from sbpair.pair.envelope.values import AliasError, read_duration, read_instant, read_key

NAME = "x-ms-timetolive"


@pytest.mark.spec("P-21")
@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("PT5M", 300_000),
        ("PT0.001S", 1),
        ("P60D", 5_184_000_000),
        (300_000, 300_000),
        (Int(5), 5),
        (UInt(4_000_000_000), 4_000_000_000),
        (ULong(1), 1),
        (Described(Symbol("com.microsoft:timespan"), 3_000_000_000), 300_000),
        (Described(ULong(0x13700000002), 10_000), 1),
    ],
)
def test_a_duration_is_read_in_every_written_form(value: object, milliseconds: int) -> None:
    assert read_duration(NAME, value) == milliseconds


@pytest.mark.spec("P-21")
@pytest.mark.parametrize(
    "value",
    ["P10675199DT2H48M5.4775807S", Described(Symbol("com.microsoft:timespan"), 2**63 - 1), 922337203685477],
)
def test_the_longest_time_span_means_no_limit(value: object) -> None:
    assert read_duration(NAME, value) is None


@pytest.mark.spec("P-21")
@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T00:00:00Z",
        "2026-11-21T01:00:00+01:00",
        "2026-11-21T00:00:00.0000000Z",
        1_795_219_200_000,
        Timestamp(1_795_219_200_000),
        Described(Symbol("com.microsoft:datetime-offset"), 639_308_160_000_000_000),
    ],
)
def test_a_time_is_read_in_every_written_form(value: object) -> None:
    assert read_instant("x-ms-scheduledenqueuetimeutc", value) == 1_795_219_200_000


@pytest.mark.spec("F-75")
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("five minutes", "ISO 8601"),
        ("", "ISO 8601"),
        ("P1Y", "ISO 8601"),
        (0, "long"),
        (-1, "long"),
        ("PT0S", "string"),
        (ULong(2**63), "ulong"),
        (True, "boolean"),
        (1.5, "double"),
        (None, "null"),
        (b"PT5M", "binary"),
        (Symbol("PT5M"), "symbol"),
        (Char("P"), "char"),
        (Timestamp(5), "timestamp"),
        (uuid.UUID(int=1), "uuid"),
        ([1], "list"),
        ({}, "map"),
        (Described(Symbol("com.microsoft:timespan"), "x"), "described com.microsoft:timespan"),
        (Described(Symbol("other"), 5), "described other"),
    ],
)
def test_a_time_span_of_a_wrong_type_or_size_is_refused_by_name_and_type(value: object, says: str) -> None:
    with pytest.raises(AliasError) as raised:
        read_duration(NAME, value)

    assert NAME in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.spec("F-75")
@pytest.mark.parametrize("value", ["tomorrow", -1, 253_402_300_800_000, 1.0, None, b"x", True])
def test_an_instant_of_a_wrong_type_or_size_is_refused_by_name(value: object) -> None:
    with pytest.raises(AliasError, match="x-ms-scheduledenqueuetimeutc"):
        read_instant("x-ms-scheduledenqueuetimeutc", value)


@pytest.mark.spec("F-75")
@pytest.mark.parametrize(
    ("value", "says"), [(5, "long"), (b"a", "binary"), (Symbol("a"), "symbol"), ("s" * 129, "128")]
)
def test_a_session_id_must_be_a_string_of_at_most_128_characters(value: object, says: str) -> None:
    with pytest.raises(AliasError, match=says):
        read_key("x-ms-sessionid", value)
    assert read_key("x-ms-sessionid", "s" * 128) == "s" * 128
