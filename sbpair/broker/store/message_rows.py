"""Messages as rows of the database: segments, the statements that write changes, and loading them again.

    new       one segment for each run of consecutive numbers
    removed   a bit in the segment's row of `settled`; after the last message, all rows of the segment are deleted
    changed   a row of `amendment`, which overrides the segment

    messages of one commit ---> segment ---> some removed ---> all removed: the row is deleted
                                                  |
                                                  more than half removed, and the file wastes too much
                                                  space: the remaining messages are rewritten

The sequence numbers in a segment are consecutive and lie in one aligned span of 1024, so the segment of a
number is found quickly however many segments there are. Removed messages are recorded as bits in a separate,
smaller row. Only segments that are less than half full are rewritten, so compaction writes less than it
frees: on average at most one extra write for each message.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, cast
from zlib import crc32

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import encode

from ..entities.change_log import Changes
from ..entities.message_store import MessageStore
from ..entities.partition import INDEX_SHIFT
from ..entities.queue_partition import QueuePartition
from ..entities.stored_message import MessageState, StoredMessage
from .columns import pack_messages, unpack_messages
from .schema import NUMBER_BITS, NUMBER_MASK, ChecksumMismatchError, Row, row_id, verify, with_checksum

Statement = tuple[str, list[Row]]
Parts = Mapping[MessageStore, int]

SPAN_BITS = 10
SPAN_MASK = (1 << SPAN_BITS) - 1
MAX_BYTES = 2**20
"""Bytes of message bodies after which a segment is closed."""
ALLOWED_WASTE = 16 * 2**20
"""Bytes by which removed messages may exceed the remaining ones before segments are rewritten."""

MAX_REWRITE = 4 * MAX_BYTES
"""Bytes of segments after which compaction continues with the next commit."""

_BY_ID = attrgetter("id")
_INSERT_SEGMENT = "INSERT INTO segment VALUES (?, ?, ?)"
_INSERT_SETTLED = "INSERT OR REPLACE INTO settled VALUES (?, ?, ?)"
_INSERT_AMENDMENT = "INSERT OR REPLACE INTO amendment VALUES (?, ?, ?, ?, ?)"
_DELETE_SEGMENT = "DELETE FROM segment WHERE id = ?"
_DELETE_SETTLED = "DELETE FROM settled WHERE id = ?"
_DELETE_AMENDMENT = "DELETE FROM amendment WHERE id = ?"


class Segment:
    """A row that stores consecutive messages of ``queue``.

    ``id`` is the row id of the first message, ``size`` the bytes of the whole row, and bit n of ``removed``
    says that the message with row id ``id + n`` has been removed.
    """

    __slots__ = (
        "amended",
        "count",
        "first",
        "has_removed_row",
        "id",
        "queue",
        "remaining",
        "removed",
        "size",
        "span",
    )

    def __init__(
        self, queue: MessageStore, id: int, run: Sequence[StoredMessage], size: int, removed: int = 0
    ) -> None:
        self.queue = queue
        self.id = id
        self.first = run[0].sequence_number
        self.span = run[-1].sequence_number - self.first + 1
        self.count = len(run)
        self.size = size
        self.removed = removed
        self.remaining = self.count - removed.bit_count()
        self.has_removed_row = removed != 0  # whether it has a row in the table `settled`
        self.amended = frozenset[int]()  # row ids of messages in the table `amendment`; mostly empty

    def is_removed(self, number: int) -> bool:
        """Whether the message with sequence number ``number`` has been removed."""
        return bool(self.removed >> (number - self.first) & 1)

    def remaining_messages(self) -> list[StoredMessage]:
        """Return the messages that have not been removed, in their current state in the queue."""
        numbers = range(self.first, self.first + self.span)
        found = (self.queue.message(number) for number in numbers if not self.is_removed(number))
        return [message for message in found if message is not None]

    @property
    def waste(self) -> int:
        """Bytes occupied by removed messages, estimated from their share of the row."""
        return self.size * (self.count - self.remaining) // self.count

    @property
    def is_sparse(self) -> bool:
        """Whether more than half of the messages have been removed."""
        return 2 * self.remaining < self.count


class Segments:
    """The segments of one file."""

    def __init__(self) -> None:
        self._spans: dict[int, list[Segment]] = {}  # by aligned span of row ids, each list ordered
        self._sparse: dict[Segment, None] = {}
        self._size = self._waste = 0  # bytes

    def __iter__(self) -> Iterator[Segment]:
        return (segment for span in self._spans.values() for segment in span)

    def add(self, segment: Segment) -> None:
        """Add a segment whose row has been, or is about to be, written."""
        insort(self._spans.setdefault(segment.id >> SPAN_BITS, []), segment, key=_BY_ID)
        self._size += segment.size
        self._waste += segment.waste
        self._note_if_sparse(segment)

    def remove(self, segment: Segment) -> None:
        """Remove a segment whose row is about to be deleted."""
        span = self._spans[segment.id >> SPAN_BITS]
        del span[bisect_right(span, segment.id, key=_BY_ID) - 1]
        if not span:
            del self._spans[segment.id >> SPAN_BITS]
        self._size -= segment.size
        self._waste -= segment.waste
        self._sparse.pop(segment, None)

    def of_part(self, part: int) -> list[Segment]:
        """Return all segments of ``part`` by a linear search: parts are deleted rarely."""
        return [segment for segment in self if segment.id >> NUMBER_BITS == part]

    def of(self, row: int) -> Segment:
        """Return the segment that stores the message with row id ``row``.

        Raises KeyError when its span has none.
        """
        span = self._spans[row >> SPAN_BITS]
        return span[bisect_right(span, row, key=_BY_ID) - 1]

    def mark_removed(self, row: int) -> Segment:
        """Mark the message with row id ``row`` as removed and return its segment, which may now be empty."""
        segment = self.of(row)
        before = segment.waste
        segment.removed |= 1 << (row - segment.id)
        segment.remaining -= 1
        self._waste += segment.waste - before
        self._note_if_sparse(segment)
        return segment

    def _note_if_sparse(self, segment: Segment) -> None:
        if segment.is_sparse:
            self._sparse[segment] = None

    def next_to_rewrite(self) -> Segment | None:
        """Return a sparse segment while removed messages occupy too much of the file, else None."""
        if self._waste <= self._size - self._waste + ALLOWED_WASTE:
            return None
        return next(iter(self._sparse), None)


def runs(numbered: Iterable[tuple[int, StoredMessage]]) -> Iterator[tuple[int, Sequence[StoredMessage]]]:
    """Split messages, ordered by number, into runs that each fit one segment; yield each with its first number.

    A run ends at a gap in the numbers, at the end of an aligned span, or once it exceeds MAX_BYTES.
    """
    first = last = size = 0
    run: list[StoredMessage] = []
    for number, message in numbered:
        if run and (number != last + 1 or not number & SPAN_MASK or size > MAX_BYTES):
            yield first, run
            run = []
        if not run:
            first, size = number, 0
        run.append(message)
        last, size = number, size + len(message.bare)
    if run:
        yield first, run


@dataclass(slots=True)
class _RowChanges:
    """The changes of one commit to the three message tables; deletions are executed before insertions."""

    deleted_segments: list[Row] = field(default_factory=list)
    deleted_settled: list[Row] = field(default_factory=list)
    deleted_amendments: list[Row] = field(default_factory=list)
    segment: list[Row] = field(default_factory=list)
    settled: dict[Segment, None] = field(default_factory=dict)
    amendment: dict[int, StoredMessage] = field(default_factory=dict)

    def statements(self) -> Iterator[Statement]:
        tables: tuple[tuple[str, list[Row]], ...] = (
            (_DELETE_SEGMENT, self.deleted_segments),
            (_DELETE_SETTLED, self.deleted_settled),
            (_DELETE_AMENDMENT, self.deleted_amendments),
            (_INSERT_SEGMENT, self.segment),
            (_INSERT_SETTLED, [_settled_row(segment) for segment in self.settled]),
            (_INSERT_AMENDMENT, [_amendment_row(row, message) for row, message in self.amendment.items()]),
        )
        yield from ((statement, rows) for statement, rows in tables if rows)


class MessageRows:
    """The message tables of one database."""

    def __init__(self) -> None:
        self._segments = Segments()

    def write_statements(self, changes: Changes, parts: Parts) -> Iterator[Statement]:
        """Return the statements that write ``changes``, to be executed in order.

        ``parts`` gives the part number of each queue. Queues without one have been deleted and are skipped.
        """
        rows = _RowChanges()
        for queue, messages in changes.added.items():
            if (part := parts.get(queue)) is not None:
                self._insert(queue, part << NUMBER_BITS, messages, rows)
        for queue, numbers in changes.removed.items():
            if (part := parts.get(queue)) is not None:
                self._mark_removed(part, numbers, rows)
        for segment in [segment for segment in rows.settled if not segment.remaining]:
            self._remove(segment, rows)
        for queue, messages in changes.changed.items():
            if (part := parts.get(queue)) is not None:
                self._amend(part, messages, rows)
        self._rewrite(rows)
        return rows.statements()

    def delete_statements(self, parts: Iterable[int]) -> Iterator[Statement]:
        """Return the statements that delete all messages of ``parts``."""
        rows = _RowChanges()
        for part in parts:
            for segment in self._segments.of_part(part):
                self._remove(segment, rows)
        return rows.statements()

    def _insert(
        self, queue: MessageStore, base: int, messages: dict[int, StoredMessage], rows: _RowChanges
    ) -> None:
        for first, run in runs(messages.items()):
            self._add(queue, base | first & NUMBER_MASK, run, rows)

    def _add(self, queue: MessageStore, first: int, run: Sequence[StoredMessage], rows: _RowChanges) -> None:
        row = segment_row(first, run)
        self._segments.add(Segment(queue, first, run, len(row[1])))
        rows.segment.append(row)

    def _mark_removed(self, part: int, numbers: list[int], rows: _RowChanges) -> None:
        for number in numbers:
            row = row_id(part, number)
            segment = self._segments.mark_removed(row)
            rows.settled[segment] = None
            if row in segment.amended:
                segment.amended -= {row}
                rows.deleted_amendments.append((row,))

    def _remove(self, segment: Segment, rows: _RowChanges) -> None:
        """Delete the segment with its rows in the other tables."""
        self._segments.remove(segment)
        rows.deleted_segments.append((segment.id,))
        if segment.has_removed_row:
            rows.deleted_settled.append((segment.id,))
        rows.settled.pop(segment, None)
        for row in segment.amended:
            rows.deleted_amendments.append((row,))
            rows.amendment.pop(row, None)

    def _amend(self, part: int, messages: dict[int, StoredMessage], rows: _RowChanges) -> None:
        for number, message in messages.items():
            row = row_id(part, number)
            self._segments.of(row).amended |= {row}
            rows.amendment[row] = message

    def _rewrite(self, rows: _RowChanges) -> None:
        """Compact the file: replace sparse segments by segments of their remaining messages."""
        freed = 0
        while freed < MAX_REWRITE and (segment := self._segments.next_to_rewrite()) is not None:
            remaining = segment.remaining_messages()
            self._remove(segment, rows)
            self._add(
                segment.queue, segment.id + remaining[0].sequence_number - segment.first, remaining, rows
            )
            freed += segment.size

    def load(
        self,
        connection: sqlite3.Connection,
        queues: Mapping[int, QueuePartition],
        filled: Callable[[], object],
    ) -> None:
        """Load all messages into ``queues``, given by part number.

        ``filled`` is called after each row: it discards the changes that restoring the messages has recorded.
        Each table is scanned completely rather than by key, so that a damaged inner page cannot hide a row.

        Raises ChecksumMismatchError, KeyError, ValueError or DecodeError when the file is damaged.
        """
        settled = dict(_verified_rows(connection, "settled"))
        amended = {row: values for row, *values in _verified_rows(connection, "amendment")}
        for row, blob, checksum in connection.execute("SELECT * FROM segment ORDER BY id"):
            queue = queues[row >> NUMBER_BITS]
            if _checksum(row, blob) != checksum:
                raise ChecksumMismatchError(f"a message of '{queue.path}' differs from its checksum")
            messages = unpack_messages(blob)
            if base := queue.partition.index << INDEX_SHIFT:
                for message in messages:
                    message.sequence_number = base | message.sequence_number & NUMBER_MASK
            gone = int.from_bytes(settled.pop(row, b""), "little")
            segment = Segment(queue, row, messages, len(blob), gone)
            self._segments.add(segment)
            if gone:
                messages = [each for each in messages if not segment.is_removed(each.sequence_number)]
            if amended:
                for message in messages:
                    self._apply_amendment(segment, message, amended)
            queue.restore_all(messages)
            filled()
        if settled or amended:
            raise KeyError(f"the segment of {min([*settled, *amended])} is missing")

    @staticmethod
    def _apply_amendment(segment: Segment, message: StoredMessage, amended: dict[int, list[Any]]) -> None:
        row = segment.id + message.sequence_number - segment.first
        if (found := amended.pop(row, None)) is not None:
            segment.amended |= {row}
            state, message.delivery_count, properties = found
            message.state, message.is_deferred = MessageState(state), state == MessageState.DEFERRED
            message.amended = (
                None if properties is None else cast("dict[str, object]", decode(properties, 0)[0])
            )


def _verified_rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    return map(verify, connection.execute(f"SELECT * FROM {table}"))  # noqa: S608 - constant table names


def segment_row(first: int, run: Sequence[StoredMessage]) -> tuple[int, bytes, int]:
    """Return the row of a segment; ``first`` is the row id of the first message of ``run``."""
    blob = pack_messages(run)
    return first, blob, _checksum(first, blob)


def _checksum(first: int, blob: bytes) -> int:
    return crc32(blob, crc32(first.to_bytes(8, "little")))


def _settled_row(segment: Segment) -> Row:
    segment.has_removed_row = True
    return with_checksum(segment.id, segment.removed.to_bytes((segment.span + 7) // 8, "little"))


def _amendment_row(row: int, message: StoredMessage) -> Row:
    resting = MessageState.SCHEDULED if message.state is MessageState.SCHEDULED else MessageState.ACTIVE
    state = MessageState.DEFERRED if message.is_deferred else resting
    amended = None if message.amended is None else encode(message.amended)
    return with_checksum(row, int(state), message.delivery_count, amended)
