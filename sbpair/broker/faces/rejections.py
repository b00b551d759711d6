"""What was refused of late, and why: for people who look, bounded, and without a key or a body."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

KEPT = 200
LONGEST_TEXT = 300  # characters: paths and texts may come from a stranger
MOST_CONDITIONS = 100  # beyond, all others count as one


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refusal: ``at`` in milliseconds of entity time, what was asked for, the condition and its text."""

    at: int
    path: str
    condition: str
    text: str


class Rejections:
    """The last refusals of a namespace, and how many there were of each condition."""

    __slots__ = ("by_condition", "recent")

    def __init__(self) -> None:
        self.recent: deque[Rejection] = deque(maxlen=KEPT)
        self.by_condition: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Refusals since the namespace was opened."""
        return self.by_condition.total()

    def note(self, at: int, path: str, condition: str, text: str) -> None:
        """Count a refusal, and keep it in the place of the oldest."""
        cut = [each[:LONGEST_TEXT] for each in (path, condition, text)]
        is_new = cut[1] not in self.by_condition
        self.by_condition["other" if is_new and len(self.by_condition) >= MOST_CONDITIONS else cut[1]] += 1
        self.recent.append(Rejection(at, *cut))
