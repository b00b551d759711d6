"""How does a dataclass become a described list and back (1.4)?

A composite type is a frozen row of fields, each declared where it stands:

    @composite(0x11, "amqp:begin:list")
    @dataclass(slots=True)
    class Begin:
        remote_channel: Annotated[int | None, USHORT] = None

The `Kind` in the annotation knows how the field is written and what may be read into it; a field
without a default, that cannot be None, is mandatory. Nothing else is said about any frame anywhere.

Written: all fields, trailing nulls too, and the descriptor as a smallulong; both because there
are readers that count on it. Read: any list form, fewer fields than listed, either descriptor.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from .decoding import Budget, decode
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
from .primitives import Array, Described, Symbol, symbols

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """One field type: how to write it, and what a decoded value must be to be read as it."""

    name: str
    write: Callable[[bytearray, Any], None]
    read: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Layout:
    """The row of fields of one composite type."""

    cls: type
    prefix: bytes
    rows: tuple[tuple[str, Kind, bool, object], ...]  # name, kind, mandatory, default


_LAYOUTS: dict[type, Layout] = {}
_BY_DESCRIPTOR: dict[object, Layout] = {}


def composite(code: int, symbol: str) -> Callable[[type[T]], type[T]]:
    """Register a dataclass, whose annotations carry kinds, as the composite type of this descriptor."""

    def register(cls: type[T]) -> type[T]:
        rows = []
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            bare = field.default is dataclasses.MISSING
            value_type, kind = get_args(field.type)
            mandatory = bare and type(None) not in get_args(value_type)
            rows.append((field.name, kind, mandatory, None if bare else field.default))
        layout = Layout(cls, bytes((0x00, 0x53, code)), tuple(rows))
        _LAYOUTS[cls] = _BY_DESCRIPTOR[code] = _BY_DESCRIPTOR[symbol] = layout
        return cls

    return register


def encode_composite(value: object) -> bytes:
    """The described list of a composite value. Raises EncodeError."""
    out = bytearray()
    write_composite(out, value)
    return bytes(out)


def write_composite(out: bytearray, value: object) -> None:
    if isinstance(value, Described):
        encode_into(out, value)
        return
    layout = _LAYOUTS.get(type(value))
    if layout is None:
        raise EncodeError(f"{type(value).__name__} is no composite type")
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


def _write_field(content: bytearray, owner: str, name: str, kind: Kind, item: object) -> None:
    try:
        kind.write(content, item)
    except EncodeError:
        raise
    except (struct.error, OverflowError, UnicodeEncodeError, TypeError, AttributeError, ValueError) as error:
        raise EncodeError(f"{owner}.{name} cannot be {item!r:.80}: {error}") from None


def decode_composite(data: bytes, offset: int, end: int, budget: Budget | None = None) -> tuple[object, int]:
    """The composite value at `offset`, and the offset behind it. Raises DecodeError."""
    value, position = decode(data, offset, end, budget)
    if not isinstance(value, Described):
        raise DecodeError("a value that is not described where a frame body should be")
    return build(value), position


def build(value: Described) -> object:
    """The composite object for a decoded described list. Raises DecodeError when it is none we know."""
    layout = layout_of(value)
    if layout is None:
        raise DecodeError(f"unknown descriptor {value.descriptor!r:.60}")
    if not isinstance(value.value, list):
        raise DecodeError(f"{layout.cls.__name__} is not a list")
    return _build_fields(layout, value.value)


def layout_of(value: Described) -> Layout | None:
    try:
        return _BY_DESCRIPTOR.get(value.descriptor)
    except TypeError:  # a descriptor that is a list or a map
        return None


def _build_fields(layout: Layout, items: list[object]) -> object:
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


def _read_symbols(value: object) -> object:
    """A field of `multiple` type: one value, or an array of them (1.4)."""
    items = value.items if isinstance(value, Array) else (value,)
    if not all(isinstance(item, str) for item in items):
        raise DecodeError(f"not {value!r:.60}")
    return tuple(Symbol(item) for item in items)


def _write_symbols(out: bytearray, value: tuple[str, ...]) -> None:
    encode_into(out, symbols(*value))


def read_nested(value: object) -> object:
    """A composite inside a composite; one with a descriptor we do not know stays `Described`."""
    if not isinstance(value, Described):
        raise DecodeError(f"not {value!r:.60}")
    return value if layout_of(value) is None else build(value)


def nested(*classes: type) -> Kind:
    """The kind of a field that holds one of these composite types."""

    def read(value: object) -> object:
        item = read_nested(value)
        if not isinstance(item, classes):
            raise DecodeError(f"not a {type(item).__name__}")
        return item

    return Kind(" or ".join(cls.__name__ for cls in classes), write_composite, read)


def _write_any(out: bytearray, value: object) -> None:
    out += encode(value)


BOOLEAN = Kind("a boolean", write_boolean, _instance(bool))
UBYTE = Kind("a ubyte", write_ubyte, _whole(1 << 8))
USHORT = Kind("a ushort", write_ushort, _whole(1 << 16))
UINT = Kind("a uint", write_uint, _whole(1 << 32))
ULONG = Kind("a ulong", write_ulong, _whole(1 << 64))
STRING = Kind("a string", write_string, _instance(str))
SYMBOL = Kind("a symbol", write_symbol, _instance(str))
BINARY = Kind("binary", write_binary, _instance(bytes))
MAP = Kind("a map", _write_any, _instance(dict))
SYMBOLS = Kind("symbols", _write_symbols, _read_symbols)
ANYTHING = Kind("anything", _write_any, lambda value: value)
