"""`sbpair journal`: commands for journals on the machine that wrote them, before they are copied."""

from __future__ import annotations

from pathlib import Path

import click

from sbpair.pair.cli.errors import ConfigurationError, ExitCode, one_line


@click.group("journal")
def command() -> None:
    """List the writers of journals, for an audit elsewhere."""


@command.command("manifest")
@click.argument("directory", type=click.Path(file_okay=False), metavar="DIR")
@click.option("--out", metavar="FILE", help="Write it to this file.  [default: standard output]")
@click.option(
    "--accept",
    "accepted",
    metavar="deleted=COUNT",
    help="How many messages were meant to be deleted, for an audit that reads the manifest; with --reason.",
)
@click.option("--reason", metavar="TEXT", help="Why; the page of the audit shows it.")
def manifest_command(directory: str, out: str | None, accepted: str | None, reason: str | None) -> int:
    """Make the manifest of the journals below DIR: their writers and how many records they have.

    Make it on the machine that wrote the journals, when they are closed, and give it to the audit, which
    then misses a journal that did not arrive, or did not arrive completely.

    \b
    Examples:
      sbpair journal manifest /var/lib/sbpair --out host-7.manifest
      sbpair journal manifest /var/lib/sbpair --accept deleted=50 --reason "test data" --out host-7.manifest
      sbpair audit --journal collected --out audit --expect host-7.manifest
    """
    from sbpair.pair.observation.journal_reading import JournalError
    from sbpair.pair.observation.manifest import Accepted, as_text, manifest

    meant: list[Accepted] = []
    if accepted is not None:
        verdict, _, count = accepted.partition("=")
        if not (verdict and count.isascii() and count.isdigit() and reason):
            raise ConfigurationError(f"--accept {accepted}: give a number, as in deleted=50, and --reason")
        meant.append(Accepted(verdict, int(count), reason))
    try:
        entries = manifest(directory)
    except (OSError, EOFError, JournalError) as error:
        raise ConfigurationError(one_line(error)) from error
    if not entries:
        raise ConfigurationError(f"{directory} contains no journals: no file ends in .jsonl or .jsonl.gz")
    if out is None:
        click.echo(as_text(entries, meant), nl=False)
        return ExitCode.OK
    try:
        Path(out).write_text(as_text(entries, meant), "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror or one_line(error)}") from error
    return ExitCode.OK
