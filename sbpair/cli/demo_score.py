"""What is known of the demo at this moment, for those who look at it from another thread?"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

PRIMARY = "primary"


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of the timeline; ``at`` in seconds since the story began."""

    at: float
    text: str


@dataclass(slots=True)
class Score:
    """The numbers of one moment."""

    planned: int
    elapsed: float = 0.0
    state: str = "HEALTHY"
    primary_is_up: bool = True
    acknowledged: int = 0
    retried: int = 0  # send calls that raised and were repeated by the application
    retried_messages: frozenset[str] = frozenset()  # whose copies may have been stored twice (G-4)
    where: Counter[str] = field(default_factory=Counter)  # "primary" or the backlog's number -> messages
    depth: dict[str, int] = field(default_factory=dict)  # backlog's number -> messages in it
    deepest: dict[str, int] = field(default_factory=dict)
    emptied_at: float | None = None  # when the last of them was seen to leave
    brought_home: int = 0
    received: int = 0
    moments: tuple[Moment, ...] = ()

    @property
    def parked(self) -> int:
        return sum(count for place, count in self.where.items() if place != PRIMARY)


class Scoreboard:
    """Written by the threads of the story, read by the display; every access is whole."""

    def __init__(self, planned: int, on_moment: Callable[[Moment], None]) -> None:
        self._score = Score(planned)
        self._changed = threading.Condition()
        self._began = time.monotonic()
        self._on_moment = on_moment

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def update(self, change: Callable[[Score], None]) -> None:
        with self._changed:
            change(self._score)
            self._changed.notify_all()

    def note(self, text: str) -> None:
        """Add a line to the timeline."""
        moment = Moment(self.elapsed(), text)

        def change(score: Score) -> None:
            score.moments = (*score.moments, moment)

        self.update(change)
        self._on_moment(moment)

    def wait_for(self, holds: Callable[[Score], bool], timeout: float) -> bool:
        """True as soon as ``holds``; False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: holds(self._score), timeout)

    def read(self) -> Score:
        """A copy that nobody changes."""
        with self._changed:
            now = self._score
            return Score(
                now.planned, self.elapsed(), now.state, now.primary_is_up, now.acknowledged, now.retried,
                now.retried_messages, Counter(now.where), dict(now.depth), dict(now.deepest),
                now.emptied_at, now.brought_home, now.received, now.moments,
            )  # fmt: skip
