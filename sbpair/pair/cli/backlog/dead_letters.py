"""`sbpair backlog redrive` and `sbpair backlog purge`: the dead-lettered messages of the backlog queues."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sbpair.pair.cli.backlog.target import BacklogTarget, index_option, with_target
from sbpair.pair.cli.errors import ExitCode
from sbpair.pair.cli.signals import stop_on_signal

from .target import MissingQueues

if TYPE_CHECKING:
    from sbpair.pair.syphon.watch.deadletters import RedriveCounts


class IndexOrAll(click.ParamType[int | None]):
    """A number, or `all`."""

    name = "index|all"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        text = str(value)
        if text == "all":
            return None
        if not text.isascii() or not text.isdigit():
            self.fail(f"{value!r} is neither a number nor 'all'", param, ctx)
        return int(text)


@click.command("redrive")
@with_target
@click.option("--index", type=IndexOrAll(), default="all", show_default=True, help="Which backlog queue.")
@click.option("--reason", help="Only messages dead-lettered for this reason, e.g. DestinationNotFound.")
@click.option(
    "--transfer",
    is_flag=True,
    help="Redrive the transfer dead-letter queues: messages that an entity of the secondary refused after landing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one line of JSON.")
def redrive(
    target: BacklogTarget, index: int | None, reason: str | None, transfer: bool, as_json: bool
) -> int:
    """Send dead-lettered messages back to their backlog queue.

    Run it after fixing the cause: the syphon then handles them like newly parked messages.
    Each is sent before it is removed, so an interruption loses nothing. Needs the Send and
    Listen rights on the secondary. Exit code 1 if messages were refused or missed, or after
    a signal.

    With --transfer it redrives the messages that a syphon landed on the secondary and that
    their entity there refused after all, because it was full. They are parked again.

    \b
    Examples:
      sbpair backlog redrive --reason DestinationNotFound
      sbpair backlog redrive --index 3 --json
      sbpair backlog redrive --transfer
    """
    from sbpair.pair.syphon.watch.deadletters import RedriveCounts

    counts = RedriveCounts()
    stopped = False
    try:
        stopped = asyncio.run(_redrive(target, index, reason, transfer, counts))
    finally:
        click.echo(json.dumps(asdict(counts)) if as_json else _as_text(counts))
    if stopped:
        click.echo("sbpair: stopped before the end; run it again to continue", err=True)
    return ExitCode.FAILED if stopped or counts.refused or counts.missed else ExitCode.OK


async def _redrive(
    target: BacklogTarget, index: int | None, reason: str | None, transfer: bool, counts: RedriveCounts
) -> bool:
    """Redrive. Returns whether a signal stopped it early."""
    from sbpair.pair.syphon.watch.deadletters import redrive as send_back

    stop = stop_on_signal()
    backlogs = target.names(index)
    missing = MissingQueues(backlogs, index)
    async with target.connection() as connection:
        for backlog in backlogs:
            with missing.tolerate():
                await send_back(connection, backlog, counts, reason=reason, untransferred=transfer, stop=stop)
            if stop.is_set():
                return True
    return False


def _as_text(counts: RedriveCounts) -> str:
    parts = [f"{counts.redriven} redriven", f"{counts.left} left"]
    if counts.refused:
        parts.append(f"{counts.refused} refused ({counts.refusal})")
    if counts.missed:
        parts.append(f"{counts.missed} missed, perhaps locked by another receiver: run it again")
    if counts.twice:
        parts.append(f"{counts.twice} sent back, but possibly still dead-lettered as well")
    return ", ".join(parts)


@click.command("purge")
@with_target
@index_option
@click.option("--dead-letter", is_flag=True, help="Delete dead-lettered messages (required).")
@click.option("--yes", is_flag=True, help="Delete. Without this flag the command only prints the count.")
def purge(target: BacklogTarget, index: int | None, dead_letter: bool, yes: bool) -> int:
    """Delete the dead-lettered messages of the backlog queues. This cannot be undone.

    Messages waiting in a backlog queue are never deleted: the syphon brings them home. Needs
    the Listen right on the secondary. Exit code 2 without --yes, 1 after a signal.

    \b
    Examples:
      sbpair backlog purge --dead-letter            # prints how many it would delete
      sbpair backlog purge --dead-letter --index 3 --yes
    """
    if not dead_letter:
        text = "only dead letters can be purged: add --dead-letter; the syphon brings waiting messages home"
        raise click.UsageError(text, click.get_current_context())
    numbers: list[None] = []  # one entry per message, so that the count survives an interruption
    if not yes:
        asyncio.run(_count(target, index, numbers))
        text = f"this would permanently delete {len(numbers)} messages; add --yes to do it"
        raise click.UsageError(text, click.get_current_context())
    try:
        stopped = asyncio.run(_purge(target, index, numbers))
    finally:
        click.echo(f"deleted {len(numbers)}")
    return ExitCode.FAILED if stopped else ExitCode.OK


async def _count(target: BacklogTarget, index: int | None, found: list[None]) -> None:
    from sbpair.pair.syphon.watch.peeking import DEAD_LETTERS, peek_parked

    backlogs = target.names(index)
    missing = MissingQueues(backlogs, index)
    async with target.connection() as connection:
        for backlog in backlogs:
            with missing.tolerate():
                async for _ in peek_parked(connection, backlog + DEAD_LETTERS):
                    found.append(None)  # noqa: PERF401  (kept also when the next page fails)


async def _purge(target: BacklogTarget, index: int | None, deleted: list[None]) -> bool:
    from sbpair.pair.syphon.watch.deadletters import purge as delete

    stop = stop_on_signal()
    backlogs = target.names(index)
    missing = MissingQueues(backlogs, index)
    async with target.connection() as connection:
        for backlog in backlogs:
            with missing.tolerate():
                await delete(connection, backlog, lambda: deleted.append(None), stop=stop)
            if stop.is_set():
                return True
    return False
