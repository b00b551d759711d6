"""Segments: which messages a row of the file holds, and how many of them are still needed.

    a run of messages, kept by one commit ---> one segment ---> some are settled ---> all are: the row goes
                                                                      |
                                            more than half, and the file would waste too much: written anew

A segment holds numbers that follow each other, of one aligned thousand, so that a number's segment is found
at once however many there are. What is settled of it is a bit in a row beside it. What is rewritten is less
than what that frees, so it costs each message at most one write more.
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
MOST_BYTES = 2**20
"""A segment is closed when its bodies have so many bytes."""
SPARE = 16 * 2**20
"""Bytes of settled messages that the file may hold, beside as many as those that are left have."""

_FIRST = attrgetter("id")


class Segment:
    """A row of messages of one queue: the row id of the first, and the bytes that they are in all."""

    __slots__ = ("amended", "count", "first", "gone", "id", "is_noted", "left", "queue", "size", "span")

    def __init__(
        self, queue: MessageStore, id: int, run: Sequence[StoredMessage], size: int, gone: int = 0
    ) -> None:
        self.queue = queue
        self.id = id
        self.first = run[0].sequence_number
        self.span = run[-1].sequence_number - self.first + 1
        self.count = len(run)
        self.size = size
        self.gone = gone  # bit n: the message of the row id ``id`` + n
        self.left = self.count - gone.bit_count()
        self.is_noted = gone != 0  # there is a row that tells what is gone
        self.amended = frozenset[int]()  # row ids of messages that are as another row tells; mostly none

    def is_gone(self, number: int) -> bool:
        """Whether the message of that number is settled."""
        return bool(self.gone >> (number - self.first) & 1)

    def rest(self) -> list[StoredMessage]:
        """The messages that are not settled, as their queue has them."""
        numbers = range(self.first, self.first + self.span)
        there = (self.queue.message(number) for number in numbers if not self.is_gone(number))
        return [message for message in there if message is not None]

    @property
    def waste(self) -> int:
        """Bytes of what is settled."""
        return self.size * (self.count - self.left) // self.count

    @property
    def is_sparse(self) -> bool:
        """More than half of it is settled."""
        return 2 * self.left < self.count


class Segments:
    """The segments of one file."""

    def __init__(self) -> None:
        self._spans: dict[int, list[Segment]] = {}  # those of an aligned thousand of row ids, in order
        self._sparse: dict[Segment, None] = {}
        self._size = self._waste = 0  # bytes

    def __iter__(self) -> Iterator[Segment]:
        return (segment for span in self._spans.values() for segment in span)

    def add(self, segment: Segment) -> None:
        """Know one more."""
        insort(self._spans.setdefault(segment.id >> SPAN_BITS, []), segment, key=_FIRST)
        self._size += segment.size
        self._waste += segment.waste
        self._look(segment)

    def remove(self, segment: Segment) -> None:
        """Its row is to go."""
        span = self._spans[segment.id >> SPAN_BITS]
        del span[bisect_right(span, segment.id, key=_FIRST) - 1]
        if not span:
            del self._spans[segment.id >> SPAN_BITS]
        self._size -= segment.size
        self._waste -= segment.waste
        self._sparse.pop(segment, None)

    def of_part(self, part: int) -> list[Segment]:
        """All of a part; it is asked for when a part is deleted, which is rare: they are searched for."""
        return [segment for segment in self if segment.id >> NUMBER_BITS == part]

    def of(self, row: int) -> Segment:
        """The one with the message of that row id. Raises KeyError."""
        span = self._spans[row >> SPAN_BITS]
        return span[bisect_right(span, row, key=_FIRST) - 1]

    def settle(self, row: int) -> Segment:
        """The message of that row id is not to be there any more; its segment, which may be empty now."""
        segment = self.of(row)
        before = segment.waste
        segment.gone |= 1 << (row - segment.id)
        segment.left -= 1
        self._waste += segment.waste - before
        self._look(segment)
        return segment

    def _look(self, segment: Segment) -> None:
        if segment.is_sparse:
            self._sparse[segment] = None

    def next_to_rewrite(self) -> Segment | None:
        """A sparse one, while the file holds more that is settled than it may."""
        if self._waste <= self._size - self._waste + SPARE:
            return None
        return next(iter(self._sparse), None)


def runs(numbered: Iterable[tuple[int, StoredMessage]]) -> Iterator[tuple[int, Sequence[StoredMessage]]]:
    """Messages by their number, or row id, cut into what makes a segment each; with the first's."""
    first = last = size = 0
    run: list[StoredMessage] = []
    for number, message in numbered:
        if run and (number != last + 1 or not number & SPAN_MASK or size > MOST_BYTES):
            yield first, run
            run = []
        if not run:
            first, size = number, 0
        run.append(message)
        last, size = number, size + len(message.bare)
    if run:
        yield first, run
