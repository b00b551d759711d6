"""`sbpair syphon`: bring parked messages home, as a daemon or once."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.pair.cli.errors import configuration
from sbpair.pair.cli.namespaces import NamespaceArgument, pair_options, syphon_between
from sbpair.pair.cli.option_flags import options_as_flags, options_from
from sbpair.pair.cli.output import as_log
from sbpair.pair.cli.parameters import DurationType
from sbpair.pair.syphon.options import SyphonOptions

from .monitoring import Monitoring, exported_telemetry, monitor, monitoring_options

if TYPE_CHECKING:
    from sbpair.pair.syphon.status import SyphonCounters

LOG_LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}
MEASURED = timedelta(seconds=60)  # between two measurements of the backlogs, where /metrics shows them
NAMES = {"backlog_queue_count": "backlogs", "connection_verify": "ca_file", "over_websocket": "websocket"}
# a proxy URL may contain a password: use HTTPS_PROXY
LEFT_OUT = frozenset({"report_forwards", "http_proxy", "only_backlogs"})


@click.command("syphon")
@pair_options
@click.option("--drain", is_flag=True, help="Stop with exit code 0 as soon as every backlog is empty.")
@click.option(
    "--patience",
    type=DurationType(),
    default="30s",
    show_default=True,
    help="With --drain: how long a namespace may be unreachable before the command ends with exit code 5.",
)
@options_as_flags(SyphonOptions, names=NAMES, leave_out=LEFT_OUT)
@monitoring_options
@click.option(
    "--otel",
    is_flag=True,
    help="Export traces and metrics by OTLP over HTTP; OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of "
    "OpenTelemetry configure the destination. Needs the extra otel.",
)
@click.option("--json-log", is_flag=True, help="Write the log to stderr as JSON lines, for log collectors.")
@click.option(
    "--log-level",
    type=click.Choice(list(LOG_LEVELS)),
    default="info",
    show_default=True,
    help="The least level to log: error needs a person, warning is trouble that begins or ends, debug is a "
    "line for each batch of messages.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the final counters as one line of JSON.")
def command(
    primary: NamespaceArgument,
    secondary: NamespaceArgument,
    drain: bool,
    patience: timedelta,
    otel: bool,
    json_log: bool,
    log_level: str,
    as_json: bool,
    journal: Path | None,
    status_port: int | None,
    status_host: str,
) -> int:
    """Bring parked messages home: as a daemon, or one drain.

    SIGTERM or Ctrl-C finishes in-flight messages, releases the others and
    exits with code 0, or with 1 during --drain, because the backlogs are then
    not known to be empty. A second signal exits at once.

    \b
    Examples:
      SBPAIR_PRIMARY=file:primary.key SBPAIR_SECONDARY=file:secondary.key sbpair syphon
      sbpair syphon --config sbpair.toml --status-port 8080
      sbpair syphon --drain --patience 5m --json
    """
    given = options_from(SyphonOptions, names=NAMES)
    measured = given.measure_every or (None if status_port is None else MEASURED)
    options = replace(given, report_forwards=journal is not None, measure_every=measured)
    monitoring = Monitoring(journal, status_port, status_host)

    from .run import SyphonRun  # late: not needed for --help

    as_log(LOG_LEVELS[log_level], is_json=json_log)
    with configuration():
        check_ca_file(options.connection_verify)
        syphon = syphon_between(primary, secondary, options)
    run = SyphonRun(syphon, patience=patience.total_seconds() if drain else None)

    async def until_done() -> int:
        async with monitor(syphon, monitoring):
            return await run.until_done()

    with exported_telemetry(otel):
        code = asyncio.run(until_done())
    click.echo(_as_json(syphon.counters) if as_json else _as_text(syphon.counters))
    run.check_dead_letters()
    return code


def check_ca_file(path: str | None) -> None:
    """Fail early on an unusable CA file, which no retry can fix. Raises ValueError."""
    if path is None:
        return
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ValueError(f"--ca-file: the certificates in {path} cannot be read: {error}") from error


def _as_json(counters: SyphonCounters) -> str:
    return json.dumps(asdict(counters))


def _as_text(counters: SyphonCounters) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in asdict(counters).items())
