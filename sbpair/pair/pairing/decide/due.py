"""The due timers and pings among thousands of entities. Pure.

The cost of a turn grows with the number of due entities, not with the number of all entities. Times are seconds of a
monotonic clock.

                  two pings in a row that no namespace answered
    IN REACH ----------------------------------------------------> OUT OF REACH: one ping an interval, of the next
       ^                                                                 |       entity that is due
       '--- any answer of the namespace: all that were due are pinged ---'

A refused or silent connection concerns the namespace, not the entity: if thousands of entities each opened one, they
would use up a core and all file descriptors. At most MOST pings are in progress; the others wait in the order in which
they became due.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

SPARE = 64  # entries that no longer count, beside one for each key
MOST = 32  # in progress: each may hold a descriptor
LOST_AFTER = 600.0  # seconds after which a ping without a result counts as lost, perhaps by a signal
MISSES = 2  # pings in a row without an answer of the namespace


class Timers:
    """The next time of each key, as a heap of (time, key).

    A heap entry counts only if its time is the one last set for its key; other entries are dropped when they reach the
    top. The heap is written first: if a signal interrupts, an extra entry is harmless, but a missing one would never
    fire.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    def set(self, key: str, at: float | None) -> None:
        """Set the time at which the key is due, in place of any other; None for never."""
        if at is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at:
            heappush(self._heap, (at, key))
            self._at[key] = at
            if len(self._heap) > 2 * len(self._at) + SPARE:
                heap = [(each, key) for key, each in self._at.items()]
                heapify(heap)
                self._heap = heap

    def next(self) -> float | None:
        """Return when a key is due next; None for never."""
        heap, at = self._heap, self._at
        while heap and at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: float) -> Iterator[str]:
        """Yield the keys that are due, each once, the earliest first.

        The caller sets the next time of each key before it takes the next one.
        """
        seen: set[str] = set()
        while (at := self.next()) is not None and at <= now:
            key = self._heap[0][1]
            if key in seen:
                return  # due again at once: in the next turn
            seen.add(key)
            yield key


class Pings:
    """The pings of one client; ``interval`` is the time between two of one entity."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._waiting: dict[str, None] = {}  # in order
        self._running: dict[str, float] = {}  # since when
        self._unasked: dict[str, None] = {}  # due while out of reach
        self._misses = 0
        self._asked_at = 0.0  # when a ping was sent last

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`take` would return any."""
        return bool(self._waiting) and len(self._running) < MOST

    @property
    def is_out_of_reach(self) -> bool:
        """Whether the namespace answered none of the last pings."""
        return self._misses >= MISSES

    def due(self, key: str, now: float) -> None:
        """Ping this entity when its turn comes; several calls until then count as one."""
        if key in self._running:
            return
        if self.is_out_of_reach and (self._running or now < self._asked_at + self._interval):
            self._unasked[key] = None  # the answer of another is its own
        else:
            self._waiting[key] = None
            if self.is_out_of_reach:
                self._asked_at = now

    def take(self, now: float) -> Iterator[str]:
        """Yield the entities to ping now. Call :meth:`finished` or :meth:`lost` once for each."""
        for key in [key for key, since in self._running.items() if now >= since + LOST_AFTER]:
            self.lost(key)
        while self.is_ready:
            key = next(iter(self._waiting))
            self._running[key] = now
            del self._waiting[key]
            self._asked_at = now
            yield key

    def finished(self, key: str, *, is_answered: bool) -> list[str]:
        """Record the end of a ping, and whether the namespace answered; return the entities to ping soon."""
        self._running.pop(key, None)
        if is_answered:
            return self.answered()
        self._misses += 1
        if self.is_out_of_reach:
            self._unasked.update(self._waiting)
            self._waiting.clear()
        return []

    def answered(self) -> list[str]:
        """Record an answer of the namespace; return the entities to ping soon."""
        self._misses = 0
        unasked, self._unasked = list(self._unasked), {}
        return unasked

    def lost(self, key: str) -> None:
        """Forget a ping that ended without a result."""
        self._running.pop(key, None)

    def all_lost(self) -> None:
        """Forget the pings in progress, after a fork."""
        self._running.clear()
