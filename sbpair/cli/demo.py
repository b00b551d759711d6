"""`sbpair demo`: an outage, the failover, and every message coming home, in under a minute."""

from __future__ import annotations

import json
import logging
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.cli.demo_plan import LONGEST_OUTAGE, SHORTEST_OUTAGE, Plan, make_plan
from sbpair.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from sbpair.cli.demo_story import Outcome

MOST = 1_000_000


@click.command("demo")
@click.option("--messages", type=click.IntRange(1, MOST), default=5000, show_default=True, help="How many.")
@click.option(
    "--outage",
    type=click.FloatRange(SHORTEST_OUTAGE, LONGEST_OUTAGE),
    default=6.0,
    show_default=True,
    help="How many seconds the primary is down.",
)
@click.option("--seed", type=int, help="Cut the messages into the same sends again.  [default: random]")
@click.option(
    "--journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Let brokers, sender, syphon and receiver write journals there, to be audited.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of the picture.")
def command(messages: int, outage: float, seed: int | None, journal: Path | None, as_json: bool) -> int:
    """Watch an outage, the failover, and every message coming home.

    Two namespaces, an application that sends, a syphon and a receiver run on
    this machine. Exit code 1 if a message that was accepted is missing.

    \b
    Examples:
      sbpair demo
      sbpair demo --messages 500 --outage 10 --seed 7 --json
    """
    plan = make_plan(messages, outage, random.randrange(2**32) if seed is None else seed)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C, certificates removed
    for name in ("sbpair", "azure"):  # the timeline says it; a log would tear the picture
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    outcome = _told(plan, journal, as_json)
    click.echo(json.dumps(as_dict(plan, outcome)) if as_json else _verdict(outcome))
    return ExitCode.OK if outcome.report.is_conserved else ExitCode.FAILED


def _told(plan: Plan, journal: Path | None, as_json: bool) -> Outcome:
    from sbpair.cli import demo_display  # late: the SDK and the broker are not needed for --help
    from sbpair.cli.demo_score import Scoreboard
    from sbpair.cli.demo_story import Story

    on_terminal = sys.stdout.isatty() and not as_json
    board = Scoreboard(plan.messages, (lambda _: None) if on_terminal or as_json else demo_display.say)
    story = Story(plan, board, journal)
    if not on_terminal:
        return story.tell()
    with demo_display.live(board.read):
        return story.tell()


def _verdict(outcome: Outcome) -> str:
    from sbpair.cli.demo_display import verdict

    return verdict(outcome)


def as_dict(plan: Plan, outcome: Outcome) -> dict[str, object]:
    """The numbers at the end, for machines."""
    report, score = outcome.report, outcome.score
    return {
        "sent": report.sent,
        "acknowledged": report.acknowledged,
        "delivered": report.delivered,
        "lost": len(report.lost),
        "duplicated": len(report.duplicated),
        "unexpected": len(report.unexpected),
        "recovered": len(report.recovered),
        "duplicates": report.duplicates,
        "sends_repeated": score.retried,
        "messages_repeated": len(score.retried_messages),
        "accepted_by": dict(sorted(score.where.items())),
        "parked": score.parked,
        "billed_operations": outcome.billed,
        "durations": outcome.durations,
        "outage": plan.outage,
        "seed": plan.seed,
        "timeline": [{"at": round(moment.at, 3), "text": moment.text} for moment in score.moments],
    }
