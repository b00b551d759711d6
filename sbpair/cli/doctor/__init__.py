"""`sbpair doctor`: is the pairing fit for an outage?"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from sbpair.cli.errors import configuration
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.namespaces import pair_options
from sbpair.cli.option_flags import Span
from sbpair.cli.pair_flags import EntityPath, backlogs_option, ca_file_option, name_option
from sbpair.cli.quantities import Rate, Size
from sbpair.cli.source import Source

if TYPE_CHECKING:
    from sbpair.cli.doctor.finding import Finding

RIGHTS = {"both": ("Send", "Listen"), "sender": ("Send",), "syphon": ("Listen",)}


@click.command("doctor")
@pair_options
@name_option
@backlogs_option
@ca_file_option
@click.option(
    "--role",
    type=click.Choice(list(RIGHTS)),
    default="both",
    show_default=True,
    help="Whose keys these are: a sender needs Send on the secondary, a syphon Listen.",
)
@click.option(
    "--queue",
    "queues",
    type=EntityPath(),
    multiple=True,
    help="A queue of the primary to look at; repeat for more. Those of parked messages are anyway.",
)
@click.option(
    "--scratch-queue", help="An empty queue of the primary: send it one ping and see whether it is delivered."
)
@click.option(
    "--create-scratch",
    is_flag=True,
    help="Create a scratch queue on the primary for that, and delete it again; needs Manage.",
)
@click.option("--syphon-status", metavar="URL", help="The status page of a running syphon: is it alive?")
@click.option(
    "--rate", type=Rate(), help="What your senders send, e.g. 200/s: how long do the backlogs last?"
)
@click.option(
    "--size", type=Size(), default="1KiB", show_default=True, help="With --rate: of a message, e.g. 4KiB."
)
@click.option(
    "--outage",
    type=Span(),
    default="24h",
    show_default=True,
    help="With --rate: the outage that they have to last.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    primary: Source,
    secondary: Source,
    primary_namespace_name: str | None,
    backlogs: int,
    ca_file: str | None,
    role: str,
    queues: tuple[str, ...],
    scratch_queue: str | None,
    create_scratch: bool,
    syphon_status: str | None,
    rate: float | None,
    size: int,
    outage: timedelta,
    as_json: bool,
) -> int:
    """Look for what would go wrong in an outage: rights, queues, pings.

    Exit code 1 if an error or a warning is found; notes say what could not be looked at.
    Reads only, but for one ping if there is a scratch queue. The Manage right lets it see
    the properties of queues; without it, those are left out.

    \b
    Examples:
      sbpair doctor --queue orders --syphon-status http://127.0.0.1:8080
      sbpair doctor --role sender --queue orders
      sbpair doctor --create-scratch --rate 200/s --size 4KiB --outage 12h
    """
    from sbpair.cli.doctor.diagnosis import diagnose
    from sbpair.cli.doctor.examination import Examination, Plan
    from sbpair.cli.doctor.facts import Load
    from sbpair.cli.doctor.finding import Severity

    with configuration():
        plan = Plan(
            primary=primary.namespace(),
            secondary=secondary.namespace(),
            sources={"primary": primary, "secondary": secondary},
            name=primary_namespace_name,
            backlogs=backlogs,
            ca_file=ca_file,
            rights=RIGHTS[role],
            queues=queues,
            scratch_queue=scratch_queue,
            creates_scratch=create_scratch,
            syphon_status=syphon_status,
            load=None if rate is None else Load(rate, size, outage.total_seconds()),
        )
    findings = diagnose(asyncio.run(Examination(plan).run()))
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        _show(findings)
    return ExitCode.FAILED if any(each.severity is not Severity.NOTE for each in findings) else ExitCode.OK


def _show(findings: list[Finding]) -> None:
    from rich.table import Table

    from sbpair.cli.screen import plain, show

    if findings:
        table = Table("severity", "about", "what", "why it matters", "next step")
        for each in findings:
            table.add_row(*map(plain, (each.severity, each.about, each.what, each.why, each.next_step)))
        show(table)
    found = [each for each in findings if each.severity != "note"]
    click.echo(f"{len(found)} found" if found else "nothing found")
