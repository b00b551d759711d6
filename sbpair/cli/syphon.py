"""`sbpair syphon`: bring the parked messages home, as a daemon or once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.cli.errors import configuration
from sbpair.cli.namespaces import pair_options
from sbpair.cli.option_flags import Span, options_as_flags, options_from
from sbpair.cli.source import Source, syphon_between
from sbpair.cli.syphon_watch import watch_from, watch_options, watched
from sbpair.syphon.options import SyphonOptions

if TYPE_CHECKING:
    from sbpair.syphon import SyphonCounters

NAMES = {"backlog_queue_count": "backlogs", "connection_verify": "ca_file", "over_websocket": "websocket"}
LEFT_OUT = frozenset(
    {"tell_forwards", "http_proxy", "only_backlogs"}
)  # a proxy's URL may hold a password: see HTTPS_PROXY


@click.command("syphon")
@pair_options
@click.option("--drain", is_flag=True, help="Stop with exit code 0 as soon as every backlog is empty.")
@click.option(
    "--patience",
    type=Span(),
    default="30s",
    show_default=True,
    help="With --drain: how long a side may be out of reach before we give up with exit code 5.",
)
@options_as_flags(SyphonOptions, names=NAMES, leave_out=LEFT_OUT)
@watch_options
@click.option("--json-log", is_flag=True, help="Write what happens to stderr as JSON lines, for collectors.")
@click.option("--json", "as_json", is_flag=True, help="Print the final counters as one line of JSON.")
def command(
    primary: Source,
    secondary: Source,
    drain: bool,
    patience: timedelta,
    json_log: bool,
    as_json: bool,
    journal: Path | None,
    status_port: int | None,
    webhook: str | None,
    webhook_secret: str | None,
) -> int:
    """Bring the parked messages home: the daemon, or one drain.

    SIGTERM or Ctrl-C lets what is in flight finish, gives back the rest and
    ends with exit code 0; a second one leaves at once.

    \b
    Examples:
      SBPAIR_PRIMARY=file:primary.key SBPAIR_SECONDARY=file:secondary.key sbpair syphon
      sbpair syphon --config sbpair.toml --status-port 8080
      sbpair syphon --drain --patience 5m --json
    """
    given = options_from(SyphonOptions, names=NAMES)
    options = replace(given, tell_forwards=journal is not None)
    watch = watch_from(journal, status_port, webhook, webhook_secret)

    from sbpair.cli.syphon_run import SyphonRun, log_as_json  # late: the engine is not needed for --help

    if json_log:
        log_as_json()
    with configuration():
        syphon = syphon_between(primary, secondary, options)
    run = SyphonRun(syphon, patience=patience.total_seconds() if drain else None)

    async def until_done() -> int:
        async with watched(syphon, watch, primary, secondary):
            return await run.until_done()

    code = asyncio.run(until_done())
    click.echo(_as_json(syphon.counters) if as_json else _for_people(syphon.counters))
    return code


def _as_json(counters: SyphonCounters) -> str:
    return json.dumps(asdict(counters))


def _for_people(counters: SyphonCounters) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in asdict(counters).items())
