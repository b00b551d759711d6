"""Have parked messages waited too long?

The ages are measured by the caller, who may look into the backlog queues; this says when one has crossed a
threshold: once, until the age is below it again. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class BacklogAged:
    """The oldest message of a backlog queue is ``age`` seconds old, more than ``threshold`` seconds."""

    backlog: str
    age: float
    threshold: float


class BacklogAges:
    """Thresholds, and which of them each backlog queue has crossed."""

    def __init__(self, *thresholds: timedelta) -> None:
        if not thresholds or min(thresholds) <= timedelta(0):
            raise ValueError("thresholds must be one or more spans above zero")
        self._thresholds = sorted(threshold.total_seconds() for threshold in thresholds)
        self._crossed: dict[str, float] = {}  # the highest, by backlog

    def measured(self, backlog: str, age: timedelta | None) -> BacklogAged | None:
        """The event of crossing a threshold, if this age does so. None for ``age``: the queue is empty."""
        seconds = 0.0 if age is None else age.total_seconds()
        highest = max((t for t in self._thresholds if seconds > t), default=0.0)
        before = self._crossed.get(backlog, 0.0)
        self._crossed[backlog] = highest
        return BacklogAged(backlog, seconds, highest) if highest > before else None
