"""The criterion for growth: medians of samples, in the order in which they were taken.

    |  first third  |   middle third   |    last third    |
       warm-up        median: before     median: after        flat: after - before <= allowance

The first third is ignored: caches fill, links open. A median over a third that spans whole rounds of the
outage is not affected by the outage; continuous growth, however slow, raises the last median above the middle one.
Figures may fall by any amount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FEWEST = 9  # samples, for three in each third


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may come on top from the middle third to the last: the larger of ``least`` and ``share``."""

    least: float  # in the unit of the samples
    share: float = 0.0  # of the middle third's median

    def at(self, level: float) -> float:
        return max(self.least, self.share * level)


@dataclass(frozen=True, slots=True)
class Trend:
    """The medians of the middle and the last third, and how much more the last one may be."""

    before: float
    after: float
    allowed: float

    @property
    def growth(self) -> float:
        return self.after - self.before

    @property
    def is_flat(self) -> bool:
        return self.growth <= self.allowed


def trend(samples: Sequence[float], allowance: Allowance) -> Trend:
    """Judge the samples of one number. Raises ValueError for fewer than nine of them."""
    if len(samples) < FEWEST:
        raise ValueError(f"{len(samples)} samples say nothing of a trend: take at least {FEWEST}.")
    third = len(samples) // 3
    before, after = median(samples[-2 * third : -third]), median(samples[-third:])
    return Trend(before, after, allowance.at(before))
