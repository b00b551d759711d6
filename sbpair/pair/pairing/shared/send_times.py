"""How long sends take, by where their messages were stored and by outcome."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

from ..outcome import Outcome, Refused, Stored

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets, in seconds; one more has no bound."""

ACCEPTED, RAISED = "accepted", "raised"
PRIMARY, SECONDARY, SPOOL = "primary", "secondary", "spool"


@dataclass(slots=True)
class Times:
    """The sends of one side and outcome: how many ended within each bound, and their seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one send."""
        # Each line is one read and one write without a call between them, where no other thread gets its turn.
        bucket = bisect_left(BOUNDS, seconds)
        self.counts[bucket] += 1
        self.total += seconds

    def cumulative_counts(self) -> list[int]:
        """The sends that ended within each bound, and last all of them."""
        return list(accumulate(self.counts))


class SendTimes:
    """The sends of one client. ``primary`` are those that the primary accepted."""

    bounds = BOUNDS

    def __init__(self) -> None:
        self.primary = Times()
        self._others: dict[tuple[str, str], Times] = {}

    def ended(self, outcome: Outcome, seconds: float) -> None:
        """Count a send that its flow ended."""
        key = _key(outcome)
        times = self.primary if key == (PRIMARY, ACCEPTED) else self._others.setdefault(key, Times())
        times.add(seconds)

    def by_side(self) -> dict[tuple[str, str], Times]:
        """The sends by side and outcome; those that did not occur are left out."""
        return {(PRIMARY, ACCEPTED): self.primary, **self._others}


def _key(outcome: Outcome) -> tuple[str, str]:
    if isinstance(outcome, Stored):
        if outcome.is_spooled:
            return SPOOL, ACCEPTED
        return PRIMARY if outcome.backlog is None else SECONDARY, ACCEPTED
    is_primary = isinstance(outcome, Refused) and not outcome.is_parked
    return PRIMARY if is_primary else SECONDARY, RAISED
