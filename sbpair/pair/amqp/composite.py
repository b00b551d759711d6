"""Composite types: dataclasses as described lists (1.4).

    @composite(0x11, "amqp:begin:list")
    @dataclass(slots=True)
    class Begin:
        remote_channel: Annotated[int | None, USHORT] = None

The :class:`FieldType` in the annotation writes and checks the field. A field is mandatory when it has no default
and cannot be None.

Encoding writes every field, trailing nulls included, and the descriptor as a smallulong, because some peers rely
on both. Decoding accepts every list encoding, missing trailing fields, and numeric or symbolic descriptors.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from .decoding import DecodeBudget, decode
from .encoding import (
    encode,
    encode_into,
    write_binary,
    write_boolean,
    write_compound,
    write_string,
    write_symbol,
    write_ubyte,
    write_uint,
    write_ulong,
    write_ushort,
)
from .errors import DecodeError, EncodeError
from .types import Array, Described, Symbol, symbols

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field type: ``write`` encodes a value, ``read`` checks a decoded one and raises DecodeError or TypeError."""

    name: str
    write: Callable[[bytearray, Any], None]
    read: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class _Composite:
    """The fields of a composite type, in order."""

    cls: type
    prefix: bytes
    rows: tuple[tuple[str, FieldType, bool, object], ...]  # name, kind, mandatory, default


_COMPOSITES: dict[type, _Composite] = {}
_BY_DESCRIPTOR: dict[object, _Composite] = {}


def composite(code: int, symbol: str) -> Callable[[type[T]], type[T]]:
    """Register a dataclass as the composite type with this descriptor, as a number and as a symbol."""

    def register(cls: type[T]) -> type[T]:
        rows = []
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            bare = field.default is dataclasses.MISSING
            value_type, kind = get_args(field.type)
            mandatory = bare and type(None) not in get_args(value_type)
            rows.append((field.name, kind, mandatory, None if bare else field.default))
        layout = _Composite(cls, bytes((0x00, 0x53, code)), tuple(rows))
        _COMPOSITES[cls] = _BY_DESCRIPTOR[code] = _BY_DESCRIPTOR[symbol] = layout
        return cls

    return register


def encode_composite(value: object) -> bytes:
    """Encode a composite value as a described list. Raises EncodeError."""
    out = bytearray()
    write_composite(out, value)
    return bytes(out)


def write_composite(out: bytearray, value: object) -> None:
    if isinstance(value, Described):
        encode_into(out, value)
        return
    layout = _COMPOSITES.get(type(value))
    if layout is None:
        raise EncodeError(f"{type(value).__name__} is not a composite type")
    content = bytearray()
    for name, kind, _mandatory, _default in layout.rows:
        item = getattr(value, name)
        if item is None:
            content.append(0x40)
        else:
            _write_field(content, layout.cls.__name__, name, kind, item)
    out += layout.prefix
    if layout.rows:
        write_compound(out, 0xC0, len(layout.rows), content)
    else:
        out.append(0x45)


def _write_field(content: bytearray, owner: str, name: str, kind: FieldType, item: object) -> None:
    try:
        kind.write(content, item)
    except EncodeError:
        raise
    except (struct.error, OverflowError, UnicodeEncodeError, TypeError, AttributeError, ValueError) as error:
        raise EncodeError(f"{owner}.{name} cannot be {item!r:.80}: {error}") from None


def decode_composite(
    data: bytes, offset: int, end: int, budget: DecodeBudget | None = None
) -> tuple[object, int]:
    """Return the composite value at ``offset`` and the offset after it. Raises DecodeError."""
    value, position = decode(data, offset, end, budget)
    if not isinstance(value, Described):
        raise DecodeError("a frame body that is not described")
    return build(value), position


def build(value: Described) -> object:
    """Build the composite value of a described list. Raises DecodeError for an unknown descriptor or bad fields."""
    layout = _composite_of(value)
    if layout is None:
        raise DecodeError(f"unknown descriptor {value.descriptor!r:.60}")
    if not isinstance(value.value, list):
        raise DecodeError(f"{layout.cls.__name__} is not a list")
    return _build_fields(layout, value.value)


def _composite_of(value: Described) -> _Composite | None:
    try:
        return _BY_DESCRIPTOR.get(value.descriptor)
    except TypeError:  # a descriptor that is a list or a map
        return None


def _build_fields(layout: _Composite, items: list[object]) -> object:
    if len(items) > len(layout.rows):
        raise DecodeError(f"{layout.cls.__name__} has {len(layout.rows)} fields, not {len(items)}")
    values = []
    given = len(items)
    for index, (name, kind, mandatory, default) in enumerate(layout.rows):
        item = items[index] if index < given else None
        if item is not None:
            try:
                item = kind.read(item)
            except (TypeError, AttributeError, ValueError) as error:
                detail = str(error) if isinstance(error, DecodeError) else f"not {item!r:.60}"
                raise DecodeError(f"{layout.cls.__name__}.{name} is {kind.name}: {detail}") from None
        elif mandatory:
            raise DecodeError(f"{layout.cls.__name__}.{name} is mandatory")
        else:
            item = default
        values.append(item)
    return layout.cls(*values)


def _instance(kind: type) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, kind):
            raise DecodeError(f"not {value!r:.60}")
        return value

    return read


def _whole(limit: int) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
            raise DecodeError(f"not {value!r:.60}")
        return int(value)

    return read


def _read_symbol(value: object) -> object:
    """Read a symbol, or an ASCII string: some peers send strings."""
    if not isinstance(value, str) or not value.isascii():
        raise DecodeError(f"not {value!r:.60}")
    return value


def _read_symbols(value: object) -> object:
    """Read a field that allows multiple values: one value, or an array (1.4)."""
    items = value.items if isinstance(value, Array) else (value,)
    return tuple(Symbol(_read_symbol(item)) for item in items)


def _write_symbols(out: bytearray, value: tuple[str, ...]) -> None:
    encode_into(out, symbols(*value))


def read_nested(value: object) -> object:
    """Read a nested composite value; with an unknown descriptor it stays :class:`Described`."""
    if not isinstance(value, Described):
        raise DecodeError(f"not {value!r:.60}")
    return value if _composite_of(value) is None else build(value)


def nested_field(*classes: type) -> FieldType:
    """Return a field that holds one of these composite types."""

    def read(value: object) -> object:
        item = read_nested(value)
        if not isinstance(item, classes):
            raise DecodeError(f"not a {type(item).__name__}")
        return item

    return FieldType(" or ".join(cls.__name__ for cls in classes), write_composite, read)


def _write_any(out: bytearray, value: object) -> None:
    out += encode(value)


def with_symbols(mapping: Mapping[object, object]) -> dict[object, object]:
    """Return a map with symbols in place of strings as keys, as fields, filter sets and annotations want (2.8.13).

    A key that is no ASCII text stays a string.
    """
    return {
        Symbol(key) if type(key) is str and key.isascii() else key: value for key, value in mapping.items()
    }


def _write_fields(out: bytearray, value: dict[object, object]) -> None:
    out += encode(with_symbols(value))


BOOLEAN = FieldType("a boolean", write_boolean, _instance(bool))
UBYTE = FieldType("a ubyte", write_ubyte, _whole(1 << 8))
USHORT = FieldType("a ushort", write_ushort, _whole(1 << 16))
UINT = FieldType("a uint", write_uint, _whole(1 << 32))
ULONG = FieldType("a ulong", write_ulong, _whole(1 << 64))
STRING = FieldType("a string", write_string, _instance(str))
SYMBOL = FieldType("a symbol", write_symbol, _read_symbol)
BINARY = FieldType("binary", write_binary, _instance(bytes))
MAP = FieldType("a map", _write_any, _instance(dict))
FIELDS = FieldType("a map with symbols as keys", _write_fields, _instance(dict))
SYMBOLS = FieldType("symbols", _write_symbols, _read_symbols)
ANYTHING = FieldType("anything", _write_any, lambda value: value)
