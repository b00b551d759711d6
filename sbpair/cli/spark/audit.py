"""`sbpair spark audit`: prove from journals that every message is accounted for."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import click

from sbpair.cli.errors import ConfigurationError, ExitCode, one_line
from sbpair.cli.parameters import ExistingPath, Span

SMALL = 256 * 1024 * 1024  # bytes of journals that an audit reads in seconds
JOURNAL = ExistingPath(file_okay=False)


@click.command("audit")
@click.option("--journal", type=JOURNAL, required=True, metavar="DIR", help="The directory of the journals.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="The directory for the report and the tables; an earlier audit there is replaced.",
)
@click.option(
    "--skew",
    type=Span(),
    default="1s",
    show_default=True,
    help="How far the clocks of two machines may differ.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
def audit(journal: Path, out: Path, skew: timedelta, as_json: bool) -> int:
    """Prove from journals that every message is accounted for.

    Reads the journals of senders, syphons, receivers and brokers (written with --journal),
    including subdirectories and gzipped files, and writes report.html, summary.json and
    Parquet tables. Exit code 1 when a message is lost, unexpected or unproven, or has an
    unexplained copy; when a file that may be a journal was not read, or a sender's journal
    has gaps; and when there are no messages at all.

    \b
    Example:
      sbpair demo --journal journals && sbpair spark audit --journal journals --out audit
    """
    if out.resolve() == journal.resolve():
        raise ConfigurationError(
            f"--out and --journal are the same directory, {journal}; choose another --out"
        )
    try:
        sizes = _sizes(journal)
        from sbpair.spark import build_session
        from sbpair.spark.audit import job, report
        from sbpair.spark.session import SHORT_JOB, long_job

        from ...spark.session import reason_of, session_errors

        click.echo(f"sbpair spark audit: starting Spark for {len(sizes)} files", err=True)
        session = build_session("sbpair audit", settings=SHORT_JOB if sum(sizes) < SMALL else long_job())
    except ImportError as error:
        raise ConfigurationError(one_line(error)) from error
    click.echo(f"sbpair spark audit: reading {sum(sizes) / 1e6:.1f} MB of journals", err=True)
    try:
        summary = job.run(session, journal, out, skew=skew.total_seconds())
    except session_errors() as error:
        raise ConfigurationError(reason_of(error)) from error
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        session.stop()
    if as_json:
        click.echo(job.as_json(summary))
    else:
        click.echo(report.headline(summary))
        for verdict, count in summary.verdicts.items():
            if count:
                click.echo(f"  {count:>9}  {verdict.value:<14} {report.MEANING[verdict]}")
        for each in summary.unread:
            click.echo(f"  not read: {each.name}: {each.reason}")
        for writer in summary.holed:
            click.echo(f"  incomplete: {writer.role} {writer.writer}: {writer.reason}")
        for clock in summary.clocks:
            click.echo(f"  corrected by {clock.shift:+.1f} s: the times of the syphon {clock.writer}")
        click.echo(f"report: {out / job.REPORT}")
    return ExitCode.OK if summary.is_conserved else ExitCode.FAILED


def _sizes(directory: Path) -> list[int]:
    """The uncompressed size of each journal in bytes; estimated for compressed ones.

    Raises ConfigurationError when there are no journals, or one cannot be read.
    """
    from sbpair.spark.journal_files import INFLATES

    from ...spark.journal_files import is_gzipped, list_files

    found = list_files(str(directory))
    files = [directory / path for path in found.journals.values()]
    if not files:
        others = f"; there is {found.unread[0].name}: {found.unread[0].reason}" if found.unread else ""
        raise ConfigurationError(
            f"{directory} contains no journals: no file ends in .jsonl or .jsonl.gz{others}"
        )
    for file in files:
        if not os.access(file, os.R_OK):
            raise ConfigurationError(f"{file} cannot be read; run the audit as the user who wrote it")
    return [file.stat().st_size * (INFLATES if is_gzipped(file.name) else 1) for file in files]
