"""`sbpair spark settle`: complete the messages that a stopped query has read."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sbpair.pair.cli.errors import CommandError, ConfigurationError, ExitCode, one_line
from sbpair.pair.cli.namespaces import NamespaceArgument, ca_file_option, namespace_option
from sbpair.pair.cli.parameters import ExistingPath

from .pair_jobs import spark_options_of_one


@click.command("settle")
@namespace_option("namespace")
@ca_file_option
@click.option(
    "--checkpoint",
    type=ExistingPath(file_okay=False),
    required=True,
    metavar="DIR",
    help="The checkpointLocation of the query.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each entity.")
def settle(namespace: NamespaceArgument, ca_file: str | None, checkpoint: Path, as_json: bool) -> int:
    """Complete the messages that a stopped query has read.

    A query with settlement=complete completes each batch together with the next one,
    so that the messages of its last batch remain when it stops. This command
    completes them, up to the position that the checkpoint has committed; it starts no
    JVM. Running it twice, or while the query runs, does no harm. On a namespace
    other than the query's it completes nothing and exits with code 3.

    \b
    Example:
      sbpair spark settle --namespace env:SBPAIR_PRIMARY --checkpoint /var/lib/orders
    """
    try:
        from sbpair.data.spark.checkpoint import committed_offset
        from sbpair.data.spark.entities import Entities
        from sbpair.data.spark.ranges import marks
        from sbpair.data.spark.source_errors import SourceError
        from sbpair.data.spark.source_options import SourceOptions

        from ...spark.checkpoint import check_origin, positions_in

        offset = committed_offset(checkpoint)
        positions = positions_in(offset)
        committed_marks = marks(positions)
        given = spark_options_of_one(namespace, caFile=ca_file, queueName=",".join(committed_marks))
        options = SourceOptions.of(given | {"settlement": "complete"})
        origin = options.namespace.origin
        check_origin(offset, origin, settles=True)
        entities = Entities(options, origin)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(one_line(error)) from error
    for path, due in committed_marks.items():
        count = 0
        try:
            while done := entities.settle_now(path, due).completed:
                count += done
        except SourceError as error:
            raise CommandError(one_line(error), ExitCode.FAILED) from error
        up_to = {mark.lane: mark.upto for mark in due}
        shown = ", ".join(map(str, up_to.values()))
        result = {
            "entity": path,
            "up_to": up_to.get(path, up_to) if len(up_to) == 1 else up_to,
            "completed": count,
        }
        click.echo(json.dumps(result) if as_json else f"{path}: {count} completed, up to {shown}")
    return ExitCode.OK
