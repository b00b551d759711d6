"""Differences between the clocks of the journals' writers, and conversions of timestamps.

A syphon measures the difference between the secondary's clock and its own and records it (``clock_differs``); its
times are shifted accordingly. A message that was forwarded before it was parked shows that clocks still differ. If
they differ by more than the audit's ``skew``, the audit is unproven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

OBSERVED_SKEW = "(unix_micros(parked_at) - unix_micros(forwarded_at)) / 1e6"
"""The minimum clock difference in seconds that a message shows, by its first parking and last forwarding."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Clock:
    """A correction: ``shift`` seconds are added to the times of a writer."""

    writer: str
    shift: float


def clocks(events: DataFrame) -> list[Clock]:
    """The corrections of the writers that recorded a difference, each by its last record."""
    differences = events.where("event = 'clock_differs'").groupBy("writer")
    rows = differences.agg(F.max_by("ahead", "ordinal").alias("ahead")).orderBy("writer").collect()
    return [Clock(row.writer, row.ahead) for row in rows if row.ahead is not None]


def corrected(events: DataFrame, found: list[Clock]) -> DataFrame:
    """The events with the corrections ``found`` applied."""
    if not found:
        return events
    shifts: Mapping[str, int] = {each.writer: round(each.shift * 1e6) for each in found}
    table = F.create_map(*(F.lit(part) for pair in shifts.items() for part in pair))
    shift = F.coalesce(table[F.col("writer")], F.lit(0))
    return events.withColumn("at", F.timestamp_micros(F.unix_micros("at") + shift))


def micros(name: str) -> Column:
    """The timestamp column ``name`` in microseconds since the epoch."""
    return F.unix_micros(name).alias(name)


def moment(micros: int) -> datetime:
    """The UTC time of ``micros`` since the epoch."""
    return EPOCH + timedelta(microseconds=micros)
