"""Indexes over the messages of a queue: deadlines, sequence numbers, delivery order and message ids.

None of their operations scans all entries, and the space of removed entries is reclaimed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from .stored_message import Instant, MessageState, StoredMessage

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """A deadline for each key."""

    __slots__ = ("_heap", "_instants", "_order")

    def __init__(self) -> None:
        self._instants: dict[Key, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._instants)

    def __contains__(self, key: Key) -> bool:
        return key in self._instants

    def set(self, key: Key, at: int) -> None:
        """Set or move the deadline of ``key``."""
        instants, heap = self._instants, self._heap
        known = instants.get(key)
        if known is not None and known[0] == at:
            return
        self._order = order = self._order + 1  # equal deadlines keep the order in which they were set
        instants[key] = (at, order)
        heappush(heap, (at, order, key))
        if len(heap) > 2 * len(instants) + 1024:
            self._heap = [(at, order, key) for key, (at, order) in self._instants.items()]
            heapify(self._heap)

    def drop(self, key: Key) -> None:
        """Remove ``key``, if present."""
        self._instants.pop(key, None)

    def next(self) -> int | None:
        """Return the earliest deadline, or None."""
        heap, instants = self._heap, self._instants
        while heap:
            at, order, key = heap[0]
            if instants.get(key) == (at, order):
                return at
            heappop(heap)
        return None

    def pop_due(self, now: int, limit: int | None = None) -> list[Key]:
        """Remove and return up to ``limit`` keys due at ``now``, earliest first."""
        due: list[Key] = []
        while len(due) != limit and (at := self.next()) is not None and at <= now:
            key = heappop(self._heap)[2]
            del self._instants[key]
            due.append(key)
        return due


Item = TypeVar("Item")


SEGMENT_BITS = 8
"""A segment has 2 ** 8 numbers: few enough to sort for each peek, and enough that segments are few."""


class NumberedItems(Generic[Item]):
    """Items under ascending numbers above ``base``; a number is never assigned twice.

    The items are in segments of consecutive numbers, and a segment is dropped with its last item. One dict for all
    items is copied whenever it grows: with a million items that takes up to 100 ms, in which no client is served.
    """

    __slots__ = ("_count", "_last", "_order", "_segments")

    def __init__(self, base: int = 0) -> None:
        self._last = base
        self._count = 0
        self._segments: dict[int, dict[int, Item]] = {}  # each under the high bits of its numbers
        self._order: list[int] = []  # the keys of the segments, ascending

    def __len__(self) -> int:
        return self._count

    @property
    def last(self) -> int:
        """The last number assigned."""
        return self._last

    def continue_after(self, number: int) -> None:
        """Assign only numbers above ``number`` from now on."""
        self._last = max(self._last, number)

    def reserve(self) -> int:
        """Assign and return a number for an item to be added later, if ever."""
        self._last += 1
        return self._last

    def add(self, item: Item, reserved: int | None = None) -> int:
        """Add ``item`` under the next number, or under ``reserved``; return the number."""
        if reserved is None:
            self._last = number = self._last + 1
        else:
            number = reserved
        segment = self._segments.get(number >> SEGMENT_BITS)
        if segment is None:
            segment = self._new_segment(number >> SEGMENT_BITS)
        segment[number] = item
        self._count += 1
        return number

    def add_all(self, items: Sequence[Item]) -> list[int]:
        """Add the items under the next numbers; return the numbers."""
        first = self._last + 1
        self._last += len(items)
        numbers = list(range(first, self._last + 1))
        self.restore_all(numbers, items)
        return numbers

    def restore_all(self, numbers: Sequence[int], items: Sequence[Item]) -> None:
        """Add items under numbers that were assigned before, ascending."""
        begin = 0
        while begin < len(numbers):
            key = numbers[begin] >> SEGMENT_BITS
            end = bisect_left(numbers, key + 1 << SEGMENT_BITS, begin)
            segment = self._segments.get(key)
            if segment is None:
                segment = self._new_segment(key)
            segment.update(zip(numbers[begin:end], items[begin:end], strict=True))
            begin = end
        self._count += len(numbers)

    def get(self, number: int) -> Item | None:
        """Return the item with that number, or None."""
        segment = self._segments.get(number >> SEGMENT_BITS)
        return None if segment is None else segment.get(number)

    def remove(self, number: int) -> Item | None:
        """Remove and return the item with that number, or None."""
        key = number >> SEGMENT_BITS
        segment = self._segments.get(key)
        if segment is None or number not in segment:
            return None
        item = segment.pop(number)
        self._count -= 1
        if not segment and key != self._last >> SEGMENT_BITS:
            self._drop_segment(key)
        return item

    def remove_all(self, numbers: Iterable[int]) -> None:
        """Remove the items with these numbers, as far as they exist."""
        segments, last = self._segments, self._last >> SEGMENT_BITS
        for number in numbers:
            segment = segments.get(key := number >> SEGMENT_BITS)
            if segment is not None and number in segment:
                del segment[number]
                self._count -= 1
                if not segment and key != last:
                    self._drop_segment(key)

    def numbers_from(self, start: int) -> Iterator[int]:
        """Iterate over the numbers from ``start`` on, ascending; a number may be removed after it was read."""
        order = self._order
        at = bisect_left(order, start >> SEGMENT_BITS)
        while at < len(order):
            key = order[at]
            numbers = sorted(self._segments[key])
            yield from numbers[bisect_left(numbers, start) :]
            at = bisect_right(order, key)

    def _new_segment(self, key: int) -> dict[int, Item]:
        order = self._order
        if order and not self._segments[order[-1]]:  # emptied while numbers were still assigned in it
            self._drop_segment(order[-1])
        segment: dict[int, Item] = {}
        self._segments[key] = segment
        insort(order, key)
        return segment

    def _drop_segment(self, key: int) -> None:
        del self._segments[key]
        del self._order[bisect_left(self._order, key)]


class WaitingLine:
    """Messages waiting to be received, in the order of their sequence numbers."""

    __slots__ = ("_new", "_returned")

    def __init__(self) -> None:
        self._new: deque[StoredMessage] = deque()
        self._returned: list[tuple[int, StoredMessage]] = []

    def add(self, message: StoredMessage) -> None:
        """Add a message whose number is higher than those of all messages added before."""
        self._new.append(message)

    def add_all(self, messages: Iterable[StoredMessage]) -> None:
        """Add messages in order, as :meth:`add` does."""
        self._new.extend(messages)

    def put_back(self, message: StoredMessage) -> None:
        """Put back a message that was popped."""
        heappush(self._returned, (message.sequence_number, message))

    def pop(self) -> StoredMessage | None:
        """Remove and return the first waiting message, or None."""
        new, returned = self._new, self._returned
        while new and new[0].state is not MessageState.ACTIVE:
            new.popleft()
        while returned and returned[0][1].state is not MessageState.ACTIVE:
            heappop(returned)
        if returned and (not new or returned[0][0] < new[0].sequence_number):
            return heappop(returned)[1]
        return new.popleft() if new else None


class DuplicateIndex:
    """Message ids accepted within the duplicate detection window, each with its sequence number.

    The window of an id starts when a message with it is first accepted; duplicates do not extend it. Ids
    outside the window are removed when the next message arrives. Each partition has its own index.
    """

    __slots__ = ("_ids", "_numbers")

    def __init__(self) -> None:
        self._ids: deque[tuple[Instant, Hashable]] = deque()
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number_of(self, message_id: Hashable, window: int, now: Instant) -> int | None:
        """Return the number of the message accepted with this id less than ``window`` ms ago, or None."""
        while self._ids and self._ids[0][0] + window <= now:
            del self._numbers[self._ids.popleft()[1]]
        return self._numbers.get(message_id)

    def accepted(self, message_id: Hashable, number: int, now: Instant) -> None:
        """Record an id for which :meth:`number_of` returned None."""
        self._ids.append((now, message_id))
        self._numbers[message_id] = number
