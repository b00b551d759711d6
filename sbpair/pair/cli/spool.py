"""`sbpair spool`: list or export the messages of a spool, and redrive or purge them."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.pair.cli.output import plain

if TYPE_CHECKING:
    from sbpair.pair.pairing.spool.store import Spool, SpoolCount

PATH = click.argument("path", type=click.Path(path_type=Path))
DESTINATION = click.option("--path", "destination", help="Only the messages for this destination.")


@click.group("spool")
def command() -> None:
    """List, export, redrive or purge the messages in a spool on disk.

    A spool holds messages that no namespace has yet; its client sends them.
    Only one process can use a spool at a time: stop the client first.
    """


@command.command("list")
@PATH
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each destination.")
def list_(path: Path, as_json: bool) -> None:
    """Count the messages by destination, with the age of the oldest.

    Waiting messages are sent by the next client; refused ones were rejected by their
    destination and stay until `redrive` or `purge`.

    \b
    Example:
      sbpair spool list /var/lib/orders/spool
    """
    with closing(_open(path)) as spool:
        counts, refusals = spool.counts(), spool.refusals()
    now = time.time_ns() // 1_000_000
    for count in counts:
        click.echo(_as_json(count, now) if as_json else _as_text(count, now))
    if as_json:
        return
    alike: dict[tuple[str, str], list[str]] = {}
    for destination, message_id, why in refusals:
        alike.setdefault((destination, why), []).append(message_id)
    for (destination, why), ids in alike.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        click.echo(f"refused: {plain(destination)} {ids[0]!r}{more}: {plain(why)}")
    waiting, refused = sum(each.waiting for each in counts), sum(each.refused for each in counts)
    click.echo(f"{waiting} waiting, {refused} refused")


@command.command()
@PATH
@DESTINATION
@click.option("--refused", "refused_only", is_flag=True, help="Only messages that were refused.")
def export(path: Path, destination: str | None, refused_only: bool) -> None:
    """Print the messages as JSON, one a line, without changing the spool.

    The lines are those that `sbpair send --json` reads: edit a refused message and send it, then
    purge it here. Each has its destination, and why it was refused. Bodies are shown: keep the
    output as private as the spool.

    \b
    Examples:
      sbpair spool export /var/lib/orders/spool --path orders --refused
    """
    from sbpair.pair.cli.spooled_json import as_json

    with closing(_open(path)) as spool:
        for spooled, reason in spool.export(destination, refused_only=refused_only):
            click.echo(json.dumps(as_json(spooled, reason)))


@command.command()
@PATH
@DESTINATION
def redrive(path: Path, destination: str | None) -> None:
    """Queue refused messages for sending again.

    Run it after fixing the cause, such as a size limit or a session requirement. The next client
    with this spool sends them in their original order; those refused again stay in the spool. An
    expired message is always refused again: purge it.

    \b
    Examples:
      sbpair spool redrive /var/lib/orders/spool
      sbpair spool redrive /var/lib/orders/spool --path orders
    """
    with closing(_open(path)) as spool:
        click.echo(f"{spool.redrive(destination)} waiting again")


@command.command()
@PATH
@DESTINATION
@click.option("--refused", "refused_only", is_flag=True, help="Only messages that were refused.")
@click.option("--yes", is_flag=True, help="Delete. Without this flag the command only prints the count.")
def purge(path: Path, destination: str | None, refused_only: bool, yes: bool) -> int:
    """Delete messages from the spool. This cannot be undone.

    Without --yes it prints how many it would delete and exits with code 2.

    \b
    Examples:
      sbpair spool purge /var/lib/orders/spool         # prints how many it would delete
      sbpair spool purge /var/lib/orders/spool --refused --yes
    """
    with closing(_open(path)) as spool:
        if yes:
            click.echo(f"deleted {spool.purge(destination, refused_only=refused_only)}")
            return 0
        count = spool.count(destination, refused_only=refused_only)
    problem = f"this would permanently delete {count} messages; add --yes to do it"
    raise click.UsageError(problem, click.get_current_context())


def _open(path: Path) -> Spool:
    from sbpair.pair.pairing.spool.store import Spool  # late: imports the SDK

    return Spool(path, primary=None)


def _as_json(count: SpoolCount, now: int) -> str:
    return json.dumps(asdict(count) | {"oldest_age_seconds": _age(count, now)})


def _as_text(count: SpoolCount, now: int) -> str:
    return (
        f"{plain(count.path)}: {count.waiting} waiting, {count.refused} refused, {count.bytes} bytes, "
        f"oldest {_age(count, now):.0f} s"
    )


def _age(count: SpoolCount, now: int) -> float:
    return max(now - count.oldest, 0) / 1000
