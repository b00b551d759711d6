"""Where in a message are its sections (3.2), and how is one edited without touching the rest?

    header · delivery-annotations · message-annotations · properties · application-properties
    · body: data* or sequence* or value · footer

Nothing is decoded that need not be: a section is found by its size, and an entry of a map that is
not asked for stays bit for bit as it came.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from .decoding import Budget, decode, skip
from .encoding import encode, write_compound
from .errors import DecodeError
from .primitives import Described, Symbol


class Section(IntEnum):
    """The descriptor of each section."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78


class Sections(NamedTuple):
    """Each the whole encoded section, descriptor included, or b""; the body may be several in a row."""

    header: bytes = b""
    delivery_annotations: bytes = b""
    message_annotations: bytes = b""
    properties: bytes = b""
    application_properties: bytes = b""
    body: bytes = b""
    footer: bytes = b""


# descriptor -> place in Sections
_BODY = 5
_PLACES = {0x70: 0, 0x71: 1, 0x72: 2, 0x73: 3, 0x74: 4, 0x75: 5, 0x76: 5, 0x77: 5, 0x78: 6}
_SYMBOLS = {
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": 0x77,
    "amqp:footer:map": 0x78,
}
# what may stand in a section: list for 70, 73, 76; map for 71, 72, 74, 78; binary for 75; anything for 77
_LISTS, _MAPS, _BINARIES = frozenset((0x45, 0xC0, 0xD0)), frozenset((0xC1, 0xD1)), frozenset((0xA0, 0xB0))
_FORMS = {
    0x70: _LISTS,
    0x73: _LISTS,
    0x76: _LISTS,
    0x71: _MAPS,
    0x72: _MAPS,
    0x74: _MAPS,
    0x78: _MAPS,
    0x75: _BINARIES,
}


# how sections usually begin, as the four bytes of descriptor and form: where their end is told
_HEAD = struct.Struct(">II").unpack_from
_USUAL = {
    0x00530000 | code << 8 | form: (code, 8, 0) if form in (0xB0, 0xD0, 0xD1) else (code, 5, 24)
    for code, forms in _FORMS.items()
    for form in forms
    if form != 0x45
}


def split(payload: bytes | bytearray | memoryview) -> Sections:
    """Find the sections of an encoded message. Raises DecodeError; an empty message is legal."""
    if not isinstance(payload, bytes):
        payload = bytes(payload)
    parts = [b""] * 7
    position, end, last = 0, len(payload), 0
    body_at, body_end = -1, 0  # sections of one body stand in a row: one slice, however many they are
    while position < end:
        usual = None
        if position + 8 <= end:
            word, size = _HEAD(payload, position)
            usual = _USUAL.get(word)
        if usual is not None:
            code, head, unused_bits = usual
            stop = position + head + (size >> unused_bits)
            if stop > end:
                raise DecodeError("a value is longer than what holds it")
        else:
            code, stop = _section(payload, position, end)
        if code == 0x71 and last > code and stop == end and not parts[1]:
            # Behind everything is where the Python SDK writes them: they are no part of the bare message.
            parts[1] = payload[position:]
            break
        if code <= last and not (code == last and code in (0x75, 0x76)):
            raise DecodeError(f"section 0x{code:02x} behind section 0x{last:02x}")
        if last in (0x75, 0x76, 0x77) and code != last and code != 0x78:
            raise DecodeError("a body of two kinds")
        if code < 0x75 or code > 0x77:
            parts[_PLACES[code]] = payload[position:stop]
        elif last < 0x75:
            body_at = position
        if code <= 0x77:
            body_end = stop
        position, last = stop, code
    if body_at >= 0:
        parts[_BODY] = payload[body_at:body_end]
    return Sections(*parts)


def _section(payload: bytes, position: int, end: int) -> tuple[int, int]:
    """The code of the section at ``position``, and where it ends."""
    code, value_at = _descriptor(payload, position, end)
    stop = skip(payload, value_at, end)
    if code != 0x77 and payload[value_at] not in _FORMS[code]:
        raise DecodeError(f"section 0x{code:02x} holds a value of format 0x{payload[value_at]:02x}")
    return code, stop


def _descriptor(payload: bytes, position: int, end: int) -> tuple[int, int]:
    if payload.startswith(b"\x00\x53", position) and position + 3 < end:
        code: object = payload[position + 2]
        value_at = position + 3
    else:
        if payload[position] != 0x00:
            raise DecodeError("a section without a descriptor")
        code, value_at = decode(payload, position + 1, end)
        code = _SYMBOLS.get(code) if isinstance(code, Symbol) else code
    if not isinstance(code, int) or code not in _PLACES:
        raise DecodeError(f"no section has the descriptor {code!r:.60}")
    if value_at >= end:
        raise DecodeError("a section without a value")
    return int(code), value_at


def section_value(section: bytes) -> object:
    """The decoded value of one section. Raises DecodeError."""
    value, stop = decode(section)
    if not isinstance(value, Described) or stop != len(section):
        raise DecodeError("not one section")
    return value.value


def decode_map_section(section: bytes) -> dict[object, object]:
    """The map in an annotations, application-properties or footer section; b"" is the empty map."""
    if not section:
        return {}
    value = section_value(section)
    if not isinstance(value, dict):
        raise DecodeError("the section holds no map")
    return value


def encode_map_section(code: int, mapping: dict[object, object]) -> bytes:
    """An encoded section of this descriptor. Raises EncodeError."""
    return bytes((0x00, 0x53, code)) + encode(mapping)


def split_entries(section: bytes) -> list[tuple[object, bytes]]:
    """The entries of a map section: keys decoded, values as they are. Raises DecodeError."""
    if not section:
        return []
    _code, position = _descriptor(section, 0, len(section))
    form = section[position]
    end = len(section)
    if form not in _MAPS or skip(section, position, end) != end:
        raise DecodeError("the section holds no map")
    count_at, width = (position + 2, 1) if form == 0xC1 else (position + 5, 4)
    count = int.from_bytes(section[count_at : count_at + width], "big")
    position = count_at + width
    if count % 2 or count > end - position:
        raise DecodeError(f"a map of {count} items in {end - position} bytes")
    budget = Budget(end)
    entries = []
    for _ in range(count // 2):
        key, value_at = decode(section, position, end, budget)
        position = skip(section, value_at, end)
        entries.append((key, section[value_at:position]))
    if position != end:
        raise DecodeError("the size of a map is not that of its items")
    return entries


def join_entries(code: int, entries: list[tuple[object, bytes]]) -> bytes:
    """The map section of these entries, values already encoded; b"" when there are none."""
    if not entries:
        return b""
    out = bytearray((0x00, 0x53, code))
    content = b"".join(encode(key) + value for key, value in entries)
    write_compound(out, 0xC1, 2 * len(entries), content)
    return bytes(out)
