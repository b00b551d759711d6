"""`sbpair demo`: an outage, the failover, and every message coming home, in under a minute.

plan          the messages, cut into sends and spread over the outage
application   the threads that send and receive
stage         client, syphon and backlogs around one broker
story         the sequence of events, and its result
scoreboard    the numbers while it runs, drawn live or as lines
"""

from __future__ import annotations

import json
import logging
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from sbpair.cli.errors import ExitCode
from sbpair.cli.signals import SIGNALS

from .plan import MAX_OUTAGE, MIN_OUTAGE, DemoPlan, Ordering, make_plan

if TYPE_CHECKING:
    from .scoreboard import DemoResult

MAX_MESSAGES = 1_000_000
MAX_SESSIONS = 1000


@click.command("demo")
@click.option(
    "--messages",
    type=click.IntRange(1, MAX_MESSAGES),
    default=5000,
    show_default=True,
    help="Messages to send.",
)
@click.option(
    "--outage",
    type=click.FloatRange(MIN_OUTAGE, MAX_OUTAGE),
    default=6.0,
    show_default=True,
    help="Seconds the primary is down; longer where the failover takes longer.",
)
@click.option("--seed", type=int, help="Repeats the same grouping of messages into sends.  [default: random]")
@click.option(
    "--journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write journals of brokers, sender, syphon and receiver there, for `sbpair audit`.",
)
@click.option(
    "--consumers",
    is_flag=True,
    help="Consumers that never stop: a processor reads both namespaces, and the syphon lands messages on contoso-dr.",
)
@click.option(
    "--sessions",
    type=click.IntRange(0, MAX_SESSIONS),
    default=0,
    show_default=True,
    help="The number of sessions to send to, whose order is checked; 0 for a queue without sessions.",
)
@click.option(
    "--ordering",
    type=click.Choice(get_args(Ordering)),
    default="none",
    show_default=True,
    help="Keep the order of each session through the outage; needs --sessions.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of the picture.")
def command(
    messages: int,
    outage: float,
    seed: int | None,
    journal: Path | None,
    consumers: bool,
    sessions: int,
    ordering: Ordering,
    as_json: bool,
) -> int:
    """Watch an outage, the failover, and every message coming home.

    Runs two namespaces, a sending application, a syphon and a receiver on this
    machine. Exit code 1 if an accepted message is missing at the end, or, with
    --ordering session, if a session was not received in the order sent.

    \b
    Examples:
      sbpair demo
      sbpair demo --consumers
      sbpair demo --sessions 20 --ordering session
      sbpair demo --messages 500 --outage 10 --seed 7 --json
    """
    if ordering == "session" and not sessions:
        raise click.UsageError("--ordering session needs sessions to order, such as --sessions 20")
    seed = random.randrange(2**32) if seed is None else seed
    plan = make_plan(messages, outage, seed, sessions, ordering)
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)  # like Ctrl-C: temporary certificates are removed
    for name in ("sbpair", "azure"):  # the timeline reports events; log lines would break the live display
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    outcome = _run(plan, journal, consumers, as_json)
    click.echo(json.dumps(as_dict(plan, outcome)) if as_json else _verdict(outcome))
    report = outcome.report
    is_ordered = report.is_ordered or plan.ordering == "none"  # which promises no order
    return ExitCode.OK if report.is_conserved and is_ordered else ExitCode.FAILED


def _run(plan: DemoPlan, journal: Path | None, consumers: bool, as_json: bool) -> DemoResult:
    from . import scoreboard  # late: the SDK and the broker are not needed for --help
    from .scoreboard import Scoreboard
    from .story import Story

    on_terminal = sys.stdout.isatty() and not as_json
    board = Scoreboard(plan.messages, (lambda _: None) if on_terminal or as_json else scoreboard.say)
    story = Story(plan, board, journal, has_consumers=consumers)
    if not on_terminal:
        return story.run()
    with scoreboard.live(board.read):
        return story.run()


def _verdict(outcome: DemoResult) -> str:
    from .scoreboard import verdict

    return verdict(outcome)


def as_dict(plan: DemoPlan, outcome: DemoResult) -> dict[str, object]:
    """The result of the demo, for JSON."""
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
        "sessions": report.sessions,
        "sessions_out_of_order": len(report.inversions),
        "sends_repeated": score.retried,
        "messages_in_doubt": len(score.in_doubt),
        "accepted_by": dict(sorted(score.where.items())),
        "parked": score.parked,
        "received_from": dict(sorted(score.received_from.items())),
        "longest_pause": None if score.longest_pause is None else round(score.longest_pause, 3),
        "billed_operations": outcome.billed,
        "durations": outcome.durations,
        "outage": plan.outage,
        "seed": plan.seed,
        "timeline": [{"at": round(entry.at, 3), "text": entry.text} for entry in score.timeline],
    }
