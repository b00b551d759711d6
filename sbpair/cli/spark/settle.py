"""`sbpair spark settle`: complete what a stopped query has read."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sbpair.cli.errors import CommandError, ConfigurationError, one_line
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.namespaces import namespace_option
from sbpair.cli.pair_flags import ca_file_option
from sbpair.cli.source import Source
from sbpair.cli.spark.pair import told_one


@click.command("settle")
@namespace_option("namespace")
@ca_file_option
@click.option(
    "--checkpoint",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="The checkpointLocation of the query.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each entity.")
def settle(namespace: Source, ca_file: str | None, checkpoint: Path, as_json: bool) -> int:
    """Complete what a stopped query has read.

    A query with settlement=complete completes a batch with the next one. What its
    last batch had read is still there when it is stopped for good: this completes
    it, up to what the checkpoint says is in the sink, and starts no JVM. Doing it
    twice, or while the query runs, does no harm.

    \b
    Example:
      sbpair spark settle --namespace env:SBPAIR_PRIMARY --checkpoint /var/lib/orders
    """
    try:
        from sbpair.spark.checkpoint import committed
        from sbpair.spark.entities import Entities, SourceError
        from sbpair.spark.ranges import UNTIL, numbers, path_of
        from sbpair.spark.source_options import SourceOptions

        offset = committed(checkpoint)
        lanes = sorted(numbers(offset))
        given = told_one(namespace, caFile=ca_file, queueName=",".join(map(path_of, lanes)))
        entities = Entities(SourceOptions.of(given | {"settlement": "complete"}))
    except (ImportError, ValueError) as error:
        raise ConfigurationError(one_line(error)) from error
    for lane in lanes:
        path, count = path_of(lane), 0
        try:
            while done := entities.settle_now(path, offset[lane], offset.get(lane + UNTIL)):
                count += done
        except SourceError as error:
            raise CommandError(one_line(error), ExitCode.FAILED) from error
        said = {"entity": path, "up_to": offset[lane], "completed": count}
        click.echo(json.dumps(said) if as_json else f"{path}: {count} completed, up to {offset[lane]}")
    return ExitCode.OK
