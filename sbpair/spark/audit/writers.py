"""Is the journal of each writer whole? Only then does its silence prove anything.

Whole: ordinals from 0 without a gap to a ``journal_closed`` that is the writer's last, nothing lost on the
way, and no line that cannot be read. What a writer did say is true in any case.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..schema import UNREADABLE

REASONS: tuple[tuple[str, str], ...] = (
    ("unreadable > 0", "lines that cannot be read"),
    ("first_ordinal > 0", "its beginning is missing"),
    ("missing > 0", "records are missing"),
    ("surplus > 0", "records are there twice: was a file copied?"),
    ("lost > 0", "events could not be written"),
    ("NOT has_end", "it has no closing record: killed, or still writing"),
)
"""Condition and what it says, in the order of their weight; a writer none holds for is whole."""


def writers(events: DataFrame) -> DataFrame:
    """One row a writer: ``writer, role, primary, first_at, last_at, records, missing, surplus, lost,
    unreadable, sends, has_end, is_whole, reason``; ``sends`` are its lines on accepted sends."""
    of_file = F.regexp_extract("journal_file", r"^[a-z]+-(.+)-\d+\.jsonl$", 1)
    told = events.withColumn("writer", F.coalesce("writer", of_file))
    is_bad = F.col("event") == UNREADABLE
    closes = F.col("event") == "journal_closed"
    # Distinct ordinals are counted as bits: what is shuffled is 4 KB for 32,768 of them, not each by itself.
    in_parts = told.groupBy("writer", F.bitmap_bucket_number("ordinal").alias("bucket")).agg(
        F.max("role").alias("role"),
        F.max(F.lower("pair.primary")).alias("primary"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
        F.min("ordinal").alias("first_ordinal"),
        F.max("ordinal").alias("last_ordinal"),
        F.bitmap_construct_agg(F.bitmap_bit_position("ordinal")).alias("bits"),
        F.count("ordinal").alias("lines"),
        _count(F.col("event") == "send_accepted").alias("sends"),
        _count(is_bad).alias("unreadable"),
        F.max(F.when(closes, F.col("lost"))).alias("closing_lost"),
        F.sum(F.when(F.col("event") == "journal_gap", F.col("lost"))).alias("gap_lost"),
        F.max(F.when(closes, F.col("is_last"))).alias("has_end"),
    )
    counted = in_parts.groupBy("writer").agg(
        *(F.max(name).alias(name) for name in ("role", "primary", "last_at", "last_ordinal")),
        *(F.min(name).alias(name) for name in ("first_at", "first_ordinal")),
        *(F.sum(name).alias(name) for name in ("lines", "sends", "unreadable")),
        F.coalesce(F.sum(F.bitmap_count("bits")), F.lit(0)).alias("records"),
        F.coalesce(F.max("closing_lost"), F.lit(0)).alias("closing_lost"),
        F.coalesce(F.sum("gap_lost"), F.lit(0)).alias("gap_lost"),
        F.coalesce(F.max("has_end"), F.lit(False)).alias("has_end"),
    )
    seen = (
        counted.withColumn("lost", F.greatest("closing_lost", "gap_lost"))
        .withColumn("missing", F.col("last_ordinal") - F.col("first_ordinal") + 1 - F.col("records"))
        .withColumn("surplus", F.col("lines") - F.col("records"))
    )
    reason = F.coalesce(*(F.when(F.expr(condition), F.lit(text)) for condition, text in REASONS))
    return seen.select(
        "writer", "role", "primary", "first_at", "last_at", "records", "missing", "surplus", "lost",
        "unreadable", "sends", "has_end",
        reason.isNull().alias("is_whole"),
        reason.alias("reason"),
    )  # fmt: skip


def _count(condition: Column) -> Column:
    return F.coalesce(F.sum(condition.cast("long")), F.lit(0))
