"""`sbpair backlog list`: the backlog queues with their message counts, ages and unexpected properties."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import click

from sbpair.pair.cli.backlog.target import BacklogTarget, with_target
from sbpair.pair.cli.connection import administering
from sbpair.pair.cli.output import age_seconds, age_text
from sbpair.pair.envelope.names import index_of, take_inventory

if TYPE_CHECKING:
    from azure.servicebus.management import QueueProperties, QueueRuntimeProperties

    from sbpair.pair.client.connection import NamespaceConnection


@dataclass(frozen=True, slots=True)
class BacklogRow:
    """One backlog queue; ages in seconds, None where there is no message."""

    name: str
    index: int
    active: int
    dead_lettered: int
    untransferred: int
    oldest_age: float | None
    oldest_dead_letter_age: float | None
    size_in_bytes: int
    is_extra: bool
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BacklogListing:
    """The backlog queues found on the secondary, the missing ones, and the number of those of other pairings."""

    backlogs: tuple[BacklogRow, ...]
    missing: tuple[str, ...]
    other_pairings: dict[str, int]


@click.command("list")
@with_target
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def list_(target: BacklogTarget, as_json: bool) -> None:
    """List the backlog queues with their message counts and the age of the oldest message.

    Needs the Manage right on the secondary. A queue beyond --backlogs is reported: no sender
    uses it, and no syphon with this count drains it.

    \b
    Examples:
      sbpair backlog list
      sbpair backlog list --backlogs 16 --json
    """
    listing = asyncio.run(_listing(target))
    if as_json:
        click.echo(json.dumps({"primary": target.label, **asdict(listing)}))
        return
    _show(target, listing)


async def _listing(target: BacklogTarget) -> BacklogListing:
    from sbpair.pair.pairing.shared.backlog import differences

    with administering(), target.administration() as administration:
        described = {queue.name: queue for queue in administration.list_queues()}
        inventory = take_inventory(described, target.label, target.count, is_ordered=target.is_ordered)
        counted = {queue.name: queue for queue in administration.list_queues_runtime_properties()}
    spelled = {name.casefold(): name for name in described}
    names = [spelled[name.casefold()] for name in (*inventory.present, *inventory.extra)]
    rows = [
        _row(described[name], counted.get(name), differences(described[name]), name in inventory.extra)
        for name in names
    ]
    if any(row.active or row.dead_lettered for row in rows):  # else there is nothing to peek at
        async with target.connection() as connection:
            rows = [await _aged(row, connection) for row in rows]
    return BacklogListing(tuple(rows), inventory.missing, inventory.others)


def _row(
    queue: QueueProperties, counts: QueueRuntimeProperties | None, differences: list[str], is_extra: bool
) -> BacklogRow:
    return BacklogRow(
        name=queue.name,
        index=index_of(queue.name),
        active=(counts and counts.active_message_count) or 0,
        dead_lettered=(counts and counts.dead_letter_message_count) or 0,
        untransferred=(counts and counts.transfer_dead_letter_message_count) or 0,
        oldest_age=None,
        oldest_dead_letter_age=None,
        size_in_bytes=(counts and counts.size_in_bytes) or 0,
        is_extra=is_extra,
        differences=tuple(differences),
    )


async def _aged(row: BacklogRow, connection: NamespaceConnection) -> BacklogRow:
    from sbpair.pair.syphon.watch.peeking import DEAD_LETTERS

    oldest = await _oldest(connection, row.name) if row.active else None
    dead = await _oldest(connection, row.name + DEAD_LETTERS) if row.dead_lettered else None
    return replace(row, oldest_age=oldest, oldest_dead_letter_age=dead)


async def _oldest(connection: NamespaceConnection, path: str) -> float | None:
    from sbpair.pair.syphon.watch.peeking import peek_parked

    now = time.time_ns() // 1_000_000
    first = [message async for message in peek_parked(connection, path, most=1)]
    return age_seconds(first[0].parked_at, now) if first else None


def _show(target: BacklogTarget, listing: BacklogListing) -> None:
    from rich.table import Table

    from sbpair.pair.cli.output import show

    prefix = target.name(0).removesuffix("0")
    table = Table(
        "number", "active", "oldest", "dead", "oldest dead", "note", title=f"backlog queues {prefix}NUMBER"
    )
    for row in listing.backlogs:
        cells = (str(row.active), age_text(row.oldest_age), str(row.dead_lettered))
        table.add_row(str(row.index), *cells, age_text(row.oldest_dead_letter_age), _note(row))
    for name in listing.missing:
        table.add_row(str(index_of(name)), "-", "-", "-", "-", "missing")
    show(table)
    active, dead = (
        sum(row.active for row in listing.backlogs),
        sum(row.dead_lettered for row in listing.backlogs),
    )
    click.echo(f"{active} messages wait, {dead} are dead-lettered")
    untransferred = sum(row.untransferred for row in listing.backlogs)
    if untransferred:
        click.echo(
            f"{untransferred} landed messages were refused on the secondary: sbpair backlog redrive --transfer"
        )
    for line in _warnings(target, listing):
        click.echo(f"sbpair: warning: {line}", err=True)


def _note(row: BacklogRow) -> str:
    return "; ".join((*(["EXTRA"] if row.is_extra else []), *row.differences)) or "ok"


def _warnings(target: BacklogTarget, listing: BacklogListing) -> list[str]:
    extra = [row for row in listing.backlogs if row.is_extra]
    lines = [
        f"{row.name} is extra: with --backlogs {target.count} no sender uses it and no syphon drains it"
        + (f"; {row.active} messages are stranded in it" if row.active else "")
        for row in extra
    ]
    if extra:
        most = max(row.index for row in extra) + 1
        lines.append(f"to bring their messages home, run `sbpair syphon --drain --backlogs {most}`")
    if len(listing.missing) == target.count and listing.other_pairings:
        named = ", ".join(f"{name} ({count})" for name, count in listing.other_pairings.items())
        lines.append(f"no backlog queues of {target.label!r} exist, but there are some of: {named}")
    return lines
