"""Messages as rows of the database: the statements that write their changes, and loading them again.

new ---> one segment for each run of consecutive numbers removed ---> a bit in the segment's row of `settled`;
with the last message all rows of the segment are deleted changed ---> a row of `amendment`, which overrides
the segment
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from zlib import crc32

from ...amqp.decoding import decode
from ...amqp.encoding import encode
from ..entities.change_log import Changes
from ..entities.message_store import MessageStore
from ..entities.partition import INDEX_SHIFT
from ..entities.queue import Queue
from ..entities.stored_message import MessageState, StoredMessage
from .columns import pack_messages, unpack_messages
from .schema import NUMBER_BITS, NUMBER_MASK, ChecksumMismatch, Row, row_id, verified, with_checksum
from .segments import MAX_BYTES, Segment, Segments, runs

Statement = tuple[str, list[Row]]
Parts = Mapping[MessageStore, int]

MAX_REWRITE = 4 * MAX_BYTES  # bytes of segments after which compaction continues with the next commit

_INSERT_SEGMENT = "INSERT INTO segment VALUES (?, ?, ?)"
_INSERT_SETTLED = "INSERT OR REPLACE INTO settled VALUES (?, ?, ?)"
_INSERT_AMENDMENT = "INSERT OR REPLACE INTO amendment VALUES (?, ?, ?, ?, ?)"
_DELETE_SEGMENT = "DELETE FROM segment WHERE id = ?"
_DELETE_SETTLED = "DELETE FROM settled WHERE id = ?"
_DELETE_AMENDMENT = "DELETE FROM amendment WHERE id = ?"


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
        self, connection: sqlite3.Connection, queues: Mapping[int, Queue], filled: Callable[[], object]
    ) -> None:
        """Load all messages into ``queues``, given by part number.

        ``filled`` is called after each row: it discards the changes that restoring the messages has recorded.
        Each table is scanned completely rather than by key, so that a damaged inner page cannot hide a row.

        Raises ChecksumMismatch, KeyError, ValueError or DecodeError when the file is damaged.
        """
        settled = dict(_verified(connection, "settled"))
        amended = {row: values for row, *values in _verified(connection, "amendment")}
        for row, blob, checksum in connection.execute("SELECT * FROM segment ORDER BY id"):
            queue = queues[row >> NUMBER_BITS]
            if _checksum(row, blob) != checksum:
                raise ChecksumMismatch(f"a message of '{queue.path}' differs from its checksum")
            messages = unpack_messages(blob)
            if queue.partition is not None:
                base = queue.partition.index << INDEX_SHIFT
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


def _verified(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    return map(verified, connection.execute(f"SELECT * FROM {table}"))  # noqa: S608 - constant table names


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
