"""Details of deliveries: duplicates, the order of sessions, and waiting times in backlogs.

Every copy of a message but the first needs an explanation (G-4): a send whose acknowledgement was lost, an
application that sent again, or a message that the syphon forwarded twice because its lock was lost in between.

Order is judged by the broker's sequence numbers, not by time, since clocks differ and timestamps can be equal. Only
messages in the journal of a receiver or a broker have a number. A message sent by two senders belongs to two orders
and is not judged.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

SESSION = ("primary", "path_key", "session_id", "sender")
QUANTILES = (0.5, 0.95, 0.99, 1.0)


def duplicates(messages: DataFrame) -> DataFrame:
    """The messages with two or more copies: ``copies``, ``explained`` (extra copies at most), ``is_explained``."""
    sent_again = F.greatest(F.expr("accepted_by_primary + parked + spooled - left_spool") - 1, F.lit(0))
    forwarded_again = F.greatest(F.expr("forwarded - parked"), F.lit(0))
    found = messages.where("copies > 1").withColumn(
        "explained", F.col("ambiguities") + sent_again + forwarded_again
    )
    return found.select(
        "primary", "path", "message_id", "copies", "ambiguities", "parked", "forwarded", "explained",
        (F.col("copies") - 1 <= F.col("explained")).alias("is_explained"),
    )  # fmt: skip


def order(messages: DataFrame) -> DataFrame:
    """One row per session and sender: ``messages, inversions, parked, is_kept``.

    An inversion is a message whose number is lower than that of a message sent before it.
    """
    placed = (
        messages.where("session_id <> '' AND sequence_number IS NOT NULL AND sent_in IS NOT NULL")
        .withColumn("sender", F.col("sent_in.writer"))
    )  # fmt: skip
    before = (
        Window.partitionBy(*SESSION)
        .orderBy("sent_in.ordinal", "sent_in.position")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    compared = placed.withColumn(
        "is_inverted",
        F.coalesce(F.col("sequence_number") < F.max("sequence_number").over(before), F.lit(False)),
    )
    counted = compared.groupBy(*SESSION).agg(
        F.count("*").alias("messages"),
        F.sum(F.col("is_inverted").cast("long")).alias("inversions"),
        F.sum((F.col("parked") > 0).cast("long")).alias("parked"),
    )
    return counted.withColumn("is_kept", F.col("inversions") == 0)


def waits(messages: DataFrame) -> DataFrame:
    """One row per primary and backlog queue: ``messages``, and ``p50, p95, p99, longest`` in seconds."""
    waited = messages.where("forwarded > 0 AND parked_at IS NOT NULL").withColumn(
        "seconds", F.expr("GREATEST(0D, timestampdiff(MICROSECOND, parked_at, forwarded_at) / 1e6D)")
    )
    percentiles = F.percentile_approx("seconds", list(QUANTILES), 10_000)
    return waited.groupBy("primary", "backlog").agg(
        F.count("*").alias("messages"),
        *(percentiles[n].alias(name) for n, name in enumerate(("p50", "p95", "p99", "longest"))),
    )
