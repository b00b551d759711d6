"""The audit of a set of journal events: an :class:`Audit` combines the results of the other modules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..schema import columns
from .bill import Charge, bill, usage
from .clocks import Clock, clocks, corrected
from .deliveries import duplicates, order, waits
from .messages import messages
from .timeline import Episode, state_events, timeline
from .verdict import SOUND, Verdict, drained, emptied, evidence, judged, kept
from .writers import writers

SKEW = 1.0  # tolerated difference between the clocks of two machines, in seconds
READ = (
    "ahead", "ambiguous", "at", "backlog", "backlog_queue", "cause", "completed", "count", "dead_lettered",
    "event", "how", "is_last", "lost", "message_id", "message_ids", "ordinal", "pair",
    "path", "reason", "receives", "released", "stored_in", "role", "sequence_numbers", "session_ids",
    "writer",
)  # fmt: skip
"""The columns of a journal that an audit needs."""


@dataclass(frozen=True)
class Audit:
    """The results of an audit; DataFrames and properties are computed on access."""

    events: DataFrame
    writers: DataFrame
    messages: DataFrame
    clocks: tuple[Clock, ...] = ()
    """The writers whose times were corrected."""

    skew: float = SKEW

    @property
    def duplicates(self) -> DataFrame:
        """The messages that arrived more than once."""
        return duplicates(self.messages)

    @property
    def order(self) -> DataFrame:
        """The sessions of each sender, and whether their order was kept."""
        return order(self.messages)

    @property
    def waits(self) -> DataFrame:
        """The times that messages waited in each backlog queue."""
        return waits(self.messages)

    @cached_property
    def timeline(self) -> list[Episode]:
        """The failovers, by start time."""
        return timeline(state_events(self.events))

    @cached_property
    def bill(self) -> list[Charge]:
        """The operations by both meters."""
        return bill(usage(self.events))

    def verdicts(self) -> dict[Verdict, int]:
        """The number of messages with each verdict, zeros included."""
        rows = self.messages.groupBy("verdict").count().collect()
        found = {Verdict(row["verdict"]): int(row["count"]) for row in rows}
        return {verdict: found.get(verdict, 0) for verdict in Verdict}

    def missing(self) -> DataFrame:
        """The lost messages: primary, path, message id, session id and time of sending."""
        lost = self.messages.where(F.col("verdict") == Verdict.LOST.value)
        return lost.select("primary", "path", "message_id", "session_id", "sent_at")


def is_conserved(verdicts: dict[Verdict, int]) -> bool:
    """Whether every message is accounted for: none lost, unexpected or unproven (G-2)."""
    return all(not count or verdict in SOUND for verdict, count in verdicts.items())


def journals(spark: SparkSession, directory: str) -> DataFrame:
    """Read the events of a directory with only the columns that :func:`audit` needs, which halves the work."""
    return spark.read.format("sbpair-journal").schema(columns(READ)).load(directory)


def audit(events: DataFrame, *, skew: float = SKEW) -> Audit:
    """Audit ``events``, as read by :func:`journals`; persist them first, since they are read several times.

    ``skew`` is the tolerated difference between the clocks of two machines in seconds, 0 or more. Runs one Spark
    job at once, to find clocks that differ. Raises ValueError for an invalid ``skew``.
    """
    if not skew >= 0:
        raise ValueError(f"skew must be 0 or more seconds, not {skew!r}")
    found = clocks(events)
    events = corrected(events, found)
    of_writers = writers(events).persist()  # few rows, asked for by each of these
    every = judged(
        messages(events),
        evidence(of_writers),
        drained(events, skew),
        emptied(events, skew),
        kept(of_writers, skew),
    )
    return Audit(events, of_writers, every, tuple(found), skew)
