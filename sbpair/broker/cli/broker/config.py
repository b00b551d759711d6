"""`sbpair broker --config FILE`: TOML with [broker.namespaces], or the emulator's config.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from sbpair.pair.cli.config_file import META, config_option, namespaces_of, read, read_config_text
from sbpair.pair.cli.errors import ConfigurationError

if TYPE_CHECKING:
    from sbpair.broker.configuration import NamespacePlan

Configured = TypeVar("Configured", bound=click.Command)
HELP = "A TOML file of options and namespaces, or the emulator's config.json."


def broker_config_option() -> click.Option:
    """Return the flag --config, which also accepts the emulator's file."""
    option = config_option()
    load_toml, option.help = option.callback, HELP

    def load(context: click.Context, parameter: click.Parameter, value: str | None) -> object:
        if value and is_json(Path(value)):
            context.meta[META] = Path(value)
            return None
        return load_toml(context, parameter, value) if load_toml is not None else None

    option.callback = load
    return option


def with_broker_config(command: Configured) -> Configured:
    """Add the broker's --config to ``command``."""
    command.params.append(broker_config_option())
    return command


def is_json(file: Path) -> bool:
    """Whether ``file`` is the emulator's: named `.json`, or starting with a brace or a comment of JSON.

    Raises ConfigurationError for a file that cannot be read.
    """
    return file.suffix.lower() == ".json" or read_config_text(file).lstrip().startswith(("{", "//", "/*"))


def planned_namespaces(*, is_strict: bool) -> list[NamespacePlan]:
    """Return the namespaces of this run's --config file; none without one.

    Keys of the emulator's file that have no effect are printed as warnings. Raises ConfigurationError when the file
    is invalid, and for such a key if ``is_strict``.
    """
    file: Path | None = click.get_current_context().meta.get(META)
    if file is None:
        return []
    from sbpair.broker.configuration import read_emulator_file, read_namespaces
    from sbpair.pair.auth.connection_string import resolve

    if is_json(file):
        return read_emulator_file(str(file), read_config_text(file), None if is_strict else _warn)
    values = namespaces_of(read(file))
    if values is None:
        return []
    if not isinstance(values, dict):
        raise ConfigurationError(f"{file}: broker.namespaces: expected a table")
    return read_namespaces(str(file), values, _beside(file, resolve))


def _warn(text: str) -> None:
    click.echo(f"sbpair: warning: {text}", err=True)


def _beside(file: Path, resolve: Callable[[str, str], str]) -> Callable[[str, str], str]:
    """Return ``resolve``, with the paths of `file:` relative to ``file``."""

    def resolve_beside(value: str, name: str) -> str:
        kind, _, where = value.partition(":")
        return resolve(f"file:{file.parent / where}" if kind == "file" else value, name)

    return resolve_beside
