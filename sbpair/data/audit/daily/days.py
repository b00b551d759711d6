"""The table ``days``: one row for each day on which messages were sent, or an entity failed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

from ..judge.folding import Found
from ..judge.verdict import SOUND, Verdict
from ..judge.waits import Waits
from ..read.clocks import EPOCH
from ..result.interface import COLUMN_OF, schema_of
from ..result.timeline import Episode


@dataclass(frozen=True, slots=True)
class DayRow:
    """One day: its messages by verdict, waits in backlog queues, and failovers. Times are in seconds.

    ``time_to_failover`` is the longest time from the first failure to a failover, ``longest_pause`` the longest time
    for which an entity stayed failed over; None without any.
    """

    day: date
    verdicts: Mapping[Verdict, int]
    duplicated: int
    unexplained: int
    waits: Waits
    failovers: int
    time_to_failover: float | None
    longest_pause: float | None

    @property
    def messages(self) -> int:
        return sum(self.verdicts.values())

    @property
    def bad(self) -> int:
        """The number of messages that are lost, unexpected or unproven."""
        return sum(count for verdict, count in self.verdicts.items() if verdict not in SOUND)

    def wait(self, name: str) -> float | None:
        """The quantile ``name`` of the waits; None if no message was forwarded."""
        return self.waits.quantiles()[name] if self.waits.messages else None

    def as_row(self) -> dict[str, Any]:
        return {
            "day": self.day, "messages": self.messages,
            **{COLUMN_OF[verdict]: self.verdicts.get(verdict, 0) for verdict in Verdict},
            "duplicated": self.duplicated, "unexplained": self.unexplained, "forwarded": self.waits.messages,
            **{f"wait_{name}": self.wait(name) for name in ("p50", "p95", "p99", "longest")},
            "failovers": self.failovers, "time_to_failover": self.time_to_failover,
            "longest_pause": self.longest_pause,
        }  # fmt: skip


def day_of(number: int) -> date:
    """The date of a day since the epoch."""
    return EPOCH.date() + timedelta(days=number)


def day_rows(found: Mapping[int, Found], episodes: Sequence[Episode]) -> list[DayRow]:
    """Return the rows by day; ``found`` are the findings of each day since the epoch."""
    failed: dict[date, list[Episode]] = {}
    for each in episodes:
        if each.failed_over_at is not None:
            failed.setdefault(each.failed_over_at.date(), []).append(each)
    by_date = {day_of(number): each for number, each in found.items()}
    return [_row(day, by_date.get(day, Found()), failed.get(day, [])) for day in sorted({*by_date, *failed})]


def _row(day: date, found: Found, failed: Sequence[Episode]) -> DayRow:
    verdicts: Counter[Verdict] = Counter()
    waits = Waits()
    for entity in found.entities.values():
        verdicts.update(entity.verdicts)
    for each in found.waits.values():
        waits.add(each.times, each.counts)
    before = [_seconds(each.suspected_at, each.failed_over_at) for each in failed]
    paused = [_seconds(each.failed_over_at, each.recovered_at) for each in failed]
    return DayRow(
        day, verdicts, found.duplicated, found.unexplained, waits, len(failed),
        max((each for each in before if each is not None), default=None),
        max((each for each in paused if each is not None), default=None),
    )  # fmt: skip


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def days_table(rows: Sequence[DayRow]) -> pa.Table:
    return pa.Table.from_pylist([each.as_row() for each in rows], schema=schema_of("days").remove_metadata())
