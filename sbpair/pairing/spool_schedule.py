"""When is a spool replayed, entity by entity?

    nothing <--everything accepted-- under way --not accepted--> later (1 s, 2 s, 4 s ... 30 s)
       '-- a message was spooled --> later --its time has come, or something healed--> under way

Nothing here reads a clock or sends. Instants are seconds of a monotonic clock. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .names import path_key

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds between two tries
MOST_AT_ONCE = 4  # entities that are replayed side by side


@dataclass(slots=True)
class _Line:
    """The messages of one entity, waiting."""

    path: str
    due: float
    earliest: float  # whatever heals meanwhile: no hot loop
    failures: int = 0
    is_under_way: bool = False
    is_hurried: bool = False


class ReplaySchedule:
    """Which entities have something waiting in the spool, and when to try them.

    ``jitter`` scales a pause, so that many clients do not come back in one instant.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._lines: dict[str, _Line] = {}

    def spooled(self, path: str, now: float) -> None:
        """A message of this entity waits in the spool from now on."""
        if path_key(path) not in self._lines:
            self._lines[path_key(path)] = _Line(path, now + FIRST_PAUSE, earliest=now)

    def hurry(self, now: float, path: str | None = None) -> None:
        """Something healed, the entity or (None) what concerns all of them: try soon."""
        for key, line in self._lines.items():
            if path is None or key == path_key(path):
                line.due = min(line.due, max(now, line.earliest))
                line.is_hurried = line.is_under_way

    def next_timer(self) -> float | None:
        """When :meth:`due` is to be asked; None for never."""
        waiting = [line.due for line in self._lines.values() if not line.is_under_way]
        is_busy = len(self._lines) - len(waiting) >= MOST_AT_ONCE
        return None if is_busy else min(waiting, default=None)

    def due(self, now: float) -> list[str]:
        """The entities to replay now; each ends in :meth:`finished`."""
        under_way = sum(line.is_under_way for line in self._lines.values())
        ready = sorted(
            (line for line in self._lines.values() if line.due <= now and not line.is_under_way),
            key=lambda line: line.due,
        )
        chosen = ready[: max(MOST_AT_ONCE - under_way, 0)]
        for line in chosen:
            line.is_under_way = True
        return [line.path for line in chosen]

    def finished(self, path: str, now: float, *, is_empty: bool, has_moved: bool) -> None:
        """A replay ended: nothing is left, or something was not accepted."""
        line = self._lines[path_key(path)]
        line.is_under_way = False
        if is_empty:
            del self._lines[path_key(path)]
            return
        line.failures = 0 if has_moved else line.failures + 1
        pause = min(FIRST_PAUSE * 2.0 ** min(line.failures, 10), LONGEST_PAUSE)
        line.earliest = now + FIRST_PAUSE
        line.due = line.earliest if line.is_hurried else now + pause * self._jitter()
        line.is_hurried = False
