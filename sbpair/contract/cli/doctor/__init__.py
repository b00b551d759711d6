"""`sbpair doctor`: check a pairing for problems that would show in an outage; its help points to verify.

examination    collects the facts, with probes      facts    what it found
rules          turn facts into findings             (pure)
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from sbpair.pair.cli.errors import ExitCode, configuration
from sbpair.pair.cli.namespaces import (
    NamespaceArgument,
    backlogs_option,
    ca_file_option,
    name_option,
    pair_options,
)
from sbpair.pair.cli.parameters import DurationType, EntityPath, Rate, Size

if TYPE_CHECKING:
    from .finding import Finding

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
    help="The role the keys belong to: a sender needs Send on the secondary, a syphon Listen.",
)
@click.option(
    "--ordering",
    type=click.Choice(["none", "session"]),
    default="none",
    show_default=True,
    help="As for the senders: with session, check the ordered backlog queues too.",
)
@click.option(
    "--queue",
    "queues",
    type=EntityPath(),
    multiple=True,
    help="A queue of the primary to check; repeat for more. Destinations of parked messages are always checked.",
)
@click.option(
    "--scratch-queue",
    help="An empty queue of the primary: send it one ping and check whether it is delivered.",
)
@click.option(
    "--create-scratch",
    is_flag=True,
    help="Create a scratch queue on the primary for the ping, and delete it; needs Manage.",
)
@click.option(
    "--land",
    is_flag=True,
    help="The syphon lands on the secondary: compare each entity with its twin there; needs Manage on both.",
)
@click.option(
    "--syphon-status", metavar="URL", help="The status page of a running syphon, to check that it is alive."
)
@click.option(
    "--sender-status", metavar="URL", help="The status page of a running sender, to check its options."
)
@click.option(
    "--rate", type=Rate(), help="The rate of your senders, e.g. 200/s: estimates how long the backlogs last."
)
@click.option(
    "--size",
    type=Size(),
    default="1KiB",
    show_default=True,
    help="With --rate: the size of a message, e.g. 4KiB.",
)
@click.option(
    "--outage",
    type=DurationType(),
    default="24h",
    show_default=True,
    help="With --rate: how long an outage the backlogs must absorb.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    primary: NamespaceArgument,
    secondary: NamespaceArgument,
    primary_namespace_name: str | None,
    backlogs: int,
    ca_file: str | None,
    role: str,
    ordering: str,
    queues: tuple[str, ...],
    scratch_queue: str | None,
    create_scratch: bool,
    land: bool,
    syphon_status: str | None,
    sender_status: str | None,
    rate: float | None,
    size: int,
    outage: timedelta,
    as_json: bool,
) -> int:
    """Check a pairing for problems before an outage shows them.

    Checks reachability, rights, queues, pings and the syphon. Exit code 1 if it finds an error
    or a warning; notes name what could not be checked. It only reads, except for one ping when
    there is a scratch queue. Without the Manage right it skips the properties of queues. With
    --ordering session it also checks everything that the order of sessions depends on: the
    ordered backlog queues, the right of a sender to peek at them, the receivers, and clients
    that keep no order.

    It trusts that the service behaves as documented; `sbpair verify` checks that.

    \b
    Examples:
      sbpair doctor --queue orders --syphon-status http://127.0.0.1:8080
      sbpair doctor --role sender --queue orders --ordering session
      sbpair doctor --create-scratch --rate 200/s --size 4KiB --outage 12h
    """
    from sbpair.contract.cli.doctor.examination import Examination, ExaminationPlan
    from sbpair.contract.cli.doctor.facts import Load

    from .finding import Severity
    from .rules import diagnose

    with configuration():
        plan = ExaminationPlan(
            primary=primary.namespace(ca_file),
            secondary=secondary.namespace(ca_file),
            sources={"primary": primary, "secondary": secondary},
            name=primary_namespace_name,
            backlogs=backlogs,
            ca_file=ca_file,
            rights=RIGHTS[role],
            queues=queues,
            scratch_queue=scratch_queue,
            creates_scratch=create_scratch,
            syphon_status=syphon_status,
            sender_status=sender_status,
            keeps_order=ordering == "session",
            compares_twins=land,
            load=None if rate is None else Load(rate, size, outage.total_seconds()),
        )
    findings = diagnose(asyncio.run(Examination(plan).run()))
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        _show(findings)
    return ExitCode.FAILED if any(each.severity is not Severity.NOTE for each in findings) else ExitCode.OK


def _show(findings: list[Finding]) -> None:
    """Print each finding unwrapped, so that commands in it can be copied; identical ones once."""
    from sbpair.pair.cli.output import plain

    from .finding import alike

    for finding, abouts in alike(findings):
        about = abouts[0] if len(abouts) == 1 else f"{abouts[0]} and {len(abouts) - 1} more"
        click.echo(f"{finding.severity.upper()}  {plain(about)}: {plain(finding.what)}")
        click.echo(f"    why it matters: {plain(finding.why)}")
        click.echo(f"    next step:      {plain(finding.next_step)}")
    found = [each for each in findings if each.severity != "note"]
    click.echo(f"{len(found)} found" if found else "nothing found")
