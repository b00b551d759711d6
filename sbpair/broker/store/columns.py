"""Pack messages into one blob, column by column, and unpack them.

    how many, then of each column:   NOTHING             none of them has one
                                     SHARED  value       all have the same
                                     EACH    values      each its own, None among them

Column by column, since most columns of messages that came together are NOTHING or SHARED: what a column
costs is then a look, and what it holds a few bytes. Numbers are little-endian and of 64 bits; texts and blobs
are the lengths of all, and then all in one piece. The columns and their order are part of the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields
from itertools import repeat
from operator import attrgetter
from struct import Struct, pack, unpack_from
from typing import Any, cast

from ...amqp.decoding import decode
from ...amqp.encoding import encode
from ..entities.stored_message import MessageState, StoredMessage

LARGEST = 2**63 - 1  # two instants of a sender can be further apart than a column counts
_NONE = -(2**63)
_NOTHING, _SHARED, _EACH = b"\0", b"\1", b"\2"
_NUMBER = Struct("<q")

Column = Sequence[Any]


def packed(messages: Sequence[StoredMessage]) -> bytes:
    """One blob of at least one message, each under its sequence number."""
    out = [_NUMBER.pack(len(messages))]
    for (_, put, _), column in zip(_COLUMNS, zip(*map(_VALUES, messages), strict=True), strict=True):
        put(out, column)
    return b"".join(out)


def unpacked(blob: bytes) -> list[StoredMessage]:
    """The messages of a blob, none of them locked. Raises ValueError, DecodeError: it is none of ours."""
    source = _Source(blob)
    count = source.number()
    columns: dict[str, Iterable[Any]] = {name: take(source, count) for name, _, take in _COLUMNS}
    columns["state"] = map(_resting, columns["state"], columns["is_deferred"])
    for name in ("is_deferred", "is_ping"):
        columns[name] = map(bool, columns[name])
    columns["durable"] = (None if each is None else bool(each) for each in columns["durable"])
    for name in _FRESH:
        columns[name] = repeat(getattr(_NEW, name))
    return list(map(StoredMessage, *map(columns.__getitem__, _FIELDS)))


def _resting(state: int, is_deferred: int) -> MessageState:
    """How a message rests: a lock ends with the process."""
    if is_deferred:
        return MessageState.DEFERRED
    return MessageState.SCHEDULED if state == MessageState.SCHEDULED else MessageState.ACTIVE


class _Source:
    """A blob, read from its beginning on."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self._at = 0

    def form(self) -> bytes:
        return self.piece(1)

    def number(self) -> int:
        return cast(int, _NUMBER.unpack(self.piece(8))[0])

    def numbers(self, count: int) -> tuple[int, ...]:
        return unpack_from(f"<{count}q", self.piece(8 * count))

    def piece(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._blob):
            raise ValueError("a blob of messages ends too soon")
        return self._blob[start : self._at]


# -- numbers, and flags as such


def _put_numbers(out: list[bytes], column: Column) -> None:
    first = column[0]
    if column.count(first) < len(column):
        numbers = [_NONE if each is None else each if each < LARGEST else LARGEST for each in column]
        out += (_EACH, pack(f"<{len(numbers)}q", *numbers))
    elif first is None:
        out.append(_NOTHING)
    else:
        out += (_SHARED, _NUMBER.pack(min(first, LARGEST)))


def _take_numbers(source: _Source, count: int) -> Column:
    form = source.form()
    if form == _NOTHING:
        return (None,) * count
    if form == _SHARED:
        return (source.number(),) * count
    return [None if each == _NONE else each for each in source.numbers(count)]


# -- bytes: bodies are never compared, they differ


def _put_blobs(out: list[bytes], column: Column) -> None:
    if None in column:
        _put_numbers(out, [None if each is None else len(each) for each in column])
        out += [each for each in column if each is not None]
    else:
        _put_numbers(out, list(map(len, column)))
        out += column


def _take_blobs(source: _Source, count: int) -> Column:
    return [None if length is None else source.piece(length) for length in _take_numbers(source, count)]


# -- text: a key may have been binary, then it has characters that no UTF-8 has


def _put_texts(out: list[bytes], column: Column) -> None:
    first = column[0]
    if column.count(first) < len(column):
        out.append(_EACH)
        _put_numbers(out, [None if each is None else len(each) for each in column])
        _put_text(out, "".join(each for each in column if each is not None))
    elif first is None:
        out.append(_NOTHING)
    else:
        out.append(_SHARED)
        _put_text(out, first)


def _put_text(out: list[bytes], text: str) -> None:
    encoded = text.encode("utf-8", "surrogatepass")
    out += (_NUMBER.pack(len(encoded)), encoded)


def _take_texts(source: _Source, count: int) -> Column:
    form = source.form()
    if form == _NOTHING:
        return (None,) * count
    if form == _SHARED:
        return (_take_text(source),) * count
    lengths = _take_numbers(source, count)
    text, found, at = _take_text(source), list[str | None](), 0
    for length in lengths:
        found.append(None if length is None else text[at : at + length])
        at += length or 0
    return found


def _take_text(source: _Source) -> str:
    return source.piece(source.number()).decode("utf-8", "surrogatepass")


# -- AMQP values: ids, nearly always text, and properties that were set since


def _put_values(out: list[bytes], column: Column) -> None:
    if column.count(None) == len(column):
        out.append(_NOTHING)
    elif set(map(type, column)) <= {str, type(None)}:
        out.append(_SHARED)  # their type
        _put_texts(out, column)
    else:
        out.append(_EACH)
        _put_blobs(out, [None if each is None else encode(each) for each in column])


def _take_values(source: _Source, count: int) -> Column:
    form = source.form()
    if form == _NOTHING:
        return (None,) * count
    if form == _SHARED:
        return _take_texts(source, count)
    return [None if each is None else identity_of(each) for each in _take_blobs(source, count)]


def identity_of(encoded: bytes) -> Hashable:
    """A message id, of its AMQP value."""
    found: Hashable = decode(encoded, 0)[0]
    return found


_Put = Callable[[list[bytes], Column], None]
_Take = Callable[[_Source, int], Column]

_COLUMNS: tuple[tuple[str, _Put, _Take], ...] = (
    ("sequence_number", _put_numbers, _take_numbers),
    ("enqueued_sequence_number", _put_numbers, _take_numbers),
    ("enqueued_at", _put_numbers, _take_numbers),
    ("expires_at", _put_numbers, _take_numbers),
    ("scheduled_for", _put_numbers, _take_numbers),
    ("time_to_live", _put_numbers, _take_numbers),
    ("state", _put_numbers, _take_numbers),
    ("is_deferred", _put_numbers, _take_numbers),
    ("delivery_count", _put_numbers, _take_numbers),
    ("durable", _put_numbers, _take_numbers),
    ("priority", _put_numbers, _take_numbers),
    ("is_ping", _put_numbers, _take_numbers),
    ("hops", _put_numbers, _take_numbers),
    ("overhead", _put_numbers, _take_numbers),
    ("session_id", _put_texts, _take_texts),
    ("partition_key", _put_texts, _take_texts),
    ("via_partition_key", _put_texts, _take_texts),
    ("dead_letter_source", _put_texts, _take_texts),
    ("message_id", _put_values, _take_values),
    ("amended", _put_values, _take_values),
    ("annotations", _put_blobs, _take_blobs),
    ("bare", _put_blobs, _take_blobs),
)
_NAMES = tuple(name for name, _, _ in _COLUMNS)
_VALUES = attrgetter(*_NAMES)
_FIELDS = tuple(field.name for field in fields(StoredMessage))
_FRESH = tuple(name for name in _FIELDS if name not in _NAMES)
_NEW = StoredMessage(b"")
