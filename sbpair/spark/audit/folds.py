"""Multi-level aggregations: sums of sums, minima of minima."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

Folds = Mapping[str, tuple[str, str]]
"""For each result column, the SQL aggregate function and the expression it is applied to."""


def first(folds: Folds) -> list[Column]:
    """The aggregations of the first level, over the expressions."""
    return [F.expr(f"{fold}({expression}) AS {name}") for name, (fold, expression) in folds.items()]


def again(folds: Folds) -> list[Column]:
    """The aggregations of a higher level, over the results of the level below."""
    return [F.expr(f"{fold}({name}) AS {name}") for name, (fold, _) in folds.items()]
