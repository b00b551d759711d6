"""How a job of Spark is told of a pair: by reference, so that no key travels in a plan."""

from __future__ import annotations

import os

from sbpair.cli.errors import CommandError, one_line
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.source import Source

VARIABLES = ("SBPAIR_SPARK_PRIMARY", "SBPAIR_SPARK_SECONDARY")
OPTIONS = (
    ("connectionString", "fullyQualifiedNamespace"),
    ("secondaryConnectionString", "secondaryFullyQualifiedNamespace"),
)


def told(primary: Source, secondary: Source, **more: str | None) -> dict[str, str]:
    """The options that name the two; the keys go into the environment, before Spark is started."""
    options = {name: value for name, value in more.items() if value is not None}
    for source, variable, (string, host) in zip((primary, secondary), VARIABLES, OPTIONS, strict=True):
        if source.connection_string is None:
            options[host] = source.netloc
        else:
            os.environ[variable] = source.connection_string
            options[string] = f"env:{variable}"
    return options


def told_one(source: Source, **more: str | None) -> dict[str, str]:
    """The options that name one namespace, for a process without workers."""
    options = {name: value for name, value in more.items() if value is not None}
    string, host = OPTIONS[0]
    given = {host: source.netloc} if source.connection_string is None else {string: source.connection_string}
    return options | given


def failed(error: Exception) -> CommandError:
    """What ours said, out of all that Spark says of a failed job."""
    said = [line.partition("sbpair")[2] for line in str(error).splitlines() if "Error: sbpair" in line]
    return CommandError(one_line(RuntimeError(f"sbpair{said[0]}") if said else error), ExitCode.FAILED)
