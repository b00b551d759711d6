"""What was given with ``format("sbpair-syphon")``?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sbpair.syphon.options import SyphonOptions

from .given import Given
from .reach import PAIR, WIRE, PairReach, pair_of
from .task_journal import directory_of

FORM = "sbpair-syphon"
KNOWN = (
    *PAIR,
    "allowedDestinations",
    "maxDurationSeconds",
    "emptyWaitSeconds",
    "receiversPerBacklog",
    "window",
    "journal",
    *WIRE,
)


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """The options of a drain in tasks, checked; nothing is opened."""

    pair: PairReach
    allowed_destinations: tuple[str, ...] | None
    max_duration: float
    """Seconds after which a task ends, whatever is left."""

    empty_wait: float
    """Seconds that a backlog must stay empty before a task ends."""

    receivers: int
    """Tasks for each backlog; more than one trades order away."""

    window: int
    journal: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DrainOptions:
        """Raises ValueError, which names the option, for what cannot be used."""
        given = Given(FORM, options, KNOWN)
        return cls(
            pair_of(given, 60.0),
            given.several("allowedDestinations") or None,
            given.seconds("maxDurationSeconds", 300, 1, 86_400),
            given.seconds("emptyWaitSeconds", 0, 0, 3600),
            given.whole("receiversPerBacklog", 1, 1, 64),
            given.whole("window", 500, 1, 5000),
            directory_of(given),
        )

    def of_backlog(self, number: int) -> SyphonOptions:
        """The daemon's own options, for one backlog."""
        pair = self.pair
        return SyphonOptions(
            backlog_queue_count=pair.backlog_queue_count,
            primary_namespace_name=pair.primary_namespace_name,
            allowed_destinations=self.allowed_destinations,
            window=self.window,
            operation_timeout=timedelta(seconds=pair.wire.timeout),
            tell_forwards=self.journal is not None,
            connection_verify=pair.wire.ca_file,
            over_websocket=pair.wire.over_websocket,
            only_backlogs=(number,),
            primary_endpoint_address=pair.primary.address,
            secondary_endpoint_address=pair.secondary.address,
        )
