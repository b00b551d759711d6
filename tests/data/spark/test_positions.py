"""Positions of messages read from the cached layout of their annotations equal the decoded ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.data.spark import positions
from sbpair.data.spark.glimpse import glimpse, unsettled_message
from sbpair.data.spark.positions import ENQUEUED, MAX_LAYOUTS, NUMBER, STATE, position_in, position_of
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import Header, Message
from sbpair.pair.amqp.sections import Section, decode_map_section, encode_map_section
from sbpair.pair.amqp.types import Byte, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from sbpair.pair.envelope.scan import MAX_LESSONS, SectionLayout

KINDS = (int, Int, Short, Byte, ULong, UInt, UShort, UByte, Timestamp)
SMALL = st.builds(lambda kind, value: kind(value), st.sampled_from(KINDS), st.integers(0, 127))
LONG = st.integers(-(2**63), 2**63 - 1)
NAMES = st.sampled_from([Symbol(each.decode()) for each in (NUMBER, ENQUEUED, STATE)])
ANNOTATIONS = st.dictionaries(
    NAMES | st.builds(Symbol, st.text("ab", min_size=1, max_size=3)) | st.text("cd", min_size=1, max_size=3),
    SMALL | LONG | st.none() | st.booleans() | st.text(max_size=3) | st.lists(st.integers(0, 3), max_size=2),
    max_size=6,
)


def section(annotations: dict[object, object]) -> bytes:
    return encode_map_section(Section.MESSAGE_ANNOTATIONS, annotations)  # type: ignore[arg-type]


def decoded(annotations: bytes) -> tuple[int | None, int | None, int]:
    """The position by way of the general decoder."""
    values = decode_map_section(annotations)
    found = [values.get(Symbol(each.decode())) for each in (NUMBER, ENQUEUED, STATE)]
    whole = [int(each) if isinstance(each, int) and not isinstance(each, bool) else None for each in found]
    return whole[0], whole[1], whole[2] or 0


@pytest.mark.spec("R-77")
@given(st.lists(ANNOTATIONS, min_size=1, max_size=4))
def test_the_fast_position_agrees_with_the_decoder_for_any_annotations(
    several: list[dict[object, object]],
) -> None:
    for each in several:
        encoded = section(each)
        assert position_in(encoded) == decoded(encoded)


@pytest.mark.spec("R-77")
@given(ANNOTATIONS, st.booleans(), st.booleans(), st.integers(0, 600))
def test_a_message_to_be_settled_has_the_position_of_the_message_that_was_read(
    annotations: dict[object, object], has_header: bool, has_delivery_annotations: bool, padding: int
) -> None:
    message = Message(
        Header(delivery_count=3) if has_header else None,
        {Symbol("x"): 1} if has_delivery_annotations else {},
        {**annotations, Symbol("padding"): "x" * padding},  # type: ignore[dict-item]
    )
    payload = message.encode()
    found = glimpse(payload)
    assert position_of(payload) == found[:3]
    assert unsettled_message(payload) == (*found[:3], payload)
    assert unsettled_message(payload).deliveries == (3 if has_header else 0)


@pytest.mark.spec("R-77")
@given(st.integers(0, 80), st.integers(0, 255))
def test_a_damaged_message_has_no_position_or_the_decodable_one(place: int, value: int) -> None:
    annotations = {Symbol("x-opt-sequence-number"): 2**40, Symbol("x-opt-enqueued-time"): Timestamp(7)}
    payload = Message(Header(delivery_count=1), message_annotations=annotations).encode()  # type: ignore[arg-type]
    changed = payload[:place] + bytes((value,)) + payload[place + 1 :]
    for each in (payload[:place], changed):
        found = glimpse(each)
        if found.trouble is None:
            assert unsettled_message(each) == (*found[:3], each)
        else:
            assert unsettled_message(each).payload == each  # it raised nothing


@pytest.mark.spec("R-77")
@pytest.mark.parametrize(
    "begin", [b"\x00\x53\x70\xc0", b"\x00\x53\x71\xc1", b"\x00\x53\x72\xc1", b"\x00\x53\x72\xd1"]
)
def test_a_message_truncated_in_a_section_header_has_no_position(begin: bytes) -> None:
    for payload in (begin, begin + b"\x00", Message(Header(delivery_count=1)).encode() + begin):
        assert unsettled_message(payload) == (None, None, 0, payload)


def test_the_cache_of_alternating_layouts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "_layouts", {})
    monkeypatch.setattr(positions, "_lessons", {})
    walked: list[bytes] = []
    walk = positions.walk_entries

    def noted(annotations: bytes, wanted: frozenset[bytes]) -> SectionLayout:
        walked.append(annotations)
        return walk(annotations, wanted)

    monkeypatch.setattr(positions, "walk_entries", noted)
    for number in range(4 * MAX_LESSONS):
        encoded = section({Symbol("ab"[number % 2]): 1, Symbol("x-opt-sequence-number"): 2**40 + number})
        assert position_in(encoded) == (2**40 + number, None, 0)
    assert len(walked) == MAX_LESSONS


def test_layouts_beyond_the_cache_are_read() -> None:
    for length in range(2 * MAX_LAYOUTS):
        encoded = section({Symbol("x" * (length + 1)): 1, Symbol("x-opt-sequence-number"): 2**40 + length})
        assert position_in(encoded) == (2**40 + length, None, 0)


def test_annotations_that_end_inside_a_value_are_refused() -> None:
    with pytest.raises((DecodeError, IndexError)):
        position_in(section({Symbol("x-opt-sequence-number"): 2**40})[:-3])
