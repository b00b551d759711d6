"""What was told of each message? One row for each, from one pass over the events.

A message is its id, at an entity (whatever its case), of a primary: two entities may well use the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KEY = ("primary", "path_key", "message_id")
EXPIRED = "TTLExpiredException"  # the reason of a dead-lettered message whose deadline had passed (T-10)
MANY = ("send_accepted", "message_parked", "message_spooled", "spool_replayed", "send_raised",
        "messages_forwarded", "messages_received")  # fmt: skip
SINGLE = ("message_set_aside", "spooled_message_refused")
NO_NUMBER = 0  # what a receiver's record has where a message has no sequence number

# What each count of a message's row counts.
COUNTS: Mapping[str, str] = {
    "accepted_by_primary": "(event = 'send_accepted' AND rests = 'primary')"
    " OR (event = 'spool_replayed' AND backlog IS NULL)",
    "told_backlog": "event = 'send_accepted' AND rests = 'backlog'",
    "told_parked": "event = 'message_parked'",
    "told_spool": "event = 'send_accepted' AND rests = 'spool'",
    "told_spooled": "event = 'message_spooled'",
    "left_spool": "event = 'spool_replayed'",
    "refused_in_spool": "event = 'spooled_message_refused'",
    "raised": "event = 'send_raised'",
    "raised_ambiguously": "event = 'send_raised' AND ambiguous",
    "accepted_ambiguously": "event IN ('message_parked', 'message_spooled') AND ambiguous",
    "accepted_by_primary_ambiguously": "event = 'send_accepted' AND rests = 'primary' AND ambiguous",
    "forwarded": "event = 'messages_forwarded'",
    "set_aside": f"event = 'message_set_aside' AND reason <> '{EXPIRED}'",
    "expired": f"event = 'message_set_aside' AND reason = '{EXPIRED}'",
    "received": "event = 'messages_received'",
}
AMBIGUITIES = ("raised_ambiguously", "accepted_ambiguously", "accepted_by_primary_ambiguously")
SENT = "event IN ('send_accepted', 'message_parked', 'message_spooled')"


def mentions(events: DataFrame) -> DataFrame:
    """One row for each message that an event tells of, in the order in which the event names them."""
    many = events.where(F.col("event").isin(*MANY)).select(
        *_common(),
        F.posexplode("message_ids").alias("position", "message_id"),
        "session_ids",
        "sequence_numbers",
    )
    single = events.where(F.col("event").isin(*SINGLE)).select(
        *_common(),
        F.lit(0).alias("position"),
        "message_id",
        F.lit(None).cast("array<string>").alias("session_ids"),
        F.lit(None).cast("array<bigint>").alias("sequence_numbers"),
    )
    number = F.get("sequence_numbers", F.col("position"))
    rows = many.unionByName(single).where(F.col("message_id") != "")
    return _with_path(
        rows.select(
            *(column for column in rows.columns if column not in ("session_ids", "sequence_numbers")),
            F.get("session_ids", F.col("position")).alias("session_id"),
            F.when(number != NO_NUMBER, number).alias("sequence_number"),
        )
    )


def _common() -> tuple[Column | str, ...]:
    return (
        F.col("pair.primary").alias("primary"), "path", F.lower("path").alias("path_key"),
        "event", "writer", "ordinal", "at", "rests", "backlog", "ambiguous", "reason",
    )  # fmt: skip


def _with_path(rows: DataFrame) -> DataFrame:
    """A message set aside without a usable path is the one of that id that was parked."""
    pathless = rows.where("path_key IS NULL").drop("path", "path_key")
    parked = rows.where("event = 'message_parked'").select(*KEY, "path").distinct()
    found = pathless.join(F.broadcast(parked), ["primary", "message_id"])
    return rows.where("path_key IS NOT NULL").unionByName(found)


def messages(events: DataFrame) -> DataFrame:
    """One row a message: the counts above, the ``copies`` that arrived, its times, and its place in order."""
    is_sent = F.expr(SENT)
    is_home = f"({COUNTS['accepted_by_primary']}) OR event = 'messages_forwarded'"
    counted = (
        mentions(events)
        .groupBy(*KEY)
        .agg(
            F.first("path").alias("path"),
            *(_count(F.expr(what)).alias(name) for name, what in COUNTS.items()),
            F.size(F.collect_set("sequence_number")).alias("numbers"),
            F.min("sequence_number").alias("sequence_number"),
            F.max("session_id").alias("session_id"),
            F.max("backlog").alias("backlog"),
            F.min(_at(is_sent)).alias("sent_at"),
            F.min(_at(F.expr("event = 'message_parked'"))).alias("parked_at"),
            F.max(_at(F.expr(is_home))).alias("home_at"),
            F.max(_at(F.expr("event = 'messages_forwarded'"))).alias("forwarded_at"),
            F.min(_at(F.expr("event = 'messages_received'"))).alias("received_at"),
            F.min(F.when(is_sent, F.struct("writer", "ordinal", "position"))).alias("sent_in"),
        )
    )
    return counted.select(
        "*",
        F.greatest("told_parked", "told_backlog").alias("parked"),
        F.greatest("told_spooled", "told_spool").alias("spooled"),
        F.when(F.col("numbers") > 0, F.col("numbers")).otherwise(F.col("received")).alias("copies"),
        F.expr(" + ".join(AMBIGUITIES)).alias("ambiguities"),
    ).drop("told_parked", "told_backlog", "told_spooled", "told_spool", "numbers")


def _count(condition: Column) -> Column:
    return F.coalesce(F.sum(condition.cast("long")), F.lit(0))


def _at(condition: Column) -> Column:
    return F.when(condition, F.col("at"))
