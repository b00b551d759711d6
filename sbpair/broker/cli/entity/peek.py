"""`sbpair peek`: show messages without locking or changing them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from sbpair.broker.cli.entity.receive import follow_help, print_json, session_option
from sbpair.broker.cli.entity.target import EntityTarget, dead_letter_option, with_entity
from sbpair.pair.cli.output import plain, say_more
from sbpair.pair.cli.signals import stop_on_signal

if TYPE_CHECKING:
    from sbpair.pair.client.connection import NamespaceConnection

POLL_INTERVAL = 0.5  # seconds, with --follow


@click.command("peek")
@with_entity
@click.option(
    "--count",
    type=click.IntRange(1),
    help="The maximum number of messages.  [default: 10; no limit with --follow]",
)
@click.option("--follow", is_flag=True, help=follow_help)
@click.option(
    "--from",
    "start",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="The sequence number to begin at.",
)
@dead_letter_option
@session_option
@click.option("--json", "as_json", is_flag=True, help="Print each message as one line of JSON.")
def command(
    target: EntityTarget,
    count: int | None,
    follow: bool,
    start: int,
    dead_letter: bool,
    session_id: str | None,
    as_json: bool,
) -> None:
    """Show messages without locking or changing them, oldest first.

    Prints sequence number, enqueued time, message id and body, or with --json everything.
    Locked, deferred and scheduled messages are shown too. Needs the Listen right.

    \b
    Examples:
      sbpair peek primary/orders
      sbpair peek primary/orders --dead-letter --count 100 --json
      sbpair peek env:SBPAIR_SECONDARY/orders --follow
    """
    chosen = target.dead_letters() if dead_letter else target
    most = count if count is not None or follow else 10
    asyncio.run(_peek(chosen, start, most, follow, session_id, as_json))


async def _peek(
    target: EntityTarget, start: int, most: int | None, follow: bool, session_id: str | None, as_json: bool
) -> None:
    stop = stop_on_signal()
    left = most
    async with target.connection() as connection:
        while not stop.is_set():
            asked = None if left is None else left + (not follow)
            async for number, payload in peek_payloads(connection, target.path, start, asked, session_id):
                if left == 0:
                    say_more(target.path, most or 0)
                    continue
                print_json(payload) if as_json else _print_line(payload)
                start = start if number is None else max(start, number + 1)
                left = None if left is None else left - 1
            if not follow or left == 0:
                return
            try:
                async with asyncio.timeout(POLL_INTERVAL):
                    await stop.wait()
            except TimeoutError:
                pass


def peek_payloads(
    connection: NamespaceConnection, path: str, start: int, most: int | None, session_id: str | None = None
) -> AsyncIterator[tuple[int | None, bytes]]:
    """Iterate over the sequence number and bytes of up to ``most`` messages from ``start`` on.

    Raises TokenRefusedError, LinkRefusedError, ConnectionLostError.
    """
    from sbpair.pair.syphon.watch.peeking import peek_all

    return peek_all(
        connection, path, _with_number, itemgetter(0), start=start, most=most, session_id=session_id
    )


def _with_number(payload: bytes) -> tuple[int | None, bytes]:
    from sbpair.pair.cli.form import as_object

    found = as_object(payload).get("sequence_number")
    return found if isinstance(found, int) else None, payload


def _print_line(payload: bytes) -> None:
    from sbpair.pair.cli.form import as_line

    click.echo(plain(as_line(payload)))
