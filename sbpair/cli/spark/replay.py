"""`sbpair spark replay`: send again what an audit found lost."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from sbpair.cli.errors import ConfigurationError, one_line
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.namespaces import pair_options
from sbpair.cli.pair_flags import backlogs_option, ca_file_option, name_option
from sbpair.cli.source import Source
from sbpair.cli.spark.pair import failed, told

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("replay")
@pair_options
@name_option
@backlogs_option
@ca_file_option
@click.option("--audit", type=DIRECTORY, required=True, metavar="DIR", help="What an audit wrote (--out).")
@click.option(
    "--archive",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    metavar="PATH",
    help="Parquet of what was sent: message_id, body, and other columns of a message.",
)
@click.option("--dry-run", is_flag=True, help="Count, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def replay(
    primary: Source,
    secondary: Source,
    primary_namespace_name: str | None,
    backlogs: int,
    ca_file: str | None,
    audit: Path,
    archive: Path,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Send again what an audit found lost, from your archive.

    With the same message ids, so that duplicate detection removes what was not lost
    after all. Exit code 1 when the archive does not have all of it.

    \b
    Example:
      sbpair spark replay --audit audit --archive archive --dry-run
    """
    options = told(
        primary,
        secondary,
        primaryNamespaceName=primary_namespace_name,
        backlogQueueCount=str(backlogs),
        caFile=ca_file,
    )
    if not (audit / "missing").is_dir():
        raise ConfigurationError(f"{audit} is not what an audit wrote: it has no table named missing")
    try:
        from sbpair.spark import build_session
        from sbpair.spark import replay as job
        from sbpair.spark.session import HASTY

        session = build_session("sbpair replay", settings=HASTY)
    except ImportError as error:
        raise ConfigurationError(one_line(error)) from error
    try:
        done = job.replay(session, str(audit), str(archive), options, dry_run=dry_run)
    except ValueError as error:
        raise ConfigurationError(one_line(error)) from error
    except Exception as error:
        raise failed(error) from error
    finally:
        session.stop()
    verb = "sent" if done.sent else "found"
    text = f"{done.missing} messages are missing; {done.archived} of them {verb} from the archive"
    click.echo(json.dumps(asdict(done)) if as_json else text)
    return ExitCode.OK if done.archived == done.missing else ExitCode.FAILED
