"""`sbpair broker --config FILE`: our own TOML with [broker.namespaces], or the emulator's config.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.cli.config_file import META, config_option, namespaces_of, read, read_config_text
from sbpair.cli.errors import ConfigurationError

if TYPE_CHECKING:
    from sbpair.broker.configuration import NamespacePlan

HELP = "A TOML file of options and namespaces, or the config.json of Microsoft's emulator."


def broker_config_option() -> click.Option:
    """--config, which takes the emulator's file too."""
    option = config_option()
    load, option.help = option.callback, HELP

    def loaded(context: click.Context, parameter: click.Parameter, value: str | None) -> object:
        if value and is_emulators(Path(value)):
            context.meta[META] = Path(value)
            return None
        return load(context, parameter, value) if load is not None else None

    option.callback = loaded
    return option


def with_broker_config(command: click.Command) -> click.Command:
    """The command with --config of the broker."""
    command.params.append(broker_config_option())
    return command


def is_emulators(file: Path) -> bool:
    """By its name, or by how it begins. Raises ConfigurationError for one that cannot be read."""
    return file.suffix.lower() == ".json" or read_config_text(file).lstrip().startswith("{")


def plans() -> list[NamespacePlan]:
    """What the file of this run says of namespaces; nothing without one. Raises ConfigurationError."""
    file: Path | None = click.get_current_context().meta.get(META)
    if file is None:
        return []
    from sbpair.broker.configuration import read_emulator_file, read_namespaces
    from sbpair.syphon.reference import resolve

    if is_emulators(file):
        return read_emulator_file(str(file), read_config_text(file))
    values = namespaces_of(read(file))
    if values is None:
        return []
    if not isinstance(values, dict):
        raise ConfigurationError(f"{file}: broker.namespaces: expected a table")
    return read_namespaces(str(file), values, _beside(file, resolve))


def _beside(file: Path, resolve: Callable[[str, str], str]) -> Callable[[str, str], str]:
    """Paths are relative to the file they stand in."""

    def resolved(value: str, name: str) -> str:
        kind, _, where = value.partition(":")
        return resolve(f"file:{file.parent / where}" if kind == "file" else value, name)

    return resolved
