"""Messages: split without decoding, edited without corruption, decoded as a whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import (
    PLACES,
    DataBody,
    Header,
    Message,
    Properties,
    SequenceBody,
    ValueBody,
    decode_body,
    decode_header,
    decode_message_id,
    decode_properties,
    encode_body,
    encode_properties,
    usual_values,
)
from sbpair.pair.amqp.sections import (
    LISTS,
    Section,
    decode_map_section,
    encode_map_section,
    join_entries,
    locate,
    open_section,
    section_value,
    split,
    split_entries,
)
from sbpair.pair.amqp.types import Array, Described, Symbol, Timestamp, UInt, ULong
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


def test_a_message_splits_into_sections_that_join_to_the_same_bytes():
    payload = WHOLE.encode()
    sections = split(payload)
    assert b"".join(sections) == payload
    assert decode_header(sections.header) == WHOLE.header
    assert decode_properties(sections.properties) == WHOLE.properties
    assert decode_map_section(sections.application_properties) == WHOLE.application_properties
    assert Message.decode(payload) == WHOLE
    assert split(memoryview(payload)) == sections


def test_delivery_annotations_may_follow_all_other_sections():  # where the Python SDK puts them
    plain = replace(WHOLE, delivery_annotations={}).encode()
    behind = encode_map_section(Section.DELIVERY_ANNOTATIONS, WHOLE.delivery_annotations)
    assert split(plain + behind) == split(WHOLE.encode())
    with pytest.raises(DecodeError, match="twice"):
        split(plain + behind + behind)


@pytest.mark.spec("X-6")
def test_sections_are_found_in_any_order():  # rhea writes the footer before the body
    sections = split(WHOLE.encode())
    assert split(b"".join(reversed(sections))) == sections
    assert split(sections.footer + b"".join(sections[:6])) == sections


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_every_kind_of_body_round_trips(body):
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


def test_an_unedited_entry_stays_bit_for_bit():
    wide = bytes.fromhex("70 00000001")  # a uint that this codec would encode shorter
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
        ("005370 45 005370 45", "twice"),
        ("005370 45 005373 45 005370 45", "twice"),
        ("005377 40 005377 40", "two places"),
        ("005375 a000 005373 45 005375 a000", "two places"),
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


ORDER = [
    b"\x00\x53\x70\x45",
    b"\x00\x53\x71\xc1\x01\x00",
    b"\x00\x53\x72\xd1\x00\x00\x00\x04\x00\x00\x00\x00",
    b"\x00\x53\x73\xc0\x03\x01\xa1\x00",
    b"\x00\x53\x74\xc1\x01\x00",
    b"\x00\x53\x75\xa0\x01x",
    b"\x00\x53\x75\xb0\x00\x00\x00\x01x",
    b"\x00\x53\x76\x45",
    b"\x00\x53\x76\xc0\x01\x00",
    b"\x00\x53\x77\x40",
    b"\x00\x53\x77\xa1\x01v",
    b"\x00\x53\x78\xc1\x01\x00",
]


def as_parts(sections: list[bytes]) -> list[bytes] | None:
    """Return the seven parts of a message, or None for sections that are not a message."""
    codes = [section[2] for section in sections]
    places = [at for at, code in enumerate(codes) if 0x75 <= code <= 0x77]
    bodies = {codes[at] for at in places}
    is_whole = places == list(range(places[0], places[-1] + 1)) if places else True
    repeated = {code for code in codes if codes.count(code) > 1}
    if not is_whole or len(bodies) > 1 or repeated - {0x75, 0x76}:
        return None
    parts = [b""] * 7
    for code, section in zip(codes, sections, strict=True):
        parts[min(code, 0x75) - 0x70 if code < 0x78 else 6] += section
    return parts


@pytest.mark.slow
@pytest.mark.spec("R-66", "X-6")
@given(
    st.lists(st.sampled_from(ORDER), max_size=6) | st.lists(st.sampled_from(ORDER), max_size=9).map(sorted)
)
@settings(max_examples=500, deadline=None)
def test_sections_are_found_in_any_order_and_once(sections: list[bytes]) -> None:
    expected = as_parts(sections)
    if expected is None:
        with pytest.raises(DecodeError, match=r"twice|two section types"):
            split(b"".join(sections))
        return
    for payload in (b"".join(sections), bytearray(b"".join(sections))):
        found = split(payload)
        assert list(found) == expected
        assert {type(part) for part in found} == {bytes}


@pytest.mark.spec("R-66")
@given(st.sampled_from(ORDER), st.sampled_from(ORDER), st.data())
@settings(max_examples=200, deadline=None)
def test_a_message_cut_inside_a_section_is_refused(first: bytes, second: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(second) - 1))
    with pytest.raises(DecodeError):
        split(first + second[:cut])


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("45", "a section without a descriptor"),
        ("005370", "a section without a value"),
        ("005399 45", "unknown section descriptor 153"),
        ("0040 45", "unknown section descriptor None"),
        ("00a30161 45", "unknown section descriptor None"),
        ("005370 45 005370 45", "section 0x70 appears twice"),
        ("005375 a000 005376 45", "a body in two places, or of two section types or values"),
        ("005370 40", "section 0x70 holds a value of format 0x40"),
        ("005375 a0ff61", "a value is longer than its container"),
    ],
)
def test_a_malformed_message_is_reported_with_its_fault(octets: str, told: str) -> None:
    with pytest.raises(DecodeError) as refused:
        split(bytes.fromhex(octets))
    assert str(refused.value) == told


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("005374 45", "the section does not hold a map"),
        ("005374 c10100 40", "the size of a map does not match its items"),
        ("005374 c10301 4040", "a map of 1 items in 2 bytes"),
        ("005374 c10304 4040", "a map of 4 items in 2 bytes"),
        ("005374 c10402 404040", "the size of a map does not match its items"),
    ],
)
def test_a_malformed_map_entry_is_reported_with_its_fault(octets: str, told: str) -> None:
    with pytest.raises(DecodeError) as refused:
        split_entries(bytes.fromhex(octets))
    assert str(refused.value) == told


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("read", "octets", "told"),
    [
        (section_value, "5501", "not one section"),
        (section_value, "005377 40 40", "not one section"),
        (decode_map_section, "005374 45", "the section does not hold a map"),
        (decode_header, "005370 45 40", "not a header section"),
        (decode_header, "005373 45", "not a header section"),
        (decode_properties, "005373 45 40", "not a properties section"),
        (decode_properties, "005370 45", "not a properties section"),
        (decode_body, "40", "a body section without a descriptor"),
        (decode_properties, "005373 c00301 5405", "Properties.message_id is a message-id: not Int(5)"),
        (decode_properties, "005373 c00c0a 404040404040404040 5505",
         "Properties.creation_time is a timestamp: not 5"),
    ],
)  # fmt: skip
def test_a_malformed_section_is_reported_with_its_fault(
    read: Callable[[bytes], object], octets: str, told: str
) -> None:
    with pytest.raises(DecodeError) as refused:
        read(bytes.fromhex(octets))
    assert str(refused.value) == told


@pytest.mark.spec("R-66")
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_entries_of_narrow_and_wide_maps_are_found(width: int, count: int) -> None:
    items = [(b"\x54" + bytes((key,)), b"\xa1\x00") for key in range(count)]
    content = b"".join(key + value for key, value in items)
    if width == 1 and len(content) > 254:
        items, content = items[:50], b"".join(key + value for key, value in items[:50])
    size, number = len(content) + width, 2 * len(items)
    form = b"\xc1" if width == 1 else b"\xd1"
    head = form + size.to_bytes(width, "big") + number.to_bytes(width, "big")
    assert split_entries(b"\x00\x53\x74" + head + content) == [
        (key, b"\xa1\x00") for key in range(len(items))
    ]


@pytest.mark.spec("R-66")
def test_several_body_sections_stay_separate() -> None:
    assert DataBody((b"a", b"b")).data == b"ab"
    for kind, name, values in (
        (DataBody, "amqp:data:binary", (b"a", b"b")),
        (SequenceBody, "amqp:amqp-sequence:list", ([1], ["x"])),
    ):
        assert decode_body(encode_body(kind(values))) == kind(values)
        assert decode_body(b"".join(encode(Described(Symbol(name), each)) for each in values)) == kind(values)
    assert decode_body(encode(Described(Symbol("amqp:amqp-value:*"), 5))) == ValueBody(5)
    with pytest.raises(DecodeError, match="two places"):
        decode_body(encode_body(ValueBody(1)) * 2)


def test_a_hundred_thousand_data_sections_split_in_linear_time():
    payload = bytes.fromhex("005375a000") * 100_000
    bodies: list[bytes] = []
    assert cpu_of(lambda: bodies.append(split(payload).body)) < 2
    assert bodies == [payload]


def test_a_misplaced_section_is_named():
    with pytest.raises(DecodeError, match="descriptor"):
        decode_header(encode_map_section(Section.FOOTER, {}))
    with pytest.raises(DecodeError, match="not a header"):
        decode_header(Message(properties=Properties()).encode())
    with pytest.raises(DecodeError, match="creation_time"):
        decode_properties(bytes.fromhex("005373 c00c0a 404040404040404040 5505".replace(" ", "")))


ANY_PROPERTIES = st.builds(
    Properties,
    message_id=st.none()
    | st.text(max_size=5)
    | st.uuids()
    | st.binary(max_size=5)
    | st.builds(ULong, st.integers(0, 9)),
    user_id=st.none() | st.binary(max_size=3),
    to=st.none() | st.text(max_size=5) | st.just("t" * 300),
    content_type=st.none() | st.just("text/plain"),
    creation_time=st.none() | st.integers(-(2**40), 2**40),
    group_sequence=st.none() | st.integers(0, 9),
    reply_to_group_id=st.none() | st.text(max_size=5),
)


@pytest.mark.slow
@pytest.mark.spec("R-66")
@given(ANY_PROPERTIES, st.integers(0, 40), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_the_fast_property_reader_agrees_with_the_decoder(
    properties: Properties, place: int, byte: int
) -> None:
    section = bytearray(encode_properties(properties))
    if place < len(section):
        section[place] = byte
    values = message_id = None
    with suppress(DecodeError, IndexError, UnicodeDecodeError):
        at, count = open_section(bytes(section), LISTS)
        values = usual_values(bytes(section), at, 0, count)
    with suppress(DecodeError):
        message_id = decode_message_id(bytes(section))
    try:
        decoded = decode_properties(bytes(section))
    except DecodeError:
        return
    assert message_id == decoded.message_id
    if values is not None:
        assert values == [getattr(decoded, name) for name in PLACES][: len(values)]


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    "octets", ["00", "0053", "005373", "005373 c0", "005373 c00201", "005373 c10100", "005373 c0020141"]
)
def test_a_truncated_or_mistyped_message_id_is_reported(octets: str) -> None:
    with pytest.raises(DecodeError):
        decode_message_id(bytes.fromhex(octets))


@pytest.mark.spec("R-66")
def test_a_section_is_located_without_decoding_the_others() -> None:
    payload = WHOLE.encode()
    sections = split(payload)
    at = len(sections.header) + len(sections.delivery_annotations)
    assert locate(payload, Section.MESSAGE_ANNOTATIONS) == (at, at + len(sections.message_annotations))
    missing = replace(WHOLE, message_annotations={}).encode()
    assert locate(missing, Section.MESSAGE_ANNOTATIONS) == (-1, -1)
    assert locate(b"".join(reversed(sections)), Section.MESSAGE_ANNOTATIONS) == (-1, -1)
    assert locate(payload[:5], Section.MESSAGE_ANNOTATIONS) == (-1, -1)
