"""Indexes over the messages of a queue: deadlines, sequence numbers, delivery order and message ids.

None of their operations scans all entries; removal is lazy, and the space of removed entries is reclaimed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from .stored_message import Instant, MessageState, StoredMessage

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """One instant for each key."""

    __slots__ = ("_heap", "_instants", "_order")

    def __init__(self) -> None:
        self._instants: dict[Key, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._instants)

    def set(self, key: Key, at: int) -> None:
        """Set or move the deadline of ``key``."""
        instants, heap = self._instants, self._heap
        known = instants.get(key)
        if known is not None and known[0] == at:
            return
        self._order = order = self._order + 1  # equal instants keep the order in which they were set
        instants[key] = (at, order)
        heappush(heap, (at, order, key))
        if len(heap) > 2 * len(instants) + 1024:
            self._heap = [(at, order, key) for key, (at, order) in self._instants.items()]
            heapify(self._heap)

    def drop(self, key: Key) -> None:
        """Remove ``key``, if present."""
        self._instants.pop(key, None)

    def next(self) -> int | None:
        """The earliest instant, or None."""
        heap, instants = self._heap, self._instants
        while heap:
            at, order, key = heap[0]
            if instants.get(key) == (at, order):
                return at
            heappop(heap)
        return None

    def pop_due(self, now: int, most: int | None = None) -> list[Key]:
        """The keys due up to and at ``now``, earliest first, ``most`` at most; they are forgotten."""
        due: list[Key] = []
        while len(due) != most and (at := self.next()) is not None and at <= now:
            key = heappop(self._heap)[2]
            del self._instants[key]
            due.append(key)
        return due


Item = TypeVar("Item")


class Numbering(Generic[Item]):
    """Numbers after ``base``, never given twice; the walk skips what is gone, unseen what waits."""

    __slots__ = ("_gone", "_items", "_last", "_numbers")

    def __init__(self, base: int = 0) -> None:
        self._last = base
        self._items: dict[int, Item] = {}
        self._numbers: list[int] = []  # ascending; may hold numbers that are gone
        self._gone = 0  # so many of the first are: found once, passed over from then on

    def __len__(self) -> int:
        return len(self._items)

    @property
    def last(self) -> int:
        """The number that was given out last."""
        return self._last

    def continue_after(self, number: int) -> None:
        """Give out higher numbers than this one, from now on."""
        self._last = max(self._last, number)

    def reserve(self) -> int:
        """A number for an item that is to come, or will never."""
        self._last += 1
        return self._last

    def add(self, item: Item, reserved: int | None = None) -> int:
        """Give ``item`` the next number, or the one that was reserved for it."""
        if reserved is not None:
            self._items[reserved] = item
            insort(self._numbers, reserved)
            self._gone = 0
            return reserved
        self._last = number = self._last + 1
        self._items[number] = item
        self._numbers.append(number)
        return number

    def get(self, number: int) -> Item | None:
        """The item of that number, or None."""
        return self._items.get(number)

    def remove(self, number: int) -> Item | None:
        """Forget the item of that number and return it, or None."""
        items = self._items
        item = items.pop(number, None)
        if len(self._numbers) > 2 * len(items) + 1024:
            self._numbers = [number for number in self._numbers if number in items]
            self._gone = 0
        return item

    def numbers_from(self, start: int) -> Iterator[int]:
        """The numbers given out from ``start`` on, in order; some may be gone."""
        numbers, items = self._numbers, self._items
        while self._gone < len(numbers) and numbers[self._gone] not in items:
            self._gone += 1
        return (numbers[index] for index in range(bisect_left(numbers, start, self._gone), len(numbers)))


class WaitingLine:
    """Messages that wait to be received, in the order of their sequence numbers."""

    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[StoredMessage] = deque()
        self._returned: list[tuple[int, StoredMessage]] = []

    def add(self, message: StoredMessage) -> None:
        """Add a message with a higher number than all before."""
        self._fresh.append(message)

    def put_back(self, message: StoredMessage) -> None:
        """Take back a message that was popped."""
        heappush(self._returned, (message.sequence_number, message))

    def pop(self) -> StoredMessage | None:
        """Remove and return the first waiting message, or None."""
        fresh, returned = self._fresh, self._returned
        while fresh and fresh[0].state is not MessageState.ACTIVE:
            fresh.popleft()
        while returned and returned[0][1].state is not MessageState.ACTIVE:
            heappop(returned)
        if returned and (not fresh or returned[0][0] < fresh[0].sequence_number):
            return heappop(returned)[1]
        return fresh.popleft() if fresh else None


class DuplicateIndex:
    """Message ids accepted within the duplicate detection window, each with its sequence number.

    The window of an id starts when a message with it is first accepted; duplicates do not extend it. Ids outside
    the window are removed when the next message arrives. Each partition has its own index (Q-11).
    """

    __slots__ = ("_ids", "_numbers")

    def __init__(self) -> None:
        self._ids: deque[tuple[Instant, Hashable]] = deque()
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number_of(self, message_id: Hashable, window: int, now: Instant) -> int | None:
        """The number of the message accepted with this id less than ``window`` ms ago, or None."""
        while self._ids and self._ids[0][0] + window <= now:
            del self._numbers[self._ids.popleft()[1]]
        return self._numbers.get(message_id)

    def accepted(self, message_id: Hashable, number: int, now: Instant) -> None:
        """Remember an id that :meth:`number_of` did not know."""
        self._ids.append((now, message_id))
        self._numbers[message_id] = number
