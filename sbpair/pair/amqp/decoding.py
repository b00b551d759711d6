"""Decode AMQP values from untrusted bytes (1.6).

There is one reader per format code. It takes the position after the code, and returns the value and the position
after it. A reader may read past ``end``, though never past the data: the caller that opened the range checks once
that the content ends where the range does.

Nesting is limited to 64 levels, and the number of values by a budget: an array of zero-width elements encodes a
million values in a few bytes.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Final

from .errors import DecodeError
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
NODES_PER_BYTE: Final = 8
MAX_NODES: Final = 250_000


class DecodeBudget:
    """The number of values that may still be decoded from one frame or message of ``size`` bytes."""

    __slots__ = ("_granted", "left")

    def __init__(self, size: int) -> None:
        self._granted = self.left = min(max(64, NODES_PER_BYTE * size), MAX_NODES)

    @property
    def spent(self) -> int:
        """The number of values decoded."""
        return self._granted - self.left

    def spend(self, nodes: int) -> None:
        """Deduct ``nodes`` from the budget. Raises DecodeError when fewer are left."""
        self.left -= nodes
        if self.left < 0:
            raise DecodeError("more values than the size of the data allows")


Reader = Callable[[bytes, int, int, DecodeBudget, int], tuple[object, int]]


def decode(
    data: bytes | bytearray | memoryview,
    offset: int = 0,
    end: int | None = None,
    budget: DecodeBudget | None = None,
) -> tuple[object, int]:
    """Return the value at ``offset`` and the offset after it. Raises DecodeError."""
    if not isinstance(data, bytes):
        data = bytes(data)
    if end is None:
        end = len(data)
    if budget is None:
        budget = DecodeBudget(end - offset)
    try:
        value, position = read(data, offset, end, budget, 0)
    except (IndexError, struct.error):
        raise DecodeError("the data ends inside a value") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"text is not {error.encoding}: {error.reason}") from None
    if position > end:
        raise DecodeError("a value is longer than its container")
    return value, position


def skip(data: bytes, offset: int, end: int) -> int:
    """Return the offset after the value at ``offset``, without decoding it. Raises DecodeError."""
    try:
        position = _skip(data, offset, end)
    except (IndexError, struct.error):
        raise DecodeError("the data ends inside a value") from None
    if position > end:
        raise DecodeError("a value is longer than its container")
    return position


def _skip(data: bytes, position: int, end: int) -> int:
    values = 1  # a described value counts as two: descriptor and value
    while values:
        if position >= end:
            raise DecodeError("the data ends where a value should begin")
        code = data[position]
        position += 1
        values -= 1
        if code == 0x00:
            values += 2
            if values > MAX_DEPTH:
                raise DecodeError(f"nested deeper than {MAX_DEPTH}")
            continue
        if _READERS[code] is None:
            raise DecodeError(f"unknown format code 0x{code:02x}")
        kind = code >> 4
        if kind < 0xA:
            position += _FIXED_WIDTH[kind]
        elif kind & 1:  # 0xB_, 0xD_, 0xF_: a size of four bytes
            position += 4 + _U32.unpack_from(data, position)[0]
        else:
            position += 1 + data[position]
    return position


_FIXED_WIDTH: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)  # by the high half of the format code (1.2)
_U32: Final = struct.Struct(">I")
_U32_PAIR: Final = struct.Struct(">II")


def read(data: bytes, position: int, end: int, budget: DecodeBudget, depth: int) -> tuple[object, int]:
    code = data[position]
    reader = _READERS[code]
    if reader is None:
        raise DecodeError(f"unknown format code 0x{code:02x}")
    return reader(data, position + 1, end, budget, depth)


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    return depth + 1


def _constant(value: object) -> Reader:
    return lambda data, position, end, budget, depth: (value, position)


def _empty_list(data: bytes, position: int, end: int, budget: DecodeBudget, depth: int) -> tuple[object, int]:
    return [], position


def _number(layout: str) -> Reader:
    unpack = struct.Struct(layout).unpack_from
    width = struct.calcsize(layout)

    def read_fixed(
        data: bytes, position: int, end: int, budget: DecodeBudget, depth: int
    ) -> tuple[object, int]:
        return unpack(data, position)[0], position + width

    return read_fixed


def _make(layout: str, make: Callable[..., object]) -> Reader:
    unpack = struct.Struct(layout).unpack_from
    width = struct.calcsize(layout)

    def read_made(
        data: bytes, position: int, end: int, budget: DecodeBudget, depth: int
    ) -> tuple[object, int]:
        return make(unpack(data, position)[0]), position + width

    return read_made


def _boolean(data: bytes, position: int, end: int, budget: DecodeBudget, depth: int) -> tuple[object, int]:
    value = data[position]
    if value > 1:
        raise DecodeError(f"a boolean of value {value}")
    return value == 1, position + 1


def _raw(width: int, make: Callable[[bytes], object]) -> Reader:
    def read_raw(
        data: bytes, position: int, end: int, budget: DecodeBudget, depth: int
    ) -> tuple[object, int]:
        content = data[position : position + width]
        if len(content) != width:
            raise DecodeError("the data ends inside a value")
        return make(content), position + width

    return read_raw


def _char(content: bytes) -> Char:
    return Char(content.decode("utf-32-be"))


def _uuid(content: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=content)


def _variable(wide: bool, make: Callable[[bytes], object]) -> Reader:
    def read_sized(
        data: bytes, position: int, end: int, budget: DecodeBudget, depth: int
    ) -> tuple[object, int]:
        if wide:
            start = position + 4
            stop = start + _U32.unpack_from(data, position)[0]
        else:
            start = position + 1
            stop = start + data[position]
        if stop > end:
            raise DecodeError("a value is longer than its container")
        return make(data[start:stop]), stop

    return read_sized


def _binary(content: bytes) -> bytes:
    return content


def _string(content: bytes) -> str:
    return content.decode()


def _symbol(content: bytes) -> Symbol:
    return Symbol(content.decode("ascii"))


def _open_compound(data: bytes, position: int, end: int, wide: bool) -> tuple[int, int, int]:
    if wide:
        size, count = _U32_PAIR.unpack_from(data, position)
        stop, position = position + 4 + size, position + 8
    else:
        stop, count, position = position + 1 + data[position], data[position + 1], position + 2
    if not position <= stop <= end:
        raise DecodeError("a compound value is longer than its container")
    return count, position, stop


def _list(wide: bool) -> Reader:
    def read_list(
        data: bytes, position: int, end: int, budget: DecodeBudget, depth: int
    ) -> tuple[object, int]:
        count, position, stop = _open_compound(data, position, end, wide)
        return _items(data, position, stop, count, budget, depth), stop

    return read_list


def _items(
    data: bytes, position: int, stop: int, count: int, budget: DecodeBudget, depth: int
) -> list[object]:
    if count > stop - position:
        raise DecodeError(f"{count} items in {stop - position} bytes")
    depth = _deeper(depth)
    budget.spend(count)
    items = []
    for _ in range(count):
        value, position = read(data, position, stop, budget, depth)
        items.append(value)
    if position != stop:
        raise DecodeError("the size of a compound value does not match its items")
    return items


def _map(wide: bool) -> Reader:
    def read_map(
        data: bytes, position: int, end: int, budget: DecodeBudget, depth: int
    ) -> tuple[object, int]:
        count, position, stop = _open_compound(data, position, end, wide)
        if count % 2:
            raise DecodeError("a map with an odd number of items")
        items = _items(data, position, stop, count, budget, depth)
        try:
            mapping = dict(zip(items[::2], items[1::2], strict=True))
        except TypeError:
            raise DecodeError("a map key that contains a list or a map") from None
        return mapping if 2 * len(mapping) == count else _distinguish_keys(items), stop

    return read_map


def _distinguish_keys(items: list[object]) -> dict[object, object]:
    """Return a map whose keys Python considers equal: 1 and 1.0, a symbol and a string. Raises DecodeError."""
    mapping: dict[object, object] = {}
    kinds: set[tuple[type, object]] = set()
    for key, value in zip(items[::2], items[1::2], strict=True):
        typed = type(key), key
        if typed in kinds:
            raise DecodeError("a map with the same key twice")
        kinds.add(typed)
        mapping[TypedKey(*typed) if key in mapping else key] = value
    return mapping


def _read_described(
    data: bytes, position: int, end: int, budget: DecodeBudget, depth: int
) -> tuple[object, int]:
    depth = _deeper(depth)
    budget.spend(1)
    descriptor, position = read(data, position, end, budget, depth)
    value, position = read(data, position, end, budget, depth)
    return Described(descriptor, value), position


def _array(wide: bool) -> Reader:
    def read_array(
        data: bytes, position: int, end: int, budget: DecodeBudget, depth: int
    ) -> tuple[object, int]:
        count, position, stop = _open_compound(data, position, end, wide)
        depth = _deeper(depth)
        budget.spend(count + 1)
        descriptor: object | None = None
        if data[position] == 0x00:
            descriptor, position = read(data, position + 1, stop, budget, depth)
        code = data[position]
        reader = _READERS[code]
        if reader is None or code == 0x00:
            raise DecodeError(f"array elements cannot have the format code 0x{code:02x}")
        position += 1
        items = []
        for _ in range(count):
            if position > stop:
                raise DecodeError("an array is longer than its container")
            value, position = reader(data, position, stop, budget, depth)
            items.append(value)
        if position != stop:
            raise DecodeError("the size of an array does not match its elements")
        return Array(code, tuple(items), descriptor), stop

    return read_array


_BY_CODE: dict[int, Reader] = {
    0x00: _read_described,
    0x40: _constant(None), 0x41: _constant(True), 0x42: _constant(False),
    0x43: _constant(UInt(0)), 0x44: _constant(ULong(0)), 0x45: _empty_list,
    0x50: _make(">B", UByte), 0x51: _make(">b", Byte), 0x52: _make(">B", UInt), 0x53: _make(">B", ULong),
    0x54: _make(">b", Int), 0x55: _number(">b"), 0x56: _boolean,
    0x60: _make(">H", UShort), 0x61: _make(">h", Short),
    0x70: _make(">I", UInt), 0x71: _make(">i", Int), 0x72: _make(">f", Float),
    0x73: _raw(4, _char), 0x74: _raw(4, Decimal32),
    0x80: _make(">Q", ULong), 0x81: _number(">q"), 0x82: _number(">d"), 0x83: _make(">q", Timestamp),
    0x84: _raw(8, Decimal64), 0x94: _raw(16, Decimal128), 0x98: _raw(16, _uuid),
    0xA0: _variable(False, _binary), 0xA1: _variable(False, _string), 0xA3: _variable(False, _symbol),
    0xB0: _variable(True, _binary), 0xB1: _variable(True, _string), 0xB3: _variable(True, _symbol),
    0xC0: _list(False), 0xC1: _map(False), 0xD0: _list(True), 0xD1: _map(True),
    0xE0: _array(False), 0xF0: _array(True),
}  # fmt: skip
_READERS: Final[tuple[Reader | None, ...]] = tuple(_BY_CODE.get(code) for code in range(256))
