"""Performatives: encoded, decoded, and against bytes written by hand."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp import performatives
from sbpair.pair.amqp.composite import (
    _COMPOSITES,
    BINARY,
    BOOLEAN,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    decode_composite,
    encode_composite,
)  # fmt: skip
from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.errors import DecodeError, EncodeError
from sbpair.pair.amqp.performatives import Attach, Condition, Open, SaslInit, Source, Target
from sbpair.pair.amqp.types import Described, Symbol, ULong

VECTORS = Path(__file__).parent / "vectors" / "performatives.txt"
LINES = VECTORS.read_text().splitlines()
ROWS = [[cell.strip() for cell in line.split("|")] for line in LINES if line and not line.startswith("#")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_performative_has_its_golden_encoding(row):
    _case, octets, meaning, canonical = row
    data = bytes.fromhex(octets)
    if canonical == "malformed":
        with pytest.raises(DecodeError) as caught:
            decode_composite(data, 0, len(data))
        assert meaning in str(caught.value)
        return
    expected = eval(meaning, vars(performatives))
    assert decode_composite(data, 0, len(data)) == (expected, len(data))
    assert (encode_composite(expected) == data) is (canonical == "yes")


VALUES = {
    BOOLEAN: st.booleans(), UBYTE: st.integers(0, 255),
    USHORT: st.integers(0, 65535), UINT: st.integers(0, 2**32 - 1),
    ULONG: st.integers(0, 2**64 - 1), STRING: st.text(st.characters(exclude_categories=["Cs"])),
    SYMBOL: st.text(st.characters(max_codepoint=127)), BINARY: st.binary(),
    SYMBOLS: st.lists(st.text(st.characters(max_codepoint=127)).map(Symbol), max_size=4).map(tuple),
}  # fmt: skip


@pytest.mark.parametrize("cls", _COMPOSITES, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_composite_type_round_trips(cls, data):
    arguments = {}
    for field in dataclasses.fields(cls):
        value_type, kind = typing.get_args(field.type)
        if kind in VALUES:
            optional = type(None) in typing.get_args(value_type)
            arguments[field.name] = data.draw(VALUES[kind] | st.none() if optional else VALUES[kind])
    value = cls(**arguments)
    octets = encode_composite(value)
    assert octets[:2] == b"\x00\x53"
    assert decode_composite(octets, 0, len(octets)) == (value, len(octets))


def test_an_error_always_has_three_fields():
    octets = encode_composite(Condition("amqp:not-found"))
    assert octets == bytes.fromhex("00531dc0") + bytes([19, 3]) + b"\xa3\x0eamqp:not-found" + b"\x40\x40"


def test_an_attach_has_all_fourteen_fields():
    octets = encode_composite(Attach("n", 0, True, source=Source("q"), target=Target("t")))
    assert octets[3] in (0xC0, 0xD0)
    assert octets[5 if octets[3] == 0xC0 else 11] == 14


def test_an_unknown_delivery_state_is_kept_unchanged():
    state = Described(ULong(0x99), [b"txn", None])
    octets = encode_composite(performatives.Disposition(True, 1, 1, False, state))
    assert decode_composite(octets, 0, len(octets))[0].state == state


def test_a_state_that_is_no_state_is_refused():
    octets = encode(Described(ULong(0x15), [True, 0, 0, True, Described(ULong(0x28), [])]))
    with pytest.raises(DecodeError):
        decode_composite(octets, 0, len(octets))


def test_a_field_that_does_not_fit_is_named():
    with pytest.raises(EncodeError, match=r"Open\.channel_max cannot be 65536"):
        encode_composite(Open("c", channel_max=65536))


def test_the_sasl_response_is_not_in_the_repr():
    assert "secret" not in repr(SaslInit("PLAIN", b"\0user\0secret"))
