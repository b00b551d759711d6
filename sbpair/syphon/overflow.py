"""Overflow: deliveries for stuck destinations beyond what is kept in memory, reduced to their locks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .in_flight import MessageTarget

FIRST_BATCH = 1000  # deliveries released at once per destination; doubled while the destination accepts them


@dataclass(slots=True, eq=False)
class LockedDelivery:
    """A delivery without its message."""

    delivery_id: int
    tag: bytes  # the lock token
    lock_ends: float  # seconds, monotonic
    lock_span: float  # seconds


@dataclass(slots=True)
class _Entry:
    """The deliveries for one destination."""

    deliveries: dict[int, LockedDelivery] = field(default_factory=dict)
    batch: int = FIRST_BATCH


class Overflow:
    """Locked deliveries by destination.

    Each occupies a few hundred bytes and no room in the window while its lock is renewed. Once its destination has
    accepted all messages that waited in memory, deliveries are released, oldest first, to be delivered again.
    """

    def __init__(self) -> None:
        self._entries: dict[MessageTarget, _Entry] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LockedDelivery]:
        for entry in self._entries.values():
            yield from entry.deliveries.values()

    def put(self, destination: MessageTarget, delivery: LockedDelivery) -> None:
        """Keep the lock of a delivery for ``destination``."""
        entry = self._entries.setdefault(destination, _Entry())
        entry.batch = FIRST_BATCH
        entry.deliveries[delivery.delivery_id] = delivery
        self._count += 1

    def take_ready(self) -> list[int]:
        """Remove and return the ids for destinations that accept messages again, a batch of each."""
        ready: list[int] = []
        for destination, entry in list(self._entries.items()):
            if destination.takes_more:
                batch = list(entry.deliveries)[: entry.batch]
                entry.batch *= 2
                ready += self._take(destination, entry, batch)
        return ready

    def take_expired(self, now: float) -> list[int]:
        """Remove and return the ids whose lock has ended: they are delivered again anyway."""
        expired: list[int] = []
        for destination, entry in list(self._entries.items()):
            ended = [each.delivery_id for each in entry.deliveries.values() if each.lock_ends <= now]
            expired += self._take(destination, entry, ended)
        return expired

    def take_all(self) -> list[int]:
        """Remove and return all ids."""
        ids = [each.delivery_id for each in self]
        self._entries.clear()
        self._count = 0
        return ids

    def _take(self, destination: MessageTarget, entry: _Entry, ids: Iterable[int]) -> list[int]:
        taken = [number for number in ids if entry.deliveries.pop(number, None) is not None]
        self._count -= len(taken)
        if not entry.deliveries:
            del self._entries[destination]
        return taken
