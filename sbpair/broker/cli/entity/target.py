"""The entity that a command works on, given as NAMESPACE/ENTITY, and the connection to its namespace.

env:SBPAIR_PRIMARY/orders                     a connection string in a variable
file:/run/secrets/contoso/events              the longest leading path that is a file, then the entity
contoso/events/Subscriptions/billing          a namespace by its name, opened by the ambient credential
primary/orders, secondary/orders              the namespaces of --primary and --secondary
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from sbpair.pair.amqp.errors import (
    NOT_ALLOWED,
    NOT_FOUND,
    SESSION_CANNOT_BE_LOCKED,
    TIMEOUT,
    UNAUTHORIZED_ACCESS,
)
from sbpair.pair.cli.connection import NO_RIGHT, Ending, connection_to
from sbpair.pair.cli.errors import ExitCode, configuration
from sbpair.pair.cli.namespaces import NamespaceArgument, ca_file_option, namespace_argument, namespace_option
from sbpair.pair.envelope.names import MAX_PATH

if TYPE_CHECKING:
    from sbpair.pair.auth.connection_string import NamespaceAccess
    from sbpair.pair.client.connection import NamespaceConnection

Result = TypeVar("Result")
BARE = re.compile("[A-Za-z0-9-]+")
EXPECTED = "NAMESPACE/ENTITY, e.g. env:SBPAIR_PRIMARY/orders, contoso/orders or primary/orders"
DEAD_LETTERS = "/$DeadLetterQueue"
ENDINGS: dict[str, Ending] = {
    UNAUTHORIZED_ACCESS: NO_RIGHT,
    NOT_FOUND: (ExitCode.CONFIGURATION, "create the entity or correct its name"),
    NOT_ALLOWED: (
        ExitCode.CONFIGURATION,
        "an entity that requires sessions is read with --session ID or --next-session",
    ),
    TIMEOUT: (ExitCode.FAILED, "no session has messages"),
    SESSION_CANNOT_BE_LOCKED: (ExitCode.FAILED, "another receiver holds the session"),
}


@dataclass(frozen=True, slots=True)
class EntityTarget:
    """One entity, or its dead-letter queue, of a namespace."""

    namespace: NamespaceAccess
    path: str

    def connection(self) -> AbstractAsyncContextManager[NamespaceConnection]:
        """Return an AMQP connection to the namespace, to be entered."""
        return connection_to(self.namespace, ENDINGS)

    def dead_letters(self) -> EntityTarget:
        """Return the dead-letter queue of the entity."""
        return replace(self, path=f"{self.path}{DEAD_LETTERS}")


def split_target(text: str) -> tuple[str, str]:
    """Split NAMESPACE/ENTITY. Raises ValueError, which never contains a connection string."""
    if "=" in text.partition("/")[0] or "sharedaccess" in text.casefold():
        raise ValueError(
            "a connection string cannot precede an entity: use env:NAME/ENTITY or file:PATH/ENTITY"
        )
    reference, _, path = _after_file(text) if text.startswith("file:") else text.partition("/")
    if not reference or not path:
        raise ValueError(f"{text!r:.300} is not {EXPECTED}")
    if path.strip("/") != path or len(path) > MAX_PATH or not path.isprintable() or "//" in path:
        raise ValueError(f"{path!r:.300} is not the path of an entity")
    return reference, path


def _after_file(text: str) -> tuple[str, str, str]:
    """Split after the first leading path that is a file."""
    where = text.removeprefix("file:")
    ends = [at for at, letter in enumerate(where) if letter == "/" and at]
    end = next((at for at in ends if Path(where[:at]).is_file()), None)
    if end is None:
        raise ValueError(f"no leading part of {where!r:.300} is a file; expected file:PATH/ENTITY")
    return f"file:{where[:end]}", "/", where[end + 1 :]


def with_entity(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add the argument TARGET and the flags of its namespace; the command receives an EntityTarget as ``target``."""

    @wraps(command)
    def call(
        *,
        target: str,
        primary: NamespaceArgument | None,
        secondary: NamespaceArgument | None,
        ca_file: str | None,
        **rest: object,
    ) -> Result:
        context = click.get_current_context()
        try:
            reference, path = split_target(target)
        except ValueError as error:
            raise click.UsageError(str(error), context) from error
        sides = {"primary": primary, "secondary": secondary}
        namespace = sides.get(reference)
        if namespace is None and reference in sides:
            text = f"{reference}/... needs --{reference} or SBPAIR_{reference.upper()}"
            raise click.UsageError(text, context)
        found = namespace or namespace_argument(reference, "TARGET", is_visible=True)
        _hint_at_sides(found, reference, path, sides)
        with configuration():
            reached = found.namespace(ca_file)
        return command(target=EntityTarget(reached, path), **rest)

    for option in (
        ca_file_option,
        namespace_option("secondary", required=False),
        namespace_option("primary", required=False),
        click.argument("target", metavar="NAMESPACE/ENTITY"),
    ):
        call = option(call)
    return call


def _hint_at_sides(
    found: NamespaceArgument, reference: str, path: str, sides: Mapping[str, NamespaceArgument | None]
) -> None:
    """Explain the meaning of a bare name on standard error, if flags or the environment name other namespaces."""
    given = {side: each.netloc for side, each in sides.items() if each is not None}
    if given and BARE.fullmatch(reference) and found.netloc not in given.values():
        others = " or ".join(f"{side}/{path} ({netloc})" for side, netloc in given.items())
        click.echo(f"sbpair: {reference} is {found.netloc}; did you mean {others}?", err=True)


dead_letter_option = click.option(
    "--dead-letter", is_flag=True, help="The entity's dead-letter queue instead."
)
