"""The completeness of each writer's journal: only a complete journal proves that something did not happen.

A journal is complete if its ordinals run from 0 without a gap to a final ``journal_closed``, no events were lost,
and all lines are readable. The records of an incomplete journal are still true.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..schema import UNREAD, UNREADABLE
from .folds import Folds, again, first

REASONS: tuple[tuple[str, str], ...] = (
    ("unread > 0", "it was not read"),
    ("unreadable > 0", "it has unreadable lines"),
    ("first_ordinal > 0", "its beginning is missing"),
    ("missing > 0", "records are missing"),
    ("lost > 0", "events could not be written"),
    ("surplus > 0", "records occur twice: was a file copied?"),
    ("NOT has_end", "it has no closing record: killed, or still writing"),
)
"""Conditions and reasons for incompleteness, the gravest first; a writer without any has a complete journal."""

NOT_READ = REASONS[0][1]
GAPS = frozenset(reason for _, reason in REASONS[1:5])
"""The reasons for which a journal may have recorded messages that the audit does not know."""


def writers(events: DataFrame) -> DataFrame:
    """One row per writer: ``writer, role, primary, first_at, last_at, records, missing, surplus, lost,
    unreadable, sends, has_end, is_whole, reason``. ``sends`` counts its ``send_accepted`` records."""
    folds = _folds()
    constant = [F.max(name).alias(name) for name in ("role", "primary")]
    bits = F.bit_or("bits").alias("bits")
    # Distinct ordinals are counted as bits, so that only one row per 64 lines is shuffled, and all aggregates are
    # numbers, which need no sort.
    in_parts = (
        events.withColumns({"primary": F.lower("pair.primary"), "part": F.shiftright("ordinal", 6)})
        .withColumn("bits", F.expr("shiftleft(1L, CAST(ordinal & 63 AS INT))"))
        .groupBy("writer", "part", "role", "primary")
        .agg(*first(folds), bits)
    )
    parts = in_parts.groupBy("writer", "part").agg(*constant, *again(folds), bits)
    records = F.coalesce(F.sum(F.bit_count("bits")), F.lit(0)).alias("records")
    counted = (
        parts.groupBy("writer").agg(*constant, *again(folds), records).fillna(0, ["closing_lost", "gap_lost"])
    )
    seen = (
        counted.withColumn("lost", F.greatest("closing_lost", "gap_lost"))
        .withColumn("missing", F.col("last_ordinal") - F.col("first_ordinal") + 1 - F.col("records"))
        .withColumn("surplus", F.col("lines") - F.col("records"))
    )
    reasons = " ".join(f"WHEN {condition} THEN '{reason}'" for condition, reason in REASONS)
    return seen.selectExpr(
        "writer", "role", "primary", "first_at", "last_at", "records", "missing", "surplus", "lost",
        "unreadable", "sends", "has_end", f"CASE {reasons} END AS reason", "reason IS NULL AS is_whole",
    )  # fmt: skip


def _folds() -> Folds:
    """The aggregations of the columns of a writer."""
    closes = "event = 'journal_closed'"
    return {
        "first_at": ("min", "at"),
        "last_at": ("max", "at"),
        "first_ordinal": ("min", "ordinal"),
        "last_ordinal": ("max", "ordinal"),
        "lines": ("sum", _one("ordinal IS NOT NULL")),
        "sends": ("sum", _one("event = 'send_accepted'")),
        "unread": ("sum", _one(f"event = '{UNREAD}'")),
        "unreadable": ("sum", _one(f"event = '{UNREADABLE}'")),
        "closing_lost": ("max", f"IF({closes}, lost, NULL)"),
        "gap_lost": ("sum", "IF(event = 'journal_gap', lost, NULL)"),
        "has_end": ("max", f"coalesce(IF({closes}, is_last, NULL), FALSE)"),
    }


def _one(condition: str) -> str:
    return f"IF({condition}, 1L, 0L)"
