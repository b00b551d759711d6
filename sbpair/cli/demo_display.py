"""How does the demo look: a live picture on a terminal, plain lines elsewhere?

Both read the scoreboard and change nothing.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from sbpair.cli.demo_score import PRIMARY, Moment, Score

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from sbpair.cli.demo_story import Outcome

BAR = 36  # cells of a full bar
REFRESH = 8  # pictures a second
LAST_MOMENTS = 12
COLOURS = {"HEALTHY": "green", "SUSPECT": "yellow", "FAILED_OVER": "red"}


def line(moment: Moment) -> str:
    return f"{moment.at:7.2f} s  {moment.text}"


@contextmanager
def live(read: Callable[[], Score]) -> Iterator[None]:
    """Redraw the score until the block ends."""
    from rich.live import Live

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no block characters
    with Live(get_renderable=lambda: picture(read()), refresh_per_second=REFRESH):
        yield


def picture(score: Score) -> RenderableType:
    """The score of one moment."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    colour = COLOURS[score.state]
    power = Text("up", "green") if score.primary_is_up else Text("DOWN", "bold red")
    head = Text.assemble(
        ("orders ", "bold"), (score.state.replace("_", " "), f"bold {colour}"), "   contoso is ", power,
        f"   {score.elapsed:5.1f} s",
    )  # fmt: skip
    timeline = Text("\n".join(line(moment) for moment in score.moments[-LAST_MOMENTS:]))
    return Group(
        head, _progress(score), _places(score), Panel(timeline, title="timeline", border_style="dim")
    )


def _progress(score: Score) -> RenderableType:
    table = _grid()
    table.add_row("accepted", _bar(score.acknowledged, score.planned, "cyan"), f"{score.acknowledged:>6}")
    table.add_row("received", _bar(score.received, score.planned, "green"), f"{score.received:>6}")
    table.add_row("brought home", _bar(score.brought_home, score.parked, "magenta"), _of(score))
    table.add_row("sends repeated", "", f"{score.retried:>6}")
    return table


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


def say(moment: Moment) -> None:
    """A line of the timeline, where there is no terminal."""
    click.echo(line(moment))


def verdict(outcome: Outcome) -> str:
    """The numbers at the end, for people."""
    report, billed, spans = outcome.report, outcome.billed, outcome.durations
    score = outcome.score
    lines = [
        "",
        f"sent {report.sent}, delivered {report.delivered}, lost {len(report.lost)}",
        f"duplicated {len(report.duplicated)}, unexpected {len(report.unexpected)}, "
        f"recovered {len(report.recovered)}",
        f"{score.where[PRIMARY]} went straight to contoso, {score.parked} waited on contoso-dr; "
        f"{score.retried} sends raised and were repeated",
        "billed operations: " + ", ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in billed.items()),
        "seconds: " + ", ".join(f"{name.replace('_', ' ')} {span:.1f}" for name, span in spans.items()),
    ]
    if report.duplicated:
        lines.append(
            "A duplicate is a send whose answer the outage swallowed: stored, and repeated with the same "
            "message id. Duplicate detection on the queue drops it."
        )
    return "\n".join(lines)
