"""The summary of an audit: the figures that the report shows and the command prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..journal_files import Unread
from ..schema import UNREAD
from .audit import Audit, is_conserved
from .bill import Charge
from .clocks import SHOWN, Clock, micros, moment
from .timeline import Episode
from .verdict import SOUND, Verdict
from .writers import HOLES, NOT_READ

UNKNOWN = "?"
MOST_BUCKETS = 120  # steps of the flow's time axis
LEAST_STEP = 0.1  # seconds
MOST_ROWS = 50  # of a table in the report; the Parquet files have all


@dataclass(frozen=True, slots=True)
class Writer:
    """One journal; ``reason`` says why it is not whole, None when it is."""

    writer: str
    role: str
    records: int
    first_at: datetime | None
    last_at: datetime | None
    reason: str | None
    primary: str = ""  # the namespace; of a broker its own


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of a primary, and how many of its messages have each verdict."""

    primary: str
    path: str
    verdicts: dict[Verdict, int]

    @property
    def messages(self) -> int:
        return sum(self.verdicts.values())


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds that messages waited in one backlog queue of a primary."""

    primary: str
    backlog: int
    messages: int
    p50: float
    p95: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages in one step of time: accepted by the primary at once, parked, brought home."""

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
    """A message that arrived more than once; ``explained`` copies at most are accounted for (G-4)."""

    primary: str
    path: str
    message_id: str
    copies: int
    explained: int


@dataclass(frozen=True)
class Summary:
    """What an audit found."""

    entities: list[Entity]
    writers: list[Writer]
    troubles: list[Trouble]  # the first :data:`MOST_ROWS`
    repeated: int  # messages that were accepted more than once: ids sent again
    duplicated: int
    unexplained: int
    duplicates: list[Duplicate]  # likewise
    sessions: int
    sessions_out_of_order: int
    waits: list[Wait]
    timeline: list[Episode]
    bill: list[Charge]
    flow: list[Flow]
    step: float  # seconds of one step of the flow
    unread: list[Unread] = field(default_factory=list)  # files that may be journals
    clocks: list[Clock] = field(default_factory=list)  # writers whose times are corrected
    skew: float = 0.0  # seconds that clocks were allowed to differ by
    shown: float = 0.0  # seconds that they do differ by at least, corrected, as messages show

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How many messages have each verdict, over all entities; all of them, also those that none has."""
        return {verdict: sum(each.verdicts.get(verdict, 0) for each in self.entities) for verdict in Verdict}

    @property
    def holed(self) -> list[Writer]:
        """The journals that may have told of messages nobody here knows: of senders, with holes, or of
        nobody knows whom."""
        return [
            each
            for each in self.writers
            if (each.role == "sender" and each.reason in HOLES)
            or (each.role == UNKNOWN and each.reason not in (None, NOT_READ))
        ]

    @property
    def is_proved(self) -> bool:
        """Whether there were messages to judge, every journal that could tell of one was read whole, and the
        clocks do not differ by more than was allowed for."""
        return bool(self.messages) and not self.unread and not self.holed and not self.is_out_of_time

    @property
    def is_out_of_time(self) -> bool:
        return self.shown > self.skew

    @property
    def is_conserved(self) -> bool:
        """Whether it is proved that every message is accounted for, and every copy explained (G-2, G-4)."""
        return self.is_proved and is_conserved(self.verdicts) and not self.unexplained

    @property
    def messages(self) -> int:
        return sum(self.verdicts.values())


def summarise(found: Audit, duplicates: DataFrame, order: DataFrame, waits: DataFrame) -> Summary:
    """Compute the numbers; reads each table more than once, so keep them before."""
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
    """All of them, by primary and path; how many messages were accepted more than once; and by how many
    seconds clocks differ at least."""
    is_again = F.expr("accepted_by_primary + parked + spooled - left_spool > 1")
    rows = messages.groupBy("primary", "path_key", "verdict").agg(
        F.min("path").alias("path"),
        F.count("*").alias("messages"),
        F.count(F.when(is_again, True)).alias("repeated"),
        F.max(F.expr(SHOWN)).alias("shown"),
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
