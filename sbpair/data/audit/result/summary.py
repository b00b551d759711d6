"""The summary of an audit: the numbers that the report shows and the command prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sbpair.pair.observation.manifest import Accepted

from ..judge.folding import MAX_ROWS, Found
from ..judge.order import OrderVerdict, SessionCounts
from ..judge.verdict import SOUND, Verdict
from ..read.clocks import MICROS, ClockCorrection, moment
from ..read.facts import Facts
from ..read.journal_listing import Unread
from ..read.writers import GAPS, LACKS_NEXT, SHORT, UNREAD, WriterFacts
from .bill import Charge, bill
from .flow import FlowStep
from .remedies import Remedy, remedy_of
from .timeline import Episode, timeline

UNKNOWN = "?"


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
    file: str = ""  # the first of its journal, below the directory of the journals


@dataclass(frozen=True, slots=True)
class EntityVerdicts:
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
class Trouble:
    """A message that is not accounted for, waits, or was dead-lettered."""

    primary: str
    path: str
    message_id: str
    verdict: str
    reason: str = ""  # why it is unproven
    last_seen: str = ""  # when, and the record that says so
    writer: str = ""  # of that record
    place: str = ""  # where it waits
    remedy: Remedy = Remedy.TRACE
    backlog: int | None = None  # the number of its backlog queue


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A message that arrived more than once; at most ``explained`` extra copies have an explanation."""

    primary: str
    path: str
    message_id: str
    copies: int
    explained: int
    killed: tuple[str, ...] = ()  # the syphons whose end explains a copy


@dataclass(frozen=True, slots=True)
class SessionOrder:
    """The order of the messages that one sender sent to one session.

    The first inversion is ``overtaking``, which arrived before ``overtaken``, although it was sent after it.
    """

    primary: str
    path: str
    session_id: str
    sender: str
    messages: int
    parked: int
    inversions: int
    gaps: int
    is_promised: bool  # the sender keeps the order of this session
    verdict: str
    overtaken: str | None = None
    overtaking: str | None = None


@dataclass(frozen=True, slots=True)
class ClocksApart:
    """Two writers whose clocks differ by at least ``seconds``: ``later`` recorded an effect before its cause.

    ``earlier`` recorded the cause.
    """

    earlier: str
    later: str
    seconds: float


@dataclass(frozen=True)
class Summary:
    """The results of an audit."""

    entities: list[EntityVerdicts]
    writers: list[Writer]
    troubles: list[Trouble]  # at most MAX_ROWS of each verdict, the worst first
    repeated: int  # message ids that were accepted more than once
    duplicated: int  # messages that arrived more than once
    unexplained: int  # of these, messages with more copies than can be explained
    duplicates: list[Duplicate]  # at most MAX_ROWS
    sessions: int
    sessions_out_of_order: int
    waits: list[Wait]
    timeline: list[Episode]
    bill: list[Charge]
    flow: list[FlowStep]
    step: float  # seconds per element of the flow
    unread: list[Unread] = field(default_factory=list)  # files that may be journals but were not read
    reasons: dict[str, int] = field(default_factory=dict)  # why messages are unproven, and how many are
    clocks: list[ClockCorrection] = field(default_factory=list)  # corrections of writers' times
    skew: float = 0.0  # tolerated clock difference in seconds
    shown: float = 0.0  # minimum clock difference after correction that messages show, in seconds
    sessions_with_gaps: int = 0
    sessions_unproven: int = 0
    sessions_broken: int = 0  # out of order, although their senders keep the order
    orders: list[SessionOrder] = field(default_factory=list)  # the worst sessions, at most order.MAX_ROWS
    missed: list[str] = field(default_factory=list)  # journals that are missing, or not expected
    killed: dict[str, int] = field(default_factory=dict)
    """The messages with a copy that the end of a killed syphon explains, by its writer."""
    waiting: dict[str, int] = field(default_factory=dict)
    """The messages that wait, by place, the most first; at most MAX_ROWS places."""
    canaries: dict[str, int] = field(default_factory=dict)
    """The messages with ids of canaries that no sender's journal contains, by the id of the drill."""
    dropped: int = 0  # copies that brokers dropped as duplicates
    accepted: dict[str, int] = field(default_factory=dict)
    """How many messages of a verdict are known and meant, though nothing arrived, by the verdict's name."""
    meant: list[Accepted] = field(default_factory=list)  # by manifests, with their reasons
    apart: list[ClocksApart] = field(default_factory=list)  # the most first, at most MAX_ROWS
    forgotten: dict[str, str] = field(default_factory=dict)  # files that a daily audit forgot, and why
    before: int = 0  # messages of the days before those that a daily audit is about
    moved: float = 0.0  # how far a writer's wall clock moved while it wrote, at most, in seconds

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """The number of messages with each verdict over all entities, zeros included."""
        return {verdict: sum(each.verdicts.get(verdict, 0) for each in self.entities) for verdict in Verdict}

    @property
    def holed(self) -> list[Writer]:
        """The journals that may lack a record of a message, of a copy, or of an empty queue.

        These are journals with gaps, and incomplete ones whose role is unknown.
        """
        return [
            each
            for each in self.writers
            if each.reason in GAPS or (each.role == UNKNOWN and each.reason not in (None, UNREAD))
        ]

    @property
    def unfinished(self) -> list[Writer]:
        """The journals whose next file is missing."""
        return [each for each in self.writers if each.reason == LACKS_NEXT]

    @property
    def is_proved(self) -> bool:
        """Whether the audit is complete.

        This requires messages, now or earlier; that all expected journals, and all that may name a message, were read
        completely; a sender journal for each primary; and clocks that neither differed nor moved by more than ``skew``.
        """
        return (
            bool(self.messages or self.before)
            and not self.unread
            and not self.holed
            and not self.unfinished
            and not self.unsent
            and not self.missed
            and not self.is_skew_exceeded
            and not self.is_clock_moved
        )

    @property
    def unsent(self) -> list[str]:
        """The primaries with messages but no sender journal, for which further sends are unknown."""
        known = {each.primary for each in self.writers if each.role == "sender"}
        return sorted({each.primary for each in self.entities} - known)

    @property
    def is_clock_moved(self) -> bool:
        return self.moved > self.skew

    @property
    def is_skew_exceeded(self) -> bool:
        return self.shown > self.skew

    @property
    def is_conserved(self) -> bool:
        """Whether every message is accounted for, every copy is explained, and every promised order was kept."""
        return self.is_proved and not self.unsound and not self.unexplained and not self.sessions_broken

    @property
    def unsound(self) -> dict[Verdict, int]:
        """The numbers of messages that are not accounted for: those of a verdict beyond the accepted number."""
        return {
            verdict: count
            for verdict, count in self.verdicts.items()
            if verdict not in SOUND and count > self.accepted.get(verdict.value, 0)
        }

    @property
    def messages(self) -> int:
        return sum(self.verdicts.values())


def summarise(
    facts: Facts,
    clocks: list[ClockCorrection],
    found: Found,
    sessions: SessionCounts,
    skew: float,
    missed: list[str],
    accepted: Mapping[str, int],
    forgotten: Mapping[str, str] | None = None,
) -> Summary:
    """Return the summary.

    ``missed`` are the differences from the expected journals, ``accepted`` the intended deletions. The times of
    ``facts`` are corrected by ``clocks``, except for the flow and the state changes.
    """
    shifts = {clock.writer: clock.micros for clock in clocks}
    flow, step = facts.flow(shifts)
    reasons: Counter[str] = Counter()
    for entity in found.entities.values():
        reasons.update(entity.reasons)
    return Summary(
        entities=[
            EntityVerdicts(primary, each.path, dict(each.verdicts))
            for (primary, _), each in sorted(found.entities.items())
        ],
        writers=_writers(facts),
        troubles=[
            Trouble(
                row["primary"] or UNKNOWN,
                row["path"],
                row["message_id"],
                row["verdict"],
                row["reason"] or "",
                row["last_seen"],
                row["writer"],
                row["place"] or "",
                remedy_of(row),
                row["backlog"],
            )
            for row in found.troubles
        ],
        repeated=found.repeated,
        duplicated=found.duplicated,
        unexplained=found.unexplained + _too_many(found, facts),
        duplicates=[
            Duplicate(
                row["primary"] or UNKNOWN,
                row["path"],
                row["message_id"],
                row["copies"],
                row["explained"],
                tuple(row["killed"]),
            )
            for row in found.duplicates
        ],
        sessions=sessions.verdicts.total(),
        sessions_out_of_order=sessions.verdicts[OrderVerdict.OUT_OF_ORDER],
        sessions_with_gaps=sessions.verdicts[OrderVerdict.WITH_GAPS],
        sessions_unproven=sessions.verdicts[OrderVerdict.UNPROVEN],
        sessions_broken=sessions.broken,
        orders=[_order(row) for row in sessions.worst],
        waits=_waits(found),
        timeline=timeline(facts.state_events(shifts)),
        bill=bill(facts.usage()),
        flow=flow,
        step=step,
        unread=sorted(facts.unread, key=lambda each: each.name),
        reasons=dict(reasons.most_common(MAX_ROWS)),
        clocks=clocks,
        skew=skew,
        shown=found.shown,
        missed=missed,
        dropped=found.dropped,
        accepted=dict(accepted),
        apart=_apart(found, facts, skew),
        forgotten=dict(forgotten or {}),
        waiting=dict(sorted(found.waiting.items(), key=lambda each: (-each[1], each[0]))[:MAX_ROWS]),
        killed=dict(sorted(found.killed.items())),
        canaries=dict(sorted(found.canaries.items())),
        moved=max((each.moved for each in facts.writers.values()), default=0.0),
    )


def _too_many(found: Found, facts: Facts) -> int:
    """Return how many copies are explained by second forwards that no syphon counted."""
    lost = {primary or "": count for primary, count in facts.locks_lost().items()}
    known = ((again, lost.get(primary)) for primary, again in found.again.items())
    return sum(max(0, again - count) for again, count in known if count is not None)


def _apart(found: Found, facts: Facts, skew: float) -> list[ClocksApart]:
    def name(writer: str) -> str:
        known = facts.writers.get(writer)
        if known is not None:
            return f"the {known.role} {writer[:SHORT]}"
        return f"the namespace {writer}" if writer else "several writers"

    return [
        ClocksApart(name(cause), name(effect), micros / MICROS)
        for (cause, effect), micros in found.all_apart.items()
        if micros > skew * MICROS
    ]


def _order(row: Mapping[str, Any]) -> SessionOrder:
    own = {name: row[name] for name in SessionOrder.__dataclass_fields__ if name in row}
    return SessionOrder(**own | {"primary": row["primary"] or UNKNOWN, "path": row["path_key"]})


def _writers(facts: Facts) -> list[Writer]:
    ordered = sorted(facts.writers.values(), key=_place_in_report)
    return [
        Writer(
            each.writer or UNKNOWN,
            each.role or UNKNOWN,
            each.records,
            _moment(each.first_at),
            _moment(each.last_at),
            each.reason,
            each.primary or UNKNOWN,
            each.file or "",
        )
        for each in ordered
    ]


def _place_in_report(writer: WriterFacts) -> tuple[bool, str, int]:
    return writer.is_whole, writer.role or "", writer.first_at or 0


def _moment(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


def _waits(found: Found) -> list[Wait]:
    known = {
        (primary or UNKNOWN, backlog): waits
        for (primary, backlog), waits in found.waits.items()
        if backlog is not None
    }
    return [
        Wait(primary, backlog, waits.messages, **waits.quantiles())
        for (primary, backlog), waits in sorted(known.items())
    ]
