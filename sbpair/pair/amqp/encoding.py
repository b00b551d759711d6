"""Encode Python values as AMQP, each in its smallest form (1.6).

There is one writer per Python class, and one per format code for the elements of an array, which share a
constructor. A performative is sent in a frame (2.3; the headers of the protocols are in 2.2 and 5.3.1):

       0       1       2       3
    +-------------------------------+
    |             size              |   of the whole frame
    | doff  | type  |    channel    |   doff in words of four bytes; type 0 AMQP, 1 SASL
    |  extended header, (doff-2)*4  |
    | performative | payload        |
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from .errors import EncodeError
from .types import (
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
    TypedKey,
    UByte,
    UInt,
    ULong,
    UShort,
)

MAX_DEPTH: Final = 64
Writer = Callable[[bytearray, Any, int], None]


def encode(value: object) -> bytes:
    """Return the smallest encoding of ``value``. Raises EncodeError."""
    out = bytearray()
    write(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: object) -> None:
    """Append the smallest encoding of ``value`` to ``out``. Raises EncodeError."""
    write(out, value)


def write(out: bytearray, value: object, depth: int = 0) -> None:
    writer = _WRITERS.get(type(value)) or _inherited_writer(value)
    try:
        writer(out, value, depth)
    except (struct.error, OverflowError, UnicodeEncodeError) as error:
        raise EncodeError(f"{value!r:.80} does not fit {type(value).__name__}: {error}") from None


def _inherited_writer(value: object) -> Writer:
    for base in type(value).__mro__:
        if base in _WRITERS:
            return _WRITERS[base]
    raise EncodeError(f"no AMQP type for {type(value).__name__}")


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise EncodeError(f"nested deeper than {MAX_DEPTH}")
    return depth + 1


def _null(out: bytearray, value: None, depth: int = 0) -> None:
    out.append(0x40)


def write_boolean(out: bytearray, value: bool, depth: int = 0) -> None:
    out.append(0x41 if value else 0x42)


def write_ubyte(out: bytearray, value: int, depth: int = 0) -> None:
    out += struct.pack(">BB", 0x50, value)


def write_ushort(out: bytearray, value: int, depth: int = 0) -> None:
    out += struct.pack(">BH", 0x60, value)


def write_uint(out: bytearray, value: int, depth: int = 0) -> None:
    if value == 0:
        out.append(0x43)
    elif 0 < value < 256:
        out += bytes((0x52, value))
    else:
        out += struct.pack(">BI", 0x70, value)


def write_ulong(out: bytearray, value: int, depth: int = 0) -> None:
    if value == 0:
        out.append(0x44)
    elif 0 < value < 256:
        out += bytes((0x53, value))
    else:
        out += struct.pack(">BQ", 0x80, value)


def _byte(out: bytearray, value: int, depth: int) -> None:
    out += struct.pack(">Bb", 0x51, value)


def _short(out: bytearray, value: int, depth: int) -> None:
    out += struct.pack(">Bh", 0x61, value)


def _int(out: bytearray, value: int, depth: int) -> None:
    if -128 <= value < 128:
        out += struct.pack(">Bb", 0x54, value)
    else:
        out += struct.pack(">Bi", 0x71, value)


def _long(out: bytearray, value: int, depth: int) -> None:
    if -128 <= value < 128:
        out += struct.pack(">Bb", 0x55, value)
    else:
        out += struct.pack(">Bq", 0x81, value)


def _timestamp(out: bytearray, value: int, depth: int) -> None:
    out += struct.pack(">Bq", 0x83, value)


def _float(out: bytearray, value: float, depth: int) -> None:
    out += struct.pack(">Bf", 0x72, value)


def _double(out: bytearray, value: float, depth: int) -> None:
    out += struct.pack(">Bd", 0x82, value)


def _char(out: bytearray, value: str, depth: int) -> None:
    if len(value) != 1:
        raise EncodeError(f"a char is one character, not {len(value)}")
    out.append(0x73)
    out += value.encode("utf-32-be")


def _decimal(code: int, width: int) -> Writer:
    def write_decimal(out: bytearray, value: bytes, depth: int) -> None:
        if len(value) != width:
            raise EncodeError(f"decimal{width * 8} takes {width} bytes, not {len(value)}")
        out.append(code)
        out += value

    return write_decimal


def _uuid(out: bytearray, value: uuid.UUID, depth: int) -> None:
    out.append(0x98)
    out += value.bytes


def _sized(out: bytearray, code8: int, code32: int, content: bytes) -> None:
    size = len(content)
    if size < 256:
        out += bytes((code8, size))
    else:
        out += struct.pack(">BI", code32, size)
    out += content


def write_binary(out: bytearray, value: bytes, depth: int = 0) -> None:
    _sized(out, 0xA0, 0xB0, value)


def write_string(out: bytearray, value: str, depth: int = 0) -> None:
    _sized(out, 0xA1, 0xB1, value.encode())


def write_symbol(out: bytearray, value: str, depth: int = 0) -> None:
    _sized(out, 0xA3, 0xB3, value.encode("ascii"))


def write_compound(out: bytearray, code8: int, count: int, content: bytes | bytearray) -> None:
    """Append a list (0xC0) or map (0xC1) of encoded items, in its short form when it fits."""
    size = len(content)
    if size < 255:  # so are the items, of at least a byte each
        out += bytes((code8, size + 1, count))
    else:
        out += struct.pack(">BII", code8 + 0x10, size + 4, count)
    out += content


def _list(out: bytearray, value: list[object], depth: int) -> None:
    if not value:
        out.append(0x45)
        return
    depth = _deeper(depth)
    content = bytearray()
    for item in value:
        write(content, item, depth)
    write_compound(out, 0xC0, len(value), content)


def _map(out: bytearray, value: dict[object, object], depth: int) -> None:
    depth = _deeper(depth)
    content = bytearray()
    for key, item in value.items():
        write(content, key, depth)
        write(content, item, depth)
    write_compound(out, 0xC1, 2 * len(value), content)


def _described(out: bytearray, value: Described, depth: int) -> None:
    depth = _deeper(depth)
    out.append(0x00)
    code = value.descriptor
    if isinstance(code, int) and code >= 0 and not isinstance(code, bool):
        write_ulong(out, code)  # descriptors are ulongs, for any Python integer type (1.3.2)
    else:
        write(out, value.descriptor, depth)
    write(out, value.value, depth)


def _typed_key(out: bytearray, value: TypedKey, depth: int) -> None:
    write(out, value.value, depth)


def _array(out: bytearray, value: Array, depth: int) -> None:
    content = _array_content(value, depth)
    size = len(content)
    if size < 255 and len(value.items) < 256:
        out += bytes((0xE0, size + 1, len(value.items)))
    else:
        out += struct.pack(">BII", 0xF0, size + 4, len(value.items))
    out += content


def _array_content(value: Array, depth: int) -> bytearray:
    depth = _deeper(depth)
    content = bytearray()
    if value.descriptor is not None:
        content.append(0x00)
        write(content, value.descriptor, depth)
    content.append(value.code)
    element = _ELEMENTS.get(value.code)
    if element is None:
        raise EncodeError(f"unknown format code 0x{value.code:02x}")
    for item in value.items:
        element(content, item, depth)
    return content


def _number(layout: str) -> Writer:
    packer = struct.Struct(layout)

    def write_fixed(out: bytearray, value: Any, depth: int) -> None:  # noqa: ANN401
        out += packer.pack(value)

    return write_fixed


def _constant(expected: object) -> Writer:
    def write_nothing(out: bytearray, value: Any, depth: int) -> None:  # noqa: ANN401
        if value != expected:
            raise EncodeError(f"an array of {expected!r} cannot hold {value!r:.80}")

    return write_nothing


def _raw(width: int) -> Writer:
    def write_raw(out: bytearray, value: Any, depth: int) -> None:  # noqa: ANN401
        content = value.bytes if isinstance(value, uuid.UUID) else bytes(value)
        if len(content) != width:
            raise EncodeError(f"{value!r:.80} is not {width} bytes")
        out += content

    return write_raw


def _text(layout: str, encoding: str) -> Writer:
    size = struct.Struct(layout)

    def write_text(out: bytearray, value: Any, depth: int) -> None:  # noqa: ANN401
        content = value if isinstance(value, bytes) else value.encode(encoding)
        out += size.pack(len(content))
        out += content

    return write_text


def _element_char(out: bytearray, value: str, depth: int) -> None:
    out += value.encode("utf-32-be")


def _element_compound(layout: str, width: int) -> Writer:
    header = struct.Struct(layout)

    def write_items(out: bytearray, value: Any, depth: int) -> None:  # noqa: ANN401
        depth = _deeper(depth)
        content = bytearray()
        items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
        for item in items:
            write(content, item, depth)
        out += header.pack(len(content) + width, len(items))
        out += content

    return write_items


def _element_array(layout: str, width: int) -> Writer:
    header = struct.Struct(layout)

    def write_nested(out: bytearray, value: Array, depth: int) -> None:
        content = _array_content(value, depth)
        out += header.pack(len(content) + width, len(value.items))
        out += content

    return write_nested


_WRITERS: Final[dict[type, Writer]] = {
    type(None): _null,
    bool: write_boolean,
    UByte: write_ubyte,
    UShort: write_ushort,
    UInt: write_uint,
    ULong: write_ulong,
    Byte: _byte,
    Short: _short,
    Int: _int,
    int: _long,
    Timestamp: _timestamp,
    Float: _float,
    float: _double,
    Char: _char,
    Decimal32: _decimal(0x74, 4),
    Decimal64: _decimal(0x84, 8),
    Decimal128: _decimal(0x94, 16),
    uuid.UUID: _uuid,
    bytes: write_binary,
    Symbol: write_symbol,
    str: write_string,
    list: _list,
    dict: _map,
    Described: _described,
    Array: _array,
    TypedKey: _typed_key,
}

_ELEMENTS: Final[dict[int, Writer]] = {
    0x40: _constant(None), 0x41: _constant(True), 0x42: _constant(False),
    0x43: _constant(0), 0x44: _constant(0), 0x45: _constant([]),
    0x50: _number(">B"), 0x51: _number(">b"), 0x52: _number(">B"), 0x53: _number(">B"),
    0x54: _number(">b"), 0x55: _number(">b"), 0x56: _number(">?"),
    0x60: _number(">H"), 0x61: _number(">h"),
    0x70: _number(">I"), 0x71: _number(">i"), 0x72: _number(">f"), 0x73: _element_char, 0x74: _raw(4),
    0x80: _number(">Q"), 0x81: _number(">q"), 0x82: _number(">d"), 0x83: _number(">q"), 0x84: _raw(8),
    0x94: _raw(16), 0x98: _raw(16),
    0xA0: _text(">B", "utf-8"), 0xA1: _text(">B", "utf-8"), 0xA3: _text(">B", "ascii"),
    0xB0: _text(">I", "utf-8"), 0xB1: _text(">I", "utf-8"), 0xB3: _text(">I", "ascii"),
    0xC0: _element_compound(">BB", 1), 0xC1: _element_compound(">BB", 1),
    0xD0: _element_compound(">II", 4), 0xD1: _element_compound(">II", 4),
    0xE0: _element_array(">BB", 1), 0xF0: _element_array(">II", 4),
}  # fmt: skip


AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
MIN_MAX_FRAME_SIZE: Final = 512
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
FRAME_HEAD: Final = struct.Struct(">IBBH")


def frame(channel: int, body: bytes, payload_size: int = 0, *, kind: int = AMQP_FRAME) -> bytes:
    """Frame an encoded performative; the caller appends a payload of ``payload_size`` bytes."""
    return FRAME_HEAD.pack(8 + len(body) + payload_size, 2, kind, channel) + body
