"""The flags that every command has which looks at a pair: whose backlog queues, how many, whom to trust."""

from __future__ import annotations

import click

from sbpair.syphon.destination_path import path_refusal

MOST = 10_000  # backlog queues, as for the syphon


class PlainName(click.ParamType[str]):
    """The name of a namespace, as it stands in those of its backlog queues: no slashes."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip() or value != value.strip() or "/" in value or not value.isprintable():
            self.fail(f"{value!r} is not a plain name without slashes", param, ctx)
        return value


class EntityPath(click.ParamType[str]):
    """The path of a queue or topic that messages can be sent to."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        refusal = path_refusal(value)
        if refusal is not None:
            self.fail(f"{value!r} is no queue or topic to send to: {refusal}", param, ctx)
        return value


name_option = click.option(
    "--primary-namespace-name",
    type=PlainName(),
    help="The prefix of the backlog queues, where the primary's host does not give it.",
)
backlogs_option = click.option(
    "--backlogs",
    type=click.IntRange(1, MOST),
    default=10,
    show_default=True,
    help="How many backlog queues there are, as the senders were told.",
)
ca_file_option = click.option(
    "--ca-file", help="A file of trusted certificates (PEM) instead of the system's."
)
