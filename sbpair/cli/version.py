"""The option --version: the release, and which of its two builds is installed."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

import click

from sbpair import __version__

ENGINE = "sbpair.amqp.connection"


def print_version(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    """Print the version and end the command, if the option was given."""
    if is_given and not context.resilient_parsing:
        click.echo(f"sbpair {__version__} ({build()})")
        context.exit()


def build() -> str:
    """Return which build of the AMQP engine is imported: "compiled" or "pure Python"."""
    engine = find_spec(ENGINE)
    origin = engine.origin if engine is not None else None
    return "compiled" if origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure Python"
