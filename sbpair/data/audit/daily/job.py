"""One run of the daily audit."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..engine import Engine, LocalEngine
from ..expected import Expected
from ..job import SKEW, as_json, check_accepted, check_skew, evidence_of
from ..judge.grouping import Ints, hashes
from ..judge.order import SessionCounts
from ..read.aliases import Aliases
from ..read.clocks import EPOCH, moment
from ..read.facts import Facts
from ..read.mentions import Mentions
from ..read.object_storage import without_secret
from ..read.packets import join
from ..read.reading import facts_of_unread
from ..read.separate_runs import separate_runs
from ..read.writers import WriterFacts, greatest
from ..result.interface import schema_of, write_parquet
from ..result.report import Provenance
from ..result.summary import Summary, summarise
from ..result.tables import waits_table, writers_table
from ..result.timeline import timeline
from . import sessions
from .days import DayRow, day_of, day_rows, days_table
from .gathering import Gathered, Gathering, facts_of_files
from .judging import OF_DAY, Judging, are_of_files, choose_mentions, days_of, ids_of, merge
from .kept import DayFound, Hashes, StateFiles
from .page import page
from .state_folder import StateFolder

REPORT, SUMMARY = "days.html", "summary.json"


@dataclass(frozen=True)
class Terms:
    """The terms of a daily audit: those of :func:`sbpair.audit.audit`, and the days and heartbeats of this run.

    ``since``: the first day that result and page cover. ``heartbeats``: by role, the seconds within which its journals
    must have a record. ``accept``: how many messages were deleted on purpose. ``forget``: names of journal files that
    are ignored from this run on, for a ``reason``.
    """

    skew: float = SKEW
    aliases: Mapping[str, str] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)
    since: date | None = None
    heartbeats: Mapping[str, float] = field(default_factory=dict)
    accept: Mapping[str, int] = field(default_factory=dict)
    forget: Sequence[str] = ()
    reason: str = ""


@dataclass(frozen=True)
class DailyResult:
    """The summary of the days since ``Terms.since``, and a row for each of them."""

    summary: Summary
    days: list[DayRow]


def audit_daily(
    journal: str | Path,
    state: str | Path,
    *,
    terms: Terms | None = None,
    engine: Engine | None = None,
    at: datetime | None = None,
) -> DailyResult:
    """Audit the lines added to the journals below ``journal`` since the last run; update the tables in ``state``.

    A run that is killed or fails leaves tables and state unchanged. ``at`` is now by default.

    Raises ValueError for an invalid skew, alias or ``accept``, UnknownFileError for a file to forget that was never
    there, StateInUseError when another run uses ``state``, ForeignStateError when it is not of such an audit, and
    OSError.
    """
    terms = terms or Terms()
    check_skew(terms.skew)
    check_accepted(terms.expected.all_accepted(terms.accept))
    folder = StateFolder(Path(state))
    with folder.hold():
        run = _Run(str(journal), folder, terms, engine or LocalEngine(), at or datetime.now(UTC))
        return run.run()


class _Run:
    def __init__(self, journal: str, folder: StateFolder, terms: Terms, engine: Engine, at: datetime) -> None:
        self._journal, self._folder, self._terms, self._engine, self._at = journal, folder, terms, engine, at
        self._aliases = Aliases(terms.aliases)
        self._kept = StateFiles(folder)
        self._state = self._kept.state((terms.skew, tuple(sorted(self._aliases.names.items()))))
        self._open: tuple[Mentions, Ints] | None = None  # messages still open after this run, and their days
        self._orders: dict[int, SessionCounts] = {}  # of the days whose sessions this run changes

    def run(self) -> DailyResult:
        gathered = Gathering(self._journal, self._state, self._engine).gather(
            tuple(self._terms.forget), self._terms.reason
        )
        facts = facts_of_files(self._state.files)
        facts.add(facts_of_unread(gathered.unread))
        facts.named(self._aliases)
        clocks = facts.corrections()
        facts.corrected(clocks)
        shifts = {clock.writer: clock.micros for clock in clocks}
        evidence = evidence_of(facts, self._terms.skew)
        judging = Judging(
            shifts, self._aliases, separate_runs(facts.writers.values()), evidence, _quiet(facts)
        )
        self._judge(judging, gathered, is_changed=self._is_changed(judging, facts))
        self._state.shifts = shifts
        traced = evidence.traced_primaries()
        shown_at_all = merge([part for each in self._days_found().values() for part in each], traced).shown
        if shown_at_all > self._terms.skew:  # the clocks could explain it, so it proves nothing
            self._write_open(replace(judging, evidence=evidence_of(facts, shown_at_all)))
        days = self._days_found()
        waits = merge([part for each in days.values() for part in each], traced).waits
        episodes = timeline(facts.state_events(shifts))
        rows = day_rows({day: merge(each, traced) for day, each in days.items()}, episodes)
        first = self._terms.since or date.min
        found = merge([part for day, each in days.items() if day_of(day) >= first for part in each], traced)
        missed = self._terms.expected.differences(facts.writers.values())
        missed += silences(facts.writers.values(), self._terms.heartbeats, self._at)
        ordered = self._orders_found(first)
        summary = summarise(
            facts, clocks, found, ordered, self._terms.skew, missed,
            self._terms.expected.all_accepted(self._terms.accept), self._state.forgotten,
        )  # fmt: skip
        before = sum(each.messages for each in rows if each.day < first)
        summary = replace(
            summary,
            before=before,
            meant=list(self._terms.expected.accepted),
            timeline=[each for each in summary.timeline if _is_since(each, first)],
        )
        shown = [each for each in rows if each.day >= first]
        self._write(facts, rows, summary, shown, waits_table(waits))
        return DailyResult(summary, shown)

    def _is_changed(self, judging: Judging, facts: Facts) -> bool:
        """Whether the basis of settled messages has changed: a writer's clock, or the absence of receiver journals."""
        state = self._state
        is_same = all(judging.shifts.get(writer) == shift for writer, shift in state.shifts.items())
        is_same &= not any(writer in facts.writers for writer in judging.shifts.keys() - state.shifts.keys())
        return not is_same or not state.quiet <= judging.quiet

    def _judge(self, judging: Judging, gathered: Gathered, *, is_changed: bool) -> None:
        """Settle the messages that can be settled, and write the days that change."""
        state, kept, dropped = self._state, self._kept, gathered.dropped
        touched = [ids_of(each) for each in (*gathered.mentions, *self._mentions_of(dropped))]
        late = np.unique(np.concatenate(touched)) if touched else np.zeros(0, np.uint64)
        pool, rest = self._reopen(late, is_changed=is_changed)
        pool += [found for found in (kept.open(),) if found is not None]
        if dropped:
            pool = [choose_mentions(each, ~are_of_files(each, dropped)) for each in pool]
        pool += gathered.mentions
        state.quiet = set() if is_changed else state.quiet
        had_open, state.open, state.now = set(state.open), {}, {}
        whole = join(pool) if pool else None
        if whole is None or not len(whole.message):
            kept.save_open(None)
            if dropped:
                self._judge_order(judging, None, late)
        else:
            is_settled, silent = judging.is_settled(whole)
            state.quiet |= silent
            days = days_of(whole)
            for day in np.unique(days[is_settled]).tolist():
                before = rest[day] if day in rest else kept.settled_mentions(day)
                now = choose_mentions(whole, is_settled & (days == day))
                rest[day] = now if before is None else join([before, now])
            self._open = choose_mentions(whole, ~is_settled), days[~is_settled]
            kept.save_open(self._open[0])
            self._write_open(judging)
            self._judge_order(judging, whole, ids_of(whole) if is_changed else late)
        for day, mentions in rest.items():
            self._write_settled(judging, day, mentions)
        for day in had_open - set(state.open):
            self._remove_day(day, "open")

    def _mentions_of(self, files: Container[str]) -> Iterator[Mentions]:
        """The stored mentions of these files."""
        if files:
            for each in (self._kept.open(), *(self._kept.settled_mentions(day) for day in self._state.days)):
                if each is not None:
                    yield choose_mentions(each, are_of_files(each, files))

    def _judge_order(self, judging: Judging, whole: Mentions | None, late: Hashes) -> None:
        """Judge the sessions that have messages with ids ``late``, and write the days that change."""
        state = self._state
        rows = None
        if whole is not None:
            rows = judging.sessions(choose_mentions(whole, np.isin(hashes(whole.message), late)))
        for day, found in sessions.replace_messages(self._kept, state.orders, rows, late).items():
            if found is None:
                state.orders.discard(day)
            else:
                state.orders.add(day)
                self._orders[day] = found.counts
            self._table(
                _table("order", day, "part-00000"),
                schema_of("order").empty_table() if found is None else found.table,
            )

    def _orders_found(self, first: date) -> SessionCounts:
        """The findings about the sessions that began on ``first`` or later."""
        found = SessionCounts()
        for day in self._state.orders:
            if day_of(day) >= first:
                found.add(self._orders.get(day) or self._kept.session_counts(day))
        return found

    def _reopen(self, late: Hashes, *, is_changed: bool) -> tuple[list[Mentions], dict[int, Mentions | None]]:
        """Return the mentions of settled messages that are open again, and by day the mentions that remain settled.

        Messages with ids ``late`` are open again; the second result covers the days of such messages.
        """
        again: list[Mentions] = []
        rest: dict[int, Mentions | None] = {}
        for day in sorted(self._state.days):
            if not (is_changed or self._kept.has_any(day, late)):
                continue
            settled = self._kept.settled_mentions(day)
            if settled is not None:
                is_open = np.isin(hashes(settled.message), late) | is_changed
                again.append(choose_mentions(settled, is_open))
                rest[day] = choose_mentions(settled, ~is_open)
        return again, rest

    def _write_open(self, judging: Judging) -> None:
        """Write the verdicts on the messages that are still open."""
        if self._open is None:
            return
        mentions, days = self._open
        for day in np.unique(days).tolist():
            self._state.open[day] = self._write_day(
                judging, day, "open", choose_mentions(mentions, days == day)
            )

    def _write_settled(self, judging: Judging, day: int, mentions: Mentions | None) -> None:
        if mentions is None or not len(mentions.message):
            self._state.days.discard(day)
            self._remove_day(day, "settled")
            return
        self._state.days.add(day)
        found = self._state.now[day] = self._write_day(judging, day, "settled", mentions)
        self._kept.save_settled(day, mentions, ids_of(mentions), found)

    def _write_day(self, judging: Judging, day: int, part: str, mentions: Mentions) -> DayFound:
        """Write this part of all tables of a day, including the empty ones."""
        tables, found = judging.tables(mentions)
        for name, table in tables.items():
            self._table(_table(name, day, part), table)
        if day not in self._state.orders:
            self._table(_table("order", day, "part-00000"), schema_of("order").empty_table())
        return found

    def _remove_day(self, day: int, part: str) -> None:
        for name in OF_DAY:
            self._folder.remove(_table(name, day, part))

    def _days_found(self) -> dict[int, list[DayFound]]:
        """The findings of each day, settled and open."""
        found: dict[int, list[DayFound]] = {}
        for day in self._state.days:
            now = self._state.now.get(day)
            found.setdefault(day, []).append(self._kept.day_found(day) if now is None else now)
        for day, each in self._state.open.items():
            found.setdefault(day, []).append(each)
        return found

    def _write(
        self, facts: Facts, rows: list[DayRow], summary: Summary, shown: list[DayRow], waits: pa.Table
    ) -> None:
        if (
            not rows and not (self._folder.current / OF_DAY[0]).exists()
        ):  # a reader finds all tables nevertheless
            today = (self._at.date() - EPOCH.date()).days
            for name in (*OF_DAY, "order"):
                self._table(_table(name, today, "part-00000"), schema_of(name).empty_table())
        self._table("days/part-00000.parquet", days_table(rows))
        self._table("waits/part-00000.parquet", waits)
        self._table("writers/part-00000.parquet", writers_table(facts.writers.values()))
        origin = Provenance(without_secret(self._journal), self._at, str(self._folder.current))
        self._folder.stage(REPORT).write_text(page(summary, shown, origin), "utf-8")
        self._folder.stage(SUMMARY).write_text(as_json(summary) + "\n", "utf-8")
        self._state.now = {}
        self._kept.save(self._state)
        self._folder.commit()

    def _table(self, name: str, table: pa.Table) -> None:
        write_parquet(name.partition("/")[0], table, str(self._folder.stage(name)))


def _table(name: str, day: int, part: str) -> str:
    return f"{name}/day={day_of(day):%Y-%m-%d}/{part}.parquet"


def _quiet(facts: Facts) -> frozenset[str]:
    """Return the primaries without a broker journal and without receivers that report arrivals or empty queues."""
    told = {primary for primary, _ in facts.when_emptied()}
    told |= {primary for primary, _ in facts.passed}
    told |= {each.primary for each in facts.writers.values() if each.role == "broker"}
    known = {each.primary for each in facts.writers.values() if each.primary is not None}
    return frozenset(known - told)


def _is_since(episode: object, first: date) -> bool:
    times = (getattr(episode, name) for name in ("suspected_at", "failed_over_at", "recovered_at"))
    return any(at is not None and at.date() >= first for at in times)


def silences(writers: Iterable[WriterFacts], heartbeats: Mapping[str, float], now: datetime) -> list[str]:
    """Return a sentence for each role without a journal record in the last ``heartbeats`` seconds before ``now``."""
    known = list(writers)
    found = []
    for role, within in heartbeats.items():
        last = greatest(each.last_at for each in known if each.role == role)
        if last is None:
            found.append(f"no journal of a {role} has a record")
        elif (silent := (now - moment(last)).total_seconds()) > within:
            found.append(
                f"the journals of {role}s are silent since {moment(last):%Y-%m-%d %H:%M:%S} UTC, "
                f"{silent:.0f} s ago; a record is expected every {within:g} s"
            )
    return found
