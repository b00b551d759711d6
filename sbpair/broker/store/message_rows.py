"""The rows of messages: written from their changes, and read back.

kept      ---> segments, one for each run
gone      ---> a bit in the row beside its segment; with the last one its segment goes, and what is beside it
changed   ---> a row of its own, which holds over the segment
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from zlib import crc32

from ...amqp.decoding import decode
from ...amqp.encoding import encode
from ..entities.journal import Changes
from ..entities.message_store import MessageStore
from ..entities.partition import INDEX_SHIFT
from ..entities.queue import Queue
from ..entities.stored_message import MessageState, StoredMessage
from .columns import packed, unpacked
from .schema import NUMBER_BITS, NUMBER_MASK, ChecksumDiffers, Row, row_id, sealed, unsealed
from .segments import MOST_BYTES, Segment, Segments, runs

Statement = tuple[str, list[Row]]
Parts = Mapping[MessageStore, int]

REWRITTEN_AT_ONCE = 4 * MOST_BYTES  # bytes: more wait for the next commit

_SEGMENT = "INSERT INTO segment VALUES (?, ?, ?)"
_SETTLED = "INSERT OR REPLACE INTO settled VALUES (?, ?, ?)"
_AMENDMENT = "INSERT OR REPLACE INTO amendment VALUES (?, ?, ?, ?, ?)"
_NO_SEGMENT = "DELETE FROM segment WHERE id = ?"
_NOT_SETTLED = "DELETE FROM settled WHERE id = ?"
_NO_AMENDMENT = "DELETE FROM amendment WHERE id = ?"


@dataclass(slots=True)
class _Rows:
    """What one commit does to the three tables; what goes, goes before anything comes."""

    no_segment: list[Row] = field(default_factory=list)
    not_settled: list[Row] = field(default_factory=list)
    no_amendment: list[Row] = field(default_factory=list)
    segment: list[Row] = field(default_factory=list)
    settled: dict[Segment, None] = field(default_factory=dict)
    amendment: dict[int, StoredMessage] = field(default_factory=dict)

    def statements(self) -> Iterator[Statement]:
        tables: tuple[tuple[str, list[Row]], ...] = (
            (_NO_SEGMENT, self.no_segment),
            (_NOT_SETTLED, self.not_settled),
            (_NO_AMENDMENT, self.no_amendment),
            (_SEGMENT, self.segment),
            (_SETTLED, [_settled_row(segment) for segment in self.settled]),
            (_AMENDMENT, [_amendment_row(row, message) for row, message in self.amendment.items()]),
        )
        yield from ((statement, rows) for statement, rows in tables if rows)


class MessageRows:
    """The messages of one file."""

    def __init__(self) -> None:
        self._segments = Segments()

    # -- writing

    def statements(self, changes: Changes, parts: Parts) -> Iterator[Statement]:
        """What is to be executed, in this order; queues that are in no part are nobody's."""
        rows = _Rows()
        for queue, messages in changes.kept.items():
            if (part := parts.get(queue)) is not None:
                self._keep(queue, part << NUMBER_BITS, messages, rows)
        for queue, numbers in changes.gone.items():
            if (part := parts.get(queue)) is not None:
                self._settle(part, numbers, rows)
        for segment in [segment for segment in rows.settled if not segment.left]:
            self._remove(segment, rows)
        for queue, messages in changes.changed.items():
            if (part := parts.get(queue)) is not None:
                self._amend(part, messages, rows)
        self._rewrite(rows)
        return rows.statements()

    def dropped(self, parts: Iterable[int]) -> Iterator[Statement]:
        """What is to be executed when parts are deleted with all that is in them."""
        rows = _Rows()
        for part in parts:
            for segment in self._segments.of_part(part):
                self._remove(segment, rows)
        return rows.statements()

    def _keep(self, queue: MessageStore, base: int, messages: dict[int, StoredMessage], rows: _Rows) -> None:
        for first, run in runs(messages.items()):
            self._add(queue, base | first & NUMBER_MASK, run, rows)

    def _add(self, queue: MessageStore, first: int, run: Sequence[StoredMessage], rows: _Rows) -> None:
        row = segment_row(first, run)
        self._segments.add(Segment(queue, first, run, len(row[1])))
        rows.segment.append(row)

    def _settle(self, part: int, numbers: list[int], rows: _Rows) -> None:
        for number in numbers:
            row = row_id(part, number)
            segment = self._segments.settle(row)
            rows.settled[segment] = None
            if row in segment.amended:
                segment.amended -= {row}
                rows.no_amendment.append((row,))

    def _remove(self, segment: Segment, rows: _Rows) -> None:
        """The segment goes, with what is beside it."""
        self._segments.remove(segment)
        rows.no_segment.append((segment.id,))
        if segment.is_noted:
            rows.not_settled.append((segment.id,))
        rows.settled.pop(segment, None)
        for row in segment.amended:
            rows.no_amendment.append((row,))
            rows.amendment.pop(row, None)

    def _amend(self, part: int, messages: dict[int, StoredMessage], rows: _Rows) -> None:
        for number, message in messages.items():
            row = row_id(part, number)
            self._segments.of(row).amended |= {row}
            rows.amendment[row] = message

    def _rewrite(self, rows: _Rows) -> None:
        """Give room back, so much at once: what is left of a segment becomes another, as it is now."""
        freed = 0
        while freed < REWRITTEN_AT_ONCE and (segment := self._segments.next_to_rewrite()) is not None:
            rest = segment.rest()
            self._remove(segment, rows)
            self._add(segment.queue, segment.id + rest[0].sequence_number - segment.first, rest, rows)
            freed += segment.size

    # -- loading

    def load(
        self, connection: sqlite3.Connection, queues: Mapping[int, Queue], filled: Callable[[], object]
    ) -> None:
        """Put all messages back into the queues of these parts. Raises ChecksumDiffers and, like it, damage.

        ``filled`` is called after each row, when a queue has told its journal what that has written already.
        Each table is read whole, not by queue: so no row is passed over where an inner page lies.
        """
        settled = dict(_unsealed(connection, "settled"))
        amended = {row: rest for row, *rest in _unsealed(connection, "amendment")}
        for row, blob, checksum in connection.execute("SELECT * FROM segment ORDER BY id"):
            queue = queues[row >> NUMBER_BITS]
            if _checksum(row, blob) != checksum:
                raise ChecksumDiffers(f"a message of '{queue.path}' differs from its checksum")
            messages = unpacked(blob)
            if queue.partition is not None:
                base = queue.partition.index << INDEX_SHIFT
                for message in messages:
                    message.sequence_number = base | message.sequence_number & NUMBER_MASK
            gone = int.from_bytes(settled.pop(row, b""), "little")
            segment = Segment(queue, row, messages, len(blob), gone)
            self._segments.add(segment)
            if gone:
                messages = [each for each in messages if not segment.is_gone(each.sequence_number)]
            if amended:
                for message in messages:
                    self._amended(segment, message, amended)
            queue.restore_all(messages)
            filled()
        if settled or amended:
            raise KeyError(f"the segment of {min(*settled, *amended)} is missing")

    @staticmethod
    def _amended(segment: Segment, message: StoredMessage, amended: dict[int, list[Any]]) -> None:
        row = segment.id + message.sequence_number - segment.first
        if (found := amended.pop(row, None)) is not None:
            segment.amended |= {row}
            state, message.delivery_count, properties = found
            message.state, message.is_deferred = MessageState(state), state == MessageState.DEFERRED
            message.amended = (
                None if properties is None else cast("dict[str, object]", decode(properties, 0)[0])
            )


def _unsealed(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    return map(unsealed, connection.execute(f"SELECT * FROM {table}"))  # noqa: S608 - our own names


def segment_row(first: int, run: Sequence[StoredMessage]) -> tuple[int, bytes, int]:
    """A run of messages as a row; the first of them has this row id."""
    blob = packed(run)
    return first, blob, _checksum(first, blob)


def _checksum(first: int, blob: bytes) -> int:
    return crc32(blob, crc32(first.to_bytes(8, "little")))


def _settled_row(segment: Segment) -> Row:
    segment.is_noted = True
    return sealed(segment.id, segment.gone.to_bytes((segment.span + 7) // 8, "little"))


def _amendment_row(row: int, message: StoredMessage) -> Row:
    resting = MessageState.SCHEDULED if message.state is MessageState.SCHEDULED else MessageState.ACTIVE
    state = MessageState.DEFERRED if message.is_deferred else resting
    amended = None if message.amended is None else encode(message.amended)
    return sealed(row, int(state), message.delivery_count, amended)
