"""Which of many instants comes next, when any of them may be moved or dropped?

A heap with lazy removal: setting and dropping cost O(log n) at most, whatever waits behind.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

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
        """Let ``key`` fall due at ``at``, wherever it stood before."""
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
        """Forget ``key``; nothing happens when it is not there."""
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

    def take_due(self, now: int) -> list[Key]:
        """The keys due up to and at ``now``, earliest first; they are forgotten."""
        due: list[Key] = []
        while (at := self.next()) is not None and at <= now:
            key = heappop(self._heap)[2]
            del self._instants[key]
            due.append(key)
        return due
