"""What was given with ``format("sbpair-syphon")``?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sbpair.syphon.options import SyphonOptions

from .given import Given
from .reach import WIRE, Reach, Wire, reach_of, wire_of

FORM = "sbpair-syphon"
KNOWN = (
    "connectionString",
    "fullyQualifiedNamespace",
    "endpointAddress",
    "secondaryConnectionString",
    "secondaryFullyQualifiedNamespace",
    "secondaryEndpointAddress",
    "primaryNamespaceName",
    "backlogQueueCount",
    "allowedDestinations",
    "maxDurationSeconds",
    "window",
    "journal",
    *WIRE,
)


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """The options of a drain in tasks, checked; nothing is opened."""

    primary: Reach
    secondary: Reach
    wire: Wire
    primary_namespace_name: str | None
    backlog_queue_count: int
    allowed_destinations: tuple[str, ...] | None
    max_duration: float
    """Seconds after which a task ends, whatever is left."""

    window: int
    journal: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DrainOptions:
        """Raises ValueError, which names the option, for what cannot be used."""
        given = Given(FORM, options, KNOWN)
        journal = given.text("journal")
        if journal is not None and not os.path.isabs(journal):
            raise given.wrong("journal must be an absolute path: tasks run in directories of their own")
        return cls(
            reach_of(given, "connectionString", "fullyQualifiedNamespace", "endpointAddress"),
            reach_of(
                given,
                "secondaryConnectionString",
                "secondaryFullyQualifiedNamespace",
                "secondaryEndpointAddress",
            ),
            wire_of(given, 60.0),
            given.text("primaryNamespaceName"),
            given.whole("backlogQueueCount", 10, 1, 10_000),
            given.several("allowedDestinations") or None,
            given.seconds("maxDurationSeconds", 300, 1, 86_400),
            given.whole("window", 500, 1, 5000),
            journal,
        )

    def of_backlog(self, number: int) -> SyphonOptions:
        """The daemon's own options, for one backlog."""
        return SyphonOptions(
            backlog_queue_count=self.backlog_queue_count,
            primary_namespace_name=self.primary_namespace_name,
            allowed_destinations=self.allowed_destinations,
            window=self.window,
            operation_timeout=timedelta(seconds=self.wire.timeout),
            tell_forwards=self.journal is not None,
            connection_verify=self.wire.ca_file,
            over_websocket=self.wire.over_websocket,
            only_backlogs=(number,),
            primary_endpoint_address=self.primary.address,
            secondary_endpoint_address=self.secondary.address,
        )
