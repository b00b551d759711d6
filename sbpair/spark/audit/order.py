"""Did the messages of a session reach the primary in the order in which one sender gave them?

By the broker's own numbers, never by time: clocks tie and differ. Only messages that a receiver's journal
shows have a number. One that two senders gave stands in two orders, and is not judged.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

SESSION = ("primary", "path_key", "session_id", "sender")


def order(messages: DataFrame) -> DataFrame:
    """One row for each session of each sender: ``messages, inversions, parked, is_kept``.

    An inversion is a message whose number is below that of one which its sender gave before it.
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
