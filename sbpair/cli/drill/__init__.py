"""`sbpair drill`: a game day. Does a message that fails over really come home?"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from sbpair.cli.errors import configuration
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.namespaces import pair_options
from sbpair.cli.option_flags import Span
from sbpair.cli.pair_flags import EntityPath, backlogs_option, ca_file_option, name_option
from sbpair.cli.source import Source

from .canary import Proof
from .plan import Plan

if TYPE_CHECKING:
    from .course import Course

INTERRUPTED = 130
MOST = 1000


@click.command("drill")
@pair_options
@click.option(
    "--entity", type=EntityPath(), required=True, help="The queue or topic of the primary to fail over."
)
@click.option("--subscription", help="The entity is a topic: look for the canaries in this subscription.")
@click.option(
    "--canaries",
    "count",
    type=click.IntRange(1, MOST),
    default=10,
    show_default=True,
    help="How many marked messages to send; each picks its backlog queue at random.",
)
@click.option(
    "--proof",
    type=click.Choice([each.value for each in Proof]),
    help="How arrival is proved: find each by peeking and cancel it before it is due, find it by peeking, or "
    "receive it (scratch entities only).  [default: cancel; peek for a topic]",
)
@click.option(
    "--with-syphon",
    is_flag=True,
    help="Run a syphon in this process too; it brings home whatever else is parked.",
)
@click.option(
    "--wait",
    type=Span(),
    default="2m",
    show_default=True,
    help="How long the canaries may take to come home.",
)
@name_option
@backlogs_option
@ca_file_option
@click.option("--dry-run", is_flag=True, help="Say what would be done and what it costs; open nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    primary: Source,
    secondary: Source,
    entity: str,
    subscription: str | None,
    count: int,
    proof: str | None,
    with_syphon: bool,
    wait: timedelta,
    primary_namespace_name: str | None,
    backlogs: int,
    ca_file: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Fail over one entity on purpose, and see marked messages come home.

    Only this process fails over: senders of yours go on as before. A canary has the content type
    application/vnd.sbpair.canary, by which a consumer that meets one skips it. Exit code 1 if
    one did not come home, or if no ping was accepted. Ctrl-C restores everything too.

    \b
    Examples:
      sbpair drill --entity orders --dry-run
      sbpair drill --entity orders
      sbpair drill --entity prices --subscription audit --json
    """
    chosen = _proof(proof, subscription)
    plan = Plan(
        entity=entity,
        subscription=subscription,
        count=count,
        proof=chosen,
        with_syphon=with_syphon,
        wait=wait.total_seconds(),
        backlogs=backlogs,
        primary_namespace_name=primary_namespace_name,
        ca_file=ca_file,
    )
    if dry_run:
        _show_plan(plan, as_json)
        return ExitCode.OK

    from sbpair.cli.backlog.reach import over_amqp

    from .course import Course

    course = Course(plan, primary, secondary)
    with configuration(), over_amqp():
        interrupted = asyncio.run(_until_done(course))
    _show_result(course, interrupted, as_json)
    if interrupted:
        return INTERRUPTED
    return ExitCode.OK if course.is_passed else ExitCode.FAILED


def _proof(given: str | None, subscription: str | None) -> Proof:
    if given is None:
        return Proof.CANCEL if subscription is None else Proof.PEEK
    if subscription is not None and given == Proof.CANCEL:
        text = "--proof cancel is for queues: what a topic holds for later cannot be peeked"
        raise click.UsageError(text, click.get_current_context())
    return Proof(given)


async def _until_done(course: Course) -> bool:
    """Run the drill; whether a signal ended it. Either way everything is restored."""
    from sbpair.cli.stopping import stop_on_signal

    stop = stop_on_signal()
    work, stopped = asyncio.ensure_future(course.run()), asyncio.ensure_future(stop.wait())
    await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if work.done():
        await work
        return False
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return True


def _show_plan(plan: Plan, as_json: bool) -> None:
    from .plan import operations, steps

    cost = operations(plan)
    if as_json:
        click.echo(json.dumps({"steps": steps(plan), "operations": cost}))
        return
    for number, step in enumerate(steps(plan), 1):
        click.echo(f"{number}. {step}")
    kinds = ", ".join(f"{number} {kind}" for kind, number in cost.items())
    click.echo(f"{sum(cost.values())} operations, and peeks: {kinds}")


def _show_result(course: Course, interrupted: bool, as_json: bool) -> None:
    from .report import as_json_line, as_lines, outcome, table

    said = outcome(course, interrupted)
    if as_json:
        click.echo(as_json_line(course, said))
        return

    from sbpair.cli.screen import show

    show(table(course))
    for line in as_lines(course, said):
        click.echo(line)
