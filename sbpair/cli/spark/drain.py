"""`sbpair spark syphon`: drain the backlogs with Spark on this machine, one task for each."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.cli.errors import ConfigurationError, one_line
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.namespaces import pair_options
from sbpair.cli.option_flags import Span
from sbpair.cli.pair_flags import backlogs_option, ca_file_option, name_option
from sbpair.cli.source import Source
from sbpair.cli.spark.pair import failed, told

if TYPE_CHECKING:
    from pyspark.sql import Row

COUNTS = ("received", "forwarded", "completed", "dead_lettered")


@click.command("syphon")
@pair_options
@name_option
@backlogs_option
@ca_file_option
@click.option(
    "--max-duration",
    type=Span(),
    default="5m",
    show_default=True,
    help="After this long a backlog is left as it is; 1s to 24h.",
)
@click.option(
    "--journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write what happens to each message to files in this directory, for an audit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each backlog.")
def drain(
    primary: Source,
    secondary: Source,
    primary_namespace_name: str | None,
    backlogs: int,
    ca_file: str | None,
    max_duration: timedelta,
    journal: Path | None,
    as_json: bool,
) -> int:
    """Drain the backlogs, one task of Spark for each.

    Safe beside daemons. For one machine `sbpair syphon --drain` does the same with
    less; this is the job as a cluster runs it (docs/spark.md). Exit code 1 when a
    backlog was not found empty in time.

    \b
    Example:
      sbpair spark syphon --backlogs 10 --journal journals --json
    """
    options = told(
        primary,
        secondary,
        primaryNamespaceName=primary_namespace_name,
        backlogQueueCount=str(backlogs),
        caFile=ca_file,
        maxDurationSeconds=f"{max_duration.total_seconds():g}",
        journal=None if journal is None else str(journal.resolve()),
    )
    for row in (rows := _run(options, backlogs)):
        click.echo(json.dumps(row.asDict()) if as_json else _line(row))
    return ExitCode.OK if all(row["is_empty"] for row in rows) else ExitCode.FAILED


def _run(options: dict[str, str], backlogs: int) -> list[Row]:
    try:
        from sbpair.spark import build_session
        from sbpair.spark.session import HASTY
        from sbpair.spark.syphon_options import DrainOptions

        DrainOptions.of(options)
        session = build_session("sbpair syphon", master=f"local[{backlogs},2]", settings=HASTY)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(one_line(error)) from error
    try:
        rows = session.read.format("sbpair-syphon").options(**options).load().collect()
        return sorted(rows, key=lambda row: str(row["backlog"]))  # Spark's own sort would drain twice
    except Exception as error:
        raise failed(error) from error
    finally:
        session.stop()


def _line(row: Row) -> str:
    counts = ", ".join(f"{row[name]} {name.replace('_', '-')}" for name in COUNTS)
    return f"{row['backlog']}: {counts}; {'empty' if row['is_empty'] else row['trouble']}"
