"""The sequence numbers, queues and enqueued times to which the filters of a query restrict the messages. No I/O.

Spark applies all filters to the rows again, so a bound may be too wide, but must never be too narrow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from .ranges import LAST, Span

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

OFFERING = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that is loaded where Spark offers filters. Elsewhere it refuses a reader that takes them."""
MARGIN = 60_000  # milliseconds by which the enqueued times of two messages may be in another order than their numbers


def are_offered() -> bool:
    """Whether Spark offers filters here: from 4.1, with ``spark.sql.python.filterPushdown.enabled``."""
    return OFFERING in sys.modules


@dataclass(frozen=True, slots=True)
class Bounds:
    """The messages that a query can match: numbers and enqueued times (ms), both inclusive; None for any queue."""

    first: int = 0
    last: int = LAST
    since: int = 0
    until: int | None = None
    queues: frozenset[str] | None = None

    def paths(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """The ``paths`` that may have matching messages."""
        return tuple(path for path in paths if self.queues is None or path in self.queues)

    def clip(self, spans: Iterable[Span]) -> list[Span]:
        """The spans within these numbers."""
        cut = [
            replace(each, first=max(each.first, self.first), last=min(each.last, self.last)) for each in spans
        ]
        return [each for each in cut if each.first <= each.last]


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """The bounds that satisfy all of ``filters``."""
    found = Bounds()
    for each in filters:
        values: object = getattr(each, "value", None)
        several = values if isinstance(values, tuple) else (values,)
        if several and None not in several:
            found = _within(found, ".".join(getattr(each, "attribute", ())), type(each).__name__, several)
    return found


def _within(bounds: Bounds, column: str, how: str, values: tuple[object, ...]) -> Bounds:
    is_equal = how in ("EqualTo", "EqualNullSafe", "In")
    is_from, is_to = how.startswith("GreaterThan") or is_equal, how.startswith("LessThan") or is_equal
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    times = [round(value.timestamp() * 1000) for value in values if isinstance(value, datetime)]
    if column == "queue" and is_equal:
        wanted = frozenset(map(str, values))
        return replace(bounds, queues=wanted if bounds.queues is None else bounds.queues & wanted)
    if column == "sequence_number" and len(numbers) == len(values):
        return replace(
            bounds,
            first=max(bounds.first, min(numbers)) if is_from else bounds.first,
            last=min(bounds.last, max(numbers)) if is_to else bounds.last,
        )
    if column == "enqueued_time" and len(times) == len(values):
        until = max(times) + MARGIN
        return replace(
            bounds,
            since=max(bounds.since, min(times) - MARGIN) if is_from else bounds.since,
            until=(until if bounds.until is None else min(bounds.until, until)) if is_to else bounds.until,
        )
    return bounds
