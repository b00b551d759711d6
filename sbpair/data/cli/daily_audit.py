"""`sbpair audit --state`: the daily audit and its heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

import click

from sbpair.pair.cli.errors import ConfigurationError, one_line
from sbpair.pair.cli.parameters import DurationType

if TYPE_CHECKING:
    from sbpair.data.audit.daily import DailyResult
    from sbpair.data.audit.engine import Engine
    from sbpair.data.audit.expected import Expected


@dataclass(frozen=True, slots=True)
class DailyFlags:
    """The flags of a daily audit, as they were given."""

    state: str
    since: datetime | None
    heartbeats: tuple[str, ...]
    forgotten: tuple[str, ...] = ()
    reason: str = ""

    def heartbeats_by_role(self) -> dict[str, float]:
        """Return the seconds by role. Raises ConfigurationError for a value that is not ROLE=SPAN."""
        from sbpair.pair.observation.record import WriterRole

        roles = [role.value for role in WriterRole]
        found = {}
        for each in self.heartbeats:
            role, equals, span = each.partition("=")
            if not equals or role not in roles:
                raise ConfigurationError(f"--heartbeat {each}: not ROLE=SPAN; roles are {', '.join(roles)}")
            try:
                found[role] = DurationType().convert(span, None, None).total_seconds()
            except click.BadParameter as error:
                raise ConfigurationError(f"--heartbeat {each}: {error.message}") from error
        return found


def run_daily(
    journal: str,
    flags: DailyFlags,
    engine: Engine | None,
    skew: float,
    aliases: dict[str, str],
    expected: Expected,
    accept: dict[str, int],
) -> DailyResult:
    """Run the daily audit. Raises ConfigurationError."""
    from sbpair.data.audit.daily import (
        ForeignStateError,
        StateInUseError,
        Terms,
        UnknownFileError,
        audit_daily,
    )

    heartbeats = flags.heartbeats_by_role()
    since: date | None = None if flags.since is None else flags.since.date()
    terms = Terms(skew, aliases, expected, since, heartbeats, accept, flags.forgotten, flags.reason)
    try:
        return audit_daily(journal, flags.state, terms=terms, engine=engine)
    except (StateInUseError, ForeignStateError, UnknownFileError) as error:
        raise ConfigurationError(str(error)) from error
    except OSError as error:
        raise ConfigurationError(f"{flags.state}: {error.strerror or one_line(error)}") from error
