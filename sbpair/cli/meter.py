"""The billed operations of a pairing; each message sent or received is one (P-34, P-41, P-43).

    idle     a long poll of 15 minutes on each backlog queue, by each syphon      4 an hour, 96 a day
    parked   send to the backlog, receive from it, send to the primary,           4 per message; a direct
             receive from the primary                                             send needs the last two
    pings    one at failover, then one per interval until one succeeds            per entity and process

The figures are upper bounds: a namespace that is down neither answers nor bills. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

LONG_POLL = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The load on a pairing. Raises ValueError for negative numbers and a ping interval of 0."""

    backlogs: int = 10
    days: int = 30
    syphons: int = 1
    outages: int = 1
    """In ``days``."""

    parked: int = 0
    """Messages parked in each outage."""

    entities: int = 1
    """Queues that fail over, in each process."""

    processes: int = 1
    failed_over: timedelta = timedelta(hours=1)
    """Duration of each outage, from failover to recovery."""

    ping_interval: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        for name in ("backlogs", "days", "syphons", "outages", "parked", "entities", "processes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.failed_over < timedelta(0):
            raise ValueError("failed_over must be 0 or more")
        if self.ping_interval <= timedelta(0):
            raise ValueError("ping_interval must be more than 0")


@dataclass(frozen=True, slots=True)
class Operations:
    """Billed operations, by kind."""

    idle_receives: int
    backlog_sends: int
    backlog_receives: int
    primary_sends: int
    primary_receives: int
    pings: int

    @property
    def total(self) -> int:
        return (
            self.idle_receives
            + self.backlog_sends
            + self.backlog_receives
            + self.primary_sends
            + self.primary_receives
            + self.pings
        )

    @property
    def beyond_direct(self) -> int:
        """Total less a send and a receive for each message, the cost of direct sends."""
        return self.total - self.primary_sends - self.primary_receives


def bill(usage: Usage) -> Operations:
    """The operations billed for ``usage``."""
    parked = usage.parked * usage.outages
    return Operations(
        idle_receives=usage.backlogs * usage.syphons * usage.days * (timedelta(days=1) // LONG_POLL),
        backlog_sends=parked,
        backlog_receives=parked,
        primary_sends=parked,
        primary_receives=parked,
        pings=usage.outages
        * usage.entities
        * usage.processes
        * pings(usage.failed_over, usage.ping_interval),
    )


def pings(failed_over: timedelta, interval: timedelta) -> int:
    """Pings of one entity in one process, from failover to the first success."""
    return 1 - (-failed_over // interval)  # rounded up: the last comes at or after the recovery
