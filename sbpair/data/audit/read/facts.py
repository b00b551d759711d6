"""The facts in journals that do not concern single messages: there are few, and they are added up over all blocks.

block  -->  Facts  --+--> writers, evidence     --> the verdicts
block  -->  Facts  --+    timeline, bill, flow  --> the report
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import columns
from ..event_names import EVENTS
from ..judge.evidence import SyphonFacts
from ..judge.grouping import NULL, Bools, Ints, group_max, group_min, integers, total
from ..result.bill import CountedUsage
from ..result.flow import FlowFacts, FlowStep, flow
from ..result.survey import SurveyedFile, key_of
from ..result.timeline import STATE_CHANGES, StateEvent
from .aliases import Aliases
from .clocks import MICROS, ClockCorrection, moment
from .journal_listing import Unread
from .mentions import MANY, MILLIS, Block, Kind
from .writers import WriterFacts, greatest, runs, smallest

# Events that are read row by row; all others are only counted.
RARE = (*STATE_CHANGES, "clock_differs", "syphon_counters", columns.UNREAD)
READ_OF_RARE = (
    "ordinal",
    "at",
    "cause",
    "ahead",
    "receives",
    "completed",
    "dead_lettered",
    "released",
    "reason",
    "lock_lost",
    "pending",
)


BESIDE_A_PART = "the same file beside it, without .gz, is not whole: was a restore interrupted?"
MAX_MONO = 2.0**62  # microseconds of a monotonic clock: beyond it a record is damaged


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state change, with its place in the writer's journal."""

    ordinal: int
    at: int
    event: StateEvent


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts about one file from its lines.

    ``found`` is the checksum of its lines as read, ``written`` that in its closing record, None without one.
    ``closed_at`` is the ordinal of that record, ``last`` the last ordinal in the file.
    """

    writer: str = ""
    found: int = 0
    written: int | None = None
    closed_at: int | None = None
    last: int | None = None

    def __add__(self, other: FileFacts) -> FileFacts:
        return FileFacts(
            self.writer or other.writer,
            self.found + other.found,
            greatest((self.written, other.written)),
            greatest((self.closed_at, other.closed_at)),
            greatest((self.last, other.last)),
        )

    def is_altered(self) -> bool:
        return self.written is not None and self.written != self.found

    def is_cut(self, file: SurveyedFile) -> bool:
        return self.closed_at is None and not file.is_open

    def goes_on(self, file: SurveyedFile) -> bool:
        """Whether anything follows the closing record."""
        return self.closed_at is not None and (
            file.has_tail or (self.last is not None and self.last > self.closed_at)
        )


Pair = tuple[str | None, str | None]


@dataclass
class Facts:
    """The facts of a part of the journals. Times are in microseconds, by the writers' clocks."""

    writers: dict[str, WriterFacts] = field(default_factory=dict)
    syphons: dict[tuple[Pair, str], SyphonFacts] = field(default_factory=dict)
    emptied: dict[tuple[str | None, str, str], int] = field(default_factory=dict)  # primary, path, writer
    passed: dict[tuple[str | None, str], int] = field(default_factory=dict)  # by the broker's clock, if known
    clocks: dict[str, tuple[int, float]] = field(default_factory=dict)  # the last record: ordinal, seconds
    counters: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    """The last counters of each syphon: ordinal, receives, settled, and forwarded but not removed."""
    changes: list[StateChange] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    flows: dict[str, FlowFacts] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)
    files: dict[str, FileFacts] = field(default_factory=dict)  # by key_of their names

    def add(self, other: Facts) -> None:
        """Add the facts of another part."""
        for name, writer in other.writers.items():
            self.writers.setdefault(name, WriterFacts(name)).add(writer)
        for key, syphon in other.syphons.items():
            known = self.syphons.get(key)
            self.syphons[key] = syphon if known is None else _both(known, syphon)
        for place, at in other.emptied.items():
            self.emptied[place] = max(at, self.emptied.get(place, at))
        for queue, at in other.passed.items():
            self.passed[queue] = max(at, self.passed.get(queue, at))
        for name, clock in other.clocks.items():
            self.clocks[name] = max(clock, self.clocks.get(name, clock))
        for name, counter in other.counters.items():
            self.counters[name] = max(counter, self.counters.get(name, counter))
        for name, flow_facts in other.flows.items():
            self.flows.setdefault(name, FlowFacts()).add(flow_facts)
        self.changes += other.changes
        self.counts.update(other.counts)
        self.unread += other.unread
        for name, sums in other.files.items():
            self.files[name] = self.files.get(name, FileFacts()) + sums

    def hold_against(self, files: Mapping[str, SurveyedFile]) -> None:
        """Mark the writers of files that were cut, changed or continued. Call once, with the facts of all parts."""
        for key, file in files.items():
            if (found := self.files.get(key)) is None:
                continue
            writer = self.writers.setdefault(found.writer, WriterFacts(found.writer))
            writer.altered += found.is_altered()
            writer.cut += found.is_cut(file)
            writer.continued += found.goes_on(file)
            if file.packed and (found.closed_at is None or found.is_altered()):
                self.unread.append(Unread(file.packed, BESIDE_A_PART))

    def corrections(self) -> list[ClockCorrection]:
        """One correction for each writer that recorded a clock difference; the last record counts."""
        return [ClockCorrection(writer, ahead) for writer, (_, ahead) in sorted(self.clocks.items())]

    def corrected(self, clocks: list[ClockCorrection]) -> None:
        """Apply corrections to all times except those of the flow."""
        shifts = {clock.writer: clock.micros for clock in clocks}
        for name, writer in self.writers.items():
            writer.shifted(shifts.get(name, 0))
        self.syphons = {
            (pair, name): _shift_facts(each, shifts.get(name, 0))
            for (pair, name), each in self.syphons.items()
        }
        self.emptied = {place: at + shifts.get(place[2], 0) for place, at in self.emptied.items()}

    def named(self, aliases: Aliases) -> None:
        """Replace each namespace by its name. Call before :meth:`corrected`."""
        for writer in self.writers.values():
            writer.primary = aliases.name(writer.primary)
        syphons, self.syphons = self.syphons, {}
        for ((primary, secondary), name), each in syphons.items():
            key = (aliases.name(primary), aliases.name(secondary)), name
            self.syphons[key] = _both(self.syphons[key], each) if key in self.syphons else each
        emptied, self.emptied = self.emptied, {}
        for (primary, path, name), at in emptied.items():
            place = (aliases.name(primary), path, name)
            self.emptied[place] = max(at, self.emptied.get(place, at))
        passed, self.passed = self.passed, {}
        for (primary, path), at in passed.items():
            known = (aliases.name(primary), path)
            self.passed[known] = max(at, self.passed.get(known, at))

    def state_events(self, shifts: Mapping[str, int]) -> list[StateEvent]:
        """The state changes, by writer and ordinal."""
        ordered = sorted(self.changes, key=lambda each: (each.event.writer, each.ordinal))
        return [_at(each, shifts.get(each.event.writer, 0)) for each in ordered]

    def flow(self, shifts: Mapping[str, int]) -> tuple[list[FlowStep], float]:
        return flow((facts, shifts.get(name, 0)) for name, facts in self.flows.items())

    def usage(self) -> CountedUsage:
        """Return the counts of billed operations."""
        return CountedUsage(
            direct=self.counts["direct"] + self.counts["replayed"],
            parked=self.counts["parked"],
            forwarded=self.counts["forwarded"],
            polls=sum(receives for _, receives, _, _ in self.counters.values()),
            settled=sum(settled for _, _, settled, _ in self.counters.values()),
            pings=max(0, self.counts["pings"] - self.counts["failed pings"]),
            received=self.counts["received"],
        )

    def of_syphons(self) -> dict[Pair, dict[str, SyphonFacts]]:
        found: dict[Pair, dict[str, SyphonFacts]] = {}
        for (pair, writer), syphon in self.syphons.items():
            found.setdefault(pair, {})[writer] = syphon
        return found

    def locks_lost(self) -> dict[str | None, int | None]:
        """Return, by primary, how many messages its syphons forwarded but did not remove.

        None if a syphon has no final count.
        """
        found: dict[str | None, int | None] = {}
        for name, writer in self.writers.items():
            if writer.role != "syphon":
                continue
            known = found.get(writer.primary, 0)
            is_known = known is not None and writer.has_end and name in self.counters
            found[writer.primary] = (known or 0) + self.counters[name][3] if is_known else None
        return found

    def when_emptied(self) -> dict[tuple[str | None, str], int]:
        """Return when each entity was last found empty by one of its receivers; topics have no such record."""
        found: dict[tuple[str | None, str], int] = {}
        for (primary, path, _), at in self.emptied.items():
            found[primary, path] = max(at, found.get((primary, path), at))
        return found


def _at(change: StateChange, shift: int) -> StateEvent:
    event = change.event
    return StateEvent(
        event.primary, event.path, event.writer, event.event, moment(change.at + shift), event.cause
    )


def _both(one: SyphonFacts, other: SyphonFacts) -> SyphonFacts:
    return SyphonFacts(
        smallest((one.first_at, other.first_at)),
        greatest((one.last_at, other.last_at)),
        greatest((one.drained_at, other.drained_at)),
        smallest((one.stranded_from, other.stranded_from)),
    )


def _shift_facts(syphon: SyphonFacts, shift: int) -> SyphonFacts:
    first, last, drained = (
        None if at is None else at + shift for at in (syphon.first_at, syphon.last_at, syphon.drained_at)
    )
    return SyphonFacts(first, last, drained, syphon.stranded_from)


# The counts of the bill: events, and the amount of each.
BILLED: dict[str, tuple[str, str]] = {
    "direct": ("send_accepted", "ids"),  # those that the primary accepted
    "replayed": ("spool_replayed", "count"),  # to the primary
    "parked": ("message_parked", "count"),
    "forwarded": ("messages_forwarded", "ids"),
    "pings": ("ping_sent", "rows"),
    "failed pings": ("ping_failed", "rows"),  # not accepted, so not billed
    "received": ("messages_received", "ids"),
}
FLOWING = ("direct", "parked", "forwarded")


def facts(block: Block, file: str) -> Facts:
    """The facts of one block of lines of ``file``."""
    return _Block(block, file).facts()


class _Block:
    def __init__(self, block: Block, file: str) -> None:
        self.block, self.file, self.key = block, file, key_of(file)
        self.size = len(block.kinds)
        self.at = integers(block.column("at"))
        self.ordinal = integers(block.column("ordinal"))
        sizes = pc.list_value_length(block.column("message_ids"))
        self.amounts: dict[str, Ints] = {
            "ids": _or_zero(sizes),
            "count": _or_zero(block.column("count")),
            "rows": np.ones(len(self.at), np.int64),
        }
        self.first = self._of_kinds(group_min(block.kind, self.at, self.size))
        self.last = self._of_kinds(group_max(block.kind, self.at, self.size))

    def facts(self) -> Facts:
        found = Facts()
        for code, kind in enumerate(self.block.kinds):
            self._kind(code, kind, found)
        for name in {kind.writer or "" for kind in self.block.kinds}:
            ordinals = self.ordinal[self._rows_of(name)]
            known = ordinals[ordinals != NULL]
            found.writers[name].runs, found.writers[name].lines = runs(known), len(known)
            found.writers[name].file = self.file or None
            found.writers[name].offsets = self._offsets(self._rows_of(name))
        if self.file:
            found.files[self.key] = self._file()
        self._bill(found)
        for kind, row in self._rare():
            _rare_row(kind, row, found)
        return found

    def _file(self) -> FileFacts:
        """Return the facts about the file from this block; the checksum excludes the closing record."""
        is_closing = np.array([kind.event == "journal_closed" for kind in self.block.kinds] or [False])
        closing = is_closing[self.block.kind]
        lines = integers(self.block.column(columns.LINE_CHECKSUM))
        before = ~closing & (lines != NULL)
        closers = [kind.writer for kind in self.block.kinds if kind.event == "journal_closed"]
        writers = closers or [kind.writer for kind in self.block.kinds]
        return FileFacts(
            min(each or "" for each in writers),
            int(lines[before].sum()),
            _maximum(integers(self.block.column("checksum"))[closing]),
            _maximum(self.ordinal[closing]),
            _maximum(self.ordinal),
        )

    def _passed(self, rows: Bools) -> int | None:
        """Return the enqueued time of the last message received in these rows.

        Sessions, which wait apart, are left out.
        """
        chosen = rows & ~self.of_sessions
        lists = self.block.column("enqueued")
        if lists.null_count < len(lists):
            of_row = np.asarray(pc.list_parent_indices(lists))
            enqueued = _maximum(integers(lists.flatten())[chosen[of_row]])
            if enqueued:
                return enqueued * MILLIS
        return _maximum(self.at[chosen])

    def _offsets(self, rows: Bools) -> tuple[int, int] | None:
        """Return the least and the greatest difference of a writer's two clocks, in microseconds."""
        seconds = self.block.column("mono")
        mono = np.asarray(seconds.fill_null(np.nan), np.float64)[rows] * MICROS
        at = self.at[rows]
        is_known = np.isfinite(mono) & (np.abs(mono) < MAX_MONO) & (at != NULL)
        if not is_known.any():
            return None
        apart = at[is_known] - mono[is_known].astype(np.int64)
        return int(apart.min()), int(apart.max())

    @cached_property
    def has_nameless(self) -> bool:
        """Whether any message of this block has no id."""
        ids = self.block.column("message_id"), self.block.column("message_ids").flatten()
        return any(pc.any(pc.equal(each, "")).as_py() for each in ids)

    @cached_property
    def of_sessions(self) -> Bools:
        """The rows with a message of a session."""
        found, lists = np.zeros(len(self.at), bool), self.block.column("session_ids")
        named = np.asarray(pc.fill_null(pc.not_equal(lists.flatten(), ""), False))
        if named.any():
            found[np.asarray(pc.list_parent_indices(lists))[named]] = True
        return found

    def _nameless(self, rows: Bools) -> int:
        """Return how many messages of these rows have no id."""
        one = pc.equal(self.block.column("message_id").filter(pa.array(rows)), "")
        many = pc.equal(self.block.column("message_ids").filter(pa.array(rows)).flatten(), "")
        return int((pc.sum(one).as_py() or 0) + (pc.sum(many).as_py() or 0))

    def _of_kinds(self, values: Ints) -> list[int | None]:
        return [None if value == NULL else int(value) for value in values]

    def _rows_of(self, writer: str) -> Bools:
        return np.array([(kind.writer or "") == writer for kind in self.block.kinds], bool)[self.block.kind]

    def _kind(self, code: int, kind: Kind, found: Facts) -> None:
        """Add the facts that follow from the number and the times of the rows of one kind."""
        name, primary = kind.writer or "", _lower(kind.primary)
        writer = found.writers.setdefault(name, WriterFacts(name))
        rows = self.block.kind == code
        count = int(rows.sum())
        part = WriterFacts(name, kind.role, primary, self.first[code], self.last[code])
        match kind.event:
            case "send_accepted":
                part.sends = count
            case columns.UNREAD:
                part.unread = count
            case columns.UNREADABLE:
                part.unreadable = count
            case "journal_closed":
                lost = integers(self.block.column("lost"))[rows]
                is_last = pc.fill_null(self.block.column("is_last").filter(pa.array(rows)), False)
                part.closing_lost, part.has_end = max(0, int(lost.max())), bool(pc.any(is_last).as_py())
                part.announced = _maximum(self.ordinal[rows][~np.asarray(is_last, bool)])
            case "journal_gap":
                part.gap_lost = int(
                    total(self.block.kind, integers(self.block.column("lost")), self.size)[code]
                )
            case "entity_emptied":
                by = (primary, (kind.path or "").lower(), name)
                at = self.last[code]
                if at is not None and kind.path is not None:
                    found.emptied[by] = max(at, found.emptied.get(by, at))
            case "messages_received":
                at = self._passed(rows)
                if at is not None and kind.path is not None and kind.side != "secondary":
                    place = (primary, kind.path.lower())
                    found.passed[place] = max(at, found.passed.get(place, at))
            case _:
                pass
        if kind.event not in EVENTS:
            part.unknown = count
        if kind.event in MANY and self.has_nameless:
            part.nameless = self._nameless(rows)
        writer.add(part)
        if kind.role == "syphon":
            pair = (primary, _lower(kind.secondary))
            drained = self.last[code] if kind.event == "backlogs_drained" else None
            stranded = kind.backlog if kind.event == "backlog_stranded" else None
            syphon = SyphonFacts(self.first[code], self.last[code], drained, stranded)
            known = found.syphons.get((pair, name))
            found.syphons[pair, name] = syphon if known is None else _both(known, syphon)

    def _bill(self, found: Facts) -> None:
        columns = {}
        for name, (event, amount) in BILLED.items():
            is_one = [kind.event == event and _is_billed(name, kind) for kind in self.block.kinds]
            columns[name] = np.where(np.array(is_one or [False])[self.block.kind], self.amounts[amount], 0)
            found.counts[name] += int(columns[name].sum())
        moved = np.column_stack([columns[name] for name in FLOWING])
        if moved.any():
            for name in {kind.writer or "" for kind in self.block.kinds}:
                rows = self._rows_of(name) & (self.at != NULL)
                found.flows[name] = FlowFacts.of(self.at[rows], moved[rows])

    def _rare(self) -> Iterator[tuple[Kind, dict[str, Any]]]:
        is_rare = np.array([kind.event in RARE for kind in self.block.kinds] or [False])[self.block.kind]
        rows = np.flatnonzero(is_rare)
        if len(rows):
            table = self.block.rows.select(READ_OF_RARE).take(pa.array(rows))
            table = table.set_column(1, "at", table.column("at").cast(pa.int64()))
            for row, values in zip(rows, table.to_pylist(), strict=True):
                yield self.block.kinds[self.block.kind[row]], values


def _maximum(values: Ints) -> int | None:
    known = values[values != NULL]
    return int(known.max()) if known.size else None


def _or_zero(column: pa.Array) -> Ints:
    values = integers(column)
    return np.where(values == NULL, 0, values)


def _is_billed(name: str, kind: Kind) -> bool:
    if name == "direct":
        return kind.stored_in == "primary"
    return name != "replayed" or kind.backlog is None


def _rare_row(kind: Kind, row: Mapping[str, Any], found: Facts) -> None:
    name, ordinal = kind.writer or "", row["ordinal"] or 0
    if kind.event == columns.UNREAD:
        found.unread.append(Unread(name, row["reason"]))
    elif kind.event == "clock_differs":
        if row["ahead"] is not None:
            found.clocks[name] = max((ordinal, row["ahead"]), found.clocks.get(name, (ordinal, row["ahead"])))
    elif kind.event == "syphon_counters":
        settled = sum(row[each] or 0 for each in ("completed", "dead_lettered", "released"))
        remaining = sum(row[each] or 0 for each in ("lock_lost", "pending"))
        counter = (ordinal, row["receives"] or 0, settled, remaining)
        found.counters[name] = max(counter, found.counters.get(name, counter))
    elif row["at"] is not None:
        event = StateEvent(
            kind.primary or "", kind.path or "", name, kind.event or "", moment(row["at"]), row["cause"] or ""
        )
        found.changes.append(StateChange(ordinal, row["at"], event))


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()
