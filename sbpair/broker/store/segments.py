"""Segments: rows that store a run of messages each, and the accounting of how much of a row is still in use.

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

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from ..entities.message_store import MessageStore
from ..entities.stored_message import StoredMessage
from .schema import NUMBER_BITS

SPAN_BITS = 10
SPAN_MASK = (1 << SPAN_BITS) - 1
MAX_BYTES = 2**20
"""Bytes of message bodies after which a segment is closed."""
ALLOWED_WASTE = 16 * 2**20
"""Bytes by which removed messages may exceed the remaining ones before segments are rewritten."""

_BY_ID = attrgetter("id")


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
    """Split messages, ordered by number, into runs that each fit one segment.

    Yield each with its first number.

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
