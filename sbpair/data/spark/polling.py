"""The interval at which a stream polls the broker for new messages. Reads no clock: callers pass the current time.

found everything    ask again after the shortest interval
found nothing       each time after twice as long, up to the longest interval
left something      ask again at once: a limit cut the batch short
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Polling:
    """The poll schedule of one query, with intervals in seconds; a ``shortest`` of 0 never waits."""

    shortest: float
    longest: float
    _due: float = 0.0
    _interval: float = field(init=False)

    def __post_init__(self) -> None:
        self._interval = self.shortest

    def polled(self, now: float, *, has_found: bool, has_more: bool) -> None:
        """Record a poll at ``now``: whether it found messages, and whether more remain than were planned."""
        if has_found:
            self._interval = self.shortest
        self._due = now if has_more else now + self._interval
        if not has_found:
            self._interval = min(self._interval * 2, max(self.shortest, self.longest))

    def wait(self, now: float) -> float:
        """Seconds until the next poll; 0 when it is due."""
        return max(0.0, self._due - now)


@dataclass(slots=True)
class Gathering:
    """Decides whether enough messages wait for a batch.

    Enough are ``least``, or any number once the last batch is ``longest`` seconds ago. The first batch is not delayed.
    """

    least: int
    longest: float
    _due: float = 0.0

    def is_enough(self, now: float, found: int) -> bool:
        """Whether a batch begins at ``now`` with ``found`` messages."""
        if found < self.least and now < self._due:
            return False
        self._due = now + self.longest
        return True

    def wait(self, now: float) -> float:
        """Seconds until a batch of any size may begin."""
        return max(0.0, self._due - now) if self.least else math.inf
