"""Messages: the sections of part 3, decoded and encoded.

    header · delivery-annotations · message-annotations · properties · application-properties
    · body: data* or sequence* or value · footer

`Message` is the whole message decoded, for management nodes and tests. :mod:`.sections` finds the sections of an
encoded message without decoding them, so that everything else keeps its original bytes.
"""

import uuid
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, get_args

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
from .decoding import decode
from .encoding import encode
from .errors import DecodeError
from .performatives import AmqpMap, Declare, Discharge
from .sections import (
    LISTS,
    Section,
    data_section,
    decode_map_section,
    encode_map_section,
    open_section,
    plain_data,
    split,
)
from .types import Described, Timestamp, ULong

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
    """The properties section (3.2.4), with the table of its thirteen fields; times in milliseconds since the epoch."""

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


PLACES = {each.name: place for place, each in enumerate(fields(Properties))}
"""The position of each property in the list of the section, by its name."""

_NULL, _SHORT_STRING, _SHORT_SYMBOL, _TIMESTAMP = 0x40, 0xA1, 0xA3, 0x83
_FORM_OF = {STRING: _SHORT_STRING, MESSAGE_ID: _SHORT_STRING, SYMBOL: _SHORT_SYMBOL, INSTANT: _TIMESTAMP}
# the usual form of each property that is not null, if it has one
_FORMS = tuple(_FORM_OF.get(get_args(each.type)[1], _NULL) for each in fields(Properties))


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


def decode_message_id(section: bytes) -> MessageId | None:
    """Return the message id of a properties section, without decoding the rest. Raises DecodeError."""
    try:
        at, count = open_section(section, LISTS) if section else (0, 0)
    except IndexError:
        raise DecodeError("the data ends inside a value") from None
    found = decode(section, at)[0] if count else None
    if found is not None and not isinstance(found, MessageId):
        raise DecodeError(f"the message id is {found!r:.60}")
    return found


def usual_values(data: bytes, at: int, first: int, count: int) -> list[Any] | None:
    """Return the values of fields ``first`` to ``count`` - 1 of a properties section, which fill ``data`` from ``at``.

    None unless each is null, a short text or a timestamp: such a section is left to the slower ``decode_properties``,
    which alone decides what is malformed. Raises IndexError, UnicodeDecodeError.
    """
    if not first <= count <= len(_FORMS):
        return None
    values: list[str | int | None] = []
    for form in _FORMS[first:count]:
        code = data[at]
        if code == _NULL:
            values.append(None)
            at += 1
        elif code != form:
            return None
        elif code == _SHORT_STRING:
            start = at + 2
            at = start + data[at + 1]
            values.append(data[start:at].decode())
        elif code == _SHORT_SYMBOL:
            start = at + 2
            at = start + data[at + 1]
            values.append(data[start:at].decode("ascii"))
        else:
            values.append(int.from_bytes(data[at + 1 : at + 9], "big", signed=True))
            at += 9
    return values if at == len(data) else None


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


def _map_section(code: int, mapping: AmqpMap) -> bytes:
    return encode_map_section(code, mapping) if mapping else b""


def encode_body(body: Body | None) -> bytes:
    """Encode the body sections. Raises EncodeError."""
    match body:
        case None:
            return b""
        case DataBody(sections):
            return b"".join(data_section(part) for part in sections)
        case SequenceBody(lists):
            return b"".join(encode(Described(Section.SEQUENCE, part)) for part in lists)
        case ValueBody(value):
            return encode(Described(Section.VALUE, value))


def decode_body(data: bytes) -> Body | None:
    """Decode the body sections; None without any. Raises DecodeError."""
    content = plain_data(data)
    if content is not None:
        return DataBody((content,))
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
