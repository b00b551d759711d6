"""Indexes over the messages of a queue: deadlines, sequence numbers, delivery order and message ids.

None of their operations scans all entries; removal is lazy, and the space of removed entries is reclaimed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
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


EXAMINED_AT_ONCE = 256
"""Numbers examined for removed ones in one operation; for a long run, twice as many as it removes."""


class NumberedItems(Generic[Item]):
    """Items under ascending numbers above ``base``; a number is never assigned twice.

    Once most numbers are of removed items, each removal examines some of them and keeps those still in use; when all
    are examined, the kept ones replace the list.
    """

    __slots__ = ("_examined", "_items", "_kept", "_last", "_numbers", "_removed")

    def __init__(self, base: int = 0) -> None:
        self._last = base
        self._items: dict[int, Item] = {}
        self._numbers: list[int] = []  # ascending; may include removed ones
        self._removed = 0  # how many at the front are known to be removed
        self._kept: list[int] = []  # of the first numbers, as many as are examined, those still in use
        self._examined = 0

    def __len__(self) -> int:
        return len(self._items)

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
        if reserved is not None:
            self._items[reserved] = item
            if self._examined and reserved < self._numbers[self._examined - 1]:
                insort(self._kept, reserved)
                self._examined += 1
            insort(self._numbers, reserved)
            self._removed = 0
            return reserved
        self._last = number = self._last + 1
        self._items[number] = item
        self._numbers.append(number)
        return number

    def add_all(self, items: Sequence[Item]) -> list[int]:
        """Add the items under the next numbers; return the numbers."""
        first = self._last + 1
        self._last += len(items)
        numbers = list(range(first, self._last + 1))
        self._items.update(zip(numbers, items, strict=True))
        self._numbers += numbers
        return numbers

    def restore_all(self, numbers: Sequence[int], items: Sequence[Item]) -> None:
        """Add items under numbers that were assigned before, ascending."""
        self._items.update(zip(numbers, items, strict=True))
        is_sorted = not (self._numbers and numbers) or self._numbers[-1] < numbers[0]
        self._numbers += numbers
        if not is_sorted:
            self._numbers.sort()
            self._kept, self._examined = [], 0
        self._removed = 0

    def get(self, number: int) -> Item | None:
        """Return the item with that number, or None."""
        return self._items.get(number)

    def remove(self, number: int) -> Item | None:
        """Remove and return the item with that number, or None."""
        item = self._items.pop(number, None)
        self._forget_removed()
        return item

    def remove_all(self, numbers: Collection[int]) -> None:
        """Remove the items with these numbers, as far as they exist."""
        pop = self._items.pop
        for number in numbers:
            pop(number, None)
        self._forget_removed(max(EXAMINED_AT_ONCE, 2 * len(numbers)))

    def _forget_removed(self, at_once: int = EXAMINED_AT_ONCE) -> None:
        items, numbers, begin = self._items, self._numbers, self._examined
        if not begin and len(numbers) <= 2 * len(items) + 1024:
            return
        end = self._examined = begin + at_once
        self._kept += [number for number in numbers[begin:end] if number in items]
        if end >= len(numbers):
            self._numbers, self._kept = self._kept, []
            self._examined = self._removed = 0

    def numbers_from(self, start: int) -> Iterator[int]:
        """Iterate over the assigned numbers from ``start`` on, ascending; may include removed ones."""
        numbers, items = self._numbers, self._items
        while self._removed < len(numbers) and numbers[self._removed] not in items:
            self._removed += 1
        return (numbers[index] for index in range(bisect_left(numbers, start, self._removed), len(numbers)))


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
    outside the window are removed when the next message arrives. Each partition has its own index (Q-11).
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
