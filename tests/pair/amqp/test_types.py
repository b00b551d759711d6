"""Every AMQP type: encoded, decoded, and against bytes written by hand."""

from __future__ import annotations

import math
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp import types
from sbpair.pair.amqp.decoding import MAX_DEPTH, DecodeBudget, decode, skip
from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.errors import DecodeError, EncodeError
from sbpair.pair.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

VECTORS = Path(__file__).parent / "vectors"


def rows(name: str) -> list[list[str]]:
    lines = (VECTORS / name).read_text().splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines if line and not line.startswith("#")]


def same(a: object, b: object) -> bool:
    """Whether two values are equal in value and, recursively, in type."""
    if type(a) is not type(b):
        return False
    match a:
        case list():
            return len(a) == len(b) and all(map(same, a, b))
        case dict():
            return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
        case Array():
            return (
                a.code == b.code and same(a.descriptor, b.descriptor) and same(list(a.items), list(b.items))
            )
        case Described():
            return same(a.descriptor, b.descriptor) and same(a.value, b.value)
        case float():
            return a == b or (math.isnan(a) and math.isnan(b))
    return a == b


@pytest.mark.parametrize("row", rows("types.txt"), ids=lambda row: row[0])
def test_a_value_has_its_golden_encoding(row):
    _case, octets, meaning, canonical = row
    data = bytes.fromhex(octets)
    value, stop = decode(data)
    expected = eval(meaning, {"uuid": uuid, **vars(types)})
    assert same(value, expected)
    assert stop == len(data)
    assert skip(data, 0, len(data)) == len(data)
    assert (encode(expected) == data) is (canonical == "yes")
    assert same(decode(encode(expected))[0], expected)


@pytest.mark.parametrize("row", rows("malformed.txt"), ids=lambda row: row[0])
def test_a_malformed_value_is_refused(row):
    _case, octets, word = row
    with pytest.raises(DecodeError, match=word):
        decode(bytes.fromhex(octets))


def whole(cls, bits, signed):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(cls)


text = st.text(st.characters(exclude_categories=["Cs"]))
ascii_text = st.text(st.characters(max_codepoint=127), max_size=300)
hashable = st.one_of(
    st.none(), st.booleans(), whole(UByte, 8, False), whole(UShort, 16, False), whole(UInt, 32, False),
    whole(ULong, 64, False), whole(Byte, 8, True), whole(Short, 16, True), whole(Int, 32, True),
    whole(int, 64, True), whole(Timestamp, 64, True),
    st.floats(width=32).map(Float), st.floats(), st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(min_size=4, max_size=4).map(Decimal32), st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128), st.uuids(),
    st.binary(max_size=300), text, ascii_text.map(Symbol),
)  # fmt: skip
arrays = st.one_of(
    st.lists(st.integers(0, 255).map(UByte)).map(lambda items: Array(0x50, tuple(items))),
    st.lists(st.integers(-128, 127)).map(lambda items: Array(0x55, tuple(items))),
    st.lists(st.uuids()).map(lambda items: Array(0x98, tuple(items))),
    st.lists(text).map(lambda items: Array(0xB1, tuple(items), Symbol("d"))),
    st.integers(0, 60).map(lambda count: Array(0x40, (None,) * count)),
)
values = st.recursive(
    hashable | arrays,
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(text | st.integers(-5, 5), inner, max_size=8)
        | st.builds(Described, st.integers(0, 2**64 - 1).map(ULong) | ascii_text.map(Symbol), inner)
    ),
    max_leaves=30,
)


@pytest.mark.slow
@given(values)
@settings(max_examples=300, deadline=None)
def test_decoding_inverts_encoding_in_value_and_type(value):
    data = encode(value)
    decoded, stop = decode(
        data, budget=DecodeBudget(100_000)
    )  # zero-width elements: an array decodes to more than its bytes
    assert stop == len(data)
    assert same(decoded, value)
    assert skip(data, 0, len(data)) == stop
    assert encode(decoded) == data


@pytest.mark.slow
@given(values, st.data())
@settings(max_examples=200, deadline=None)
def test_a_truncated_value_is_refused(value, data):
    octets = encode(value)
    cut = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(DecodeError):
        decode(octets[:cut])
    with pytest.raises(DecodeError):
        skip(octets[:cut], 0, cut)


@pytest.mark.slow
@given(values, st.data())
@settings(max_examples=100, deadline=None)
def test_a_value_that_exceeds_its_declared_size_is_refused(value, data):
    octets = encode(value)
    end = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(DecodeError):
        decode(octets + b"\x40" * 20, 0, end)
    with pytest.raises(DecodeError):
        skip(octets + b"\x40" * 20, 0, end)
    assert decode(b"\x40" + octets + b"\x40", 1, 1 + len(octets))[1] == 1 + len(octets)


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("value", "head"),
    [
        (b"x" * 255, "a0 ff"),
        (b"x" * 256, "b0 00000100"),
        ("x" * 255, "a1 ff"),
        ("x" * 256, "b1 00000100"),
        ("é" * 127 + "x", "a1 ff"),
        ("é" * 128, "b1 00000100"),
        (Symbol("x" * 255), "a3 ff"),
        (Symbol("x" * 256), "b3 00000100"),
        ([None] * 254, "c0 ff fe"),
        ([None] * 255, "d0 00000103 000000ff"),
        ({b"x" * 251: None}, "c1 ff 02 a0 fb"),
        ({b"x" * 252: None}, "d1 00000103 00000002 a0 fc"),
        (Array(0x50, (UByte(7),) * 253), "e0 ff fd 50"),
        (Array(0x50, (UByte(7),) * 254), "f0 00000103 000000fe 50"),
        (Array(0x40, (None,) * 255), "e0 02 ff 40"),
        (Array(0x40, (None,) * 256), "f0 00000005 00000100 40"),
        (Described(0x24, []), "00 53 24 45"),  # a descriptor is a ulong whatever the Python class of the number
        (Described(UByte(0x24), []), "00 53 24 45"),
        (Described(0, []), "00 44 45"),
        (Described(2**32, []), "00 80 0000000100000000 45"),
        (Described(Symbol("a"), []), "00 a3 01 61 45"),
    ],
    ids=lambda each: repr(each)[:40],
)  # fmt: skip
def test_the_shortest_form_that_fits_is_written(value: object, head: str) -> None:
    data = encode(value)
    assert data.startswith(bytes.fromhex(head))
    budget = DecodeBudget(10_000)
    assert decode(data, budget=budget)[1] == len(data) == skip(data, 0, len(data))
    assert encode(decode(data, budget=DecodeBudget(10_000))[0]) == data


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Char("ab"), "a char is one character, not 2"),
        (Char(""), "a char is one character, not 0"),
        (Decimal32(b"123"), "decimal32 takes 4 bytes, not 3"),
        (Decimal64(b"123"), "decimal64 takes 8 bytes, not 3"),
        (Decimal128(b"123"), "decimal128 takes 16 bytes, not 3"),
        ({1, 2}, "no AMQP type for set"),
        (Array(0x3F, ()), "unknown format code 0x3f"),
        (Array(0x41, (False,)), "an array of True cannot hold False"),
        (Array(0x43, (UInt(1),)), "an array of 0 cannot hold UInt(1)"),
        (Array(0x74, (b"12",)), "b'12' is not 4 bytes"),
        (Array(0x94, (b"12",)), "b'12' is not 16 bytes"),
        (UByte(256), "UByte(256) does not fit UByte: "),
        ("\ud800" * 100, repr("\ud800" * 100)[:80] + " does not fit str: "),
    ],
    ids=repr,
)
def test_an_encode_error_names_the_value_that_does_not_fit(value: object, told: str) -> None:
    with pytest.raises(EncodeError) as refused:
        encode(value)
    assert str(refused.value).startswith(told)


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    "nested",
    [
        lambda inner: [inner],
        lambda inner: {"k": inner},
        lambda inner: Described(ULong(1), inner),
        lambda inner: Described(inner, None),
        lambda inner: Array(0xC0, ([inner],)),
        lambda inner: Array(0xD1, ({1: inner},)),
        lambda inner: Array(0x50, (), inner),
    ],
    ids=["list", "map", "described", "descriptor", "array of lists", "array of maps", "array descriptor"],
)
def test_values_are_encoded_up_to_the_nesting_limit(nested) -> None:
    levels = len(nested(None).items[0:]) + 1 if isinstance(nested(None), Array) and nested(None).items else 1
    value: object = None
    for _ in range(MAX_DEPTH // levels):
        value = nested(value)
    encode(value)
    with pytest.raises(EncodeError, match=r"^nested deeper than 64$"):
        encode(nested(value))


@given(st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_a_value_or_a_decode_error(data):
    try:
        value, stop = decode(data)
    except DecodeError:
        return
    assert stop <= len(data)
    assert same(decode(encode(value))[0], value)


@pytest.mark.spec("S-7")
@pytest.mark.parametrize("prefix", ["c0ff01", "00", "e0ff01c0"], ids=["lists", "descriptors", "arrays"])
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1000, 100_000])
def test_nesting_is_bounded(prefix, levels):
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(prefix) * levels + b"\x40")


def test_lists_may_nest_as_deep_as_the_bound():
    value: object = None
    for _ in range(MAX_DEPTH):
        value = [value]
    assert same(decode(encode(value))[0], value)
    with pytest.raises(EncodeError, match="deeper"):
        encode([value])
    with pytest.raises(DecodeError, match="deeper"):
        decode(b"\xd0" + (len(encode(value)) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + encode(value))


def test_many_small_arrays_share_one_size_budget():
    array = bytes.fromhex("f00000000500000fff40")  # 4095 nulls in ten bytes
    data = array * 400
    frame = b"\xd0" + (len(data) + 4).to_bytes(4, "big") + (400).to_bytes(4, "big") + data
    with pytest.raises(DecodeError, match="more values"):
        decode(frame)
    with pytest.raises(DecodeError, match="more values"):
        decode(array, budget=DecodeBudget(8))


@pytest.mark.parametrize(
    "value",
    [
        UByte(256), UShort(-1), UInt(2**32), ULong(-1), Byte(128), Short(2**15), Int(2**31), 2**63,
        Timestamp(2**63),
        Float(1e39), Char("ab"), Char("\ud800"), "\ud800", Symbol("é"), Decimal32(b"123"), object, {1, 2},
        Array(0x50, (UByte(256),)), Array(0x3F, ()), Array(0x41, (False,)), Array(0xA0, (bytes(256),)),
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_that_does_not_fit_is_an_encode_error(value):
    with pytest.raises(EncodeError):
        encode(value)


def test_a_subclass_is_written_as_its_base():
    class Name(str):
        __slots__ = ()

    assert encode(Name("a")) == encode("a")


@given(st.binary(max_size=64), st.integers(0, 70))
@settings(max_examples=200, deadline=None)
def test_skip_never_leaves_the_data(data, offset):
    try:
        assert offset < skip(data, offset, len(data)) <= len(data)
    except DecodeError:
        pass
