"""Is the journal of each writer whole? Only then does its silence prove anything.

Whole: ordinals from 0 without a gap to a ``journal_closed`` that is the writer's last, nothing lost on the
way, and no line that cannot be read. What a writer did say is true in any case.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..schema import UNREAD, UNREADABLE
from .folds import Folds, again, first

REASONS: tuple[tuple[str, str], ...] = (
    ("unread > 0", "it was not read"),
    ("unreadable > 0", "lines that cannot be read"),
    ("first_ordinal > 0", "its beginning is missing"),
    ("missing > 0", "records are missing"),
    ("lost > 0", "events could not be written"),
    ("surplus > 0", "records are there twice: was a file copied?"),
    ("NOT has_end", "it has no closing record: killed, or still writing"),
)
"""Condition and what it says, in the order of their weight; a writer none holds for is whole."""

NOT_READ = REASONS[0][1]
HOLES = frozenset(reason for _, reason in REASONS[1:5])
"""Why a writer may have told of messages that nobody here has heard of."""


def writers(events: DataFrame) -> DataFrame:
    """One row a writer: ``writer, role, primary, first_at, last_at, records, missing, surplus, lost,
    unreadable, sends, has_end, is_whole, reason``; ``sends`` are its lines on accepted sends."""
    folds = _folds()
    constant = [F.max(name).alias(name) for name in ("role", "primary")]
    bits = F.bit_or("bits").alias("bits")
    # All that is folded of the lines is numbers, which needs no sort; distinct ordinals are counted as bits:
    # what is shuffled is a row for each 64 lines.
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
    """How each column of a writer is folded, and from what of its lines."""
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
