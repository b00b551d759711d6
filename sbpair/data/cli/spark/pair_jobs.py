"""`sbpair spark syphon` and `sbpair spark replay`: Spark jobs on a pair of namespaces.

Connection strings are passed through environment variables, so that no key is part of a Spark plan.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.pair.cli.errors import CommandError, ConfigurationError, ExitCode, one_line
from sbpair.pair.cli.namespaces import (
    NamespaceArgument,
    backlogs_option,
    ca_file_option,
    name_option,
    namespace_option,
    pair_options,
)
from sbpair.pair.cli.parameters import DurationType, ExistingPath

if TYPE_CHECKING:
    from pyspark.sql import Row

VARIABLES = ("SBPAIR_SPARK_PRIMARY", "SBPAIR_SPARK_SECONDARY")
OPTIONS = (
    ("connectionString", "fullyQualifiedNamespace"),
    ("secondaryConnectionString", "secondaryFullyQualifiedNamespace"),
)
COUNTS = ("received", "forwarded", "completed", "dead_lettered")
DIRECTORY = ExistingPath(file_okay=False)
MAX_PRINTED = 100  # missing messages


def spark_options(
    primary: NamespaceArgument, secondary: NamespaceArgument, **more: str | None
) -> dict[str, str]:
    """Return the Spark options of a pair.

    Call it before Spark starts: connection strings are set as environment variables, which workers inherit.
    """
    options = {name: value for name, value in more.items() if value is not None}
    for source, variable, (string, host) in zip((primary, secondary), VARIABLES, OPTIONS, strict=True):
        if source.connection_string is None:
            options[host] = source.netloc
        else:
            os.environ[variable] = source.connection_string
            options[string] = f"env:{variable}"
    return options


def spark_options_of_one(source: NamespaceArgument, **more: str | None) -> dict[str, str]:
    """Return the Spark options of one namespace, for a process that starts no workers."""
    options = {name: value for name, value in more.items() if value is not None}
    string, host = OPTIONS[0]
    given = {host: source.netloc} if source.connection_string is None else {string: source.connection_string}
    return options | given


def job_error(error: Exception) -> CommandError:
    """Return the error for a failed job: sbpair's own message, extracted from Spark's."""
    own = [line.partition("sbpair")[2] for line in str(error).splitlines() if "Error: sbpair" in line]
    return CommandError(one_line(RuntimeError(f"sbpair{own[0]}") if own else error), ExitCode.FAILED)


@click.command("syphon")
@pair_options
@name_option
@backlogs_option
@ca_file_option
@click.option(
    "--max-duration",
    type=DurationType(),
    default="5m",
    show_default=True,
    help="The time limit for each backlog, from 1s to 24h.",
)
@click.option(
    "--journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write a journal of every message to this directory, for `sbpair audit`.",
)
@click.option(
    "--ordering",
    type=click.Choice(("none", "session")),
    default="none",
    show_default=True,
    help="As for the senders: with session, also drain the ordered backlog queues, each session in its order.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each backlog.")
def drain(
    primary: NamespaceArgument,
    secondary: NamespaceArgument,
    primary_namespace_name: str | None,
    backlogs: int,
    ca_file: str | None,
    max_duration: timedelta,
    journal: Path | None,
    ordering: str,
    as_json: bool,
) -> int:
    """Drain the backlogs, with one Spark task for each.

    Safe while syphon daemons run. On one machine `sbpair syphon --drain` is simpler;
    this command runs `format("sbpair-syphon")` as a cluster would. Exit code 1 when a
    backlog was not empty within its time limit.

    \b
    Example:
      sbpair spark syphon --backlogs 10 --journal journals --json
    """
    options = spark_options(
        primary,
        secondary,
        primaryNamespaceName=primary_namespace_name,
        backlogQueueCount=str(backlogs),
        caFile=ca_file,
        maxDurationSeconds=f"{max_duration.total_seconds():g}",
        ordering=ordering,
        journal=None if journal is None else str(journal.resolve()),
    )
    for row in (rows := _run(options, backlogs)):
        click.echo(json.dumps(row.asDict()) if as_json else _line(row))
    return ExitCode.OK if all(row["is_empty"] for row in rows) else ExitCode.FAILED


def _run(options: dict[str, str], backlogs: int) -> list[Row]:
    try:
        from sbpair.data.spark.session import SHORT_JOB, build_session

        from ...spark.syphon_source import DrainOptions

        DrainOptions.of(options)
        session = build_session("sbpair syphon", master=f"local[{backlogs},2]", settings=SHORT_JOB)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(one_line(error)) from error
    try:
        rows = session.read.format("sbpair-syphon").options(**options).load().collect()
        return sorted(rows, key=lambda row: str(row["backlog"]))  # a sort in Spark would run the drain twice
    except Exception as error:
        raise job_error(error) from error
    finally:
        session.stop()


def _line(row: Row) -> str:
    counts = ", ".join(f"{row[name]} {name.replace('_', '-')}" for name in COUNTS)
    return f"{row['backlog']}: {counts}; {'empty' if row['is_empty'] else row['trouble']}"


@click.command("replay")
@namespace_option("primary", required=False)
@namespace_option("secondary", required=False)
@name_option
@backlogs_option
@ca_file_option
@click.option(
    "--audit", type=DIRECTORY, required=True, metavar="DIR", help="The --out directory of an audit."
)
@click.option(
    "--archive",
    type=ExistingPath(),
    metavar="PATH",
    help="Parquet files of the sent messages: message_id, body, and other message columns. Only a dry run can do "
    "without: it prints what is missing.",
)
@click.option("--dry-run", is_flag=True, help="Count the messages and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def replay(
    primary: NamespaceArgument | None,
    secondary: NamespaceArgument | None,
    primary_namespace_name: str | None,
    backlogs: int,
    ca_file: str | None,
    audit: Path,
    archive: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Send the messages that an audit found lost again, from your archive.

    They keep their message ids, so that duplicate detection removes any that were not
    lost after all. Exit code 1 when the archive does not contain all of them. A dry run
    needs no connection.

    \b
    Examples:
      sbpair spark replay --audit audit --dry-run
      sbpair spark replay --audit audit --archive archive --dry-run
    """
    if not (audit / "missing").is_dir():
        raise ConfigurationError(f"{audit} is not the --out directory of an audit: it has no table `missing`")
    if archive is None:
        if not dry_run:
            raise ConfigurationError("give --archive, where the messages are, or --dry-run")
        return _print_missing(audit, as_json)
    options: dict[str, str] = {}
    if not dry_run:
        if primary is None or secondary is None:
            raise ConfigurationError(
                "give --primary and --secondary, to which messages are sent, or --dry-run"
            )
        options = spark_options(
            primary,
            secondary,
            primaryNamespaceName=primary_namespace_name,
            backlogQueueCount=str(backlogs),
            caFile=ca_file,
        )
    try:
        from sbpair.data.spark import replay as job
        from sbpair.data.spark.session import SHORT_JOB, build_session

        session = build_session("sbpair replay", settings=SHORT_JOB)
    except ImportError as error:
        raise ConfigurationError(one_line(error)) from error
    try:
        done = job.replay(session, str(audit), str(archive), options, dry_run=dry_run)
    except ValueError as error:
        raise ConfigurationError(one_line(error)) from error
    except Exception as error:
        raise job_error(error) from error
    finally:
        session.stop()
    verb = "sent" if done.sent else "found"
    text = f"{done.missing} messages are missing; {done.archived} of them {verb} from the archive"
    click.echo(json.dumps(asdict(done)) if as_json else text)
    return ExitCode.OK if done.archived == done.missing else ExitCode.FAILED


def _print_missing(audit: Path, as_json: bool) -> int:
    """Print the missing messages, without Spark."""
    from pyarrow import dataset

    rows = dataset.dataset(audit / "missing", format="parquet").to_table().to_pylist()
    if as_json:
        click.echo(json.dumps({"missing": len(rows), "archived": 0, "sent": False}))
    else:
        for row in rows[:MAX_PRINTED]:
            click.echo(f"  {row['path']}: {row['message_id']}")
        more = f", {MAX_PRINTED} of them above" if len(rows) > MAX_PRINTED else ""
        hint = "; --archive PATH finds them in Parquet files of what was sent" if rows else ""
        click.echo(f"{len(rows)} messages are missing{more}{hint}")
    return ExitCode.OK if not rows else ExitCode.FAILED
