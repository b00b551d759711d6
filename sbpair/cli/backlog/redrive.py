"""`sbpair backlog redrive`: put dead letters back into their backlog, for the syphon to take again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sbpair.cli.backlog.reach import connected, passing_by
from sbpair.cli.backlog.target import Target, with_target
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.stopping import stop_on_signal

if TYPE_CHECKING:
    from sbpair.syphon.redrive import RedriveCounts


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
@click.option("--reason", help="Only what was dead-lettered for this reason, e.g. DestinationNotFound.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one line of JSON.")
def redrive(target: Target, index: int | None, reason: str | None, as_json: bool) -> int:
    """Send dead-lettered messages back into their backlog queue.

    Do it when the cause is cured: the syphon takes them again as if they had just been
    parked. Each is sent before it is removed, so nothing is lost when this is interrupted.
    Needs the Send and Listen rights on the secondary.

    \b
    Examples:
      sbpair backlog redrive --reason DestinationNotFound
      sbpair backlog redrive --index 3 --json
    """
    from sbpair.syphon.redrive import RedriveCounts

    counts = RedriveCounts()
    stopped = False
    try:
        stopped = asyncio.run(_redrive(target, index, reason, counts))
    finally:
        click.echo(json.dumps(asdict(counts)) if as_json else _for_people(counts))
    if stopped:
        click.echo("sbpair: stopped before the end; run it again for the rest", err=True)
    return ExitCode.FAILED if stopped or counts.refused else ExitCode.OK


async def _redrive(target: Target, index: int | None, reason: str | None, counts: RedriveCounts) -> bool:
    """Redrive; whether a signal ended it."""
    from sbpair.syphon.redrive import redrive as send_back

    stop = stop_on_signal()
    async with connected(target) as connection:
        for backlog in target.names(index):
            with passing_by(index is None):
                await send_back(connection, backlog, counts, reason=reason, stop=stop)
            if stop.is_set():
                return True
    return False


def _for_people(counts: RedriveCounts) -> str:
    parts = [f"{counts.redriven} redriven", f"{counts.left} left"]
    if counts.refused:
        parts.append(f"{counts.refused} refused ({counts.refusal})")
    if counts.twice:
        parts.append(f"{counts.twice} sent back, but perhaps still dead-lettered too")
    return ", ".join(parts)
