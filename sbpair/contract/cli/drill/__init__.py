"""`sbpair drill`: fail over one entity on purpose and watch marked messages, the canaries, come home.

plan      what to do, and its cost            run      the steps, in order
search    finds canaries by peeking           report   the result
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from sbpair.data.audit.canary_ids import MAX_CANARIES
from sbpair.pair.cli import INTERRUPTED
from sbpair.pair.cli.errors import ExitCode, configuration
from sbpair.pair.cli.namespaces import (
    NamespaceArgument,
    backlogs_option,
    ca_file_option,
    name_option,
    pair_options,
)
from sbpair.pair.cli.output import notice
from sbpair.pair.cli.parameters import DurationType, EntityPath

from .plan import DrillPlan, Proof

if TYPE_CHECKING:
    from .run import Drill


@click.command("drill")
@pair_options
@click.option(
    "--entity", type=EntityPath(), required=True, help="The queue or topic of the primary to fail over."
)
@click.option("--subscription", help="If the entity is a topic: search this subscription for the canaries.")
@click.option(
    "--canaries",
    "count",
    type=click.IntRange(1, MAX_CANARIES),
    default=10,
    show_default=True,
    help="How many marked messages to send; each goes to a random backlog queue.",
)
@click.option(
    "--proof",
    type=click.Choice([each.value for each in Proof]),
    help="How to prove arrival: peek for each scheduled canary and cancel it before it is due, only peek, or "
    "receive it (for scratch entities).  [default: cancel; peek for a topic]",
)
@click.option(
    "--with-syphon",
    is_flag=True,
    help="Also run a syphon in this process; it brings home all parked messages.",
)
@click.option(
    "--wait",
    type=DurationType(),
    default="2m",
    show_default=True,
    help="How long the canaries may take to come home.",
)
@name_option
@backlogs_option
@ca_file_option
@click.option("--dry-run", is_flag=True, help="Print the steps and their cost; connect to nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    primary: NamespaceArgument,
    secondary: NamespaceArgument,
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
    """Fail over one entity on purpose and watch canaries come home.

    Only this process fails over; your senders are not affected. A canary is a message with the
    content type application/vnd.sbpair.canary, so that consumers can skip it.

    Needs Send and Listen on both namespaces. Exit code 1 if a
    canary did not come home or no ping was accepted. Ctrl-C also restores everything; the exit
    code is then 130.

    \b
    Examples:
      sbpair drill --entity orders --dry-run
      sbpair drill --entity orders
      sbpair drill --entity prices --subscription audit --json
    """
    chosen = _proof(proof, subscription)
    plan = DrillPlan(
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

    from sbpair.pair.cli.connection import over_amqp

    from .run import Drill

    drill = Drill(plan, primary, secondary, partial(notice, command="drill"))
    with configuration(), over_amqp():
        interrupted = asyncio.run(_until_done(drill))
    _show_result(drill, interrupted, as_json)
    if interrupted:
        return INTERRUPTED
    return ExitCode.OK if drill.is_passed else ExitCode.FAILED


def _proof(given: str | None, subscription: str | None) -> Proof:
    if given is None:
        return Proof.CANCEL if subscription is None else Proof.PEEK
    if subscription is not None and given == Proof.CANCEL:
        text = "--proof cancel is for queues: a scheduled message of a topic cannot be peeked; use peek"
        raise click.UsageError(text, click.get_current_context())
    return Proof(given)


async def _until_done(drill: Drill) -> bool:
    """Run the drill. Returns whether a signal ended it; everything is restored either way."""
    from sbpair.pair.cli.signals import stop_on_signal

    stop = stop_on_signal()
    work, stopped = asyncio.ensure_future(drill.run()), asyncio.ensure_future(stop.wait())
    await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if work.done():
        await work
        return False
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return True


def _show_plan(plan: DrillPlan, as_json: bool) -> None:
    from .plan import operations, steps

    cost = operations(plan)
    if as_json:
        click.echo(json.dumps({"steps": steps(plan), "operations": cost}))
        return
    for number, step in enumerate(steps(plan), 1):
        click.echo(f"{number}. {step}")
    kinds = ", ".join(f"{number} {kind}" for kind, number in cost.items())
    click.echo(f"{sum(cost.values())} operations, and peeks: {kinds}")


def _show_result(drill: Drill, interrupted: bool, as_json: bool) -> None:
    from .report import as_json_line, as_lines, outcome, table

    said = outcome(drill, interrupted)
    if as_json:
        click.echo(as_json_line(drill, said))
        return

    from sbpair.pair.cli.output import show

    show(table(drill))
    for line in as_lines(drill, said):
        click.echo(line)
