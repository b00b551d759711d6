"""The scoreboard of the demo: its current numbers, and how they are drawn.

Threads of the story update the scoreboard; the display reads copies. On a terminal the score is a live display,
elsewhere the timeline is printed line by line.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from sbpair.broker.testing.ledger import LedgerReport

PRIMARY = "primary"
BAR = 36  # cells of a full bar
REFRESH = 8  # pictures a second
LAST_ENTRIES = 12
COLOURS = {"HEALTHY": "green", "SUSPECT": "yellow", "FAILED_OVER": "red"}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of the timeline; ``at`` in seconds since the story began."""

    at: float
    text: str


@dataclass(slots=True)
class Score:
    """The numbers of the demo at one point in time."""

    planned: int
    elapsed: float = 0.0
    state: str = "HEALTHY"
    primary_is_up: bool = True
    acknowledged: int = 0
    retried: int = 0  # send calls that raised and were repeated by the application
    in_doubt: frozenset[str] = (
        frozenset()
    )  # ids that may be stored twice: sent again, or an ambiguous receipt
    where: Counter[str] = field(default_factory=Counter)  # "primary" or the backlog's number -> messages
    depth: dict[str, int] = field(default_factory=dict)  # backlog's number -> messages in it
    deepest: dict[str, int] = field(default_factory=dict)
    emptied_at: float | None = None  # seconds; when the backlogs became empty
    brought_home: int = 0
    received: int = 0
    received_from: Counter[str] = field(default_factory=Counter)  # namespace -> messages, with --consumers
    received_last: float | None = None  # seconds
    longest_pause: float | None = None
    """Seconds between two messages of the consumers, while any were missing."""

    timeline: tuple[TimelineEntry, ...] = ()

    @property
    def parked(self) -> int:
        return sum(count for place, count in self.where.items() if place != PRIMARY)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a demo: the ledger's report, the final score, billed operations and durations."""

    report: LedgerReport
    score: Score
    billed: dict[str, int]  # operations by kind
    durations: dict[str, float]  # seconds


class Scoreboard:
    """A Score shared between threads; every update and every read is atomic."""

    def __init__(self, planned: int, on_entry: Callable[[TimelineEntry], None]) -> None:
        self._score = Score(planned)
        self._changed = threading.Condition()
        self._began = time.monotonic()
        self._on_entry = on_entry

    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._began

    def update(self, change: Callable[[Score], None]) -> None:
        with self._changed:
            change(self._score)
            self._changed.notify_all()

    def note(self, text: str) -> None:
        """Add a line to the timeline and report it; lines of several threads are ordered by time."""
        with self._changed:
            entry = TimelineEntry(self.elapsed_seconds(), text)
            self._score.timeline = (*self._score.timeline, entry)
            self._changed.notify_all()
            self._on_entry(entry)

    def wait_for(self, holds: Callable[[Score], bool], timeout: float) -> bool:
        """Wait until ``holds`` is true. Returns False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: holds(self._score), timeout)

    def read(self) -> Score:
        """Return a copy of the current score."""
        with self._changed:
            now = self._score
            return Score(
                now.planned, self.elapsed_seconds(), now.state, now.primary_is_up, now.acknowledged, now.retried,
                now.in_doubt, Counter(now.where), dict(now.depth), dict(now.deepest),
                now.emptied_at, now.brought_home, now.received, Counter(now.received_from),
                now.received_last, now.longest_pause, now.timeline,
            )  # fmt: skip


def line(entry: TimelineEntry) -> str:
    return f"{entry.at:7.2f} s  {entry.text}"


@contextmanager
def live(read: Callable[[], Score]) -> Iterator[None]:
    """Draw the score live until the block ends."""
    from rich.live import Live

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals without block characters
    with Live(get_renderable=lambda: picture(read()), refresh_per_second=REFRESH):
        yield


def picture(score: Score) -> RenderableType:
    """Return the live display of ``score``."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    colour = COLOURS[score.state]
    power = Text("up", "green") if score.primary_is_up else Text("DOWN", "bold red")
    head = Text.assemble(
        ("orders ", "bold"), (score.state.replace("_", " "), f"bold {colour}"), "   contoso is ", power,
        f"   {score.elapsed:5.1f} s",
    )  # fmt: skip
    timeline = Text("\n".join(line(entry) for entry in score.timeline[-LAST_ENTRIES:]))
    return Group(
        head, _progress(score), _places(score), Panel(timeline, title="timeline", border_style="dim")
    )


def _progress(score: Score) -> RenderableType:
    table = _grid()
    table.add_row("accepted", _bar(score.acknowledged, score.planned, "cyan"), f"{score.acknowledged:>6}")
    table.add_row("received", _bar(score.received, score.planned, "green"), _received_line(score))
    table.add_row("brought home", _bar(score.brought_home, score.parked, "magenta"), _of(score))
    table.add_row("sends repeated", "", f"{score.retried:>6}")
    return table


def _received_line(score: Score) -> str:
    if score.received_from:
        there = score.received_from["contoso-dr"]
        return f"{score.received:>6}, {there} of them from contoso-dr; longest pause {score.longest_pause or 0:.1f} s"
    waiting = "" if score.received else "  consumers start when contoso is back"
    return f"{score.received:>6}{waiting}"


def _of(score: Score) -> str:
    return f"{score.brought_home:>6} of {score.parked} parked"


def _places(score: Score) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("accepted by", "messages", "waiting there now"):
        table.add_column(heading)
    deepest = max(score.deepest.values(), default=0)
    table.add_row("contoso / orders", f"{score.where.get(PRIMARY, 0):>6}", "")
    for number in sorted(score.depth, key=_numerically):
        depth = score.depth[number]
        waiting = f"{_bar(depth, deepest, 'yellow')} {depth:>5}"
        table.add_row(f"contoso-dr / backlog {number}", f"{score.where.get(number, 0):>6}", waiting)
    return table


def _numerically(number: str) -> tuple[int, str]:
    return (int(number), "") if number.isdigit() else (-1, number)


def _grid() -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    return grid


def _bar(amount: int, whole: int, colour: str) -> str:
    filled = round(BAR * min(amount, whole) / whole) if whole else 0
    return f"[{colour}]{'█' * filled}[/][dim]{'░' * (BAR - filled)}[/]"


def say(entry: TimelineEntry) -> None:
    """Print one line of the timeline."""
    click.echo(line(entry))


def verdict(outcome: DemoResult) -> str:
    """Return the result of the demo as text."""
    report, billed, spans = outcome.report, outcome.billed, outcome.durations
    score = outcome.score
    lines = [
        "",
        f"sent {report.sent}, delivered {report.delivered}, lost {len(report.lost)}",
        f"duplicated {len(report.duplicated)}, unexpected {len(report.unexpected)}, "
        f"recovered {len(report.recovered)}",
        f"{score.where[PRIMARY]} accepted by contoso, {score.parked} parked on contoso-dr; "
        f"{score.retried} sends raised and were repeated",
        "billed operations: " + ", ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in billed.items()),
        "seconds: " + ", ".join(f"{name.replace('_', ' ')} {span:.1f}" for name, span in spans.items()),
    ]
    if score.longest_pause is not None:
        lines.append(
            f"consumers: {score.received_from['contoso']} from contoso, {score.received_from['contoso-dr']} from "
            f"contoso-dr; longest pause {score.longest_pause:.1f} s"
        )
    if report.sessions:
        lines.append(order_kept(report))
    if report.duplicated:
        lines.append(
            "A duplicate is a stored message whose acknowledgement was lost in the outage: it was parked, or sent "
            "again, with the same message id. Duplicate detection on the queue removes it."
        )
    return "\n".join(lines)


def order_kept(report: LedgerReport) -> str:
    """Return text on whether the sessions arrived in order, with the first message that did not."""
    if not report.inversions:
        return f"sessions: {report.sessions}, each in the order sent"
    first = report.inversions[0]
    return (
        f"sessions: {len(report.inversions)} of {report.sessions} not in the order sent; in {first.session}, "
        f"{first.message_id} arrived after {first.later}"
    )
