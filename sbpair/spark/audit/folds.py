"""What is kept of many rows while they are put together, level by level: sums of sums, least of leasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column

Folds = Mapping[str, tuple[Callable[[Column | str], Column], Column]]
"""For each column, how it is folded, and from what of a row."""


def first(folds: Folds) -> list[Column]:
    """The columns of the first level."""
    return [fold(what).alias(name) for name, (fold, what) in folds.items()]


def again(folds: Folds) -> list[Column]:
    """The columns of a level above."""
    return [fold(name).alias(name) for name, (fold, _) in folds.items()]
