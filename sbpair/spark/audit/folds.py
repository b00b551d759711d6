"""Aggregations in levels: sums of sums, minima of minima, for columns that are folded more than once."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

Folds = Mapping[str, tuple[str, str]]
"""For each column, the SQL function that folds it, and from what of a row."""


def first(folds: Folds) -> list[Column]:
    """The columns of the first level."""
    return [F.expr(f"{fold}({what}) AS {name}") for name, (fold, what) in folds.items()]


def again(folds: Folds) -> list[Column]:
    """The columns of a level above."""
    return [F.expr(f"{fold}({name}) AS {name}") for name, (fold, _) in folds.items()]
