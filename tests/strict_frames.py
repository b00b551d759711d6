"""A strict reader of the AMQP that a peer sends: every field has its type in the standard, every size is exact.

Written from parts 1 to 5 of the standard, apart from the engine, which is lenient where it reads. Keys of fields,
filter sets and annotations are symbols: clients that map them to typed keys refuse anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.fast_path import Chunk

FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
COUNTED = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
KINDS = {
    0x40: "null", 0x41: "boolean", 0x42: "boolean", 0x56: "boolean", 0x50: "ubyte", 0x60: "ushort",
    0x70: "uint", 0x52: "uint", 0x43: "uint", 0x80: "ulong", 0x53: "ulong", 0x44: "ulong",
    0x51: "byte", 0x61: "short", 0x71: "int", 0x54: "int", 0x81: "long", 0x55: "long", 0x72: "float", 0x82: "double",
    0x74: "decimal32", 0x84: "decimal64", 0x94: "decimal128", 0x73: "char", 0x83: "timestamp", 0x98: "uuid",
    0xA0: "binary", 0xB0: "binary", 0xA1: "string", 0xB1: "string", 0xA3: "symbol", 0xB3: "symbol",
    0x45: "list", 0xC0: "list", 0xD0: "list", 0xC1: "map", 0xD1: "map", 0xE0: "array", 0xF0: "array",
}  # fmt: skip
STATE, OUTCOME = "23 24 25 26 27 33 34", "24 25 26 27"
# descriptor: the kinds of its fields; a number is a described type, * anything
FIELDS: dict[int, list[str]] = {
    code: fields.split(", ") if fields else []
    for code, fields in {
        0x10: "string, string, uint, ushort, uint, symbols, symbols, symbols, symbols, fields",
        0x11: "ushort, uint, uint, uint, uint, symbols, symbols, fields",
        0x12: "string, uint, boolean, ubyte, ubyte, 28, 29 30, map, boolean, uint, ulong, symbols, symbols, fields",
        0x13: "uint, uint, uint, uint, uint, uint, uint, uint, boolean, boolean, fields",
        0x14: f"uint, uint, binary, uint, boolean, boolean, ubyte, {STATE}, boolean, boolean, boolean",
        0x15: f"boolean, uint, uint, boolean, {STATE}, boolean",
        0x16: "uint, boolean, 1d",
        0x17: "1d",
        0x18: "1d",
        0x1D: "symbol, string, fields",
        0x23: "uint, ulong",
        0x24: "",
        0x25: "1d",
        0x26: "",
        0x27: "boolean, boolean, fields",
        0x28: f"*, uint, symbol, uint, boolean, fields, symbol, fields, {OUTCOME}, symbols, symbols",
        0x29: "*, uint, symbol, uint, boolean, fields, symbols",
        0x30: "symbols",
        0x33: "binary",
        0x34: f"binary, {OUTCOME}",
        0x40: "symbols",
        0x44: "ubyte, binary",
        0x70: "boolean, ubyte, uint, boolean, uint",
        0x73: "id, binary, *, string, *, id, symbol, symbol, timestamp, timestamp, string, uint, string",
    }.items()
}
MAX_DEPTH = 64
IDS = {"ulong", "uuid", "binary", "string"}
ANNOTATIONS, PROPERTIES, BODIES = (0x71, 0x72, 0x78), 0x74, {0x75: "binary", 0x76: "list", 0x77: "*"}
SECTIONS = (0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78)
ANEW = (b"\x00\x53\x70", b"\x00\x53\x71", b"\x00\x53\x72")
PERFORMATIVES, SASL = range(0x10, 0x19), (0x40, 0x44)


class NotStrictError(AssertionError):
    """A frame is not as the standard says; the text says where."""


@dataclass(frozen=True, slots=True)
class Value:
    """A decoded value: its kind, its parts (of a list, a map or an array), its descriptor, and its raw bytes."""

    kind: str
    raw: bytes
    parts: tuple[Value, ...] = ()
    descriptor: int | None = None


def expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise NotStrictError(what)


def read(data: bytes, at: int, end: int, depth: int = 0) -> tuple[Value, int]:
    """Read the value at ``at``; return it and the offset after it."""
    expect(at < end, "a value is missing")
    expect(depth < MAX_DEPTH, "values nest too deeply")
    code = data[at]
    if code == 0x00:
        descriptor, at = read(data, at + 1, end, depth + 1)
        expect(descriptor.kind in ("ulong", "symbol"), f"a descriptor is a {descriptor.kind}")
        value, at = read(data, at, end, depth + 1)
        number = int.from_bytes(descriptor.raw, "big") if descriptor.kind == "ulong" else -1
        return Value(value.kind, value.raw, value.parts, number), at
    expect(code in KINDS, f"there is no format code {code:#04x}")
    kind, width = KINDS[code], COUNTED.get(code >> 4)
    if width is None:
        stop = at + 1 + FIXED[code >> 4]
        expect(stop <= end, f"a {kind} ends too early")
        return Value(kind, data[at + 1 : stop]), stop
    size = int.from_bytes(data[at + 1 : at + 1 + width], "big")
    begin, stop = at + 1 + width, at + 1 + width + size
    expect(stop <= end, f"a {kind} of {size} bytes ends too early")
    if kind not in ("list", "map", "array"):
        text = data[begin:stop]
        if kind == "string":
            text.decode("utf-8")
        if kind == "symbol":
            expect(text.isascii(), f"the symbol {text!r} is not ASCII")
        return Value(kind, text), stop
    count = int.from_bytes(data[begin : begin + width], "big")
    begin += width
    if kind == "array":
        return _array(data, begin, stop, count), stop
    parts = []
    for _ in range(count):
        part, begin = read(data, begin, stop, depth + 1)
        parts.append(part)
    expect(begin == stop, f"a {kind} is longer than its {count} items")
    expect(kind == "list" or count % 2 == 0, "a map has a key without a value")
    return Value(kind, b"", tuple(parts)), stop


def _array(data: bytes, at: int, stop: int, count: int) -> Value:
    """Read an array whose elements share a constructor, put before each of them."""
    if data[at] == 0x00:  # described elements, which no peer here sends
        return Value("array", data[at:stop])
    code, parts = data[at : at + 1], []
    at += 1
    for _ in range(count):
        part, length = read(code + data[at:stop], 0, 1 + stop - at)
        parts.append(part)
        at += length - 1
    expect(at == stop, f"an array is longer than its {count} items")
    return Value("array", b"", tuple(parts))


def check(value: Value, wanted: str, where: str) -> None:
    """Raise NotStrictError unless a value is of the wanted kind."""
    kind = value.kind
    if kind == "null" and value.descriptor is None:
        return
    if wanted == "*":
        return
    if wanted == "id":
        expect(kind in IDS, f"{where} is a {kind}")
    elif wanted == "symbols":
        items = value.parts if kind == "array" else (value,)
        expect(all(each.kind == "symbol" for each in items), f"{where} has other than symbols")
    elif wanted == "fields":
        expect(kind == "map", f"{where} is a {kind}, not a map")
        keys = value.parts[::2]
        found = {each.kind for each in keys} - {"symbol"}
        expect(not found, f"{where} has keys that are {found}: {[each.raw for each in keys]}")
    elif wanted[0].isdigit():
        codes = {int(each, 16) for each in wanted.split()}
        expect(value.descriptor in codes or value.descriptor == -1, f"{where} is a {kind} {value.descriptor}")
        if value.descriptor in FIELDS:
            check_described(value, where)
    else:
        expect(kind == wanted, f"{where} is a {kind}, not a {wanted}")


def check_described(value: Value, where: str = "") -> None:
    """Raise NotStrictError unless the fields of a composite value are of their kinds."""
    code = value.descriptor
    expect(code in FIELDS, f"there is no descriptor {code}")
    assert code is not None
    expect(value.kind == "list", f"{code:#04x} holds a {value.kind}, not a list")
    expect(len(value.parts) <= len(FIELDS[code]), f"{code:#04x} has {len(value.parts)} fields")
    for number, (part, wanted) in enumerate(zip(value.parts, FIELDS[code], strict=False)):
        check(part, wanted, f"{where}{code:#04x}[{number}]")


def check_message(payload: bytes, *, is_whole: bool = True) -> None:
    """Raise NotStrictError unless the sections of a message are strict.

    ``is_whole``: all of them, else those that a broker writes anew, before the bare message of a sender.
    """
    at, last = 0, 0
    while at < len(payload) and (is_whole or payload[at : at + 3] in ANEW):
        section, at = read(payload, at, len(payload))
        code = section.descriptor
        expect(code in SECTIONS, f"there is no section {code}")
        assert code is not None
        expect(code >= last, f"section {code:#04x} comes after {last:#04x}")
        last = code
        if code in ANNOTATIONS:
            check(section, "fields", f"section {code:#04x}")
        elif code == PROPERTIES:
            expect(section.kind == "map", "application-properties are no map")
            kinds = {each.kind for each in section.parts[::2]}
            expect(kinds <= {"string"}, f"application-properties have keys that are {kinds}")
        elif code in BODIES:
            check(section, BODIES[code], f"section {code:#04x}")
        else:
            check_described(section)


@dataclass(slots=True)
class StrictReader:
    """Reads what one peer of a connection sends, in pieces of any size."""

    pending: bytes = b""
    partial: dict[tuple[int, bytes], bytes] = field(default_factory=dict)
    frames: int = 0

    def feed(self, data: bytes) -> None:
        """Read what is complete. Raises NotStrictError."""
        self.pending += data
        at = 0
        while len(self.pending) - at >= 8:
            if self.pending.startswith(b"AMQP", at):
                at += 8
                continue
            size = int.from_bytes(self.pending[at : at + 4], "big")
            if len(self.pending) - at < size:
                break
            self._frame(self.pending[at : at + size])
            at += size
        self.pending = self.pending[at:]

    def _frame(self, frame: bytes) -> None:
        self.frames += 1
        expect(frame[4] == 2, f"the data offset is {frame[4]}")
        if len(frame) == 8:
            return
        body, stop = read(frame, 8, len(frame))
        codes = SASL if frame[5] == 1 else PERFORMATIVES
        expect(body.descriptor in codes, f"a frame of type {frame[5]} holds {body.descriptor}")
        check_described(body)
        if body.descriptor != 0x14:
            expect(stop == len(frame), f"{len(frame) - stop} bytes follow {body.descriptor}")
            return
        key = int.from_bytes(frame[6:8], "big"), body.parts[0].raw
        payload = self.partial.pop(key, b"") + frame[stop:]
        if len(body.parts) > 5 and body.parts[5].raw in (b"", b"\x01") and _is_true(frame, body):
            self.partial[key] = payload
        else:
            check_message(payload, is_whole=False)


def _is_true(frame: bytes, transfer: Value) -> bool:
    """Whether the field `more` of a transfer is true; its format code alone tells."""
    at = 8 + 3
    at += 3 if frame[at] == 0xC0 else 9
    for _ in range(5):
        _, at = read(frame, at, len(frame))
    return frame[at] == 0x41


@contextmanager
def strictly_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StrictReader]]:
    """Read all that servers send; at the end, raise the first NotStrictError."""
    readers: list[StrictReader] = []
    mine: dict[int, tuple[Connection, StrictReader]] = {}
    errors: list[NotStrictError] = []
    send: Callable[[Connection], list[Chunk]] = Connection.pieces_to_send

    def pieces_to_send(self: Connection) -> list[Chunk]:
        pieces = send(self)
        data = b"".join(pieces)
        if data and self.role is ConnectionRole.SERVER and not errors:
            if id(self) not in mine:
                mine[id(self)] = self, StrictReader()
                readers.append(mine[id(self)][1])
            try:
                mine[id(self)][1].feed(data)
            except NotStrictError as error:
                errors.append(error)
        return pieces

    monkeypatch.setattr(Connection, "pieces_to_send", pieces_to_send)
    yield readers
    if errors:
        raise errors[0]
