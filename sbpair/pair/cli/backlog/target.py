"""The backlog queues that a command works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import click

from sbpair.pair.amqp.errors import NOT_FOUND
from sbpair.pair.cli.connection import connection_to
from sbpair.pair.cli.errors import ConfigurationError, configuration
from sbpair.pair.cli.namespaces import (
    NamespaceArgument,
    backlogs_option,
    ca_file_option,
    name_option,
    namespace_option,
)
from sbpair.pair.envelope.names import backlog_queue_name, namespace_label, ordered_backlog_name

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from sbpair.pair.auth.connection_string import NamespaceAccess
    from sbpair.pair.client.connection import NamespaceConnection

Result = TypeVar("Result")
_OPTIONS: tuple[Callable[[Callable[..., Result]], Callable[..., Result]], ...] = (
    namespace_option("secondary", required=False),
    namespace_option("primary", required=False),
    name_option,
    backlogs_option,
    ca_file_option,
    click.option(
        "--ordered",
        "is_ordered",
        is_flag=True,
        help="The ordered backlog queues instead of the others; `create` creates both.",
    ),
)
index_option = click.option(
    "--index",
    type=click.IntRange(min=0),
    help="Only backlog queue INDEX, which may be beyond --backlogs.  [default: all]",
)


@dataclass(frozen=True, slots=True)
class BacklogTarget:
    """The backlog queues of one primary on one secondary."""

    secondary: NamespaceArgument | None
    label: str
    count: int
    ca_file: str | None
    is_ordered: bool = False
    primary: NamespaceArgument | None = None

    def name(self, index: int) -> str:
        """Return the name of backlog queue ``index``, which may be beyond the count."""
        name_of = ordered_backlog_name if self.is_ordered else backlog_queue_name
        return name_of(self.label, index)

    def names(self, index: int | None) -> list[str]:
        """Return the name at ``index``, or the names of all queues for None."""
        return [self.name(each) for each in ([index] if index is not None else range(self.count))]

    def namespace(self) -> NamespaceAccess:
        """Return the secondary for the AMQP client. Raises ConfigurationError when it cannot be used."""
        with configuration():
            return self._secondary().namespace(self.ca_file)

    def connection(self) -> AbstractAsyncContextManager[NamespaceConnection]:
        """Return an AMQP connection to the secondary, to be entered. Raises ConfigurationError."""
        return connection_to(self.namespace())

    def administration(self) -> ServiceBusAdministrationClient:
        """Return an administration client of the secondary; the key needs the Manage right."""
        with configuration():
            return self._secondary().administration("secondary", self.ca_file)

    def administration_of_primary(self) -> ServiceBusAdministrationClient:
        """Return an administration client of the primary; the key needs the Manage right."""
        if self.primary is None:
            raise click.UsageError("--primary (or SBPAIR_PRIMARY) is missing", click.get_current_context())
        with configuration():
            return self.primary.administration("primary", self.ca_file)

    def _secondary(self) -> NamespaceArgument:
        if self.secondary is None:
            raise click.UsageError(
                "--secondary (or SBPAIR_SECONDARY) is missing", click.get_current_context()
            )
        return self.secondary


def with_target(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add the flags that select backlog queues; the command receives them as ``target``."""

    @wraps(command)
    def call(
        *,
        primary: NamespaceArgument | None,
        secondary: NamespaceArgument | None,
        primary_namespace_name: str | None,
        backlogs: int,
        ca_file: str | None,
        is_ordered: bool,
        **rest: object,
    ) -> Result:
        label = _label(primary, primary_namespace_name)
        given = BacklogTarget(secondary, label, backlogs, ca_file, is_ordered, primary)
        return command(target=given, **rest)

    for option in reversed(_OPTIONS):
        call = option(call)
    return call


def _label(primary: NamespaceArgument | None, name: str | None) -> str:
    if name is not None:
        return name
    if primary is None:
        raise click.UsageError(
            "the primary is not named: give --primary (or SBPAIR_PRIMARY), or --primary-namespace-name",
            click.get_current_context(),
        )
    try:
        return namespace_label(primary.netloc)
    except ValueError as error:
        raise ConfigurationError(f"--primary: {error}") from error


class MissingQueues:
    """Tolerates backlog queues that do not exist, unless all of them are missing.

    A wrong primary name would otherwise look like empty queues.
    """

    def __init__(self, backlogs: Sequence[str], index: int | None) -> None:
        """``index``: a single queue that was selected; it must exist."""
        self._backlogs, self._may_be_missing = len(backlogs), index is None
        self._missing = 0

    @contextmanager
    def tolerate(self) -> Iterator[None]:
        """Wrap the work on one queue. Re-raises the error of the last one when none exists."""
        from sbpair.pair.client.errors import LinkRefusedError, TokenRefusedError

        try:
            yield
        except (LinkRefusedError, TokenRefusedError) as error:
            is_missing = error.condition is not None and str(error.condition.symbol) == NOT_FOUND
            if not (self._may_be_missing and is_missing):
                raise
            self._missing += 1
            if self._missing == self._backlogs:
                raise
