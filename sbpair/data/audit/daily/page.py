"""The page over days: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from sbpair.pair.ground.html_parts import Row, section, table

from ..judge.verdict import Verdict
from ..result.figures import FAILED_OVER, FORWARDED, PARKED, WIDTH, plain, svg
from ..result.report import Provenance, document, sections
from ..result.summary import Summary
from .days import DayRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABELS = 8  # days named below the bars
MAX_DAYS = 400  # rows of the table, the last ones
HEADS = ("day", "messages", "lost", "unexpected or unproven", "copies", "forwarded", "wait p50", "p99", "longest",
         "failovers", "time to failover", "longest pause")  # fmt: skip


def page(summary: Summary, days: Sequence[DayRow], origin: Provenance) -> str:
    """The page: the result, a row and bars for each day, and the sections of the report on all of them."""
    return document(
        summary, origin, [section("Days", days_figure(days) + _table(days)), *sections(summary, origin)]
    )


def _table(days: Sequence[DayRow]) -> str:
    rows: list[Row] = []
    for each in reversed(days[-MAX_DAYS:]):
        lost = each.verdicts.get(Verdict.LOST, 0)
        cells = (
            each.day.isoformat(), each.messages, lost, each.bad - lost, each.duplicated, each.waits.messages,
            *(_seconds(each.wait(name)) for name in ("p50", "p99", "longest")), each.failovers,
            _seconds(each.time_to_failover), _seconds(each.longest_pause),
        )  # fmt: skip
        rows.append((cells, bool(each.bad or each.unexplained)))
    note = "<p><small>By the day (UTC) on which a message is first mentioned; waits and pauses in seconds.</small></p>"
    return note + table(HEADS, rows) if rows else ""


def _seconds(value: float | None) -> object:
    return "" if value is None else round(value, 1)


def days_figure(days: Sequence[DayRow]) -> str:
    """Messages that are not accounted for, waits, and failovers by day; "" without days."""
    if not days:
        return ""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    above, middle, below = figure.subplots(3, 1, sharex=True)
    first = days[0].day
    places = [(each.day - first).days for each in days]
    _bars(above, places, [float(each.bad) for each in days], FAILED_OVER, "not accounted for")
    _bars(middle, places, [each.wait("p99") or 0.0 for each in days], PARKED, "wait p99 (s)")
    _bars(below, places, [each.longest_pause or 0.0 for each in days], FORWARDED, "longest pause (s)")
    labelled = range(0, places[-1] + 1, places[-1] // MAX_LABELS + 1)
    below.set_xticks(labelled, [(first + timedelta(days=each)).isoformat() for each in labelled])
    return svg(figure)


def _bars(axes: Axes, places: Sequence[int], heights: Sequence[float], colour: str, label: str) -> None:
    axes.bar(places, heights, 0.8, color=colour)
    axes.set_ylabel(label, fontsize=8)
    axes.set_ylim(bottom=0)
    plain(axes)
