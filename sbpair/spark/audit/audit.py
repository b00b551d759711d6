"""The audit of a set of events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..schema import columns
from .bill import Charge, bill, usage
from .clocks import Clock, clocks, on_one_clock
from .deliveries import duplicates, order, waits
from .messages import messages
from .timeline import Episode, timeline, told
from .verdict import SOUND, Verdict, drained, emptied, evidence, judged, kept
from .writers import writers

SKEW = 1.0  # seconds that the clocks of two machines may differ by
READ = (
    "ahead", "ambiguous", "at", "backlog", "backlog_queue", "cause", "completed", "count", "dead_lettered",
    "event", "how", "is_last", "lost", "message_id", "message_ids", "ordinal", "pair",
    "path", "reason", "receives", "released", "stored_in", "role", "sequence_numbers", "session_ids",
    "writer",
)  # fmt: skip
"""The columns of a journal that an audit needs."""


@dataclass(frozen=True)
class Audit:
    """What the journals prove; everything is computed when it is asked for."""

    events: DataFrame
    writers: DataFrame
    messages: DataFrame
    clocks: tuple[Clock, ...] = ()
    """The writers whose times are corrected."""

    skew: float = SKEW

    @property
    def duplicates(self) -> DataFrame:
        """The messages that arrived more than once."""
        return duplicates(self.messages)

    @property
    def order(self) -> DataFrame:
        """The sessions, and whether each kept its order."""
        return order(self.messages)

    @property
    def waits(self) -> DataFrame:
        """The backlogs, and how long messages waited in each."""
        return waits(self.messages)

    @cached_property
    def timeline(self) -> list[Episode]:
        """The failovers, by when they began."""
        return timeline(told(self.events))

    @cached_property
    def bill(self) -> list[Charge]:
        """The operations, by both meters."""
        return bill(usage(self.events))

    def verdicts(self) -> dict[Verdict, int]:
        """How many messages have each verdict; all of them, also those that none has."""
        rows = self.messages.groupBy("verdict").count().collect()
        found = {Verdict(row["verdict"]): int(row["count"]) for row in rows}
        return {verdict: found.get(verdict, 0) for verdict in Verdict}

    def missing(self) -> DataFrame:
        """What to send again: the messages that are lost, by id."""
        lost = self.messages.where(F.col("verdict") == Verdict.LOST.value)
        return lost.select("primary", "path", "message_id", "session_id", "sent_at")


def is_conserved(verdicts: dict[Verdict, int]) -> bool:
    """Whether everything is accounted for: nothing lost, unexpected or unproven (G-2)."""
    return all(not count or verdict in SOUND for verdict, count in verdicts.items())


def journals(spark: SparkSession, directory: str) -> DataFrame:
    """The events of a directory, with the columns that :func:`audit` needs and no others: half the work."""
    return spark.read.format("sbpair-journal").schema(columns(READ)).load(directory)


def audit(events: DataFrame, *, skew: float = SKEW) -> Audit:
    """Audit events as :func:`journals` reads them; persist them before, since they are read several times.

    Looks at once for clocks that differ.

    ``skew``: how far apart, in seconds, the clocks of two machines may be; 0 or more.
    """
    if not skew >= 0:
        raise ValueError(f"skew must be 0 or more seconds, not {skew!r}")
    found = clocks(events)
    events = on_one_clock(events, found)
    of_writers = writers(events).persist()  # few rows, asked for by each of these
    every = judged(
        messages(events),
        evidence(of_writers),
        drained(events, skew),
        emptied(events, skew),
        kept(of_writers, skew),
    )
    return Audit(events, of_writers, every, tuple(found), skew)
