"""Messages: split without decoding, edited without corruption, decoded as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.amqp.encoding import encode
from sbpair.amqp.errors import DecodeError
from sbpair.amqp.message import (
    DataBody,
    Header,
    Message,
    Properties,
    Section,
    SequenceBody,
    ValueBody,
    decode_header,
    decode_map_section,
    decode_properties,
    encode_map_section,
    join_entries,
    split,
    split_entries,
)
from sbpair.amqp.types import Array, Symbol, Timestamp, UInt, ULong
from tests.costs import cpu_of

WHOLE = Message(
    Header(True, 4, 60_000, False, 3),
    {Symbol("x-opt-d"): 1},
    {Symbol("x-opt-partition-key"): "key"},
    Properties(message_id=ULong(7), user_id=b"u", subject="s", creation_time=5, group_sequence=1),
    {"a": UInt(5), "b": Array(0xA1, ("x",)), "c": Timestamp(-1), "d": 2**40},
    DataBody((b"one", b"two" * 200)),
    {Symbol("f"): True},
)
BODIES = [None, DataBody((b"",)), SequenceBody(([1, "a"], [])), ValueBody(None), ValueBody({"k": [1]})]


def test_a_message_splits_into_sections_that_join_to_itself():
    payload = WHOLE.encode()
    sections = split(payload)
    assert b"".join(sections) == payload
    assert decode_header(sections.header) == WHOLE.header
    assert decode_properties(sections.properties) == WHOLE.properties
    assert decode_map_section(sections.application_properties) == WHOLE.application_properties
    assert Message.decode(payload) == WHOLE
    assert split(memoryview(payload)) == sections


def test_delivery_annotations_may_stand_behind_everything_else():  # where the Python SDK writes them
    plain = replace(WHOLE, delivery_annotations={}).encode()
    behind = encode_map_section(Section.DELIVERY_ANNOTATIONS, WHOLE.delivery_annotations)
    assert split(plain + behind) == split(WHOLE.encode())
    with pytest.raises(DecodeError, match="after"):
        split(plain + behind + behind)


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_every_kind_of_body_comes_back(body):
    assert Message.decode(Message(body=body).encode()) == Message(body=body)


def test_an_absent_section_is_empty_and_reads_as_its_defaults():
    assert b"".join(split(b"")) == b""
    assert decode_header(b"") == Header()
    assert decode_properties(b"") == Properties()
    assert decode_map_section(b"") == {}
    assert split_entries(b"") == []
    assert join_entries(Section.APPLICATION_PROPERTIES, []) == b""


def test_empty_sections_in_their_shortest_forms_are_read():
    payload = bytes.fromhex("005370 45 005372 c10100 005373 45 005374 d10000000400000000")
    assert Message.decode(payload) == Message(Header(), properties=Properties())
    assert [bool(part) for part in split(payload)] == [True, False, True, True, True, False, False]


def test_descriptors_in_full_or_by_name_are_read():
    for descriptor in (b"\x00\x80" + (0x75).to_bytes(8, "big"), b"\x00" + encode(Symbol("amqp:data:binary"))):
        payload = descriptor + encode(b"x")
        assert split(payload).body == payload
        assert Message.decode(payload).body == DataBody((b"x",))


def test_an_entry_that_is_not_edited_stays_bit_for_bit():
    wide = bytes.fromhex("70 00000001")  # a uint we would write shorter
    section = join_entries(Section.APPLICATION_PROPERTIES, [("x-ms-path", encode("q")), ("n", wide)])
    entries = [(key, value) for key, value in split_entries(section) if key != "x-ms-path"]
    edited = join_entries(Section.APPLICATION_PROPERTIES, entries)
    assert split_entries(edited) == [("n", wide)]
    assert decode_map_section(edited) == {"n": UInt(1)}


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.binary(max_size=300), max_size=20)
)
@settings(max_examples=50, deadline=None)
def test_splitting_and_joining_entries_is_the_identity(mapping):
    section = encode_map_section(Section.APPLICATION_PROPERTIES, mapping)
    entries = split_entries(section)
    assert [key for key, _ in entries] == list(mapping)
    if mapping:
        assert join_entries(Section.APPLICATION_PROPERTIES, entries) == section


@pytest.mark.parametrize(
    ("octets", "word"),
    [
        ("45", "without a descriptor"),
        ("005370", "without a"),
        ("005399 45", "unknown section descriptor"),
        ("0040 45", "unknown section descriptor"),
        ("005373 45 005370 45", "after"),
        ("005370 45 005370 45", "after"),
        ("005377 40 005377 40", "after"),
        ("005375 a000 005376 45", "two section types"),
        ("005370 40", "holds a value"),
        ("005374 45", "holds a value"),
        ("005375 a10161", "holds a value"),
        ("005375 a0ff61", "longer"),
        ("005375 b0", "ends inside"),
        ("005374 c10201", "longer"),
    ],
)
def test_a_malformed_message_is_a_decode_error(octets, word):
    with pytest.raises(DecodeError, match=word):
        split(bytes.fromhex(octets))


@pytest.mark.parametrize(
    "octets",
    ["005374 c10101", "005374 c10502a10161", "005374 c10203a1",
     "005374 c1030240a1", "005374 d1ffffffff00000002", "005375 a000"],
)  # fmt: skip
def test_malformed_entries_are_a_decode_error(octets):
    with pytest.raises(DecodeError):
        split_entries(bytes.fromhex(octets))


def test_a_hundred_thousand_data_sections_split_in_linear_time():
    payload = bytes.fromhex("005375a000") * 100_000
    bodies: list[bytes] = []
    assert cpu_of(lambda: bodies.append(split(payload).body)) < 2
    assert bodies == [payload]


def test_the_wrong_section_is_named_as_such():
    with pytest.raises(DecodeError, match="descriptor"):
        decode_header(encode_map_section(Section.FOOTER, {}))
    with pytest.raises(DecodeError, match="not a header"):
        decode_header(Message(properties=Properties()).encode())
    with pytest.raises(DecodeError, match="creation_time"):
        decode_properties(bytes.fromhex("005373 c00c0a 404040404040404040 5505".replace(" ", "")))
