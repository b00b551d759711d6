"""Messages: the sections of part 3, found, decoded and encoded.

    header · delivery-annotations · message-annotations · properties · application-properties
    · body: data* or sequence* or value · footer

`split` finds the sections of an encoded message without decoding them, and `split_entries` the entries of a map
section: everything else keeps its original bytes. `Message` is the whole message decoded, for management
nodes and tests.
"""

import struct
import uuid
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, NamedTuple

from .composite import (
    ANYTHING,
    BINARY,
    BOOLEAN,
    STRING,
    SYMBOL,
    UBYTE,
    UINT,
    FieldType,
    build,
    composite,
    decode_composite,
    encode_composite,
)
from .decoding import DecodeBudget, decode, skip
from .encoding import encode, write_compound
from .errors import DecodeError
from .performatives import AmqpMap, Declare, Discharge
from .types import Described, Symbol, Timestamp, ULong


class Section(IntEnum):
    """The descriptors of the sections."""

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
    """The encoded sections, each with its descriptor, or b""; a body may be several sections in a row."""

    header: bytes = b""
    delivery_annotations: bytes = b""
    message_annotations: bytes = b""
    properties: bytes = b""
    application_properties: bytes = b""
    body: bytes = b""
    footer: bytes = b""


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
    return bytes((0x00, 0x53, code)) + encode(mapping)


def split_entries(section: bytes) -> list[tuple[object, bytes]]:
    """Return the entries of a map section, keys decoded and values encoded. Raises DecodeError."""
    if not section:
        return []
    _code, position = _descriptor(section, 0, len(section))
    form = section[position]
    end = len(section)
    if form not in _MAPS or skip(section, position, end) != end:
        raise DecodeError("the section does not hold a map")
    count_at, width = (position + 2, 1) if form == 0xC1 else (position + 5, 4)
    count = int.from_bytes(section[count_at : count_at + width], "big")
    position = count_at + width
    if count % 2 or count > end - position:
        raise DecodeError(f"a map of {count} items in {end - position} bytes")
    budget = DecodeBudget(end)
    entries = []
    for _ in range(count // 2):
        key, value_at = decode(section, position, end, budget)
        position = skip(section, value_at, end)
        entries.append((key, section[value_at:position]))
    if position != end:
        raise DecodeError("the size of a map does not match its items")
    return entries


def join_entries(code: int, entries: list[tuple[object, bytes]]) -> bytes:
    """Build a map section from entries with encoded values; b"" without entries."""
    if not entries:
        return b""
    out = bytearray((0x00, 0x53, code))
    content = b"".join(encode(key) + value for key, value in entries)
    write_compound(out, 0xC1, 2 * len(entries), content)
    return bytes(out)


# Decoded sections

MessageId = ULong | uuid.UUID | bytes | str


def _read_message_id(value: object) -> object:
    if not isinstance(value, ULong | uuid.UUID | bytes | str):
        raise DecodeError(f"not {value!r:.60}")
    return value


def _read_instant(value: object) -> object:
    if not isinstance(value, Timestamp):
        raise DecodeError(f"not {value!r:.60}")
    return value


def _write_instant(out: bytearray, value: int) -> None:
    out += encode(Timestamp(value))


MESSAGE_ID = FieldType("a message-id", ANYTHING.write, _read_message_id)
INSTANT = FieldType("a timestamp", _write_instant, _read_instant)


@composite(0x70, "amqp:header:list")
@dataclass(frozen=True, slots=True)
class Header:
    """The header section (3.2.1); ttl in milliseconds."""

    durable: Annotated[bool | None, BOOLEAN] = None
    priority: Annotated[int | None, UBYTE] = None
    ttl: Annotated[int | None, UINT] = None
    first_acquirer: Annotated[bool | None, BOOLEAN] = None
    delivery_count: Annotated[int | None, UINT] = None


@composite(0x73, "amqp:properties:list")
@dataclass(frozen=True, slots=True)
class Properties:
    """The properties section (3.2.4); times in milliseconds since the epoch."""

    message_id: Annotated[MessageId | None, MESSAGE_ID] = None
    user_id: Annotated[bytes | None, BINARY] = None
    to: Annotated[str | None, STRING] = None
    subject: Annotated[str | None, STRING] = None
    reply_to: Annotated[str | None, STRING] = None
    correlation_id: Annotated[MessageId | None, MESSAGE_ID] = None
    content_type: Annotated[str | None, SYMBOL] = None
    content_encoding: Annotated[str | None, SYMBOL] = None
    absolute_expiry_time: Annotated[int | None, INSTANT] = None
    creation_time: Annotated[int | None, INSTANT] = None
    group_id: Annotated[str | None, STRING] = None
    group_sequence: Annotated[int | None, UINT] = None
    reply_to_group_id: Annotated[str | None, STRING] = None


def decode_header(section: bytes) -> Header:
    """Decode a header section; b"" has the defaults. Raises DecodeError."""
    if not section:
        return Header()
    header, stop = decode_composite(section, 0, len(section))
    if not isinstance(header, Header) or stop != len(section):
        raise DecodeError("not a header section")
    return header


def encode_header(header: Header) -> bytes:
    """Encode a header section. Raises EncodeError."""
    return encode_composite(header)


def decode_properties(section: bytes) -> Properties:
    """Decode a properties section; b"" has none. Raises DecodeError."""
    if not section:
        return Properties()
    properties, stop = decode_composite(section, 0, len(section))
    if not isinstance(properties, Properties) or stop != len(section):
        raise DecodeError("not a properties section")
    return properties


def encode_properties(properties: Properties) -> bytes:
    """Encode a properties section. Raises EncodeError."""
    return encode_composite(properties)


@dataclass(frozen=True, slots=True)
class DataBody:
    """Opaque bytes, in one section or several (3.2.6)."""

    sections: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        """The sections concatenated."""
        return b"".join(self.sections)


@dataclass(frozen=True, slots=True)
class SequenceBody:
    """Lists of values, in one section or several (3.2.7)."""

    sections: tuple[list[object], ...]


@dataclass(frozen=True, slots=True)
class ValueBody:
    """One AMQP value (3.2.8)."""

    value: object


Body = DataBody | SequenceBody | ValueBody


@dataclass(frozen=True, slots=True)
class Message:
    """A decoded message; an absent section has its default."""

    header: Header | None = None
    delivery_annotations: AmqpMap = field(default_factory=dict)
    message_annotations: AmqpMap = field(default_factory=dict)
    properties: Properties | None = None
    application_properties: AmqpMap = field(default_factory=dict)
    body: Body | None = None
    footer: AmqpMap = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode the message without sections at their default. Raises EncodeError."""
        return b"".join(
            (
                encode_header(self.header) if self.header else b"",
                _map_section(Section.DELIVERY_ANNOTATIONS, self.delivery_annotations),
                _map_section(Section.MESSAGE_ANNOTATIONS, self.message_annotations),
                encode_properties(self.properties) if self.properties else b"",
                _map_section(Section.APPLICATION_PROPERTIES, self.application_properties),
                encode_body(self.body),
                _map_section(Section.FOOTER, self.footer),
            )
        )

    @staticmethod
    def decode(payload: bytes | bytearray | memoryview) -> "Message":
        """Decode a message. Raises DecodeError."""
        sections = split(payload)
        return Message(
            decode_header(sections.header) if sections.header else None,
            decode_map_section(sections.delivery_annotations),
            decode_map_section(sections.message_annotations),
            decode_properties(sections.properties) if sections.properties else None,
            decode_map_section(sections.application_properties),
            decode_body(sections.body),
            decode_map_section(sections.footer),
        )


def _map_section(code: Section, mapping: AmqpMap) -> bytes:
    return encode_map_section(code, mapping) if mapping else b""


def encode_body(body: Body | None) -> bytes:
    """Encode the body sections. Raises EncodeError."""
    match body:
        case None:
            return b""
        case DataBody(sections):
            return b"".join(encode(Described(Section.DATA, part)) for part in sections)
        case SequenceBody(lists):
            return b"".join(encode(Described(Section.SEQUENCE, part)) for part in lists)
        case ValueBody(value):
            return encode(Described(Section.VALUE, value))


def decode_body(data: bytes) -> Body | None:
    """Decode the body sections; None without any. Raises DecodeError."""
    values = []
    position = 0
    while position < len(data):
        value, position = decode(data, position)
        if not isinstance(value, Described):
            raise DecodeError("a body section without a descriptor")
        values.append(value)
    if not values:
        return None
    split(data)  # checks their types and order
    first = values[0]
    if first.descriptor in (Section.DATA, "amqp:data:binary"):
        return DataBody(tuple(bytes(value.value) for value in values if isinstance(value.value, bytes)))
    if first.descriptor in (Section.SEQUENCE, "amqp:amqp-sequence:list"):
        return SequenceBody(tuple(value.value for value in values if isinstance(value.value, list)))
    return ValueBody(first.value)


# Messages to a coordinator (4.2, 4.3)


def encode_request(request: Declare | Discharge) -> bytes:
    """Encode the message that makes this request of a coordinator."""
    return bytes((0x00, 0x53, Section.VALUE)) + encode_composite(request)


def decode_request(payload: bytes) -> Declare | Discharge:
    """Decode the request of a message to a coordinator. Raises DecodeError."""
    body = split(payload).body
    section = decode(body)[0] if body else None
    request = section.value if isinstance(section, Described) else None
    asked = build(request) if isinstance(request, Described) else None
    if not isinstance(asked, Declare | Discharge):
        raise DecodeError("a message to a coordinator must have a declare or a discharge as its value")
    return asked
