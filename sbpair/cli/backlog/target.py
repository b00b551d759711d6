"""Whose backlog queues does the command work on, and where are they?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import click

from sbpair.cli.errors import ConfigurationError, configuration
from sbpair.cli.namespaces import namespace_option
from sbpair.cli.pair_flags import backlogs_option, ca_file_option, name_option
from sbpair.cli.source import Source
from sbpair.pairing.names import backlog_queue_name, namespace_label

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from sbpair.syphon.connection_string import Namespace

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Target:
    """The backlog queues of one primary on one secondary."""

    secondary: Source | None
    label: str
    count: int
    ca_file: str | None

    def name(self, index: int) -> str:
        """The name of backlog queue ``index``; any index will do, extra ones too (P-13)."""
        return backlog_queue_name(self.label, index)

    def names(self, index: int | None) -> list[str]:
        """The one at ``index``, or all that were asked for."""
        return [self.name(each) for each in ([index] if index is not None else range(self.count))]

    def namespace(self) -> Namespace:
        """The secondary, as the raw client is to see it."""
        with configuration():
            return self._secondary().namespace()

    def administration(self) -> ServiceBusAdministrationClient:
        """An administration client of the secondary; the key needs the Manage right."""
        from sbpair.pairing.address import SdkSettings

        with configuration():
            settings = SdkSettings(connection_verify=self.ca_file)
            return self._secondary().side("secondary", settings).administration()

    def _secondary(self) -> Source:
        if self.secondary is None:
            raise click.UsageError(
                "--secondary (or SBPAIR_SECONDARY) is missing", click.get_current_context()
            )
        return self.secondary


def with_target(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add the flags that say which backlog queues; the command receives them as one Target."""

    @wraps(command)
    def called(
        *,
        primary: Source | None,
        secondary: Source | None,
        primary_namespace_name: str | None,
        backlogs: int,
        ca_file: str | None,
        **rest: object,
    ) -> Result:
        label = _label(primary, primary_namespace_name)
        return command(target=Target(secondary, label, backlogs, ca_file), **rest)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


_OPTIONS: tuple[Callable[[Callable[..., Result]], Callable[..., Result]], ...] = (
    namespace_option("secondary", required=False),
    namespace_option("primary", required=False),
    name_option,
    backlogs_option,
    ca_file_option,
)

index_option = click.option(
    "--index",
    type=click.IntRange(min=0),
    help="Only backlog queue INDEX; it may be an extra one.  [default: all]",
)


def _label(primary: Source | None, name: str | None) -> str:
    if name is not None:
        return name
    if primary is None:
        raise click.UsageError(
            "whose backlog? give --primary (or SBPAIR_PRIMARY), or --primary-namespace-name",
            click.get_current_context(),
        )
    try:
        return namespace_label(primary.netloc)
    except ValueError as error:
        raise ConfigurationError(f"--primary: {error}") from error
