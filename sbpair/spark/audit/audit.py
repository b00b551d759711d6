"""The whole audit of a set of events."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .bill import Charge, bill, usage
from .duplicates import duplicates
from .messages import messages
from .order import order
from .timeline import Episode, timeline, told
from .verdict import SOUND, Verdict, drained, emptied, evidence, judged, kept
from .waits import waits
from .writers import writers

SKEW = 1.0  # seconds that the clocks of two machines may differ by


@dataclass(frozen=True)
class Audit:
    """What the journals prove; tables are computed when they are asked for."""

    writers: DataFrame
    messages: DataFrame
    duplicates: DataFrame
    order: DataFrame
    waits: DataFrame
    timeline: list[Episode]
    bill: list[Charge]

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


def audit(events: DataFrame, *, skew: float = SKEW) -> Audit:
    """Audit events as ``format("sbpair-journal")`` reads them.

    ``skew``: how far apart, in seconds, the clocks of two machines may be; 0 or more.
    """
    if not skew >= 0:
        raise ValueError(f"skew must be 0 or more seconds, not {skew!r}")
    of_writers = writers(events)
    every = judged(
        messages(events),
        evidence(of_writers),
        drained(events, skew),
        emptied(events, skew),
        kept(of_writers, skew),
    )
    return Audit(
        writers=of_writers,
        messages=every,
        duplicates=duplicates(every),
        order=order(every),
        waits=waits(every),
        timeline=timeline(told(events)),
        bill=bill(usage(events)),
    )
