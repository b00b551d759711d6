"""The fill level of the backlog queues, by this process's parked messages or by the service's counts.

    parked ---> size = parked since the outage began
                  |  a minute later, then every five: the service is asked, if the key has Manage
                  v
                size = the service's count + parked since

A warning is due when a queue passes 70 % of its limit, and again at 90 %. Performs no I/O: times and randomness are
arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

THRESHOLDS = (0.9, 0.7)  # shares of the limit that are worth a warning
CALM_SHARE = 0.5  # below this share the warnings begin anew
CREATED_LIMIT = 5120 * 1024 * 1024  # bytes: the limit of the queues that sbpair creates
FIRST_LOOK, LOOK_EVERY = 60.0, 300.0  # seconds, with a jitter of a quarter: a fleet parks at the same time
JITTER = 0.25


class BacklogSize(NamedTuple):
    """A backlog queue as the service counts it; ``size`` and ``limit`` in bytes."""

    size: int
    limit: int
    messages: int


class BacklogLevel(NamedTuple):
    """The known fill level of a backlog queue: ``size`` and ``limit`` in bytes.

    If ``messages`` is None, the service has not counted, and ``size`` is what this process has parked.
    """

    size: int
    limit: int
    messages: int | None


class Filling(NamedTuple):
    """A backlog queue passed ``threshold``, a share of its limit."""

    backlog: int
    size: int
    limit: int
    threshold: float


@dataclass(slots=True)
class _Queue:
    parked: int = 0  # bytes, since the service was asked or the outage began
    counted: BacklogSize | None = None
    warned: float = 0.0

    @property
    def size(self) -> int:
        return self.parked + (0 if self.counted is None else self.counted.size)

    @property
    def limit(self) -> int:
        return CREATED_LIMIT if self.counted is None else self.counted.limit


class Room:
    """The fill levels of the backlog queues in which this process has parked messages."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._queues: dict[int, _Queue] = {}
        self._look_at: float | None = None
        self._is_over = self._is_refused = False

    def parked(self, backlog: int, size: int, now: float) -> Filling | None:
        """Record that a backlog queue accepted ``size`` bytes; return a warning that is due."""
        if (
            self._is_over
        ):  # a new outage: what is not counted has been drained, as far as this process can know
            self._queues = {key: each for key, each in self._queues.items() if each.counted is not None}
            self._is_over = False
        queue = self._queues.setdefault(backlog, _Queue())
        queue.parked += size
        if self._look_at is None and not self._is_refused:
            self._look_at = now + self._spread(FIRST_LOOK)
        return self._warning(backlog, queue)

    def outage_ended(self) -> None:
        """Record that every entity uses the primary again."""
        self._is_over = True

    def next_timer(self) -> float | None:
        """Return when to call :meth:`due` next; None for never."""
        return self._look_at

    def due(self, now: float) -> tuple[int, ...]:
        """Return the backlog queues whose sizes to ask the service for now."""
        if self._look_at is None or now < self._look_at:
            return ()
        self._look_at = now + self._spread(LOOK_EVERY)
        return tuple(self._queues)

    def measure(self, found: Mapping[int, BacklogSize]) -> list[Filling]:
        """Record the sizes of backlog queues as the service counts them; return the warnings that are due."""
        for backlog, size in found.items():
            queue = self._queues.setdefault(backlog, _Queue())
            queue.counted, queue.parked = size, 0
        if self._queues and all(each.counted and not each.counted.messages for each in self._queues.values()):
            self._look_at = None  # all are empty: the next parked message begins anew
        warnings = [self._warning(backlog, self._queues[backlog]) for backlog in found]
        return [each for each in warnings if each is not None]

    def refused(self) -> None:
        """Record that the key lacks the right to read the sizes: the service is not asked again."""
        self._look_at, self._is_refused = None, True

    def levels(self) -> dict[int, BacklogLevel]:
        """Return the known fill level of each backlog queue, by number."""
        return {
            backlog: BacklogLevel(
                each.size, each.limit, None if each.counted is None else each.counted.messages
            )
            for backlog, each in list(self._queues.items())
        }

    def _warning(self, backlog: int, queue: _Queue) -> Filling | None:
        share = queue.size / queue.limit
        if share < CALM_SHARE:
            queue.warned = 0.0
        passed = next((each for each in THRESHOLDS if share >= each), 0.0)
        if passed <= queue.warned:
            return None
        queue.warned = passed
        return Filling(backlog, queue.size, queue.limit, passed)

    def _spread(self, seconds: float) -> float:
        return seconds * (1 + self._rng.uniform(-JITTER, JITTER))
