"""What was given with ``format("sbpair")`` to write?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .given import Given
from .reach import PAIR, WIRE, PairReach, pair_of
from .task_journal import directory_of

FORM = "sbpair"
STRATEGIES = ("column", "batch", "hash")
SHORT = 20.0  # seconds a send may take: a task that waits holds a slot
KNOWN = (
    *PAIR,
    "assumeBacklogsExist",
    "failoverIntervalSeconds",
    "pingPrimaryIntervalSeconds",
    "entityPath",
    "messageIdStrategy",
    "batchSize",
    "journal",
    *WIRE,
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a sink, checked; nothing is opened."""

    pair: PairReach
    assume_backlogs_exist: bool
    failover_interval: float
    """Seconds; 0 by default, so that a task does not fail before its messages are parked."""

    ping_interval: float
    entity_path: str | None
    strategy: str | None
    batch_size: int
    journal: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises ValueError, which names the option, for what cannot be used."""
        given = Given(FORM, options, KNOWN)
        strategy = given.text("messageIdStrategy")
        return cls(
            pair_of(given, SHORT),
            given.flag("assumeBacklogsExist", default=False),
            given.seconds("failoverIntervalSeconds", 0, 0, 3600),
            given.seconds("pingPrimaryIntervalSeconds", 60, 1, 1800),
            given.text("entityPath"),
            strategy and given.choice("messageIdStrategy", "batch", STRATEGIES),
            given.whole("batchSize", 100, 1, 4500),
            directory_of(given),
        )
