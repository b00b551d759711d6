"""Pack messages into one blob, column by column, and unpack them.

    message count, then for each column:   NOTHING             all values are None
                                           SHARED  value       all values are equal
                                           EACH    values      one value for each message, possibly None

The columnar format is compact and fast because most columns of messages that arrived together are NOTHING or
SHARED. Numbers are 64-bit, signed and little-endian. Strings and byte strings are written as a column of
lengths followed by the concatenated contents. The columns and their order are part of the database layout.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields
from itertools import repeat
from operator import attrgetter
from struct import Struct, pack, unpack_from
from typing import Any, cast

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import encode

from ..entities.stored_message import MessageState, StoredMessage

MAX_NUMBER = 2**63 - 1  # AMQP allows larger times to live: they are stored as this
_NULL = -(2**63)
_NOTHING, _SHARED, _EACH = b"\0", b"\1", b"\2"
_NUMBER = Struct("<q")

Column = Sequence[Any]


def pack_messages(messages: Sequence[StoredMessage]) -> bytes:
    """Pack one or more messages into a blob."""
    out = [_NUMBER.pack(len(messages))]
    for (_, write, _), column in zip(_COLUMNS, zip(*map(_VALUES, messages), strict=True), strict=True):
        write(out, column)
    acquirers = [message.first_acquirer for message in messages]
    if any(each is not None for each in acquirers):  # hardly ever, and not in older blobs: at the end
        _write_numbers(out, acquirers)
    return b"".join(out)


def unpack_messages(blob: bytes) -> list[StoredMessage]:
    """Return the messages of a blob, without locks. Raises ValueError or DecodeError when it is malformed."""
    cursor = _Cursor(blob)
    count = cursor.number()
    columns: dict[str, Iterable[Any]] = {name: read(cursor, count) for name, _, read in _COLUMNS}
    columns["state"] = map(_unlocked_state, columns["state"], columns["is_deferred"])
    for name in ("is_deferred", "is_ping"):
        columns[name] = map(bool, columns[name])
    columns["first_acquirer"] = repeat(None) if cursor.is_at_end else _read_numbers(cursor, count)
    for name in ("durable", "first_acquirer"):
        columns[name] = (None if each is None else bool(each) for each in columns[name])
    for name in _NOT_STORED:
        columns[name] = repeat(getattr(_DEFAULTS, name))
    return list(map(StoredMessage, *map(columns.__getitem__, _FIELDS)))


def _unlocked_state(state: int, is_deferred: int) -> MessageState:
    """Return the state of a message without its lock: locks end with the process."""
    if is_deferred:
        return MessageState.DEFERRED
    return MessageState.SCHEDULED if state == MessageState.SCHEDULED else MessageState.ACTIVE


class _Cursor:
    """A cursor over a blob."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at == len(self._blob)

    def tag(self) -> bytes:
        return self.read(1)

    def number(self) -> int:
        return cast(int, _NUMBER.unpack(self.read(8))[0])

    def numbers(self, count: int) -> tuple[int, ...]:
        return unpack_from(f"<{count}q", self.read(8 * count))

    def read(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._blob):
            raise ValueError("a blob of messages is truncated")
        return self._blob[start : self._at]


# -- numbers and booleans


def _write_numbers(out: list[bytes], column: Column) -> None:
    first = column[0]
    if column.count(first) < len(column):
        numbers = [_NULL if each is None else each if each < MAX_NUMBER else MAX_NUMBER for each in column]
        out += (_EACH, pack(f"<{len(numbers)}q", *numbers))
    elif first is None:
        out.append(_NOTHING)
    else:
        out += (_SHARED, _NUMBER.pack(min(first, MAX_NUMBER)))


def _read_numbers(cursor: _Cursor, count: int) -> Column:
    tag = cursor.tag()
    if tag == _NOTHING:
        return (None,) * count
    if tag == _SHARED:
        return (cursor.number(),) * count
    return [None if each == _NULL else each for each in cursor.numbers(count)]


# -- byte strings: never SHARED, since bodies rarely are equal


def _write_blobs(out: list[bytes], column: Column) -> None:
    if None in column:
        _write_numbers(out, [None if each is None else len(each) for each in column])
        out += [each for each in column if each is not None]
    else:
        _write_numbers(out, list(map(len, column)))
        out += column


def _read_blobs(cursor: _Cursor, count: int) -> Column:
    return [None if length is None else cursor.read(length) for length in _read_numbers(cursor, count)]


# -- strings: a partition key of arbitrary bytes contains lone surrogates, hence surrogatepass


def _write_texts(out: list[bytes], column: Column) -> None:
    first = column[0]
    if column.count(first) < len(column):
        out.append(_EACH)
        _write_numbers(out, [None if each is None else len(each) for each in column])
        _write_text(out, "".join(each for each in column if each is not None))
    elif first is None:
        out.append(_NOTHING)
    else:
        out.append(_SHARED)
        _write_text(out, first)


def _write_text(out: list[bytes], text: str) -> None:
    encoded = text.encode("utf-8", "surrogatepass")
    out += (_NUMBER.pack(len(encoded)), encoded)


def _read_texts(cursor: _Cursor, count: int) -> Column:
    tag = cursor.tag()
    if tag == _NOTHING:
        return (None,) * count
    if tag == _SHARED:
        return (_read_text(cursor),) * count
    lengths = _read_numbers(cursor, count)
    text, found, at = _read_text(cursor), list[str | None](), 0
    for length in lengths:
        found.append(None if length is None else text[at : at + length])
        at += length or 0
    return found


def _read_text(cursor: _Cursor) -> str:
    return cursor.read(cursor.number()).decode("utf-8", "surrogatepass")


# -- AMQP values: message ids, nearly always strings, and amended properties


def _write_values(out: list[bytes], column: Column) -> None:
    if column.count(None) == len(column):
        out.append(_NOTHING)
    elif set(map(type, column)) <= {str, type(None)}:
        out.append(_SHARED)  # all are strings or None
        _write_texts(out, column)
    else:
        out.append(_EACH)
        _write_blobs(out, [None if each is None else encode(each) for each in column])


def _read_values(cursor: _Cursor, count: int) -> Column:
    tag = cursor.tag()
    if tag == _NOTHING:
        return (None,) * count
    if tag == _SHARED:
        return _read_texts(cursor, count)
    return [None if each is None else identity_of(each) for each in _read_blobs(cursor, count)]


def identity_of(encoded: bytes) -> Hashable:
    """Decode a message id from its AMQP encoding."""
    found: Hashable = decode(encoded, 0)[0]
    return found


_Writer = Callable[[list[bytes], Column], None]
_Reader = Callable[[_Cursor, int], Column]

_COLUMNS: tuple[tuple[str, _Writer, _Reader], ...] = (
    ("sequence_number", _write_numbers, _read_numbers),
    ("enqueued_sequence_number", _write_numbers, _read_numbers),
    ("enqueued_at", _write_numbers, _read_numbers),
    ("expires_at", _write_numbers, _read_numbers),
    ("scheduled_for", _write_numbers, _read_numbers),
    ("time_to_live", _write_numbers, _read_numbers),
    ("state", _write_numbers, _read_numbers),
    ("is_deferred", _write_numbers, _read_numbers),
    ("delivery_count", _write_numbers, _read_numbers),
    ("durable", _write_numbers, _read_numbers),
    ("priority", _write_numbers, _read_numbers),
    ("is_ping", _write_numbers, _read_numbers),
    ("hops", _write_numbers, _read_numbers),
    ("overhead", _write_numbers, _read_numbers),
    ("session_id", _write_texts, _read_texts),
    ("partition_key", _write_texts, _read_texts),
    ("via_partition_key", _write_texts, _read_texts),
    ("dead_letter_source", _write_texts, _read_texts),
    ("message_id", _write_values, _read_values),
    ("amended", _write_values, _read_values),
    ("annotations", _write_blobs, _read_blobs),
    ("bare", _write_blobs, _read_blobs),
)
_NAMES = tuple(name for name, _, _ in _COLUMNS)
_VALUES = attrgetter(*_NAMES)
_FIELDS = tuple(field.name for field in fields(StoredMessage))
_NOT_STORED = tuple(name for name in _FIELDS if name not in (*_NAMES, "first_acquirer"))
_DEFAULTS = StoredMessage(b"")
