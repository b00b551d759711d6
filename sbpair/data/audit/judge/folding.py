"""The second step of an audit: the mentions of a part become messages with verdicts, written as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..canary_ids import drill_of
from ..engine import Packet, TaskResult
from ..read.aliases import Aliases
from ..read.clocks import (
    MICROS,
    Apart,
    behind_namespaces,
    between_writers,
    differences,
    moment,
    one_way_differences,
)
from ..read.packets import gather
from ..result.storage import Storage
from ..result.tables import MISSING, choose, duplicates_table, messages_table
from .evidence import Evidence
from .fold import LastSeen, Messages, fold, times_accepted
from .grouping import NULL, Ints
from .order import in_sessions
from .verdict import VERDICTS, Judgement, Verdict, judge
from .waits import Waits

INDEX = "index"
MAX_ROWS = 50  # rows per table of the report; the Parquet tables contain all
Rows: TypeAlias = "list[dict[str, Any]]"


@dataclass
class EntityCounts:
    """The messages of one entity."""

    path: str
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of those that are unproven

    def add(self, other: EntityCounts) -> None:
        self.path = min(self.path, other.path)
        self.verdicts.update(other.verdicts)
        self.reasons.update(other.reasons)


@dataclass
class Found:
    """The findings about the parts of the messages, added up over all parts."""

    entities: dict[tuple[str, str], EntityCounts] = field(default_factory=dict)
    troubles: Rows = field(default_factory=list)
    duplicates: Rows = field(default_factory=list)
    duplicated: int = 0
    unexplained: int = 0
    waiting: Counter[str] = field(default_factory=Counter)  # by place
    killed: Counter[str] = field(default_factory=Counter)  # messages whose copies its end explains, by syphon
    canaries: Counter[str] = field(default_factory=Counter)  # that no sender's journal contains, by drill
    repeated: int = 0
    apart: dict[tuple[str, str], int] = field(default_factory=dict)
    """By how many microseconds an event precedes its cause, at most, by the writers of cause and event."""
    behind: dict[tuple[str, str], int] = field(default_factory=dict)
    """By how many microseconds a writer is behind the clock of a primary, at least."""
    again: Counter[str] = field(default_factory=Counter)
    """Copies of messages that only a second forward explains, by primary."""
    dropped: int = 0  # as duplicates, by brokers
    waits: dict[tuple[str | None, int | None], Waits] = field(default_factory=dict)
    missing: int = 0
    in_sessions: int = 0

    def add(self, other: Found) -> None:
        for key, entity in other.entities.items():
            self.entities.setdefault(key, EntityCounts(entity.path)).add(entity)
        for queue, waits in other.waits.items():
            self.waits.setdefault(queue, Waits()).add(waits.times, waits.counts)
        self.troubles = _first_of_each(self.troubles + other.troubles)
        self.duplicates = sorted(self.duplicates + other.duplicates, key=_duplicate)[:MAX_ROWS]
        self.duplicated += other.duplicated
        self.unexplained += other.unexplained
        self.waiting.update(other.waiting)
        self.killed.update(other.killed)
        self.canaries.update(other.canaries)
        self.repeated += other.repeated
        self.apart = worst(self.apart, other.apart)
        for pair, micros in other.behind.items():
            self.behind[pair] = max(micros, self.behind.get(pair, micros))
        self.again.update(other.again)
        self.dropped += other.dropped
        self.missing += other.missing
        self.in_sessions += other.in_sessions

    @property
    def shown(self) -> float:
        """The minimum clock difference in seconds that is visible in messages."""
        return max(self.all_apart.values(), default=0) / MICROS

    @property
    def all_apart(self) -> dict[tuple[str, str], int]:
        """Return the greatest visible differences between two writers, or between a primary's clock and a writer's."""
        return worst(self.apart, between_writers(self.behind))


def worst(one: Apart, other: Apart) -> dict[tuple[str, str], int]:
    """Return the greater of the two differences for each pair."""
    merged = dict(one)
    for pair, micros in other.items():
        merged[pair] = max(micros, merged.get(pair, micros))
    ordered = sorted(merged.items(), key=lambda each: (-each[1], each[0]))
    return dict(ordered[:MAX_ROWS])


LISTED = (
    Verdict.LOST, Verdict.MISPLACED, Verdict.CHANGED, Verdict.UNEXPECTED, Verdict.UNPROVEN, Verdict.DELETED,
    Verdict.WAITING, Verdict.DEAD_LETTERED,
)  # fmt: skip
"""The verdicts whose messages the page lists, the first MAX_ROWS of each."""
TROUBLE = ("primary", "path", "message_id", "verdict", "reason", "place", "secondary", "backlog", "set_aside", "landed",
           "forwarded", "accepted_by_primary", "parked", "backlogged", "held_in_backlog")  # fmt: skip


def _first_of_each(rows: Rows) -> Rows:
    """Return the rows in the order of :data:`LISTED`, the first MAX_ROWS of each verdict."""
    ordered = sorted(rows, key=lambda row: (row["path"], row["message_id"]))
    of_each = ([row for row in ordered if row["verdict"] == verdict.value][:MAX_ROWS] for verdict in LISTED)
    return [row for rows in of_each for row in rows]


def _duplicate(row: Mapping[str, Any]) -> tuple[bool, int, str, str]:
    return row["is_explained"], -row["copies"], row["path"], row["message_id"]


@dataclass(frozen=True, slots=True)
class Fold:
    """The work on a part: writes parts of the tables, returns Found, and packs the messages of sessions.

    ``shifts`` are corrections of writers' times in microseconds, ``runs`` the runs of the writers.
    """

    shifts: Mapping[str, int]
    aliases: Aliases
    runs: Mapping[str, int]
    evidence: Evidence
    parts: int
    out: Storage

    def __call__(self, part: int, packets: Iterator[bytes]) -> Iterator[TaskResult | Packet]:
        mentions = gather(packets)
        if mentions is None or not len(mentions.message):
            return
        messages = fold(mentions, self.shifts, self.aliases, self.runs, self.evidence.kept)
        judgement = judge(messages, self.evidence)
        table = messages_table(messages, judgement)
        self.out.write_table("messages", table, part)
        yield TaskResult(self._collect(messages, judgement, table, part))
        yield from in_sessions(messages, self.parts)

    def _collect(self, messages: Messages, judgement: Judgement, table: pa.Table, part: int) -> Found:
        missing = choose(table.select(MISSING), judgement.where(Verdict.LOST))
        copies = duplicates_table(table, messages, self.evidence)
        for name, rows in (("missing", missing), ("duplicates", copies)):
            if rows.num_rows:
                self.out.write_table(name, rows, part)
        return findings(messages, judgement, table, copies)


def findings(messages: Messages, judgement: Judgement, table: pa.Table, copies: pa.Table) -> Found:
    """Return the findings about ``messages``, whose rows are ``table``, and about their duplicates ``copies``."""
    numbers = dict(messages.numbers)
    return Found(
        entities=_entities(messages, judgement),
        troubles=_with_last_seen(_listed(judgement, table), messages),
        duplicates=_top(copies, [("is_explained", "ascending"), ("copies", "descending"), *_BY_NAME]),
        waiting=_count_by_text(judgement.place, judgement.places),
        duplicated=copies.num_rows,
        unexplained=copies.num_rows - sum(copies.column("is_explained").to_pylist()),
        killed=Counter(
            pc.list_flatten(copies.filter(copies.column("is_explained")).column("killed")).to_pylist()
        ),
        canaries=Counter(map(drill_of, messages.message.filter(pa.array(numbers["canary"] > 0)).to_pylist())),
        repeated=int((times_accepted(numbers) > 1).sum()),
        apart=worst(differences(messages), one_way_differences(messages, judgement.is_traced)),
        behind=behind_namespaces(messages),
        again=_again(messages, copies),
        dropped=int(numbers["dropped"].sum()),
        waits=_waits(messages),
        missing=int(judgement.where(Verdict.LOST).sum()),
        in_sessions=len(messages) - messages.session.null_count,
    )


def _listed(judgement: Judgement, table: pa.Table) -> Rows:
    """The first rows of each verdict that is listed, with the index of the message."""
    found: Rows = []
    for verdict in LISTED:
        is_listed = judgement.where(verdict)
        if is_listed.any():
            rows = choose(table.select(TROUBLE), is_listed)
            rows = rows.append_column(INDEX, pa.array(np.flatnonzero(is_listed)))
            found += _top(rows, _BY_NAME)
    return found


def _again(messages: Messages, copies: pa.Table) -> Counter[str]:
    """Return, by primary, how many copies can be explained only by a second forward.

    ``copies`` is the table of duplicates.
    """
    found: Counter[str] = Counter()
    for row in copies.select(["primary", "copies", "explained", "again", "killed"]).to_pylist():
        if row["again"] and not row["killed"]:
            others = row["explained"] - row["again"]
            found[row["primary"] or ""] += max(0, min(row["again"], row["copies"] - 1 - others))
    return found


def _with_last_seen(rows: Rows, messages: Messages) -> Rows:
    """Return the rows with the place where each message was last seen in place of its index."""
    seen = messages.last_seen(np.array([row.pop(INDEX) for row in rows], np.int64))
    for row, last in zip(rows, seen, strict=True):
        row["last_seen"] = "" if last is None else f"{moment(last.at):%Y-%m-%d %H:%M:%S} UTC, {_record(last)}"
        row["writer"] = "" if last is None else last.writer
    return rows


def _record(last: LastSeen) -> str:
    return last.file if last.ordinal < 0 else f"record {last.ordinal} of {last.file}"


_BY_NAME = [("path", "ascending"), ("message_id", "ascending")]


def _top(table: pa.Table, order: list[tuple[str, str]]) -> Rows:
    rows: Rows = table.sort_by(order).slice(0, MAX_ROWS).to_pylist() if table.num_rows else []
    return rows


def _entities(messages: Messages, judgement: Judgement) -> dict[tuple[str, str], EntityCounts]:
    kinds = len(VERDICTS)
    counts = np.bincount(
        messages.entity * kinds + judgement.verdict, minlength=len(messages.entities) * kinds
    ).reshape(-1, kinds)
    found = {}
    for code, (primary, path_key) in enumerate(messages.entities):
        if not counts[code].any():
            continue
        here = messages.entity == code
        path = int(messages.path[here].min())
        entity = EntityCounts(messages.paths[path])
        entity.verdicts.update(
            {VERDICTS[kind]: int(count) for kind, count in enumerate(counts[code]) if count}
        )
        entity.reasons.update(_count_by_text(judgement.reason[here], judgement.reasons))
        found[primary or "", path_key] = entity
    return found


def _count_by_text(index: Ints, texts: Sequence[str]) -> Counter[str]:
    """How often each text occurs."""
    found, counts = np.unique(index[index != NULL], return_counts=True)
    return Counter({texts[each]: int(count) for each, count in zip(found, counts, strict=True)})


def _waits(messages: Messages) -> dict[tuple[str | None, int | None], Waits]:
    numbers = messages.numbers
    rows = np.flatnonzero((numbers["forwarded"] > 0) & (numbers["parked_at"] != NULL))
    if not len(rows):
        return {}
    parked, forwarded = numbers["parked_at"][rows], numbers["forwarded_at"][rows]
    waited: Ints = np.where(forwarded == NULL, 0, np.maximum(forwarded - parked, 0))
    found: dict[tuple[str | None, int | None], Waits] = {}
    queues, index = np.unique(
        np.column_stack([messages.entity[rows], numbers["backlog"][rows]]), axis=0, return_inverse=True
    )
    for code, (entity, backlog) in enumerate(queues.tolist()):
        queue = (messages.entities[entity][0], None if backlog == NULL else backlog)
        found.setdefault(queue, Waits()).add(waited[index.ravel() == code])
    return found
