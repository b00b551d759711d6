"""The flow of messages over time: sent to the primary, parked, and forwarded, by time steps.

Journals are counted in fine steps while they are read, since the width of the report's steps depends on the whole
period. Fine steps become wider when there are many, so that memory does not grow with the period.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from ..judge.grouping import Ints
from ..read.clocks import MICROS, moment
from ..read.writers import greatest, smallest

MAX_BUCKETS = 120  # steps on the time axis
MIN_STEP_SECONDS = 0.1  # seconds
FINE = round(MIN_STEP_SECONDS * MICROS)
MAX_FINE_STEPS = 2**17  # fine steps with messages; more than three hours before they become wider


@dataclass(frozen=True, slots=True)
class FlowStep:
    """Messages in one time step from ``at``: sent to the primary, parked, and forwarded."""

    at: datetime
    direct: int
    parked: int
    forwarded: int


@dataclass
class FlowFacts:
    """The messages of one writer by fine steps of ``width`` microseconds."""

    width: int = FINE
    first: int | None = None
    last: int | None = None
    steps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))

    @classmethod
    def of(cls, at: Ints, counts: Ints) -> FlowFacts:
        """``counts`` has a row for each time: direct, parked, forwarded."""
        some = counts.sum(axis=1) > 0
        at, counts = at[some], counts[some]
        if not len(at):
            return cls()
        found = cls(FINE, int(at.min()), int(at.max()))
        found.steps, found.counts = _sum_by_step(at // FINE, counts)
        return found

    def add(self, other: FlowFacts) -> None:
        self.first = smallest((self.first, other.first))
        self.last = greatest((self.last, other.last))
        self._widen(other.width)
        ratio = self.width // other.width
        steps = np.concatenate([self.steps, other.steps // ratio])
        self.steps, self.counts = _sum_by_step(steps, np.concatenate([self.counts, other.counts]))
        while len(self.steps) > MAX_FINE_STEPS:
            self._widen(self.width * 2)

    def _widen(self, width: int) -> None:
        if width > self.width:
            self.steps, self.counts = _sum_by_step(self.steps // (width // self.width), self.counts)
            self.width = width


def _sum_by_step(steps: Ints, counts: Ints) -> tuple[Ints, Ints]:
    distinct, index = np.unique(steps, return_inverse=True)
    sums = np.zeros((len(distinct), 3), np.int64)
    np.add.at(sums, index, counts)
    return distinct, sums


def flow(found: Iterable[tuple[FlowFacts, int]]) -> tuple[list[FlowStep], float]:
    """The time steps from the first message to the last, and their width in seconds.

    ``found`` are the facts of each writer with the correction of its times in microseconds.
    """
    shifted = [(facts, shift) for facts, shift in found if facts.first is not None]
    first = smallest(facts.first + shift for facts, shift in shifted if facts.first is not None)
    last = greatest(facts.last + shift for facts, shift in shifted if facts.last is not None)
    if first is None or last is None:
        return [], MIN_STEP_SECONDS
    step = max(MIN_STEP_SECONDS, round((last - first) / MICROS / MAX_BUCKETS, 1))
    width = round(step * MICROS)
    buckets = np.concatenate([(facts.steps * facts.width + shift) // width for facts, shift in shifted])
    start = min(int(buckets.min()), first // width)
    sums = np.zeros((int(buckets.max()) - start + 1, 3), np.int64)
    np.add.at(sums, buckets - start, np.concatenate([facts.counts for facts, _ in shifted]))
    return _steps(sums, start, width), step


def _steps(sums: Ints, start: int, width: int) -> list[FlowStep]:
    rows: Sequence[Sequence[int]] = sums.tolist()
    return [FlowStep(moment((start + index) * width), *row) for index, row in enumerate(rows)]
