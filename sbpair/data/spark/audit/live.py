"""The audit's counts as streaming queries over journals that are being written.

    events = spark.readStream.format("sbpair-journal").load(DIR)
    counters(events)     messages per minute and entity: accepted, parked, forwarded, ...
    unmatched(events)    an alarm for each parked message that was not forwarded in time

Both use Spark's built-in aggregations, which process a hundred thousand events per second; keyed state in Python
is fifty times slower. Event time is that of the journals and advances only with new records: an alarm is emitted
with the first record that is ``after`` plus ``late`` later than the message.
"""

from __future__ import annotations

from enum import Enum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sbpair.data.audit.read.mentions import COUNTS, IS_BACKLOG

LATE = "5 minutes"  # the watermark: how far a record may be behind the newest one and still count
IDS = "size(message_ids)"
# The part of a path after the entity: a subscription, a dead-letter queue, or both.
PLACE = r"(?i)(/subscriptions/[^/]+)?(/\$transfer)?(/\$deadletterqueue)?$"
OF_BACKLOG = r"^(.+)/x-servicebus-transfer/"

# Column: the events that count, and the amount of each.
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
    """The event that :func:`find_unmatched` waits for."""

    HOME = "home"  # after parking: the syphon forwards or dead-letters the message
    RECEIVED = (
        "received"  # after acceptance or parking: a receiver receives it, or the syphon dead-letters it
    )


# The events that begin and end the wait.
_WATCHED: dict[Until, tuple[str, str]] = {
    Until.HOME: ("event = 'message_parked'", "event IN ('messages_forwarded', 'message_set_aside')"),
    Until.RECEIVED: (
        "event IN ('send_accepted', 'message_parked')",
        "event IN ('messages_received', 'message_set_aside')",
    ),
}


def counters(events: DataFrame, *, every: str = "1 minute", late: str = LATE) -> DataFrame:
    """Count events by window, primary and entity: one row of :data:`COUNTERS` where any count is positive.

    ``every`` is the window and ``late`` the watermark, as Spark intervals. Use output mode ``update`` for running
    counts, ``append`` for each row once, ``late`` after the end of its window.
    """
    rows = events.where(F.col("path") != "").select(*_common(), "count", "message_ids")
    grouped = rows.withWatermark("at", late).groupBy(F.window("at", every), "primary", "path_key")
    sums = grouped.agg(*(_sum(*how).alias(name) for name, how in COUNTERS.items()))
    return sums.select(
        F.col("window.start").alias("from"), "primary", F.col("path_key").alias("path"), *COUNTERS
    ).where(" + ".join(COUNTERS) + " > 0")


def find_unmatched(
    events: DataFrame, *, after: str = "15 minutes", late: str = LATE, until: Until = Until.HOME
) -> DataFrame:
    """One row for each message without the awaited event within ``after``: ``primary, path, message_id, last_at``.

    Use output mode ``append``. The row is not retracted when the event occurs later.
    """
    begins, ends = (F.expr(condition) for condition in _WATCHED[until])
    ids = F.coalesce("message_ids", F.array("message_id"))
    relevant = events.where(begins | ends).select(*_common(), F.explode(ids).alias("message_id"))
    watched = relevant.withWatermark("at", late).groupBy(
        F.session_window("at", after).alias("wait"), "primary", "path_key", "message_id"
    )
    found = watched.agg(
        F.max(begins).alias("has_begun"), F.max(ends).alias("has_ended"), F.max("at").alias("last_at")
    )
    return found.where("has_begun AND NOT has_ended").select(
        "primary", F.col("path_key").alias("path"), "message_id", "last_at"
    )


def _common() -> tuple[Column | str, ...]:
    """The columns of an event that both queries need, with primary and entity normalised."""
    deep = F.col("path").contains("/")  # skips the regular expression for most paths
    path = F.when(deep, F.regexp_replace("path", PLACE, "")).otherwise(F.col("path"))
    primary = f"lower(IF({IS_BACKLOG}, regexp_extract(backlog_queue, '{OF_BACKLOG}', 1), pair.primary))"
    return (
        F.expr(primary).alias("primary"), F.lower(path).alias("path_key"), "event", "at", "stored_in", "backlog",
    )  # fmt: skip


def _sum(condition: str, amount: str) -> Column:
    return F.coalesce(F.sum(F.when(F.expr(condition), F.expr(amount))), F.lit(0))
