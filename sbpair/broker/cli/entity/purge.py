"""`sbpair purge`: delete the messages of a queue or subscription."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from sbpair.broker.cli.entity.peek import peek_payloads
from sbpair.broker.cli.entity.target import EntityTarget, dead_letter_option, with_entity
from sbpair.pair.cli.errors import ExitCode
from sbpair.pair.cli.signals import stop_on_signal

from .consuming import Consumed, SessionChoice, consume

if TYPE_CHECKING:
    from sbpair.pair.client.connection import NamespaceConnection

MAX_EMPTY = 3  # sessions in a row without a message
NEEDS_SESSIONS = "amqp:not-allowed"


@click.command("purge")
@with_entity
@dead_letter_option
@click.option("--yes", is_flag=True, help="Delete. Without this flag the command only prints the count.")
def command(target: EntityTarget, dead_letter: bool, yes: bool) -> int:
    """Permanently delete the messages of a queue or subscription.

    Deletes every message that can be received, in all sessions. Scheduled, deferred and locked
    messages stay, and are counted. Needs the Listen right. Exit code 2 without --yes, 1 after a
    signal or when messages are left.

    \b
    Examples:
      sbpair purge primary/orders                 # prints how many it would delete
      sbpair purge primary/orders --dead-letter --yes
    """
    chosen = target.dead_letters() if dead_letter else target
    if not yes:
        there = asyncio.run(_count(chosen))
        text = f"this would permanently delete {there} messages; add --yes to do it"
        raise click.UsageError(text, click.get_current_context())
    counts = Consumed()
    left: int | None = None
    try:
        left = asyncio.run(_purge(chosen, counts))
    finally:
        kept = f", {left} left: locked, deferred or scheduled" if left else ""
        click.echo(f"deleted {counts.completed}{kept}")
    return ExitCode.OK if left == 0 else ExitCode.FAILED


async def _count(target: EntityTarget) -> int:
    async with target.connection() as connection:
        return await _count_left(connection, target.path)


async def _count_left(connection: NamespaceConnection, path: str) -> int:
    return len([number async for number, _ in peek_payloads(connection, path, 1, None)])


async def _purge(target: EntityTarget, counts: Consumed) -> int | None:
    """Delete. Returns the number of messages left; None when a signal stopped it."""
    from sbpair.pair.client.errors import LinkRefusedError, SessionUnavailableError

    stop = stop_on_signal()
    sessions: SessionChoice | None = None
    empty = 0
    async with target.connection() as connection:
        while not stop.is_set() and empty < MAX_EMPTY:
            before = counts.completed
            try:
                await consume(
                    connection, target.path, _drop, counts, most=None, wait=0, sessions=sessions, stop=stop
                )
            except SessionUnavailableError:
                break
            except LinkRefusedError as error:
                symbol = str(error.condition.symbol) if error.condition else ""
                if sessions is not None or symbol != NEEDS_SESSIONS:
                    raise
                sessions = SessionChoice(None)
                continue
            empty = empty + 1 if counts.completed == before else 0
            if sessions is None:
                break
        return None if stop.is_set() else await _count_left(connection, target.path)


def _drop(payload: bytes) -> None:
    """Discard a purged message."""
