"""One run of the daily audit."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..engine import Engine, LocalEngine
from ..expected import Expected
from ..job import SKEW, as_json, check_accepted, check_skew, evidence_of
from ..judge.grouping import Ints, hashes
from ..judge.order import SessionCounts
from ..read.aliases import Aliases
from ..read.clocks import moment
from ..read.facts import Facts
from ..read.mentions import Mentions
from ..read.object_storage import without_secret
from ..read.packets import join
from ..read.reading import facts_of_unread
from ..read.separate_runs import separate_runs
from ..read.writers import WriterFacts, greatest
from ..result.summary import Summary, summarise
from ..result.tables import ORDER, writers_table
from ..result.timeline import timeline
from . import sessions
from .days import DayRow, day_of, day_rows, days_table
from .gathering import Gathered, Gathering, facts_of_files
from .judging import Judging, are_of_files, choose_mentions, days_of, ids_of, merge
from .kept import DayFound, Hashes, Kept
from .page import page
from .state_folder import StateFolder

REPORT, SUMMARY = "days.html", "summary.json"


@dataclass(frozen=True)
class Terms:
    """What a daily audit is held to: as :func:`sbpair.audit.audit`, and the days and heartbeats of this run.

    ``since``: the first day that result and page are about. ``heartbeats``: the seconds within which the journals of
    a role must have a record, by role. ``accept``: how many messages were meant to be deleted. ``forget``: files of
    journals, by name, that count no more from this run on, for a ``reason``.
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
    """Audit what the journals below ``journal`` have gained since the last run, and update the tables in ``state``.

    A run that was killed leaves tables and state as they were, and so does one that fails. ``at`` is now by default.

    Raises ValueError for an invalid skew, alias or ``accept``, UnknownFileError for a file to forget that was never
    there, StateInUseError when another run uses ``state``, ForeignStateError when it is not of such an audit, and
    OSError.
    """
    terms = terms or Terms()
    check_skew(terms.skew)
    check_accepted(terms.accept)
    folder = StateFolder(Path(state))
    with folder.hold():
        run = _Run(str(journal), folder, terms, engine or LocalEngine(), at or datetime.now(UTC))
        return run.run()


class _Run:
    def __init__(self, journal: str, folder: StateFolder, terms: Terms, engine: Engine, at: datetime) -> None:
        self._journal, self._folder, self._terms, self._engine, self._at = journal, folder, terms, engine, at
        self._aliases = Aliases(terms.aliases)
        self._kept = Kept(folder)
        self._state = self._kept.state((terms.skew, tuple(sorted(self._aliases.names.items()))))
        self._open: tuple[Mentions, Ints] | None = None  # what stays open after this run, and the days
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
        if shown_at_all > self._terms.skew:  # what the clocks could explain is no proof
            self._write_open(replace(judging, evidence=evidence_of(facts, shown_at_all)))
        days = self._days_found()
        episodes = timeline(facts.state_events(shifts))
        rows = day_rows({day: merge(each, traced) for day, each in days.items()}, episodes)
        first = self._terms.since or date.min
        found = merge([part for day, each in days.items() if day_of(day) >= first for part in each], traced)
        missed = self._terms.expected.differences(facts.writers.values())
        missed += silences(facts.writers.values(), self._terms.heartbeats, self._at)
        ordered = self._orders_found(first)
        summary = summarise(
            facts, clocks, found, ordered, self._terms.skew, missed, self._terms.accept, self._state.forgotten
        )
        before = sum(each.messages for each in rows if each.day < first)
        summary = replace(
            summary, before=before, timeline=[each for each in summary.timeline if _is_since(each, first)]
        )
        shown = [each for each in rows if each.day >= first]
        self._write(facts, rows, summary, shown)
        return DailyResult(summary, shown)

    def _is_changed(self, judging: Judging, facts: Facts) -> bool:
        """Whether what settled messages rest on has changed: a writer's clock, or that nobody tells of receipts."""
        state = self._state
        is_same = all(judging.shifts.get(writer) == shift for writer, shift in state.shifts.items())
        is_same &= not any(writer in facts.writers for writer in judging.shifts.keys() - state.shifts.keys())
        return not is_same or not state.quiet <= judging.quiet

    def _judge(self, judging: Judging, gathered: Gathered, *, is_changed: bool) -> None:
        """Settle what can be settled, and write the days that change."""
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
            self._folder.remove(_table("messages", day, "open"))

    def _mentions_of(self, files: Container[str]) -> Iterator[Mentions]:
        """What was kept of these files."""
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
                _table("order", day, "part-00000"), ORDER.empty_table() if found is None else found.table
            )

    def _orders_found(self, first: date) -> SessionCounts:
        """The findings about the sessions that began on ``first`` or later."""
        found = SessionCounts()
        for day in self._state.orders:
            if day_of(day) >= first:
                found.add(self._orders.get(day) or self._kept.session_counts(day))
        return found

    def _reopen(self, late: Hashes, *, is_changed: bool) -> tuple[list[Mentions], dict[int, Mentions | None]]:
        """The mentions of settled messages that are open again, as those with ids ``late`` are, and those that remain,
        by day, of the same days."""
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
        """Write the verdicts on the messages that stay open."""
        if self._open is None:
            return
        mentions, days = self._open
        for day in np.unique(days).tolist():
            table, self._state.open[day] = judging.rows(choose_mentions(mentions, days == day))
            self._table(_table("messages", day, "open"), table)

    def _write_settled(self, judging: Judging, day: int, mentions: Mentions | None) -> None:
        if mentions is None or not len(mentions.message):
            self._state.days.discard(day)
            self._folder.remove(_table("messages", day, "settled"))
            return
        self._state.days.add(day)
        table, found = judging.rows(mentions)
        self._table(_table("messages", day, "settled"), table)
        self._state.now[day] = found
        self._kept.save_settled(day, mentions, ids_of(mentions), found)

    def _days_found(self) -> dict[int, list[DayFound]]:
        """The findings of each day, settled and open."""
        found: dict[int, list[DayFound]] = {}
        for day in self._state.days:
            now = self._state.now.get(day)
            found.setdefault(day, []).append(self._kept.day_found(day) if now is None else now)
        for day, each in self._state.open.items():
            found.setdefault(day, []).append(each)
        return found

    def _write(self, facts: Facts, rows: list[DayRow], summary: Summary, shown: list[DayRow]) -> None:
        self._table("days/part-00000.parquet", days_table(rows))
        self._table("writers/part-00000.parquet", writers_table(facts.writers.values()))
        made = without_secret(self._journal)
        self._folder.stage(REPORT).write_text(page(summary, shown, made, self._at), "utf-8")
        self._folder.stage(SUMMARY).write_text(as_json(summary) + "\n", "utf-8")
        self._state.now = {}
        self._kept.save(self._state)
        self._folder.commit()

    def _table(self, name: str, table: pa.Table) -> None:
        pq.write_table(table, self._folder.stage(name), store_schema=False)


def _table(name: str, day: int, part: str) -> str:
    return f"{name}/day={day_of(day):%Y-%m-%d}/{part}.parquet"


def _quiet(facts: Facts) -> frozenset[str]:
    """The primaries of which no receiver tells what it received or found empty, and no broker keeps a journal."""
    told = {primary for primary, _ in facts.when_emptied()}
    told |= {primary for primary, _ in facts.passed}
    told |= {each.primary for each in facts.writers.values() if each.role == "broker"}
    known = {each.primary for each in facts.writers.values() if each.primary is not None}
    return frozenset(known - told)


def _is_since(episode: object, first: date) -> bool:
    times = (getattr(episode, name) for name in ("suspected_at", "failed_over_at", "recovered_at"))
    return any(at is not None and at.date() >= first for at in times)


def silences(writers: Iterable[WriterFacts], heartbeats: Mapping[str, float], now: datetime) -> list[str]:
    """A sentence for each role whose journals have no record of the last ``heartbeats`` seconds before ``now``."""
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
