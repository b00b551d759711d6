"""What was given with ``format("sbpair")`` to write?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .given import Given
from .reach import WIRE, Reach, Wire, reach_of, wire_of

FORM = "sbpair"
STRATEGIES = ("column", "batch", "hash")
SHORT = 20.0  # seconds a send may take: a task that waits holds a slot
KNOWN = (
    "connectionString",
    "fullyQualifiedNamespace",
    "endpointAddress",
    "secondaryConnectionString",
    "secondaryFullyQualifiedNamespace",
    "secondaryEndpointAddress",
    "primaryNamespaceName",
    "backlogQueueCount",
    "assumeBacklogsExist",
    "failoverIntervalSeconds",
    "pingPrimaryIntervalSeconds",
    "entityPath",
    "messageIdStrategy",
    "batchSize",
    *WIRE,
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a sink, checked; nothing is opened."""

    primary: Reach
    secondary: Reach
    wire: Wire
    primary_namespace_name: str | None
    backlog_queue_count: int
    assume_backlogs_exist: bool
    failover_interval: float
    """Seconds; 0 by default, so that a task does not fail before its messages are parked."""

    ping_interval: float
    entity_path: str | None
    strategy: str | None
    batch_size: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises ValueError, which names the option, for what cannot be used."""
        given = Given(FORM, options, KNOWN)
        strategy = given.text("messageIdStrategy")
        return cls(
            reach_of(given, "connectionString", "fullyQualifiedNamespace", "endpointAddress"),
            reach_of(
                given,
                "secondaryConnectionString",
                "secondaryFullyQualifiedNamespace",
                "secondaryEndpointAddress",
            ),
            wire_of(given, SHORT),
            given.text("primaryNamespaceName"),
            given.whole("backlogQueueCount", 10, 1, 10_000),
            given.flag("assumeBacklogsExist", default=False),
            given.seconds("failoverIntervalSeconds", 0, 0, 3600),
            given.seconds("pingPrimaryIntervalSeconds", 60, 1, 1800),
            given.text("entityPath"),
            strategy and given.choice("messageIdStrategy", "batch", STRATEGIES),
            given.whole("batchSize", 100, 1, 4500),
        )
