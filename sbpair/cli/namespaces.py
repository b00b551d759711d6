"""Which two namespaces does the command work on, and where do their keys come from?

A value is a connection string, `env:NAME` or `file:PATH`. It is checked here, field by
field, so that a mistake is named before anything is opened; it is never echoed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from sbpair.cli.errors import ConfigurationError
from sbpair.cli.redaction import remember

SHAPE = "Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=...;SharedAccessKey=..."
LONGEST_FILE = 65_536
SECRET_FIELDS = ("sharedaccesskey", "sharedaccesssignature")

Command = TypeVar("Command", bound=Callable[..., object])


def pair_options(command: Command) -> Command:
    """Add --primary and --secondary; the command receives two checked connection strings."""
    return namespace_option("primary")(namespace_option("secondary")(command))


def namespace_option(side: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Add --primary or --secondary; the command receives a checked connection string, or None."""
    return click.option(
        f"--{side}",
        required=required,
        envvar=f"SBPAIR_{side.upper()}",
        metavar="SOURCE",
        callback=_resolved,
        help=f"The {side} namespace: env:NAME, file:PATH or a connection string.",
        show_envvar=True,
    )


def _resolved(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    flag = parameter.opts[0]
    text = fetched(value, flag)
    fields = checked(text, flag)
    secrets = [fields[name] for name in SECRET_FIELDS if name in fields]
    for secret in [*secrets, text]:
        remember(secret)
    from_argv = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    if text == value and secrets and from_argv:
        warning = f"warning: the key in {flag} is visible in the process list; use env:NAME or file:PATH"
        click.echo(f"sbpair: {warning}", err=True)
    return text


def fetched(value: str, flag: str) -> str:
    """The connection string that `env:NAME`, `file:PATH` or the value itself stands for.

    Raises ConfigurationError, which names the variable or the file.
    """
    kind, _, name = value.partition(":")
    if kind == "env":
        return _from_environment(name, flag)
    if kind == "file":
        return _from_file(Path(name), flag)
    return value.strip()


def _from_environment(name: str, flag: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ConfigurationError(f"{flag}: the environment variable {name!r} is not set or empty")
    return value


def _from_file(path: Path, flag: str) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LONGEST_FILE + 1)
        text = raw.decode("utf-8-sig").strip()
    except OSError as error:
        raise ConfigurationError(f"{flag}: cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{flag}: {path} is not UTF-8 text") from error
    if len(raw) > LONGEST_FILE:
        raise ConfigurationError(f"{flag}: {path} is larger than a connection string can be")
    if not text:
        raise ConfigurationError(f"{flag}: {path} is empty")
    return text


def checked(text: str, flag: str) -> dict[str, str]:
    """The fields of a connection string, names in lower case.

    Raises ConfigurationError that names what is missing, and never repeats a value.
    """
    fields = _split(text, flag)
    endpoint = fields.get("endpoint", "")
    problem = _first_problem(fields, endpoint)
    if problem:
        raise ConfigurationError(f"{flag}: {problem}")
    return fields


def _split(text: str, flag: str) -> dict[str, str]:
    if not text:
        raise ConfigurationError(f"{flag} is empty; expected {SHAPE}, env:NAME or file:PATH")
    fields: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        key = name.strip().lower()
        if not equals:
            raise ConfigurationError(
                f"{flag} is not a connection string; expected {SHAPE}, env:NAME or file:PATH"
            )
        if key in fields:
            raise ConfigurationError(f"{flag}: a field is given twice; expected {SHAPE}")
        fields[key] = value.strip()
    return fields


def _first_problem(fields: dict[str, str], endpoint: str) -> str | None:
    has_key, has_signature = (bool(fields.get(name)) for name in SECRET_FIELDS)
    checks = (
        (not endpoint, f"the connection string has no Endpoint; expected {SHAPE}"),
        (not _is_host(endpoint), "the Endpoint must be sb:// and a host, optionally with a port"),
        (
            bool(fields.get("entitypath")),
            "this is the string of one entity (EntityPath); use the namespace's own",
        ),
        (has_key and has_signature, "SharedAccessKey and SharedAccessSignature are both given; keep one"),
        (not has_key and not has_signature, "SharedAccessKey is missing (or SharedAccessSignature)"),
        (has_key and not fields.get("sharedaccesskeyname"), "SharedAccessKey without SharedAccessKeyName"),
    )
    return next((text for is_wrong, text in checks if is_wrong), None)


def _is_host(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme.lower() == "sb" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
