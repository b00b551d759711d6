"""The positions of encoded messages: sequence number, enqueued time and state, from the message annotations.

The broker gives the messages of an entity annotations of the same layout. The place of each value is determined once
for a layout; then one comparison tells whether a section has it, and one more step reads the values. Sections of a
length whose layouts keep differing are walked. Performs no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.sections import Section, locate
from sbpair.pair.envelope.scan import MAX_LESSONS, part_entries, walk_entries

from .ranges import ACTIVE
from .section_values import whole_number

NUMBER, ENQUEUED, STATE = b"x-opt-sequence-number", b"x-opt-enqueued-time", b"x-opt-message-state"
POSITION = frozenset((NUMBER, ENQUEUED, STATE))
MAX_LAYOUTS = 64

_FORMS = {0x50: "B", 0x51: "b", 0x52: "B", 0x53: "B", 0x54: "b", 0x55: "b", 0x60: "H", 0x61: "h"} | {
    0x70: "I",
    0x71: "i",
    0x80: "Q",
    0x81: "q",
    0x83: "q",
}
"""The integers and the timestamp of AMQP, by format code, as struct reads them."""


class Position(NamedTuple):
    """The position of one message."""

    number: int | None
    """The sequence number; None if absent."""

    enqueued_at: int | None
    """Milliseconds since the epoch; None if absent."""

    state: int = ACTIVE


class _Layout(NamedTuple):
    """The positions of the values in the sections of one layout."""

    constant: struct.Struct
    bytes_there: tuple[bytes, ...]
    values: struct.Struct
    places: tuple[int, int, int]
    """Which of the values are number, time and state; -1 for an absent one."""


# By the length of the section: its last layout, and how many were cached.
_layouts: dict[int, _Layout] = {}
_lessons: dict[int, int] = {}


def position_in(annotations: bytes) -> Position:
    """The position in a section of message annotations; b"" has none. Raises DecodeError, IndexError."""
    layout = _layouts.get(len(annotations))
    if layout is None or layout.constant.unpack(annotations) != layout.bytes_there:
        layout = _learn(annotations)
        if layout is None:
            return _walk(annotations)
    values = (*layout.values.unpack_from(annotations), None)
    number, enqueued, state = layout.places
    return Position(values[number], values[enqueued], values[state] or ACTIVE)


def position_of(payload: bytes) -> Position | None:
    """The position of an encoded message, read without decoding its other sections.

    None if the sections before the annotations are of an unusual form, or malformed.
    """
    at, stop = locate(payload, Section.MESSAGE_ANNOTATIONS)
    try:
        return position_in(payload[at:stop]) if at >= 0 else None
    except (DecodeError, IndexError):
        return None


def _learn(annotations: bytes) -> _Layout | None:
    """Cache and return the layout of a section; None if it cannot be cached.

    That is so if its values are not of the usual types, or layouts of its length differed too often.
    Raises DecodeError, IndexError.
    """
    length = len(annotations)
    if not annotations or _lessons.get(length, 0) >= MAX_LESSONS:
        return None
    walked = walk_entries(annotations, POSITION)
    form, order, at = [">"], [], 0
    for key, start, stop in walked.found:
        value = _FORMS.get(annotations[start])
        if value is None:
            return None
        form.append(f"{start + 1 - at}x{value}")
        order.append(key)
        at = stop
    places = (_last(order, NUMBER), _last(order, ENQUEUED), _last(order, STATE))
    layout = _Layout(walked.constant, walked.bytes_there, struct.Struct("".join(form)), places)
    if len(_layouts) >= MAX_LAYOUTS:
        _layouts.clear()
        _lessons.clear()
    _layouts[length] = layout
    _lessons[length] = _lessons.get(length, 0) + 1
    return layout


def _last(order: Iterable[bytes], key: bytes) -> int:
    return max((place for place, each in enumerate(order) if each == key), default=-1)


def _walk(annotations: bytes) -> Position:
    found = part_entries(annotations, POSITION).found
    return Position(
        _whole(found.get(NUMBER)), _whole(found.get(ENQUEUED)), _whole(found.get(STATE)) or ACTIVE
    )


def _whole(encoded: bytes | None) -> int | None:
    """Read the whole value. Raises DecodeError."""
    return None if encoded is None else whole_number(encoded)
