"""The times that messages waited in each backlog queue, as a digest whose size does not grow with their number."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..read.clocks import MICROS
from .grouping import Ints

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "longest": 1.0}
MAX_EXACT = 10_000  # distinct times; with more, times are rounded to five digits


@dataclass
class Waits:
    """Waiting times in microseconds, in order, and the number of messages with each."""

    times: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, times: Ints, counts: Ints | None = None) -> None:
        both = np.concatenate([self.times, times])
        weights = np.concatenate([self.counts, np.ones(len(times), np.int64) if counts is None else counts])
        self._sum(both, weights)
        if len(self.times) > MAX_EXACT:
            self._sum(_round(self.times), self.counts)

    def _sum(self, times: Ints, counts: Ints) -> None:
        self.times, index = np.unique(times, return_inverse=True)
        self.counts = np.bincount(index, weights=counts, minlength=len(self.times)).astype(np.int64)

    @property
    def messages(self) -> int:
        return int(self.counts.sum())

    def quantiles(self) -> dict[str, float]:
        """The quantiles of the waiting times in seconds."""
        ends = np.cumsum(self.counts)
        ranks = np.ceil(np.array(list(QUANTILES.values())) * ends[-1])
        found = self.times[np.searchsorted(ends, ranks)] / MICROS
        return dict(zip(QUANTILES, found.tolist(), strict=True))


def _round(times: Ints) -> Ints:
    """Return ``times`` rounded to five digits, except for the longest."""
    digits = np.floor(np.log10(np.maximum(times, 1)))
    unit = (10 ** np.maximum(digits - 4, 0)).astype(np.int64)
    found: Ints = (times + unit // 2) // unit * unit
    found[times == times.max()] = times.max()
    return found
