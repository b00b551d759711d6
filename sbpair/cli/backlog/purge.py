"""`sbpair backlog purge`: delete the dead letters of the backlog queues, for good."""

from __future__ import annotations

import asyncio

import click

from sbpair.cli.backlog.reach import connected, passing_by
from sbpair.cli.backlog.target import Target, index_option, with_target
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.stopping import stop_on_signal


@click.command("purge")
@with_target
@index_option
@click.option("--dead-letter", is_flag=True, help="What is to be deleted; nothing else can be.")
@click.option("--yes", is_flag=True, help="Do it: without this flag it only says what would be deleted.")
def purge(target: Target, index: int | None, dead_letter: bool, yes: bool) -> int:
    """Delete the dead-lettered messages of the backlog queues. They are lost then.

    What waits in a backlog queue is not for deleting: the syphon brings it home. Needs the
    Listen right on the secondary.

    \b
    Examples:
      sbpair backlog purge --dead-letter            # says how many it would delete
      sbpair backlog purge --dead-letter --index 3 --yes
    """
    if not dead_letter:
        text = "only dead letters are purged: say so with --dead-letter; what waits, the syphon brings home"
        raise click.UsageError(text, click.get_current_context())
    numbers: list[None] = []  # one entry a message, so that the count survives an interruption
    if not yes:
        asyncio.run(_count(target, index, numbers))
        text = f"this would delete {len(numbers)} messages for good; add --yes to do it"
        raise click.UsageError(text, click.get_current_context())
    try:
        stopped = asyncio.run(_purge(target, index, numbers))
    finally:
        click.echo(f"deleted {len(numbers)}")
    return ExitCode.FAILED if stopped else ExitCode.OK


async def _count(target: Target, index: int | None, found: list[None]) -> None:
    from sbpair.syphon.look import DEAD_LETTERS, look

    async with connected(target) as connection:
        for backlog in target.names(index):
            with passing_by(index is None):
                async for _ in look(connection, backlog + DEAD_LETTERS):
                    found.append(None)  # noqa: PERF401  (kept also when the next page fails)


async def _purge(target: Target, index: int | None, deleted: list[None]) -> bool:
    from sbpair.syphon.purge import purge as delete

    stop = stop_on_signal()
    async with connected(target) as connection:
        for backlog in target.names(index):
            with passing_by(index is None):
                await delete(connection, backlog, lambda: deleted.append(None), stop=stop)
            if stop.is_set():
                return True
    return False
