"""The serialized form of a message in the spool. A restored message encodes to the same AMQP bytes.

    4 bytes: length of the head | head: JSON | the byte strings of the message, concatenated

The head holds the Python values passed to the SDK, not their encoding, so a restored message has equal values
of equal types. Types that JSON lacks are lists that begin with a tag:

    ["b", length]  bytes, taken from behind the head     ["l", [...]]           list
    ["f", hex]     float, all 64 bits of it              ["t", [...]]           tuple (a described value)
    ["u", hex]     UUID                                  ["m", [[key, value]]]  map, whatever its keys
    ["n", text]    Decimal                               ["d", [iso, offset]]   datetime; µs from UTC, or null

A typed value of the SDK, {"TYPE": "LONG", "VALUE": 5}, is an ordinary map. No I/O.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, cast

from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

LAYOUT = 1
"""The version of the layout above, stored in the head."""

_HEAD_LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
_MICROSECOND = timedelta(microseconds=1)

HEADER_FIELDS, PROPERTY_FIELDS = (tuple(kind().keys()) for kind in (AmqpMessageHeader, AmqpMessageProperties))
"""The names of the fields that the installed SDK has."""

_MAPS = ("application_properties", "annotations", "delivery_annotations", "footer")
_BODIES = {
    AmqpMessageBodyType.DATA: "data_body",
    AmqpMessageBodyType.SEQUENCE: "sequence_body",
    AmqpMessageBodyType.VALUE: "value_body",
}


def to_bytes(message: AmqpAnnotatedMessage) -> bytes:
    """Serialize a message. Raises TypeError for a value of a type that AMQP cannot encode."""
    out = _JsonWriter()
    kind = _BODIES[message.body_type]
    body = message.body if kind == "value_body" else list(message.body)
    head = {
        "layout": LAYOUT,
        "header": out.fields(message.header, HEADER_FIELDS),
        "properties": out.fields(message.properties, PROPERTY_FIELDS),
        **{name: out.section(getattr(message, name)) for name in _MAPS},
        "kind": kind,
        "body": out.value(body),
    }
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    return b"".join((_HEAD_LENGTH.pack(len(text)), text, *out.strings))


def from_bytes(stored: bytes) -> AmqpAnnotatedMessage:
    """Restore a message. Raises ValueError if ``stored`` is malformed."""
    try:
        return _restore(stored)
    except (struct.error, ArithmeticError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"not a spooled message: {error}") from error


def _restore(stored: bytes) -> AmqpAnnotatedMessage:
    (length,) = _HEAD_LENGTH.unpack_from(stored)
    start = _HEAD_LENGTH.size
    head = json.loads(stored[start : start + length])
    if head["layout"] != LAYOUT:
        raise ValueError(
            f"a spooled message has the unknown layout {head['layout']}; this sbpair reads {LAYOUT}"
        )
    source = _JsonReader(stored, start + length)
    header, properties = source.fields(head["header"]), source.fields(head["properties"])
    maps: dict[str, Any] = {name: source.section(head[name]) for name in _MAPS}
    body: dict[str, Any] = {head["kind"]: source.value(head["body"])}
    source.finish()
    # The SDK's constructor takes sections as objects.
    return AmqpAnnotatedMessage(
        **body,
        header=None if header is None else AmqpMessageHeader(**header),
        properties=None if properties is None else AmqpMessageProperties(**properties),
        **maps,
    )


def _instant(value: datetime) -> list[object]:
    # The offset is separate: fromisoformat reads offsets below one second as zero.
    offset = value.utcoffset()
    return [value.replace(tzinfo=None).isoformat(), None if offset is None else offset // _MICROSECOND]


def _datetime(text: str, offset: int | None) -> datetime:
    zone = None if offset is None else timezone(offset * _MICROSECOND)
    return datetime.fromisoformat(text).replace(tzinfo=zone)


class _JsonWriter:
    """Converts values to JSON, and collects their byte strings in the order in which they are read back."""

    def __init__(self) -> None:
        self.strings: list[bytes] = []

    def fields(self, section: object, names: tuple[str, ...]) -> dict[str, object] | None:
        if section is None:
            return None
        found = ((name, getattr(section, name)) for name in names)
        return {name: self.value(value) for name, value in found if value is not None}

    def section(self, mapping: Mapping[Any, Any] | None) -> object:
        return None if mapping is None else self.value(dict(mapping))

    def value(self, value: object) -> object:
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        for kind, write in _WRITERS:
            if isinstance(value, kind):
                return write(self, value)
        raise TypeError(f"a value of type {type(value).__name__} cannot be encoded: {value!r:.100}")

    def string(self, value: bytes | bytearray | memoryview) -> list[object]:
        self.strings.append(bytes(value))
        return ["b", len(self.strings[-1])]

    def items(self, value: list[object]) -> list[object]:
        return ["l", [self.value(item) for item in value]]

    def describe(self, value: tuple[object, ...]) -> list[object]:
        return ["t", [self.value(item) for item in value]]

    def map(self, value: Mapping[object, object]) -> list[object]:
        return ["m", [[self.value(key), self.value(item)] for key, item in value.items()]]


_WRITERS: tuple[tuple[type | tuple[type, ...], Callable[[_JsonWriter, Any], list[object]]], ...] = (
    ((bytes, bytearray, memoryview), _JsonWriter.string),
    (float, lambda _, value: ["f", _DOUBLE.pack(value).hex()]),
    (uuid.UUID, lambda _, value: ["u", value.hex]),
    (datetime, lambda _, value: ["d", _instant(value)]),
    (Decimal, lambda _, value: ["n", str(value)]),
    (list, _JsonWriter.items),
    (tuple, _JsonWriter.describe),
    (Mapping, _JsonWriter.map),
)


class _JsonReader:
    """Converts JSON back to values; takes the byte strings from behind the head."""

    def __init__(self, stored: bytes, offset: int) -> None:
        self._stored = stored
        self._offset = offset

    def fields(self, section: dict[str, object] | None) -> dict[str, Any] | None:
        return None if section is None else {name: self.value(value) for name, value in section.items()}

    def section(self, written: object) -> dict[object, object] | None:
        return None if written is None else cast("dict[object, object]", self.value(written))

    def value(self, written: object) -> object:
        if not isinstance(written, list):
            return written
        tag, content = written
        return _READERS[tag](self, content)

    def string(self, length: int) -> bytes:
        taken = self._stored[self._offset : self._offset + length]
        if len(taken) != length:
            raise ValueError("a spooled message is truncated")
        self._offset += length
        return taken

    def items(self, written: list[object]) -> list[object]:
        return [self.value(item) for item in written]

    def map(self, pairs: list[list[object]]) -> dict[object, object]:
        return {self.value(key): self.value(item) for key, item in pairs}

    def finish(self) -> None:
        if self._offset != len(self._stored):
            raise ValueError("a spooled message has trailing bytes")


_READERS: dict[str, Callable[[_JsonReader, Any], object]] = {
    "b": _JsonReader.string,
    "f": lambda _, text: _DOUBLE.unpack(bytes.fromhex(text))[0],
    "u": lambda _, text: uuid.UUID(hex=text),
    "d": lambda _, written: _datetime(*written),
    "n": lambda _, text: Decimal(text),
    "l": _JsonReader.items,
    "t": lambda reader, items: tuple(reader.items(items)),
    "m": _JsonReader.map,
}
