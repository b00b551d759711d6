"""`sbpair spark audit`: is every message accounted for?"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import click

from sbpair.cli.errors import ConfigurationError, one_line
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.option_flags import Span

SMALL = 256 * 1024 * 1024  # bytes of journals that are a matter of seconds
JOURNAL = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("audit")
@click.option("--journal", type=JOURNAL, required=True, metavar="DIR", help="Where the journals are.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="Where the report and the tables go; what an earlier audit wrote there is replaced.",
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

    Reads the journals of senders, syphons, receivers and brokers (--journal of the demo,
    the syphon and the broker), and writes report.html, summary.json and Parquet tables.
    Exit code 1 when a message is lost, unexpected or unproven, or has a copy that nothing
    explains.

      sbpair demo --journal journals && sbpair spark audit --journal journals --out audit
    """
    sizes = _sizes(journal)
    if out.resolve() == journal.resolve():
        raise ConfigurationError(f"--out is the directory of the journals, {journal}: give it another")
    try:
        from sbpair.spark import build_session
        from sbpair.spark.audit import job, report
        from sbpair.spark.failures import reason_of, session_errors
        from sbpair.spark.session import HASTY, roomy

        click.echo(f"sbpair spark audit: starting Spark for {len(sizes)} files", err=True)
        session = build_session("sbpair audit", settings=HASTY if sum(sizes) < SMALL else roomy())
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
        click.echo(f"report: {out / job.REPORT}")
    return ExitCode.OK if summary.is_conserved else ExitCode.FAILED


def _sizes(journal: Path) -> list[int]:
    """Of every journal. Raises ConfigurationError when there is none, or one cannot be read."""
    files = [file for file in journal.glob("*.jsonl") if file.is_file()]
    if not files:
        raise ConfigurationError(f"{journal} has no journals in it: no file ends in .jsonl")
    for file in files:
        if not os.access(file, os.R_OK):
            raise ConfigurationError(f"{file} cannot be read: run this as the user who wrote it")
    return [file.stat().st_size for file in files]
