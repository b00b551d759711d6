"""Which two namespaces does the command work on, and where do their keys come from?

A value is a connection string, the name of a namespace, `env:NAME` or `file:PATH`. It is checked here, field
by field, so that a mistake is named before anything is opened; it is never echoed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from sbpair.cli.errors import ConfigurationError
from sbpair.cli.redaction import remember
from sbpair.cli.source import Source
from sbpair.syphon.reference import resolve

SHAPE = "Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=...;SharedAccessKey=..."
EXPECTED = f"{SHAPE}, the name of a namespace, env:NAME or file:PATH"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::\d{1,5})?")
PUBLIC_CLOUD = ".servicebus.windows.net"
SECRET_FIELDS = ("sharedaccesskey", "sharedaccesssignature")

Command = TypeVar("Command", bound=Callable[..., object])


def pair_options(command: Command) -> Command:
    """Add --primary and --secondary; the command receives two Sources."""
    return namespace_option("primary")(namespace_option("secondary")(command))


def namespace_option(side: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Add --primary, --secondary or --namespace; the command receives a Source, or None."""
    kind = side if side == "namespace" else f"{side} namespace"
    return click.option(
        f"--{side}",
        required=required,
        envvar=f"SBPAIR_{side.upper()}",
        metavar="SOURCE",
        callback=_resolved,
        help=f"The {kind}: env:NAME, file:PATH, its name, or a connection string.",
        show_envvar=True,
    )


def _resolved(context: click.Context, parameter: click.Parameter, value: str | None) -> Source | None:
    if value is None:
        return None
    flag = parameter.opts[0]
    text = fetched(value, flag)
    if NAME.fullmatch(text):
        return Source(flag, _host(text))
    fields = checked(text, flag)
    secrets = [fields[name] for name in SECRET_FIELDS if name in fields]
    for secret in [*secrets, text]:
        remember(secret)
    from_argv = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    if text == value and secrets and from_argv:
        warning = f"warning: the key in {flag} is visible in the process list; use env:NAME or file:PATH"
        click.echo(f"sbpair: {warning}", err=True)
    return Source(flag, fields["endpoint"].split("://", 1)[1].split("/", 1)[0], fields, text)


def _host(name: str) -> str:
    """``contoso`` is the name of a namespace in the public cloud; any other host is given whole."""
    return name if "." in name or ":" in name else f"{name}{PUBLIC_CLOUD}"


def fetched(value: str, flag: str) -> str:
    """The connection string that `env:NAME`, `file:PATH` or the value itself stands for.

    Raises ConfigurationError, which names the variable or the file.
    """
    try:
        return resolve(value, flag)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


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
        raise ConfigurationError(f"{flag} is empty; expected {EXPECTED}")
    fields: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        key = name.strip().lower()
        if not equals:
            raise ConfigurationError(f"{flag} is not a connection string; expected {EXPECTED}")
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
