"""`sbpair backlog`: list, create, peek, redrive and purge the backlog queues on the secondary."""

from __future__ import annotations

import click

from sbpair.pair.cli.backlog.create import create
from sbpair.pair.cli.backlog.listing import list_
from sbpair.pair.cli.backlog.peek import peek

from .dead_letters import purge, redrive

command = click.Group(
    "backlog",
    commands=[create, list_, peek, purge, redrive],
    help="""List, create, redrive or purge the backlog queues.

    They are on the secondary and named after the primary. Except by `create --twins`, --primary is
    used only for its name, and --primary-namespace-name replaces it.
    """,
)
