"""Clocks of the journals' writers: differences that the journals prove, and the instants of a DataFrame.

A syphon measures the difference between the secondary's clock and its own and records it (``clock_differs``): its
times are shifted to the secondary's clock. A message that left its backlog before it was parked proves that two
clocks still differ; when by more than the audit's ``skew``, its times prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SHOWN = "(unix_micros(parked_at) - unix_micros(forwarded_at)) / 1e6"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


"""Seconds by which a message shows that two clocks differ, from its first parking and its last leaving."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The times of a writer are taken as ``shift`` seconds later than it wrote them."""

    writer: str
    shift: float


def clocks(events: DataFrame) -> list[Clock]:
    """The writers that found their clock to differ; what one said last."""
    said = events.where("event = 'clock_differs'").groupBy("writer")
    rows = said.agg(F.max_by("ahead", "ordinal").alias("ahead")).orderBy("writer").collect()
    return [Clock(row.writer, row.ahead) for row in rows if row.ahead is not None]


def on_one_clock(events: DataFrame, found: list[Clock]) -> DataFrame:
    """The events, with the times of these writers shifted; the same ones where there are none."""
    if not found:
        return events
    shifts: Mapping[str, int] = {each.writer: round(each.shift * 1e6) for each in found}
    table = F.create_map(*(F.lit(part) for pair in shifts.items() for part in pair))
    shift = F.coalesce(table[F.col("writer")], F.lit(0))
    return events.withColumn("at", F.timestamp_micros(F.unix_micros("at") + shift))


def micros(name: str) -> Column:
    """The column ``name``, of timestamps, as microseconds since 1970."""
    return F.unix_micros(name).alias(name)


def moment(micros: int) -> datetime:
    """That instant, in UTC."""
    return EPOCH + timedelta(microseconds=micros)
