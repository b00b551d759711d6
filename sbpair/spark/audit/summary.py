"""The summary of an audit: the numbers that the report shows and the command prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..journal_files import Unread
from ..schema import UNREAD
from .audit import Audit, is_conserved
from .bill import Charge
from .clocks import OBSERVED_SKEW, Clock, micros, moment
from .timeline import Episode
from .verdict import SOUND, Verdict
from .writers import GAPS, NOT_READ

UNKNOWN = "?"
MOST_BUCKETS = 120  # steps on the time axis of the flow
LEAST_STEP = 0.1  # seconds
MOST_ROWS = 50  # rows per table of the report; the Parquet tables contain all


@dataclass(frozen=True, slots=True)
class Writer:
    """The journal of one writer; ``reason`` is why it is incomplete, None if it is complete."""

    writer: str
    role: str
    records: int
    first_at: datetime | None
    last_at: datetime | None
    reason: str | None
    primary: str = ""  # the primary namespace; for a broker, its own


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of a primary, and the number of its messages with each verdict."""

    primary: str
    path: str
    verdicts: dict[Verdict, int]

    @property
    def messages(self) -> int:
        return sum(self.verdicts.values())


@dataclass(frozen=True, slots=True)
class Wait:
    """Waiting times in one backlog queue of a primary, in seconds."""

    primary: str
    backlog: int
    messages: int
    p50: float
    p95: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages in one time step from ``at``: sent to the primary, parked, and forwarded."""

    at: datetime
    direct: int
    parked: int
    forwarded: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A message that is not accounted for."""

    primary: str
    path: str
    message_id: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A message that arrived more than once; at most ``explained`` extra copies have an explanation (G-4)."""

    primary: str
    path: str
    message_id: str
    copies: int
    explained: int


@dataclass(frozen=True)
class Summary:
    """The results of an audit."""

    entities: list[Entity]
    writers: list[Writer]
    troubles: list[Trouble]  # at most MOST_ROWS
    repeated: int  # message ids that were accepted more than once
    duplicated: int  # messages that arrived more than once
    unexplained: int  # of these, messages with more copies than can be explained
    duplicates: list[Duplicate]  # at most MOST_ROWS
    sessions: int
    sessions_out_of_order: int
    waits: list[Wait]
    timeline: list[Episode]
    bill: list[Charge]
    flow: list[Flow]
    step: float  # seconds per element of the flow
    unread: list[Unread] = field(default_factory=list)  # files that may be journals but were not read
    clocks: list[Clock] = field(default_factory=list)  # corrections of writers' times
    skew: float = 0.0  # tolerated clock difference in seconds
    shown: float = 0.0  # minimum clock difference after correction that messages show, in seconds

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """The number of messages with each verdict over all entities, zeros included."""
        return {verdict: sum(each.verdicts.get(verdict, 0) for each in self.entities) for verdict in Verdict}

    @property
    def holed(self) -> list[Writer]:
        """The incomplete journals that may have recorded messages unknown to the audit.

        These are senders' journals with gaps, and incomplete journals whose role is unknown.
        """
        return [
            each
            for each in self.writers
            if (each.role == "sender" and each.reason in GAPS)
            or (each.role == UNKNOWN and each.reason not in (None, NOT_READ))
        ]

    @property
    def is_proved(self) -> bool:
        """Whether there are messages, every journal that may name one was read completely, and the clocks differ
        by no more than ``skew``."""
        return bool(self.messages) and not self.unread and not self.holed and not self.is_skew_exceeded

    @property
    def is_skew_exceeded(self) -> bool:
        return self.shown > self.skew

    @property
    def is_conserved(self) -> bool:
        """Whether every message is proved to be accounted for, and every copy explained (G-2, G-4)."""
        return self.is_proved and is_conserved(self.verdicts) and not self.unexplained

    @property
    def messages(self) -> int:
        return sum(self.verdicts.values())


def summarise(found: Audit, duplicates: DataFrame, order: DataFrame, waits: DataFrame) -> Summary:
    """Compute the summary; persist the tables first, since each is read more than once."""
    counts = duplicates.agg(
        F.count("*").alias("all"), F.count(F.when(~F.col("is_explained"), True)).alias("unexplained")
    ).collect()[0]
    sessions = order.agg(
        F.count("*").alias("all"), F.count(F.when(~F.col("is_kept"), True)).alias("broken")
    ).collect()[0]
    flow, step = _flow(found.events)
    entities, repeated, shown = _entities(found.messages)
    return Summary(
        entities=entities,
        writers=_writers(found.writers),
        troubles=_troubles(found.messages) if any(map(_has_trouble, entities)) else [],
        repeated=repeated,
        duplicated=counts["all"],
        unexplained=counts["unexplained"],
        duplicates=_duplicates(duplicates) if counts["all"] else [],
        sessions=sessions["all"],
        sessions_out_of_order=sessions["broken"],
        waits=_waits(waits),
        timeline=found.timeline,
        bill=found.bill,
        flow=flow,
        step=step,
        unread=_unread(found.events),
        clocks=list(found.clocks),
        skew=found.skew,
        shown=shown,
    )


def _unread(events: DataFrame) -> list[Unread]:
    rows = events.where(F.col("event") == UNREAD).select("writer", "reason").orderBy("writer").collect()
    return [Unread(row.writer, row.reason) for row in rows]


def _entities(messages: DataFrame) -> tuple[list[Entity], int, float]:
    """The entities by primary and path, the number of messages accepted more than once, and the minimum clock
    difference in seconds."""
    is_again = F.expr("accepted_by_primary + parked + spooled - left_spool > 1")
    rows = messages.groupBy("primary", "path_key", "verdict").agg(
        F.min("path").alias("path"),
        F.count("*").alias("messages"),
        F.count(F.when(is_again, True)).alias("repeated"),
        F.max(F.expr(OBSERVED_SKEW)).alias("shown"),
    ).collect()  # fmt: skip
    paths = {(row.primary, row.path_key): row.path for row in rows}
    counts: dict[tuple[str, str], dict[Verdict, int]] = {key: {} for key in sorted(paths)}
    for row in rows:
        counts[row.primary, row.path_key][Verdict(row.verdict)] = row.messages
    entities = [Entity(key[0], paths[key], verdicts) for key, verdicts in counts.items()]
    shown = max((row.shown for row in rows if row.shown is not None), default=0.0)
    return entities, sum(row.repeated for row in rows), max(0.0, shown)


def _has_trouble(entity: Entity) -> bool:
    return not is_conserved(entity.verdicts)


def _writers(table: DataFrame) -> list[Writer]:
    ordered = table.orderBy(F.col("is_whole"), "role", "first_at")
    rows = ordered.select(
        "writer", "role", "records", micros("first_at"), micros("last_at"), "reason", "primary"
    ).collect()
    return [
        Writer(
            row.writer or "?",
            row.role or UNKNOWN,
            row.records,
            _moment(row.first_at),
            _moment(row.last_at),
            row.reason,
            row.primary or "?",
        )
        for row in rows
    ]


def _moment(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


def _troubles(messages: DataFrame) -> list[Trouble]:
    bad = ~F.col("verdict").isin(*(verdict.value for verdict in SOUND))
    rows = messages.where(bad).orderBy("verdict", "path", "message_id").limit(MOST_ROWS).collect()
    return [Trouble(row.primary, row.path, row.message_id, row.verdict) for row in rows]


def _duplicates(table: DataFrame) -> list[Duplicate]:
    rows = table.orderBy("is_explained", F.desc("copies"), "path", "message_id").limit(MOST_ROWS).collect()
    return [Duplicate(row.primary, row.path, row.message_id, row.copies, row.explained) for row in rows]


def _waits(table: DataFrame) -> list[Wait]:
    rows = table.where("backlog IS NOT NULL").orderBy("primary", "backlog").collect()
    return [
        Wait(row.primary, row.backlog, row.messages, row.p50, row.p95, row.p99, row.longest) for row in rows
    ]


def _flow(events: DataFrame) -> tuple[list[Flow], float]:
    moved = events.select(
        "at",
        F.expr("CASE WHEN event = 'send_accepted' AND stored_in = 'primary' THEN size(message_ids) ELSE 0 END")
        .alias("direct"),
        F.expr("CASE WHEN event = 'message_parked' THEN `count` ELSE 0 END").alias("parked"),
        F.expr("CASE WHEN event = 'messages_forwarded' THEN size(message_ids) ELSE 0 END")
        .alias("forwarded"),
    ).where("direct + parked + forwarded > 0")  # fmt: skip
    ends = moved.agg(F.min(micros("at")).alias("first"), F.max(micros("at")).alias("last")).collect()[0]
    if ends["first"] is None:
        return [], LEAST_STEP
    step = max(LEAST_STEP, round((ends["last"] - ends["first"]) / 1e6 / MOST_BUCKETS, 1))
    width = round(step * 1e6)
    bucket = F.floor(F.unix_micros("at") / width).alias("bucket")
    sums = [F.sum(name).alias(name) for name in ("direct", "parked", "forwarded")]
    rows = moved.groupBy(bucket).agg(*sums).orderBy("bucket").collect()
    return [Flow(moment(row.bucket * width), row.direct, row.parked, row.forwarded) for row in rows], step
