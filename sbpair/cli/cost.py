"""`sbpair cost`: estimate the operations that a pairing adds to the bill."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import TypeVar

import click

from sbpair.cli.parameters import DurationType

from .meter import Operations, Usage, bill

Command = TypeVar("Command", bound=Callable[..., object])
MAX_COUNT = 10**12

NUMBERS = {
    "backlogs": (10, "Backlog queues."),
    "days": (30, "The period, in days."),
    "syphons": (1, "Syphon processes; each receives from every backlog queue."),
    "outages": (1, "Outages in the period."),
    "parked": (0, "Messages parked in each outage."),
    "entities": (1, "Queues that fail over in each process."),
    "processes": (1, "Sending processes; each forked worker counts."),
}
KINDS = {
    "idle_receives": "receives of an idle syphon",
    "backlog_sends": "sends to a backlog",
    "backlog_receives": "receives from a backlog",
    "primary_sends": "sends to the primary by the syphon",
    "primary_receives": "receives from the primary",
    "pings": "pings",
}


def _number_options(command: Command) -> Command:
    for name, (default, text) in reversed(NUMBERS.items()):
        kind = click.IntRange(0, MAX_COUNT)
        command = click.option(f"--{name}", type=kind, default=default, show_default=True, help=text)(command)
    return command


@click.command("cost")
@_number_options
@click.option(
    "--failed-over", type=DurationType(), default="1h", show_default=True, help="How long each outage lasts."
)
@click.option(
    "--ping-interval", type=DurationType(), default="60s", show_default=True, help="As ping_primary_interval."
)
@click.option("--price-per-million", type=click.FloatRange(min=0), help="The price of a million operations.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    failed_over: timedelta,
    ping_interval: timedelta,
    price_per_million: float | None,
    as_json: bool,
    **numbers: int,
) -> None:
    """Estimate the billed operations of a pairing, by kind.

    Calculates only; no namespace is contacted. A message counts as one operation, and so does a
    receive that ends empty after 15 minutes. Pings that are never answered may not be billed at all.

    \b
    Examples:
      sbpair cost
      sbpair cost --syphons 2 --outages 1 --parked 100000 --processes 64 --price-per-million 0.05
    """
    try:
        usage = Usage(failed_over=failed_over, ping_interval=ping_interval, **numbers)
    except ValueError as error:
        raise click.UsageError(str(error).replace("_", "-"), click.get_current_context()) from error
    operations = bill(usage)
    price = None if price_per_million is None else operations.total * price_per_million / 1_000_000
    if as_json:
        sums = {"total": operations.total, "beyond_direct": operations.beyond_direct, "price": price}
        click.echo(json.dumps(asdict(operations) | sums))
    else:
        _show(operations, usage, price)


def _show(operations: Operations, usage: Usage, price: float | None) -> None:
    from rich.table import Table

    from sbpair.cli.output import show

    table = Table("operations", f"in {usage.days} days")
    table.columns[1].justify = "right"
    for name, number in asdict(operations).items():
        table.add_row(KINDS[name], group_digits(number))
    table.add_section()
    table.add_row("all", group_digits(operations.total))
    table.add_row("more than without a pairing", group_digits(operations.beyond_direct))
    if price is not None:
        table.add_row("price of all", f"{price:.2f}")
    show(table)


def group_digits(number: int) -> str:
    """Return ``number`` with its thousands separated by spaces, such as ``28 800``."""
    return f"{number:,}".replace(",", " ")
