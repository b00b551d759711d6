"""`sbpair backlog create`: make the backlog queues that are missing, or print what would make them."""

from __future__ import annotations

import click

from sbpair.cli.backlog.reach import administering
from sbpair.cli.backlog.target import Target, with_target
from sbpair.cli.pair_flags import MOST


@click.command("create")
@with_target
@click.option(
    "--count", type=click.IntRange(1, MOST), help="How many there shall be.  [default: as --backlogs]"
)
@click.option("--print", "form", type=click.Choice(["bicep"]), help="Print a template, and create nothing.")
def create(target: Target, count: int | None, form: str | None) -> None:
    """Create the backlog queues that are missing; what exists is left as it is.

    Needs the Manage right on the secondary. Where senders must not have it, create the
    queues once with this command, or with the template that --print bicep prints, and set
    assume_backlogs_exist.

    \b
    Examples:
      sbpair backlog create --count 10
      sbpair backlog create --primary contoso --print bicep > backlogs.bicep
    """
    wanted = count or target.count
    if form is not None:
        from sbpair.cli.backlog.bicep import bicep

        click.echo(bicep(target.label, wanted), nl=False)
        return
    from sbpair.pairing.backlog import Backlogs

    with administering():
        created = Backlogs(target.label, wanted, target.administration).ensure()
    for name in created:
        click.echo(f"created {name}")
    click.echo(f"{len(created)} created, {wanted - len(created)} existed")
