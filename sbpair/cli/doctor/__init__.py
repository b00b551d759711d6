"""`sbpair doctor`: is the pairing fit for an outage?"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sbpair.cli.errors import configuration
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.namespaces import pair_options
from sbpair.cli.source import Source

if TYPE_CHECKING:
    from sbpair.cli.doctor.findings import Finding

RIGHTS = {"both": ("Send", "Listen"), "sender": ("Send",), "syphon": ("Listen",)}


@click.command("doctor")
@pair_options
@click.option(
    "--primary-namespace-name",
    help="The prefix of the backlog queues, where the primary's host does not give it.",
)
@click.option(
    "--backlogs",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="How many backlog queues there are, as the senders were told.",
)
@click.option("--ca-file", help="A file of trusted certificates (PEM) instead of the system's.")
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
    multiple=True,
    help="A queue of the primary to look at; repeat for more. Those of parked messages are anyway.",
)
@click.option(
    "--scratch-queue", help="An empty queue of the primary: send it one ping and see whether it is delivered."
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
    as_json: bool,
) -> int:
    """Look for what would go wrong in an outage: rights, queues, pings.

    Exit code 1 if an error or a warning is found; notes say what could not be looked at.
    Reads only, but for one ping if there is a scratch queue. The Manage right lets it see
    the properties of queues; without it, those are left out.
    """
    from sbpair.cli.doctor.examination import Examination, Plan
    from sbpair.cli.doctor.findings import Severity, diagnose

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
        table = Table("severity", "about", "what", "next step")
        for finding in findings:
            table.add_row(*map(plain, (finding.severity, finding.about, finding.what, finding.next_step)))
        show(table)
    found = [each for each in findings if each.severity != "note"]
    click.echo(f"{len(found)} found" if found else "nothing found")
