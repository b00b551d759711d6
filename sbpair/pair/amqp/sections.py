"""The sections of an encoded message, and the fields and entries in them: found and edited without decoding them.

    header · delivery-annotations · message-annotations · properties · application-properties
    · body: data* or sequence* or value · footer

A section is a descriptor and a list of fields (header, properties), a map of entries (annotations, application
properties, footer) or a body; see AMQP part 1, 1.4, 1.6.22 and 1.6.23, and part 3. Only lengths are decoded, so a value
that is not edited keeps its bytes, and with them its AMQP type and encoding width.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .composite import with_symbols
from .decoding import DecodeBudget, decode, skip
from .encoding import encode
from .errors import DecodeError
from .types import Described, Symbol

NULL = b"\x40"


class Section:
    """The descriptors of the sections: plain numbers, because members of an enum are slow to look up."""

    HEADER: Final = 0x70
    DELIVERY_ANNOTATIONS: Final = 0x71
    MESSAGE_ANNOTATIONS: Final = 0x72
    PROPERTIES: Final = 0x73
    APPLICATION_PROPERTIES: Final = 0x74
    DATA: Final = 0x75
    SEQUENCE: Final = 0x76
    VALUE: Final = 0x77
    FOOTER: Final = 0x78


class Sections(NamedTuple):
    """The encoded sections, each with its descriptor, or b""; a body may be several sections in a row."""

    header: bytes = b""
    delivery_annotations: bytes = b""
    message_annotations: bytes = b""
    properties: bytes = b""
    application_properties: bytes = b""
    body: bytes = b""
    footer: bytes = b""


_ANNOTATIONS = frozenset((Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS, Section.FOOTER))
# descriptor -> index in Sections
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
# the value of a section: list for 70, 73, 76; map for 71, 72, 74, 78; binary for 75; any for 77
LISTS, MAPS, _BINARIES = frozenset((0x45, 0xC0, 0xD0)), frozenset((0xC1, 0xD1)), frozenset((0xA0, 0xB0))
_FORMS = {
    0x70: LISTS,
    0x73: LISTS,
    0x76: LISTS,
    0x71: MAPS,
    0x72: MAPS,
    0x74: MAPS,
    0x78: MAPS,
    0x75: _BINARIES,
}


# the usual first four bytes of a section, descriptor and format code: header size and width of the size field
_HEAD = struct.Struct(">II").unpack_from
_USUAL = {
    0x00530000 | code << 8 | form: (code, 8, 0) if form in (0xB0, 0xD0, 0xD1) else (code, 5, 24)
    for code, forms in _FORMS.items()
    for form in forms
    if form != 0x45
}


def split(payload: bytes | bytearray | memoryview) -> Sections:
    """Find the sections of an encoded message, which may be empty, in any order. Raises DecodeError.

    Clients do not keep to the order of the standard: rhea writes the footer before the body, the Python SDK delivery
    annotations last.
    """
    if not isinstance(payload, bytes):
        payload = bytes(payload)
    parts = [b""] * 7
    position, end, last = 0, len(payload), 0
    body_at, body_end = -1, 0  # the sections of a body must be contiguous: one slice holds all
    while position < end:
        usual = None
        if position + 8 <= end:
            word, size = _HEAD(payload, position)
            usual = _USUAL.get(word)
        if usual is not None:
            code, head, unused_bits = usual
            stop = position + head + (size >> unused_bits)
            if stop > end:
                raise DecodeError("a value is longer than its container")
        else:
            code, stop = _section(payload, position, end)
        if 0x75 <= code <= 0x77:
            if body_at < 0:
                body_at = position
            elif code != last or code == 0x77:
                raise DecodeError("a body in two places, or of two section types or values")
            body_end = stop
        elif parts[_PLACES[code]]:
            raise DecodeError(f"section 0x{code:02x} appears twice")
        else:
            parts[_PLACES[code]] = payload[position:stop]
        position, last = stop, code
    if body_at >= 0:
        parts[_BODY] = payload[body_at:body_end]
    return Sections(*parts)


def _section(payload: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the code of the section at ``position`` and the offset after it."""
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
        raise DecodeError(f"unknown section descriptor {code!r:.60}")
    if value_at >= end:
        raise DecodeError("a section without a value")
    return int(code), value_at


def locate(payload: bytes, wanted: int) -> tuple[int, int]:
    """Return where the section with the code ``wanted`` begins and ends, without splitting the whole message.

    (-1, -1) if the section is absent, or if it or an earlier one is out of order or in an unusual form.
    """
    at = 0
    try:
        word, size = _HEAD(payload)
        while (usual := _USUAL[word])[0] < wanted:
            at += usual[1] + (size >> usual[2])
            word, size = _HEAD(payload, at)
    except (struct.error, KeyError):
        return -1, -1
    code, head, unused_bits = usual
    return (at, at + head + (size >> unused_bits)) if code == wanted else (-1, -1)


_SHORT_DATA, _LONG_DATA = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"


def plain_data(body: bytes) -> bytes | None:
    """Return the content of a body of one data section in its usual form; None for any other body."""
    if body[:4] == _LONG_DATA and len(body) == 8 + int.from_bytes(body[4:8], "big"):
        return body[8:]
    return None


def data_section(data: bytes) -> bytes:
    """Encode a data section."""
    size = len(data)
    return (_SHORT_DATA + bytes((size,)) if size < 256 else _LONG_DATA + size.to_bytes(4, "big")) + data


def section_value(section: bytes) -> object:
    """Decode the value of one section. Raises DecodeError."""
    value, stop = decode(section)
    if not isinstance(value, Described) or stop != len(section):
        raise DecodeError("not one section")
    return value.value


def decode_map_section(section: bytes) -> dict[object, object]:
    """Decode an annotations, application-properties or footer section; b"" is the empty map."""
    if not section:
        return {}
    value = section_value(section)
    if not isinstance(value, dict):
        raise DecodeError("the section does not hold a map")
    return value


def encode_map_section(code: int, mapping: dict[object, object]) -> bytes:
    """Encode a map section with this descriptor. Raises EncodeError."""
    return bytes((0x00, 0x53, code)) + encode(with_symbols(mapping) if code in _ANNOTATIONS else mapping)


# Fields and entries


# The size of a value by the upper half of its constructor (AMQP part 1, 1.6): fixed, or in 1 or 4 bytes.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_COUNTED = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_SIZE = [_FIXED.get(code >> 4, -_COUNTED.get(code >> 4, 0) or -9) for code in range(256)]

VALUE_HEADS = [1 + max(0, -size) if size > -9 else 1 for size in _SIZE]
"""The number of bytes before the content of a value, constructor and size, by its constructor."""


def value_end(data: bytes, at: int, end: int) -> int:
    """Return the end of the value at ``at``. Raises DecodeError, IndexError."""
    size = _SIZE[data[at]]
    if size >= 0:
        stop = at + 1 + size
    elif size == -1:
        stop = at + 2 + data[at + 1]
    elif size == -4:
        stop = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    else:
        return skip(data, at, end)  # described, or malformed
    if stop > end:
        raise DecodeError("a value extends beyond its section")
    return stop


def open_section(section: bytes, forms: frozenset[int]) -> tuple[int, int]:
    """Return the offset of the first value in a section, and their number; ``forms`` is LISTS or MAPS.

    Raises DecodeError, IndexError.
    """
    at = 3 if section[1] == 0x53 else value_end(section, 1, len(section))  # after the descriptor
    form = section[at]
    if form not in forms:
        raise DecodeError(f"the section does not hold a {'map' if forms is MAPS else 'list'}")
    if form < 0xC0:  # the empty list
        return at + 1, 0
    if form < 0xD0:
        count, at = section[at + 2], at + 3
    else:
        count, at = int.from_bytes(section[at + 5 : at + 9], "big"), at + 9
    if count > len(section) - at or (count & 1 and forms is MAPS):
        noun = "map" if forms is MAPS else "list"
        raise DecodeError(f"a {noun} of {count} items in {len(section) - at} bytes")
    return at, count


def split_fields(section: bytes) -> list[bytes]:
    """Return the raw fields of a list section. Raises DecodeError, IndexError."""
    at, count = open_section(section, LISTS)
    end = len(section)
    fields = []
    for _ in range(count):
        stop = value_end(section, at, end)
        fields.append(section[at:stop])
        at = stop
    if at != end:
        raise DecodeError(f"{end - at} bytes after the last field of a section")
    return fields


def entry_spans(section: bytes) -> list[tuple[int, int, int]]:
    """Return, for each entry of a map section: the offsets of the entry, of its value, and of its end.

    Raises DecodeError, IndexError.
    """
    at, count = open_section(section, MAPS)
    end = len(section)
    spans = []
    for _ in range(count >> 1):
        is_text = section[at] | 2 == 0xA3  # nearly every key: a short string or symbol
        value_at = at + 2 + section[at + 1] if is_text else value_end(section, at, end)
        stop = value_end(section, value_at, end)
        spans.append((at, value_at, stop))
        at = stop
    if at != end:
        raise DecodeError("the size of a map does not match its items")
    return spans


def split_entries(section: bytes) -> list[tuple[object, bytes]]:
    """Return the entries of a map section, keys decoded and values encoded; b"" has none. Raises DecodeError."""
    if not section:
        return []
    try:
        spans = entry_spans(section)
    except IndexError:
        raise DecodeError("the data ends inside a value") from None
    budget = DecodeBudget(len(section))
    return [
        (decode(section, start, value_at, budget)[0], section[value_at:stop])
        for start, value_at, stop in spans
    ]


def join_fields(code: int, fields: list[bytes], wide: bool = False) -> bytes:
    """Return a list section without trailing nulls; b"" when all fields are null. ``wide`` as in ``map_section``."""
    while fields and fields[-1] == NULL:
        fields.pop()
    return _section_of(code, 0xC0, b"".join(fields), len(fields), wide) if fields else b""


def join_entries(code: int, entries: list[tuple[object, bytes]]) -> bytes:
    """Return a map section with these entries, whose values are encoded; b"" without entries.

    Keys of annotations become symbols, whatever their type.
    """
    if code in _ANNOTATIONS:
        entries = [
            (Symbol(key) if type(key) is str and key.isascii() else key, value) for key, value in entries
        ]
    return map_section(code, b"".join(encode(key) + value for key, value in entries), 2 * len(entries))


def map_section(code: int, entries: bytes, count: int, wide: bool = False) -> bytes:
    """Return a map section of ``count`` encoded keys plus values; b"" without any.

    Uses the 8-bit form if it fits, unless ``wide``.
    """
    return _section_of(code, 0xC1, entries, count, wide) if count else b""


def _section_of(code: int, form: int, content: bytes, count: int, wide: bool) -> bytes:
    size = len(content)
    if size < 255 and not wide:  # so are the items, of at least a byte each
        return bytes((0x00, 0x53, code, form, size + 1, count)) + content
    return _WIDE_HEAD(0x00530010 | code << 8 | form, size + 4, count) + content


_WIDE_HEAD = struct.Struct(">III").pack


def is_needlessly_wide(section: bytes) -> bool:
    """Whether a section uses the 32-bit form although the 8-bit form would do: some encoders know only the former."""
    if not 8 < len(section) < 255:
        return False
    at = 3 if section[1] == 0x53 else value_end(section, 1, len(section))
    return section[at] in (0xD0, 0xD1)
