"""Restoring anything in a backlog ends in a message for a path, or in a reason to dead-letter it (R-24)."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.pair.amqp.types import Byte, Char, Described, Float, Int, Symbol, Timestamp, UInt, ULong
from sbpair.pair.envelope import aliases as names
from sbpair.pair.envelope.aliases import parse_duration, parse_instant
from sbpair.pair.envelope.inspect import message_id_of, read_parked
from sbpair.pair.envelope.restore import Forward, Poison, redriven, restore
from tests.pair.syphon.pair import Pair, parked
from tests.waiting import PATIENCE

NOW = 1_790_000_000_000  # ms
LONGEST = 20_000  # characters, digits: far beyond what an int may be written in

digits = st.integers(0, LONGEST).map(lambda count: "9" * count)
spans = st.builds("{}{}{}{}".format, st.sampled_from(["P", "PT", "P1DT", "PT0.", "-PT", ""]), digits,
                  st.sampled_from("SMHDWY"), st.sampled_from(["", "S", "T", "\n"]))  # fmt: skip
instants = st.builds(
    "{}-{}-{}T{}".format, digits, st.integers(-1, 99), st.integers(-1, 99), st.text(max_size=40)
)
texts = st.text(max_size=300) | spans | instants | st.integers(0, LONGEST).map(lambda count: "x" * count)
longs = st.integers(-(2**63), 2**63 - 1)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    texts,
    texts.filter(str.isascii).map(Symbol),
    st.binary(max_size=300),
    longs,
    longs.map(Timestamp),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-128, 127).map(Byte),
    st.floats(),
    st.floats(width=32).map(Float),
    st.characters(codec="utf-8").map(Char),
    st.builds(uuid.uuid4),
)
described = st.builds(
    Described,
    st.sampled_from([Symbol("com.microsoft:timespan"), Symbol("com.microsoft:datetime-offset"), ULong(7)])
    | texts.filter(str.isascii).map(Symbol),
    scalars,
)
nested = st.recursive(
    scalars | described,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
aliases = st.dictionaries(st.sampled_from(sorted(names.RESERVED)), nested, max_size=8)
headers = st.builds(Header, durable=st.booleans(), ttl=st.none() | st.integers(0, 2**32 - 1).map(UInt))


def message(carried: dict[str, object], header: Header) -> bytes:
    return Message(
        header=header,
        properties=Properties(message_id="m"),
        application_properties={"number": 1, **carried},
        body=DataBody((b"hello",)),
    ).encode()


def check(payload: bytes, *, is_whole: bool = False) -> None:
    restored = restore(payload, NOW)
    if isinstance(restored, Poison):
        assert len(restored.reason) < 60
        restored.description.encode()  # it goes out as a string
    else:
        assert isinstance(restored, Forward)
        if is_whole:  # else what was not touched is as broken as it was
            Message.decode(restored.payload)
    message_id_of(payload)
    read_parked(payload)


@pytest.mark.slow
@pytest.mark.spec("R-24")
@given(aliases, headers)
@settings(max_examples=150, deadline=None)
def test_restoring_terminates_for_every_alias_of_every_type_and_size(
    carried: dict[str, object], header: Header
) -> None:
    check(message(carried, header), is_whole=True)
    aimed = {**carried, names.PATH: "orders", names.VERSION: "1"}
    check(message(aimed, header), is_whole=True)


@pytest.mark.slow
@pytest.mark.spec("R-24")
@given(aliases, st.integers(0, 2_000), st.binary(max_size=8))
@settings(max_examples=150, deadline=None)
def test_restoring_terminates_for_broken_messages(carried: dict[str, object], at: int, other: bytes) -> None:
    whole = message({names.PATH: "orders", **carried}, Header())
    at %= len(whole)
    check(whole[:at] + other + whole[at + len(other) :])
    check(whole[:at])


@pytest.mark.spec("R-24")
@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_restoring_terminates_for_any_bytes(payload: bytes) -> None:
    check(payload)


@pytest.mark.spec("R-24")
@given(spans | texts, instants | texts)
@settings(max_examples=150, deadline=None)
def test_any_text_parses_or_raises_a_short_value_error(span: str, instant: str) -> None:
    for parse, text in ((parse_duration, span), (parse_instant, instant)):
        try:
            said = str(parse(text))
        except ValueError as error:
            said = str(error)
        assert len(said) < 600


@pytest.mark.spec("R-24")
@pytest.mark.parametrize("count", [18, 19, 100, 4_299, 4_300, 4_301, 100_000])
def test_a_span_of_many_digits_is_set_aside_with_the_reason(count: int) -> None:
    payload = message({names.PATH: "orders", names.TIME_TO_LIVE: "PT" + "9" * count + "S"}, Header())
    restored = restore(payload, NOW)
    assert isinstance(restored, Poison)
    assert (restored.reason, names.TIME_TO_LIVE in restored.description) == ("InvalidAlias", True)


@pytest.mark.spec("R-24")
def test_an_unforeseen_error_in_restoring_dead_letters_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def unforeseen(payload: bytes) -> object:
        raise RecursionError("too deep")

    monkeypatch.setattr("sbpair.pair.envelope.restore.split", unforeseen)
    restored = restore(b"\x00Ss\xc0\x01\x00", NOW)
    assert isinstance(restored, Poison)
    assert restored.reason == "UnreadableMessage"
    assert "RecursionError: too deep" in restored.description


@pytest.mark.spec("R-24", "G-21")
async def test_a_message_that_killed_the_connection_is_dead_lettered_and_the_rest_comes_home(
    pair: Pair,
) -> None:
    syphon = pair.syphon()
    odd = parked(0, x_ms_timetolive="PT" + "9" * 4_300 + "S")
    await pair.park([odd, parked(1)])
    async with asyncio.timeout(PATIENCE):
        counters = await syphon.drain()
    assert (counters.completed, counters.dead_lettered, pair.set_aside()) == (1, 1, 1)


@pytest.mark.spec("R-24")
def test_a_dead_letter_with_any_alias_can_be_redriven() -> None:
    for value in ("x" * LONGEST, [1, 2], {"a": 1}, Described(Symbol("odd:thing"), 1), None):
        payload = message({names.PATH: "orders", names.TIME_TO_LIVE: value}, Header())
        assert restore(redriven(payload), NOW) == restore(payload, NOW)
        encode(value)
