"""When the messages of each entity in a spool are replayed. Pure: times are arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sbpair.pair.envelope.names import path_key

PAUSE = 1.0  # seconds between two tries of one entity
MAX_TRIES = 5  # a second, of all entities
MAX_CONCURRENT = 16  # entities replayed at a time


@dataclass(slots=True)
class _Line:
    """The replay state of one entity."""

    path: str
    due: float
    earliest: float  # bounds hurrying: no hot loop
    is_failing: bool = False
    is_under_way: bool = False
    is_hurried: bool = False


class ReplaySchedule:
    """Which entities have messages in the spool, and when to replay each.

    ``jitter`` returns a factor for each pause, so that many clients do not retry at the same instant. ``first_pause``
    is the pause after a message was spooled. Times are seconds of a monotonic clock, passed in. Not thread-safe.

        nothing <--everything accepted-- under way --not accepted--> later: in a second, MAX_TRIES of all a second
           '-- a message was spooled --> later --due, or something recovered--> under way
    """

    def __init__(self, jitter: Callable[[], float], first_pause: float = PAUSE) -> None:
        self._jitter = jitter
        self._first_pause = first_pause
        self._lines: dict[str, _Line] = {}

    @property
    def is_moving(self) -> bool:
        """Whether the messages of some entity were not tried yet, or are being accepted."""
        return any(not line.is_failing for line in self._lines.values())

    @property
    def is_crowded(self) -> bool:
        """Whether entities wait until the replays of others end."""
        return len(self._lines) > MAX_CONCURRENT

    def spooled(self, path: str, now: float) -> bool:
        """Record that a message of this entity was spooled; return whether the timer is earlier than before."""
        if path_key(path) in self._lines:
            return False
        self._lines[path_key(path)] = _Line(path, now + self._first_pause, earliest=now)
        return True

    def accepted(self, path: str, now: float) -> bool:
        """Record that a broker accepted messages of this entity; return whether it was failing before.

        If it was, the replays of all entities are due soon.
        """
        line = self._lines[path_key(path)]
        was_failing, line.is_failing = line.is_failing, False
        if was_failing:
            self.hurry(now)
        return was_failing

    def hurry(self, now: float, path: str | None = None) -> None:
        """Replay this entity soon, or all entities (None), because something recovered."""
        for key, line in self._lines.items():
            if path is None or key == path_key(path):
                line.due = min(line.due, max(now, line.earliest))
                line.is_hurried = line.is_under_way

    def next_timer(self) -> float | None:
        """When to call :meth:`due` next; None for never."""
        waiting = [line.due for line in self._lines.values() if not line.is_under_way]
        is_busy = len(self._lines) - len(waiting) >= MAX_CONCURRENT
        return None if is_busy else min(waiting, default=None)

    def due(self, now: float) -> list[str]:
        """Return the entities to replay now. Call :meth:`finished` for each when its replay ends."""
        under_way = sum(line.is_under_way for line in self._lines.values())
        ready = sorted(
            (line for line in self._lines.values() if line.due <= now and not line.is_under_way),
            key=lambda line: line.due,
        )
        chosen = ready[: max(MAX_CONCURRENT - under_way, 0)]
        for line in chosen:
            line.is_under_way = True
        return [line.path for line in chosen]

    def finished(self, path: str, now: float, *, is_empty: bool, was_accepted: bool) -> bool:
        """Record the end of a replay: whether no message is left, and whether the last one sent was accepted.

        If it was accepted, the remaining messages are tried at once. Returns whether the entity begins to fail.
        """
        line = self._lines[path_key(path)]
        begins_to_fail = not (was_accepted or is_empty or line.is_failing)
        line.is_under_way, line.is_failing = False, not was_accepted
        if is_empty:
            del self._lines[path_key(path)]
            return False
        pause = max(PAUSE, len(self._lines) / MAX_TRIES)
        line.earliest = now if was_accepted else now + PAUSE
        line.due = line.earliest if was_accepted or line.is_hurried else now + pause * self._jitter()
        line.is_hurried = False
        return begins_to_fail
