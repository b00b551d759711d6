"""`sbpair backlog peek`: show parked messages without locking them; bodies are never shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sbpair.pair.cli.backlog.target import BacklogTarget, index_option, with_target
from sbpair.pair.cli.output import instant_text, say_more

from .target import MissingQueues

if TYPE_CHECKING:
    from sbpair.pair.envelope.inspect import ParkedMessage

Found = list[tuple[str, "ParkedMessage"]]


@click.command("peek")
@with_target
@index_option
@click.option("--dead-letter", is_flag=True, help="Peek the dead-letter queues instead.")
@click.option("--transfer", is_flag=True, help="Peek the transfer dead-letter queues instead.")
@click.option(
    "--count",
    type=click.IntRange(1, 100_000),
    default=10,
    show_default=True,
    help="The maximum number of messages from each backlog queue.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each message.")
def peek(
    target: BacklogTarget, index: int | None, dead_letter: bool, transfer: bool, count: int, as_json: bool
) -> None:
    """Show parked messages, oldest first, without locking or changing them.

    For each message it shows the destination and the properties that are restored on delivery.
    Bodies are never shown. Needs the Listen right on the secondary.

    \b
    Examples:
      sbpair backlog peek --count 3
      sbpair backlog peek --dead-letter --index 4 --json
    """
    if dead_letter and transfer:
        raise click.UsageError("give --dead-letter or --transfer, not both", click.get_current_context())
    from sbpair.pair.syphon.watch.peeking import DEAD_LETTERS, TRANSFER_DEAD_LETTERS

    part = DEAD_LETTERS if dead_letter else TRANSFER_DEAD_LETTERS if transfer else ""
    found = asyncio.run(_find(target, index, part, count))
    if as_json:
        for backlog, message in found:
            click.echo(json.dumps({"backlog": backlog, **asdict(message)}))
        return
    _show(found)


async def _find(target: BacklogTarget, index: int | None, part: str, count: int) -> Found:
    from sbpair.pair.syphon.watch.peeking import peek_parked

    found: Found = []
    backlogs = target.names(index)
    missing = MissingQueues(backlogs, index)
    async with target.connection() as connection:
        for backlog in backlogs:
            with missing.tolerate():
                found += await _first(peek_parked(connection, backlog + part, most=count + 1), backlog, count)
    return found


async def _first(messages: AsyncIterator[ParkedMessage], backlog: str, count: int) -> Found:
    """Return the first messages of a backlog queue; print a notice if there are more."""
    peeked = [(backlog, each) async for each in messages]
    if len(peeked) > count:
        say_more(backlog, count)
    return peeked[:count]


def _show(found: Found) -> None:
    from rich.table import Table

    from sbpair.pair.cli.output import plain, show

    if not found:
        click.echo("no messages")
        return
    table = Table(
        "backlog queue", "number", "message id", "for", "parked since", "carries", "dead-lettered for"
    )
    for backlog, each in found:
        cells = (
            backlog,
            str(each.sequence_number),
            each.message_id or "-",
            each.path or "no path",
            instant_text(each.parked_at),
            "; ".join(f"{name}={value}" for name, value in each.aliases.items()) or "-",
            _why(each),
        )
        table.add_row(*map(plain, cells))
    show(table)


def _why(message: ParkedMessage) -> str:
    said = ": ".join(filter(None, (message.reason, message.description)))
    return "; ".join(filter(None, (message.trouble, said))) or "-"
