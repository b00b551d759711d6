"""The audit as a job: read the journals, fold the messages, write the results.

DIR/*.jsonl  ->  OUT/messages OUT/writers OUT/duplicates OUT/order OUT/waits OUT/missing   (Parquet)
                 OUT/report.html  OUT/summary.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from .engine import Engine, LocalEngine, Packets
from .expected import Expected
from .judge.evidence import Evidence
from .judge.folding import Fold, Found
from .judge.order import Order, SessionCounts
from .judge.verdict import Verdict
from .read.aliases import Aliases
from .read.facts import Facts
from .read.object_storage import without_secret
from .read.reading import Read, ReadPlan, facts_of_unread, plan
from .read.separate_runs import separate_runs
from .result.interface import schema_of
from .result.report import Provenance, headline, page
from .result.storage import Storage
from .result.summary import Summary, summarise
from .result.tables import waits_table, writers_table

SKEW = 1.0
"""The tolerated difference between the clocks of two machines by default, in seconds."""
REPORT, SUMMARY = "report.html", "summary.json"
ACCEPTABLE = (Verdict.DELETED.value,)
"""Verdicts that can be intended, although nobody received the message."""
INCOMPLETE = "_incomplete"  # where results are written until they are complete
TABLES = ("messages", "writers", "duplicates", "order", "waits", "missing")


class ForeignFilesError(ValueError):
    """The output directory holds files that are not of an earlier audit."""


def audit(
    journal: str | Path | ReadPlan,
    out: str | Path,
    *,
    engine: Engine | None = None,
    skew: float = SKEW,
    aliases: Mapping[str, str] | None = None,
    expected: Expected | None = None,
    accept: Mapping[str, int] | None = None,
    at: datetime | None = None,
) -> Summary:
    """Audit the journals below the directory ``journal`` and write the results to ``out``, a directory or a URI.

    An earlier audit there is replaced once this one is complete. ``skew`` is the tolerated difference between the
    clocks of two machines in seconds, 0 or more; ``engine`` is this machine by default; ``aliases`` maps other names
    that journals use to the names of namespaces; ``expected`` says which journals must exist; ``accept`` is the number
    of messages that were deleted on purpose, as ``{"deleted": 50}``; ``at`` is the time that the report shows, now by
    default.

    Raises ValueError for an invalid ``skew``, alias or ``accept``, ForeignFilesError when ``out`` holds files that are
    not of an earlier audit, and OSError when it cannot be written.
    """
    check_skew(skew)
    expected = expected or Expected()
    accepted = expected.all_accepted(accept or {})
    check_accepted(accepted)
    reading = journal if isinstance(journal, ReadPlan) else plan(str(journal))
    place = Storage(str(out))
    names = Aliases(aliases or {})
    others = [name for name in place.names() if name not in (*TABLES, REPORT, SUMMARY, INCOMPLETE)]
    if others:
        raise ForeignFilesError(
            f"{out} holds {others[0]!r}, which is not of an earlier audit; choose another directory"
        )
    place.clear([INCOMPLETE])
    new = place.below(INCOMPLETE)
    run = engine or LocalEngine()
    summary = _audit(reading, new, run, skew, names, expected, accepted)
    origin = Provenance(without_secret(reading.directory), at or datetime.now(UTC), str(out))
    new.write_text(REPORT, page(summary, origin))
    new.write_text(SUMMARY, as_json(summary) + "\n")
    place.replace_by(INCOMPLETE, [*TABLES, REPORT, SUMMARY])
    return summary


def _audit(
    reading: ReadPlan,
    out: Storage,
    engine: Engine,
    skew: float,
    aliases: Aliases,
    expected: Expected,
    accept: Mapping[str, int],
) -> Summary:
    """Audit and write the tables."""
    scattered = engine.scatter(reading.tasks, Read(reading.parts), reading.parts)
    facts = facts_of_unread(reading.unread)
    for of_files in scattered.answers():
        for each in of_files.values():
            facts.add(each)
    facts.hold_against(reading.files)
    facts.named(aliases)
    clocks = facts.corrections()
    facts.corrected(clocks)
    runs = separate_runs(facts.writers.values())
    shifts = {clock.writer: clock.micros for clock in clocks}
    evidence = evidence_of(facts, skew)
    folded, found = _fold(scattered, Fold(shifts, aliases, runs, evidence, reading.parts, out))
    if found.shown > skew:  # the clocks could explain it, so it proves nothing
        folded.close()
        out.clear(["missing", "duplicates"])
        evidence = evidence_of(facts, found.shown)
        folded, found = _fold(scattered, Fold(shifts, aliases, runs, evidence, reading.parts, out))
    sessions = SessionCounts()
    if found.in_sessions:
        ordered = folded.regroup(Order(out))
        for each in ordered.answers():
            sessions.add(each)
        ordered.close()
    for step in (scattered, folded):
        step.close()
    _write_rest(out, facts, found, sessions)
    missed = expected.differences(facts.writers.values())
    summary = summarise(facts, clocks, found, sessions, skew, missed, accept)
    return replace(summary, meant=list(expected.accepted))


def _fold(scattered: Packets, work: Fold) -> tuple[Packets, Found]:
    folded = scattered.regroup(work)
    found = Found()
    for each in folded.answers():
        found.add(each)
    return folded, found


def evidence_of(facts: Facts, skew: float) -> Evidence:
    """Return the evidence in ``facts``, whose times are corrected; clocks differ by at most ``skew`` seconds."""
    return Evidence(
        facts.writers.values(),
        facts.of_syphons(),
        facts.when_emptied(),
        facts.passed,
        facts.locks_lost(),
        skew,
    )


def _write_rest(out: Storage, facts: Facts, found: Found, sessions: SessionCounts) -> None:
    """Write the small tables, including empty ones, which still have a schema."""
    out.write_table("writers", writers_table(facts.writers.values()))
    out.write_table("waits", waits_table(found.waits))
    written = {
        "messages": found.entities,
        "duplicates": found.duplicated,
        "missing": found.missing,
        "order": sessions.verdicts,
    }
    for name, rows in written.items():
        if not rows:
            out.write_table(name, schema_of(name).empty_table())


def as_json(summary: Summary) -> str:
    """The summary as JSON on one line, without the data of the figures."""
    fields = asdict(summary)
    del fields["flow"], fields["step"]
    fields["verdicts"] = _by_name(summary.verdicts)
    fields["entities"] = [
        {"primary": each.primary, "path": each.path, "verdicts": _by_name(each.verdicts)}
        for each in summary.entities
    ]
    fields["headline"], fields["is_conserved"] = headline(summary), summary.is_conserved
    return json.dumps(fields, default=_plain)


def _by_name(verdicts: dict[Verdict, int]) -> dict[str, int]:
    return {verdict.value: count for verdict, count in verdicts.items()}


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return str(value.value) if isinstance(value, Enum) else str(value)


def check_accepted(accept: Mapping[str, int]) -> None:
    """Raise ValueError for a verdict that cannot be accepted."""
    for name, count in accept.items():
        if name not in ACCEPTABLE or count < 0:
            raise ValueError(f"{name}={count} cannot be accepted: give a number of {' or '.join(ACCEPTABLE)}")


def check_skew(skew: float) -> None:
    """Raise ValueError for an invalid clock difference."""
    if not skew >= 0:
        raise ValueError(f"skew must be 0 or more seconds, not {skew!r}")
