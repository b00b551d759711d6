"""What goes on now? The audit's numbers as streaming queries over journals that are being written.

    events = spark.readStream.format("sbpair-journal").load(DIR)
    counters(events)     messages a minute, by entity: accepted, parked, brought home, ...
    unmatched(events)    an alarm for each message that was parked and has not come home in time

Spark's own aggregations, which hold state for a hundred thousand events a second; Python state for each
message id would be fifty times slower. Time is the journals' own, and it goes on only while somebody
writes: an alarm comes with the first record that is ``after`` and ``late`` past the message.
"""

from __future__ import annotations

from enum import Enum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .mentions import COUNTS, common

LATE = "5 minutes"  # by how much a record may be behind the newest one, and still count
IDS = "size(message_ids)"

# Column: which events count, and how much each.
COUNTERS: dict[str, tuple[str, str]] = {
    "accepted": (COUNTS["accepted_by_primary"], IDS),
    "parked": ("event = 'message_parked'", "`count`"),
    "spooled": ("event = 'message_spooled'", "`count`"),
    "raised": ("event = 'send_raised'", IDS),
    "forwarded": ("event = 'messages_forwarded'", IDS),
    "set_aside": ("event = 'message_set_aside'", "1"),
    "received": ("event = 'messages_received'", IDS),
    "failed_over": ("event = 'entity_failed_over'", "1"),
    "recovered": ("event = 'entity_recovered'", "1"),
}


class Until(Enum):
    """What a message is watched for."""

    HOME = "home"  # one that was parked: that a syphon forwards it or sets it aside
    RECEIVED = "received"  # one that a broker accepted: that a receiver's journal has it, or it is set aside


# Which messages are watched, and what ends it.
_WATCHED: dict[Until, tuple[str, str]] = {
    Until.HOME: ("event = 'message_parked'", "event IN ('messages_forwarded', 'message_set_aside')"),
    Until.RECEIVED: (
        "event IN ('send_accepted', 'message_parked')",
        "event IN ('messages_received', 'message_set_aside')",
    ),
}


def counters(events: DataFrame, *, every: str = "1 minute", late: str = LATE) -> DataFrame:
    """One row for each span of time, primary and entity in which something happened: :data:`COUNTERS`.

    For output mode ``update`` (numbers as they grow) or ``append`` (each row once, ``late`` after its span).
    """
    rows = events.where(F.col("path") != "").select(*common(), "count", "message_ids")
    grouped = rows.withWatermark("at", late).groupBy(F.window("at", every), "primary", "path_key")
    sums = grouped.agg(*(_sum(*how).alias(name) for name, how in COUNTERS.items()))
    return sums.select(
        F.col("window.start").alias("from"), "primary", F.col("path_key").alias("path"), *COUNTERS
    ).where(" + ".join(COUNTERS) + " > 0")


def unmatched(
    events: DataFrame, *, after: str = "15 minutes", late: str = LATE, until: Until = Until.HOME
) -> DataFrame:
    """One row for each message of which nothing more was told for ``after``, for output mode ``append``:
    ``primary, path, message_id, last_at``. A message that comes home later has been told all the same.
    """
    begins, ends = (F.expr(condition) for condition in _WATCHED[until])
    ids = F.coalesce("message_ids", F.array("message_id"))
    told = events.where(begins | ends).select(*common(), F.explode(ids).alias("message_id"))
    watched = told.withWatermark("at", late).groupBy(
        F.session_window("at", after).alias("told"), "primary", "path_key", "message_id"
    )
    found = watched.agg(
        F.max(begins).alias("is_begun"), F.max(ends).alias("is_ended"), F.max("at").alias("last_at")
    )
    return found.where("is_begun AND NOT is_ended").select(
        "primary", F.col("path_key").alias("path"), "message_id", "last_at"
    )


def _sum(condition: str, amount: str) -> Column:
    return F.coalesce(F.sum(F.when(F.expr(condition), F.expr(amount))), F.lit(0))
