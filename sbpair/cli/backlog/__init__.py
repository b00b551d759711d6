"""`sbpair backlog`: what waits on the secondary, and how to get it moving again."""

from __future__ import annotations

import click

from sbpair.cli.backlog.create import create
from sbpair.cli.backlog.listing import list_
from sbpair.cli.backlog.peek import peek
from sbpair.cli.backlog.purge import purge
from sbpair.cli.backlog.redrive import redrive


@click.group("backlog")
def command() -> None:
    """See, create, redrive or purge the backlog queues.

    They are on the secondary, and are named after the primary: --primary is read for its
    name only, and --primary-namespace-name says it without.
    """


for each in (create, list_, peek, purge, redrive):
    command.add_command(each)
