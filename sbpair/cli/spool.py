"""`sbpair spool`: what waits in a spool, and how to be rid of it."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sbpair.pairing.spool import Spool, SpoolCount

PATH = click.argument("path", type=click.Path(path_type=Path))


@click.group("spool")
def command() -> None:
    """See or purge the messages that wait on disk.

    A spool holds what neither namespace took; the client it belongs to replays it.
    Only one process uses a spool at a time: stop the client first.
    """


@command.command("list")
@PATH
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each destination.")
def list_(path: Path, as_json: bool) -> None:
    """Count the messages by destination, and say how old the oldest is.

    \b
    Example:
      sbpair spool list /var/lib/orders/spool
    """
    with closing(_opened(path)) as spool:
        counts, refusals = spool.counts(), spool.refusals()
    now = time.time_ns() // 1_000_000
    for count in counts:
        click.echo(_as_json(count, now) if as_json else _for_people(count, now))
    if as_json:
        return
    for destination, message_id, why in refusals:
        click.echo(f"refused: {_plain(destination)} {message_id!r}: {_plain(why)}")
    waiting, refused = sum(each.waiting for each in counts), sum(each.refused for each in counts)
    click.echo(f"{waiting} waiting, {refused} refused")


@command.command()
@PATH
@click.option("--path", "destination", help="Only the messages for this destination.")
@click.option("--refused", "refused_only", is_flag=True, help="Only messages that no broker will accept.")
@click.option("--yes", is_flag=True, help="Do it: without this flag it only says what would be deleted.")
def purge(path: Path, destination: str | None, refused_only: bool, yes: bool) -> int:
    """Delete messages from the spool. They are lost then.

    \b
    Examples:
      sbpair spool purge /var/lib/orders/spool         # says how many it would delete
      sbpair spool purge /var/lib/orders/spool --refused --yes
    """
    with closing(_opened(path)) as spool:
        if yes:
            click.echo(f"deleted {spool.purge(destination, refused_only=refused_only)}")
            return 0
        count = spool.count(destination, refused_only=refused_only)
    problem = f"this would delete {count} messages for good; add --yes to do it"
    raise click.UsageError(problem, click.get_current_context())


def _opened(path: Path) -> Spool:
    from sbpair.pairing.spool import Spool  # late: the SDK's errors come with it

    return Spool(path, primary=None)


def _as_json(count: SpoolCount, now: int) -> str:
    return json.dumps(asdict(count) | {"oldest_age_seconds": _age(count, now)})


def _for_people(count: SpoolCount, now: int) -> str:
    return (
        f"{_plain(count.path)}: {count.waiting} waiting, {count.refused} refused, {count.bytes} bytes, "
        f"oldest {_age(count, now):.0f} s"
    )


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())


def _age(count: SpoolCount, now: int) -> float:
    return max(now - count.oldest, 0) / 1000
