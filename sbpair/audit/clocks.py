"""Differences between the clocks of the journals' writers, and conversions of times.

A syphon measures the difference between the secondary's clock and its own and records it (``clock_differs``); its
times are shifted accordingly. A message that was forwarded before it was parked, or received before it was forwarded,
shows that clocks still differ. If they differ by more than the audit's ``skew``, the audit is unproven.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = 1_000_000  # per second


@dataclass(frozen=True, slots=True)
class ClockCorrection:
    """A correction: ``shift`` seconds are added to the times of a writer."""

    writer: str
    shift: float

    @property
    def micros(self) -> int:
        return round(self.shift * MICROS)


def moment(micros: int) -> datetime:
    """The UTC time of ``micros`` since the epoch."""
    return EPOCH + timedelta(microseconds=micros)
