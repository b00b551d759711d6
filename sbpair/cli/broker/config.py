"""`sbpair broker --config FILE`: TOML with [broker.namespaces], the emulator's config.json, or an ARM template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.cli.config_file import META, config_option, namespaces_of, read, read_config_text
from sbpair.cli.errors import ConfigurationError

if TYPE_CHECKING:
    from sbpair.broker.configuration import NamespacePlan

HELP = "A TOML file of options and namespaces, the emulator's config.json, or an ARM template."


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


def with_broker_config(command: click.Command) -> click.Command:
    """Add the broker's --config to ``command``."""
    command.params.append(broker_config_option())
    return command


def _from_json(file: Path, text: str, parameters: Mapping[str, str]) -> list[NamespacePlan]:
    import json

    from sbpair.broker.configuration import is_arm_template, read_arm_template, read_emulator_file

    try:
        is_template = is_arm_template(json.loads(text))
    except (ValueError, RecursionError):
        is_template = False  # the reader says what is wrong
    if is_template:
        return read_arm_template(str(file), text, parameters)
    if parameters:
        raise ConfigurationError("--parameter needs an ARM template as --config")
    return read_emulator_file(str(file), text)


def is_json(file: Path) -> bool:
    """Whether ``file`` is the emulator's or a template: named `.json`, or starting with a brace.

    Raises ConfigurationError for Bicep, and for a file that cannot be read.
    """
    if file.suffix.lower() == ".bicep":
        text = (
            f"--config: {file} is Bicep: compile it with `az bicep build --file {file}`, and use the result"
        )
        raise ConfigurationError(text)
    return file.suffix.lower() == ".json" or read_config_text(file).lstrip().startswith("{")


def planned_namespaces(parameters: Mapping[str, str]) -> list[NamespacePlan]:
    """Return the namespaces of this run's --config file; none without one. ``parameters`` are those of a template.

    Raises ConfigurationError when the file is invalid.
    """
    file: Path | None = click.get_current_context().meta.get(META)
    if file is None:
        if parameters:
            raise ConfigurationError("--parameter needs an ARM template as --config")
        return []
    from sbpair.auth.reference import resolve
    from sbpair.broker.configuration import read_namespaces

    if is_json(file):
        return _from_json(file, read_config_text(file), parameters)
    if parameters:
        raise ConfigurationError("--parameter needs an ARM template as --config")
    values = namespaces_of(read(file))
    if values is None:
        return []
    if not isinstance(values, dict):
        raise ConfigurationError(f"{file}: broker.namespaces: expected a table")
    return read_namespaces(str(file), values, _beside(file, resolve))


def _beside(file: Path, resolve: Callable[[str, str], str]) -> Callable[[str, str], str]:
    """Return ``resolve``, with the paths of `file:` relative to ``file``."""

    def resolve_beside(value: str, name: str) -> str:
        kind, _, where = value.partition(":")
        return resolve(f"file:{file.parent / where}" if kind == "file" else value, name)

    return resolve_beside
