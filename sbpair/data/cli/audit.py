"""`sbpair audit`: prove from journals that every message is accounted for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.data.cli.daily_audit import DailyFlags, run_daily
from sbpair.pair.cli.errors import ConfigurationError, ExitCode, one_line
from sbpair.pair.cli.parameters import DurationType
from sbpair.pair.ground.extras import install_line

if TYPE_CHECKING:
    from sbpair.data.audit.engine import Engine
    from sbpair.data.audit.expected import Expected
    from sbpair.data.audit.read.reading import ReadPlan
    from sbpair.data.audit.result.report import Provenance
    from sbpair.data.audit.result.summary import Summary

LOCAL, SPARK = "local", "spark"
PAGE_OF_DAYS = "current/days.html"


def _aliases(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Return the names by alias. Raises BadParameter for a value that is not ALIAS=NAME."""
    found = {}
    for each in given:
        alias, equals, name = each.partition("=")
        if not (equals and alias and name):
            raise click.BadParameter(f"{each!r} is not ALIAS=NAME", context, option)
        found[alias] = name
    chained = sorted({name.lower() for name in found.values()} & {alias.lower() for alias in found})
    if chained:
        raise click.BadParameter(f"{chained[0]!r} is an alias and a name", context, option)
    return found


@click.command("audit")
@click.option(
    "--journal", required=True, metavar="DIR", help="The directory of the journals, or a URI as for --out."
)
@click.option(
    "--out",
    metavar="DIR",
    help="The directory for the report and the tables, or a URI (s3:, abfss:, gs:, hdfs:); an earlier audit "
    "there is replaced, anything else is not.",
)
@click.option(
    "--skew",
    type=DurationType(),
    default="1s",
    show_default=True,
    help="How far the clocks of two machines may differ.",
)
@click.option(
    "--engine",
    type=click.Choice((LOCAL, SPARK)),
    help="Threads of this process, or Spark on this machine; the results are the same.  [default: local; "
    "of `sbpair spark audit`: spark]",
)
@click.option(
    "--alias",
    "aliases",
    multiple=True,
    metavar="ALIAS=NAME",
    callback=_aliases,
    help="Another name that journals use for a namespace, such as localhost-5672=contoso-dr; repeatable.",
)
@click.option(
    "--expect",
    "expectations",
    multiple=True,
    metavar="ROLE=COUNT|FILE",
    help="How many journals of a role there must be, such as sender=3, or a manifest, which `sbpair journal manifest` "
    "makes on the machine of the writers; repeatable.",
)
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="deleted=COUNT",
    help="How many messages were meant to be deleted, though they reached nobody; more than that make the exit code 1.",
)
@click.option(
    "--state",
    metavar="DIR",
    help="In place of --out: audit what is new since the last run with this directory, and update its tables by day.",
)
@click.option(
    "--since",
    type=click.DateTime(("%Y-%m-%d",)),
    metavar="DAY",
    help="With --state: the first day that page and exit code are about, such as 2026-11-01.  [default: all days]",
)
@click.option(
    "--heartbeat",
    "heartbeats",
    multiple=True,
    metavar="ROLE=SPAN",
    help="With --state: the journals of this role must have a record of the last SPAN, such as syphon=1h; repeatable.",
)
@click.option(
    "--forget",
    "forgotten",
    multiple=True,
    metavar="FILE",
    help="With --state: a file of a journal that counts no more from now on, such as a damaged one without a "
    "right copy; repeatable.",
)
@click.option("--reason", default="", metavar="TEXT", help="Why files are forgotten; the page shows it.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@click.pass_context
def command(
    context: click.Context,
    journal: str,
    out: str | None,
    skew: timedelta,
    engine: str | None,
    aliases: dict[str, str],
    expectations: tuple[str, ...],
    accepted: tuple[str, ...],
    state: str | None,
    since: datetime | None,
    heartbeats: tuple[str, ...],
    forgotten: tuple[str, ...],
    reason: str,
    as_json: bool,
) -> int:
    """Prove from journals that every message is accounted for.

    Reads the journals of senders, syphons, receivers and brokers (written with --journal),
    including subdirectories and gzipped files, and writes report.html, summary.json and
    Parquet tables. Exit code 1 when a message is lost, unexpected, misplaced, changed or unproven,
    was deleted although --accept does not say that this was meant, or has an unexplained
    copy; when a session whose sender keeps the order is out of order; when a file that may be
    a journal was not read, a journal has gaps or lacks its next file, or a sender's is not
    there at all; when clocks differ; and when there are no messages.

    \b
    Examples, for journals written by `sbpair demo --journal journals`:
      sbpair audit --journal journals --out audit
      sbpair audit --journal journals --out audit --expect sender=3 --expect syphon=1
      sbpair audit --journal journals --out audit --accept deleted=50
      sbpair audit --journal journals --state daily --heartbeat syphon=1h
      sbpair audit --journal journals --state daily --forget FILE --reason "the disk of host-7 died"
      sbpair spark audit --journal journals --out audit
    """
    flags = None if state is None else DailyFlags(state, since, heartbeats, forgotten, reason.strip())
    place = _place(journal, out, state)
    if flags is None and (since or heartbeats or forgotten):
        raise ConfigurationError("--since, --heartbeat and --forget go with --state")
    if bool(forgotten) != bool(reason.strip()):
        raise ConfigurationError(
            "--forget and --reason go together: the page shows why a file does not count"
        )
    is_in_spark_group = context.parent is not None and context.parent.info_name == SPARK
    chosen = engine or (SPARK if is_in_spark_group else LOCAL)
    try:
        from sbpair.data.audit import job
        from sbpair.data.audit.result.report import Provenance

        planned = _plan(journal)
        if flags is None:
            click.echo(f"sbpair audit: reading {planned.size / 1e6:.1f} MB of journals", err=True)
        expected, seconds = _parse_expected(expectations), skew.total_seconds()
        accept = _parse_accepted(accepted)
        with _engine(chosen) as run:
            if flags is None:
                summary, page = _once(planned, place, run, seconds, aliases, expected, accept), job.REPORT
            else:
                daily = run_daily(journal, flags, run, seconds, aliases, expected, accept)
                summary, page = daily.summary, PAGE_OF_DAYS
    except ImportError as error:
        raise ConfigurationError(_install(error)) from error
    if as_json:
        click.echo(job.as_json(summary))
    else:
        _print(summary)
        for line in _next_steps(summary, Provenance(journal, datetime.now(UTC), place)):
            click.echo(line)
        click.echo(f"report: {place.rstrip('/')}/{page}")
    return ExitCode.OK if summary.is_conserved else ExitCode.FAILED


def _place(journal: str, out: str | None, state: str | None) -> str:
    """Return the output location.

    Raises ConfigurationError unless exactly one of --out and --state is given, outside the journals: the next audit
    would read its results as journals.
    """
    if (out is None) == (state is None):
        raise ConfigurationError("give --out for one audit, or --state for one that goes on every day")
    place = out or state or ""
    if Path(place).resolve().is_relative_to(Path(journal).resolve()):
        flag = "--state" if out is None else "--out"
        raise ConfigurationError(
            f"{flag} {place} is in the directory of the journals, {journal}: choose one outside it"
        )
    return place


def _parse_expected(given: tuple[str, ...]) -> Expected:
    """Parse --expect. Raises ConfigurationError unless it is a role and a count, or a manifest."""
    from sbpair.data.audit.expected import Expected
    from sbpair.pair.observation.journal_reading import JournalError
    from sbpair.pair.observation.manifest import Accepted, ManifestEntry, parse, parse_accepted
    from sbpair.pair.observation.record import WriterRole

    counts: dict[str, int] = {}
    writers: list[ManifestEntry] = []
    accepted: list[Accepted] = []
    roles = [role.value for role in WriterRole]
    for each in given:
        role, equals, count = each.partition("=")
        if equals and role in roles:
            if not (count.isascii() and count.isdigit()):
                raise ConfigurationError(f"--expect {each}: {count!r} is no number of journals")
            counts[role] = int(count)
            continue
        try:
            text = Path(each).read_text("utf-8")
            writers += parse(text)
            accepted += parse_accepted(text)
        except FileNotFoundError as error:
            hint = f"roles are {', '.join(roles)}" if equals else "it does not exist"
            raise ConfigurationError(f"--expect {each}: {hint}") from error
        except (OSError, UnicodeDecodeError, JournalError) as error:
            raise ConfigurationError(f"--expect {each}: {one_line(error)}") from error
    return Expected(counts, writers, accepted)


def _parse_accepted(given: tuple[str, ...]) -> dict[str, int]:
    """Parse --accept. Raises ConfigurationError unless it is an acceptable verdict and a count."""
    from sbpair.data.audit.job import ACCEPTABLE

    found = {}
    for each in given:
        name, _, count = each.partition("=")
        if name not in ACCEPTABLE or not (count.isascii() and count.isdigit()):
            raise ConfigurationError(f"--accept {each}: give a number, as in {ACCEPTABLE[0]}=50")
        found[name] = int(count)
    return found


def _once(
    planned: ReadPlan,
    out: str,
    engine: Engine | None,
    skew: float,
    aliases: dict[str, str],
    expected: Expected,
    accept: dict[str, int],
) -> Summary:
    from sbpair.data.audit.job import ForeignFilesError, audit

    try:
        return audit(
            planned, out, engine=engine, skew=skew, aliases=aliases, expected=expected, accept=accept
        )
    except ForeignFilesError as error:
        raise ConfigurationError(str(error)) from error
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror or one_line(error)}") from error


@contextmanager
def _engine(chosen: str) -> Iterator[Engine | None]:
    """Yield the engine, None for the default. Its Spark errors become ConfigurationError."""
    if chosen == LOCAL:
        yield None
        return
    from sbpair.data.spark.audit.engine import SparkEngine
    from sbpair.data.spark.session import SHORT_JOB, build_session, reason_of, session_errors

    click.echo("sbpair audit: starting Spark", err=True)
    session = build_session("sbpair audit", settings=SHORT_JOB, has_formats=False)
    try:
        yield SparkEngine(session)
    except session_errors() as error:
        raise ConfigurationError(reason_of(error)) from error
    finally:
        session.stop()


def _install(error: ImportError) -> str:
    """Return the install command for a missing package; an error of Spark already contains it."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{error.name.partition('.')[0]} is not installed; {install_line('audit')}"
    return one_line(error)


def _print(summary: Summary) -> None:
    from sbpair.data.audit.result import report

    click.echo(report.headline(summary))
    click.echo(report.sources(summary))
    for verdict, count in summary.verdicts.items():
        if summary.messages and report.is_shown(verdict, count):
            click.echo(f"  {count:>9}  {verdict.value:<14} {report.MEANING[verdict]}")
    for place, count in summary.waiting.items():
        click.echo(f"  waiting: {count} in {place}")
    if sessions := report.order_of_sessions(summary):
        click.echo(f"  {sessions}")
    for order in summary.orders:
        if order.overtaking:
            place = f"{order.path}, session {order.session_id}"
            click.echo(f"  out of order: {place}: {order.overtaking} arrived before {order.overtaken}")
    for reason, count in summary.reasons.items():
        click.echo(f"  unproven: {count}: {reason}")
    for drill, count in summary.canaries.items():
        click.echo(f"  canaries: {count} of the drill {drill}, which no sender's journal contains")
    for sentence in report.killed_syphons(summary):
        click.echo(f"  copies: {sentence}")
    for difference in summary.missed:
        click.echo(f"  not as expected: {difference}")
    for each in summary.unread:
        click.echo(f"  not read: {each.name}: {each.reason}")
    for name, why in summary.forgotten.items():
        click.echo(f"  forgotten: {name}: {why}")
    for apart in summary.apart:
        click.echo(f"  clocks: {apart.earlier} and {apart.later} differ by {apart.seconds:.1f} s or more")
    for writer in (*summary.holed, *summary.unfinished):
        click.echo(f"  incomplete: {writer.role} {writer.writer}: {writer.reason}")
    for clock in summary.clocks:
        click.echo(f"  corrected by {clock.shift:+.1f} s: the times of the syphon {clock.writer}")


def _next_steps(summary: Summary, origin: Provenance) -> Iterator[str]:
    """Commands for messages that are unaccounted for or waiting: one example of each kind."""
    from sbpair.data.audit.result.report import command_for

    told: set[tuple[str, object]] = set()
    for each in summary.troubles:
        kind = each.verdict, each.remedy
        if kind not in told:
            told.add(kind)
            yield f"  next: {each.verdict}: {each.path}: {each.message_id}: {command_for(each, origin)}"


def _plan(directory: str) -> ReadPlan:
    """Plan the audit. Raises ConfigurationError when there are no journals, or one cannot be read."""
    from sbpair.data.audit.read.journal_listing import list_files
    from sbpair.data.audit.read.object_storage import is_uri, without_secret
    from sbpair.data.audit.read.reading import plan

    try:
        found = list_files(directory)
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or one_line(error)
        raise ConfigurationError(f"{without_secret(directory)} cannot be listed: {why}") from error
    if not found.journals:
        others = f"; there is {found.unread[0].name}: {found.unread[0].reason}" if found.unread else ""
        raise ConfigurationError(
            f"{without_secret(directory)} contains no journals: no file ends in .jsonl or .jsonl.gz{others}"
        )
    for path in [] if is_uri(directory) else [each.path for each in found.journals.values()]:
        if not os.access(Path(directory, path), os.R_OK):
            raise ConfigurationError(
                f"{Path(directory, path)} cannot be read; run the audit as the user who wrote it"
            )
    return plan(directory)
