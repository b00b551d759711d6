"""The HTML report of an audit, a single self-contained page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from sbpair import __version__
from sbpair.pair.ground.html_parts import STYLE, Html, Row, section, table

from ..judge.folding import LISTED, MAX_ROWS
from ..judge.verdict import SOUND, Verdict
from ..read.writers import SHORT
from .bill import Meter
from .figures import flow_figure, waits_figure
from .remedies import Remedy, command
from .summary import UNKNOWN, EntityVerdicts, Summary, Trouble
from .timeline import Episode

MEANING = {
    Verdict.DELIVERED: "received or completed by a receiver",
    Verdict.RECOVERED: "its send raised an error, but it arrived",
    Verdict.DEAD_LETTERED: "dead-lettered, with a reason",
    Verdict.EXPIRED: "its time to live had passed",
    Verdict.CANCELLED: "cancelled while it was scheduled",
    Verdict.DELETED: "deleted by hand, or with its entity: it reached nobody",
    Verdict.MISPLACED: "it arrived in another session than it was sent to",
    Verdict.CHANGED: "it arrived with another body than it was sent with",
    Verdict.ACCEPTED: "an entity accepted it; no journal shows what became of it",
    Verdict.WAITING: "in its entity, a backlog queue or a spool",
    Verdict.LOST: "it was accepted, but is stored nowhere and was not received",
    Verdict.NOT_ACCEPTED: "its send raised an error, and no journal shows that it was stored",
    Verdict.CANARY: "of sbpair drill, which keeps no journal",
    Verdict.UNEXPECTED: "it arrived, but no sender's journal contains it",
    Verdict.UNPROVEN: "a journal that could decide is incomplete or missing",
}
ROLES = ("sender", "syphon", "receiver", "broker", UNKNOWN)
ALL = "the Parquet tables contain all"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Of which journals a report was made, when (UTC), and where its tables are."""

    directory: str
    at: datetime
    results: str


def page(summary: Summary, origin: Provenance) -> str:
    """The report as one self-contained HTML page."""
    return document(summary, origin, sections(summary, origin))


def document(summary: Summary, origin: Provenance, content: Iterable[str]) -> str:
    """A page with the result of the audit above ``content``."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'><title>sbpair audit</title>",
        f"<style>{STYLE}</style>{_headline(summary)}",
        f"<p>{escape(sources(summary))}<br><small>{escape(origin.directory)}, {origin.at:%Y-%m-%d %H:%M:%S} UTC, "
        f"sbpair {__version__}</small></p>",
        *content,
        "</html>",
    ]
    return "".join(parts)


def sections(summary: Summary, origin: Provenance) -> list[str]:
    """The sections of the report, "" for each that is empty."""
    return [
        section("Messages", _verdicts(summary)),
        section("Not accounted for", _troubles(summary, origin)),
        section("Where messages wait", _waiting(summary, origin)),
        section("Not as expected", _missed_section(summary)),
        section("Files not read", _unread(summary)),
        section("Files that were forgotten", _forgotten(summary)),
        section("What was meant", _meant(summary)),
        section("Entities", _entities(summary)),
        section("Timeline (UTC)", _flow(summary)),
        section("Failovers", _timeline(summary.timeline)),
        section("Waiting times in backlog queues", waits_figure(summary.waits)),
        section("Dead-lettered", _listed(summary, origin, (Verdict.DEAD_LETTERED,))),
        section("Why messages are unproven", _reasons(summary)),
        section("Canaries", _canaries(summary)),
        section("Duplicates", _duplicates(summary)),
        section("Order", _order(summary)),
        section("Journals", _writers(summary)),
        section("Clocks", _clocks(summary)),
        section("Operations", _bill(summary)),
    ]


ALWAYS = (Verdict.LOST, Verdict.WAITING)  # in the first line even if their count is zero
TOLD = (
    *ALWAYS, Verdict.UNEXPECTED, Verdict.MISPLACED, Verdict.CHANGED, Verdict.UNPROVEN, Verdict.DELETED,
    Verdict.DEAD_LETTERED, Verdict.EXPIRED, Verdict.CANCELLED,
)  # fmt: skip


def headline(summary: Summary) -> str:
    """Return the result of the audit in one line: the number of messages by fate, and the questions left open."""
    if not summary.messages:
        where = f"on these days, {summary.before} before" if summary.before else "in these journals"
        return f"no messages {where}" + _unproven("; ", summary)
    told = [
        _of_verdict(summary, verdict) for verdict in TOLD if summary.verdicts[verdict] or verdict in ALWAYS
    ]
    if summary.duplicated:
        told.append(f"arrived more than once {summary.duplicated}")
    if summary.dropped:
        told.append(f"dropped as duplicates {summary.dropped}")
    if summary.unexplained:
        told.append(f"{summary.unexplained} with more copies than can be explained")
    if summary.sessions_broken:
        told.append(f"{summary.sessions_broken} ordered sessions out of order")
    rest = (
        "; all accounted for" + _not_followed(summary) if summary.is_conserved else _unproven("; ", summary)
    )
    return f"{summary.messages} messages: {', '.join(told)}{rest}"


def _of_verdict(summary: Summary, verdict: Verdict) -> str:
    count, accepted = summary.verdicts[verdict], summary.accepted.get(verdict.value, 0)
    return f"{verdict.value} {count}" + (f" (accepted {accepted})" if accepted else "")


def is_shown(verdict: Verdict, count: int) -> bool:
    """Whether a verdict has a line of its own; *lost* has one even if its count is zero."""
    return bool(count) or verdict is Verdict.LOST


def _not_followed(summary: Summary) -> str:
    """Return how many messages cannot be followed beyond the entity that accepted them; "" if all can."""
    accepted = summary.verdicts[Verdict.ACCEPTED]
    if not accepted:
        return ""
    whose = "all of them" if accepted == summary.messages else f"{accepted} of them"
    return f" as far as these journals go: of {whose} none shows what became of them after they were accepted"


def sources(summary: Summary) -> str:
    """One line that names the writers of the journals read."""
    count = Counter(each.role for each in summary.writers)
    told = [f"{count[role]} {role if count[role] == 1 else role + 's'}" for role in ROLES if count[role]]
    missing = [role for role in ("receiver", "broker") if not count[role]]
    silent = "; there are none of receivers or brokers" if len(missing) == 2 else ""
    return f"By the journals of {', '.join(told)}{silent}." if told else "There are no journals."


def _unproven(before: str, summary: Summary) -> str:
    """Return the reasons why there may be messages unknown to the audit; "" if there are none."""
    holed = summary.holed
    why = sorted({each.reason for each in holed if each.reason})
    reasons = [
        f"{len(journals)} {one if len(journals) == 1 else more}"
        + (f" ({'; '.join(why)})" if journals is holed else "")
        for journals, one, more in (
            (summary.unread, "file not read", "files not read"),
            (holed, "journal with gaps", "journals with gaps"),
            (
                summary.unfinished,
                "journal whose next file is missing",
                "journals whose next files are missing",
            ),
        )
        if journals
    ]
    reasons += summary.missed[:1]
    if len(summary.missed) > 1:
        reasons.append(f"{len(summary.missed) - 1} more that differ from what is expected")
    if summary.unsent:
        reasons.append(f"no sender's journal of {', '.join(summary.unsent)}")
    if summary.is_clock_moved:
        reasons.append(f"a writer's clock moved by {summary.moved:.1f} s (--skew {summary.skew:g}s)")
    if summary.is_skew_exceeded:
        whose = "".join(f" of {each.earlier} and {each.later}" for each in summary.apart[:1])
        reasons.append(f"clocks{whose} differ by at least {summary.shown:.1f} s (--skew {summary.skew:g}s)")
    return f"{before}unproven: {', '.join(reasons)}" if reasons else ""


def _headline(summary: Summary) -> str:
    kind = "ok" if summary.is_conserved else "bad"
    return f"<h1 class='verdict {kind}'>{escape(headline(summary))}</h1>"


def _verdicts(summary: Summary) -> str:
    rows: list[Row] = [
        ((verdict.value, count, MEANING[verdict]), count > 0 and verdict not in SOUND)
        for verdict, count in summary.verdicts.items()
        if is_shown(verdict, count)
    ]
    return table(("verdict", "messages", "meaning"), rows) if summary.messages else ""


def _waiting(summary: Summary, origin: Provenance) -> str:
    rows: list[Row] = [((place, count), False) for place, count in summary.waiting.items()]
    return table(("place", "messages"), rows) + _listed(summary, origin, (Verdict.WAITING,)) if rows else ""


def _missed_section(summary: Summary) -> str:
    rows: list[Row] = [((each,), True) for each in summary.missed[:MAX_ROWS]]
    return table(("journal",), rows) + _more(len(summary.missed)) if rows else ""


def _unread(summary: Summary) -> str:
    rows: list[Row] = [((each.name, each.reason), True) for each in summary.unread]
    if not rows:
        return ""
    note = "<p>These files may be journals with messages that are not counted here.</p>"
    return note + table(("file", "reason"), rows)


def _forgotten(summary: Summary) -> str:
    rows: list[Row] = [((name, why), False) for name, why in summary.forgotten.items()]
    note = "<p>These files do not count, and their writers prove nothing by what they do not mention.</p>"
    return note + table(("file", "reason"), rows) if rows else ""


def _meant(summary: Summary) -> str:
    rows: list[Row] = [((each.verdict, each.count, each.reason), False) for each in summary.meant]
    return table(("verdict", "messages", "reason"), rows) if rows else ""


def _entities(summary: Summary) -> str:
    """The verdicts by entity; "" for a single entity, whose verdicts are those of the summary."""
    if len(summary.entities) < 2:
        return ""
    kinds = [verdict for verdict, count in summary.verdicts.items() if count]
    worst = sorted(summary.entities, key=lambda each: (not _bad(each), -each.messages))
    rows: list[Row] = [
        (
            (each.primary, each.path, each.messages, *(each.verdicts.get(kind, 0) for kind in kinds)),
            bool(_bad(each)),
        )
        for each in worst
    ]
    heads = ("primary", "entity", "messages", *(kind.value for kind in kinds))
    return table(heads, rows[:MAX_ROWS]) + _more(len(rows))


def _flow(summary: Summary) -> str:
    ends = {each.writer: each.last_at for each in summary.writers if each.last_at is not None}
    return flow_figure(summary.flow, summary.step, summary.timeline, ends)


def _bad(entity: EntityVerdicts) -> int:
    return sum(count for verdict, count in entity.verdicts.items() if verdict not in SOUND)


def _more(total: int, all_in_all: int | None = None) -> str:
    shown, count = (min(total, MAX_ROWS), total) if all_in_all is None else (total, all_in_all)
    return "" if count <= shown else f"<p><small>{shown} of {count} are shown; {ALL}.</small></p>"


def _timeline(episodes: Sequence[Episode]) -> str:
    rows: list[Row] = [
        (
            (
                episode.primary,
                episode.path,
                episode.suspected_at,
                episode.failed_over_at,
                episode.recovered_at,
                _span(episode.failed_over_at, episode.recovered_at),
                episode.cause,
            ),
            False,
        )
        for episode in episodes[:MAX_ROWS]
    ]
    heads = ("primary", "entity", "suspect (UTC)", "failed over", "recovered", "seconds", "cause")
    return table(heads, rows) + _more(len(episodes)) if rows else ""


def _troubles(summary: Summary, origin: Provenance) -> str:
    told = "".join(
        f"<p>{verdict.value}: {how}</p>" for verdict, how in WHAT_ELSE.items() if summary.verdicts[verdict]
    )
    listed = _listed(summary, origin, tuple(each for each in LISTED if each not in SOUND))
    return told + listed if listed else ""


def _listed(summary: Summary, origin: Provenance, verdicts: Sequence[Verdict]) -> str:
    """The messages with these verdicts: where each was seen last, what decides, and the command that helps."""
    names = [each.value for each in verdicts]
    shown = [each for each in summary.troubles if each.verdict in names]
    rows: list[Row] = [
        (
            (each.verdict, f"{each.primary}: {each.path}", each.message_id, _last_seen(each, summary),
             _linked(each.reason or each.place), Html(f"<code>{escape(command_for(each, origin))}</code>")),
            Verdict(each.verdict) not in SOUND,
        )
        for each in shown
    ]  # fmt: skip
    if not rows:
        return ""
    used = dict.fromkeys(each.remedy for each in shown)
    told = "".join(f"<li><code>{escape(remedy.tool)}</code> {remedy.meaning}" for remedy in used)
    traced = Trouble("", "", shown[0].message_id, "", remedy=Remedy.TRACE)
    note = (
        f"<p>Commands run as they are printed, with the connection strings in SBPAIR_PRIMARY and SBPAIR_SECONDARY.</p>"
        f"<ul>{told}</ul><p>All records that name a message: <code>{escape(command_for(traced, origin))}</code></p>"
    )
    heads = ("verdict", "entity", "message id", "last seen", "what decides", "command")
    total = sum(count for verdict, count in summary.verdicts.items() if verdict in verdicts)
    return note + table(heads, rows) + _more(len(rows), total)


def command_for(trouble: Trouble, origin: Provenance) -> str:
    """The command that helps with a message."""
    return command(
        trouble.remedy, trouble.path, trouble.message_id, trouble.backlog, origin.directory, origin.results
    )


def _last_seen(trouble: Trouble, summary: Summary) -> Html:
    roles = {each.writer: each.role for each in summary.writers}
    who = f"{roles[trouble.writer]} {trouble.writer[:SHORT]}: " if trouble.writer in roles else ""
    return _linked(who + trouble.last_seen)


def _linked(text: str) -> Html:
    """Return the text as HTML, with a link from each journal to its row in the table of journals."""
    return Html(_NAMED.sub(r"<a href='#journal-\2'>\1 \2</a>", escape(text)))


_NAMED = re.compile(rf"\b({'|'.join(ROLES[:-1])}) ([0-9a-f]{{{SHORT}}})\b")
WHAT_ELSE = {
    Verdict.UNPROVEN: "the journals that are named could decide; collect them, and audit again.",
    Verdict.DELETED: "if they were meant to be, <code>--accept deleted=COUNT</code> or a manifest says so.",
    Verdict.UNEXPECTED: "a sender's journal is missing, or another program sends to the entity.",
    Verdict.CHANGED: "its records have the checksum of the body of each step: compare them.",
    Verdict.MISPLACED: "the session is among the properties that a sender gives: compare its records.",
}
"""Hints about messages that are not accounted for, besides the command for each."""


def _reasons(summary: Summary) -> str:
    rows: list[Row] = [((count, reason), False) for reason, count in summary.reasons.items()]
    return table(("messages", "reason"), rows) if rows else ""


def _canaries(summary: Summary) -> str:
    rows: list[Row] = [((drill, count), False) for drill, count in list(summary.canaries.items())[:MAX_ROWS]]
    note = (
        "<p>These messages have the ids of canaries of sbpair drill, and no sender's journal contains them. A drill "
        "has 1000 at most and one probe; compare its id with what was printed by the drills that were run.</p>"
    )
    return note + table(("drill", "messages"), rows) + _more(len(summary.canaries)) if rows else ""


def _duplicates(summary: Summary) -> str:
    if not summary.messages:
        return ""
    repeated = (
        f"<p>{summary.repeated} messages were accepted more than once: their ids were sent again. The "
        "verdict is that of the id.</p>"
        if summary.repeated
        else ""
    )
    if not summary.duplicated:
        none = "According to the journals of receivers and brokers, no message arrived more than once."
        return f"<p>{none}</p>{repeated}"
    rows: list[Row] = [
        (
            (
                each.primary,
                each.path,
                each.message_id,
                each.copies,
                each.explained,
                ", ".join(writer[:SHORT] for writer in each.killed),
            ),
            each.copies - 1 > each.explained,
        )
        for each in summary.duplicates
    ]
    note = (
        f"<p>{summary.duplicated} messages arrived more than once; each copy but the first needs an "
        "explanation.</p>"
    )
    heads = ("primary", "entity", "message id", "copies", "explained", "killed syphon")
    told = "".join(f"<p>{escape(each)}.</p>" for each in killed_syphons(summary))
    return note + told + repeated + table(heads, rows) + _more(summary.duplicated)


def killed_syphons(summary: Summary) -> list[str]:
    """A sentence for each killed syphon whose end explains copies."""
    ends = {each.writer: each.last_at for each in summary.writers}
    return [
        f"{count} messages have a copy that the end of the syphon {writer} explains: its journal stops"
        f"{_when(ends.get(writer))} without a closing record, so it was killed, or is still writing, and may have "
        "forwarded them without a record"
        for writer, count in summary.killed.items()
    ]


def _when(at: datetime | None) -> str:
    return "" if at is None else f" at {at:%Y-%m-%d %H:%M:%S} UTC"


def order_of_sessions(summary: Summary) -> str:
    """How many sessions arrived in order, on one line; "" if there are none."""
    others = (
        (summary.sessions_out_of_order, "out of order"),
        (summary.sessions_with_gaps, "in order with gaps"),
        (summary.sessions_unproven, "unproven"),
    )
    kept = summary.sessions - sum(count for count, _ in others)
    told = [f"{count} {what}" for count, what in ((kept, "in order"), *others) if count]
    return f"{summary.sessions} sessions: {', '.join(told)}" if told else ""


def _order(summary: Summary) -> str:
    if not summary.sessions:
        return ""
    note = (
        "<p>The order in which each sender sent the messages of a session, against the broker's numbers. A gap is a "
        "message whose arrival no journal shows, sent before one that arrived. Where an order is to be kept "
        "(ordering=&quot;session&quot;), a message out of order is an error.</p>"
    )
    rows: list[Row] = [
        (
            (each.verdict, each.primary, each.path, each.session_id, each.sender[:SHORT],
             "kept" if each.is_promised else "", each.messages, each.parked, each.inversions, each.gaps,
             f"{each.overtaking} before {each.overtaken}" if each.overtaking else ""),
            each.is_promised and each.inversions > 0,
        )
        for each in summary.orders
    ]  # fmt: skip
    heads = ("order", "primary", "entity", "session", "sender", "to be", "messages", "parked", "inversions",
             "gaps", "first inversion")  # fmt: skip
    return f"<p>{order_of_sessions(summary)}.</p>{note}" + table(heads, rows) + _more(summary.sessions)


def _writers(summary: Summary) -> str:
    named = {each.writer for each in summary.troubles}
    shown = [each for place, each in enumerate(summary.writers) if place < MAX_ROWS or each.writer in named]
    rows: list[Row] = [
        (
            (each.role, each.primary, _anchor(each.writer[:SHORT]),
             each.records, each.first_at, each.last_at, each.reason or "complete", each.file),
            each.reason is not None,
        )
        for each in shown
    ]  # fmt: skip
    heads = ("role", "namespace", "writer", "records", "from (UTC)", "to", "state", "first file")
    return table(heads, rows) + _more(len(shown), len(summary.writers)) if rows else ""


def _anchor(writer: str) -> Html:
    return Html(f"<a id='journal-{escape(writer)}'>{escape(writer)}</a>")


def _clocks(summary: Summary) -> str:
    rows: list[Row] = [((each.writer[:SHORT], f"{each.shift:+.1f} s"), False) for each in summary.clocks]
    note = f"<p>Clocks were assumed to differ by at most {summary.skew:g} s.</p>"
    if summary.is_skew_exceeded:
        note = (
            f"<p>Messages were received up to {summary.shown:.1f} s before they were sent or forwarded, or forwarded "
            f"before they were parked: clocks differ by at least that, more than the {summary.skew:g} s allowed. "
            "What this could explain is not called lost. Audit again with a larger --skew.</p>"
        )
        apart: list[Row] = [
            ((each.earlier, each.later, f"{each.seconds:.1f} s"), True) for each in summary.apart
        ]
        note += table(("clock", "is ahead of that of", "by at least"), apart)
    if not rows:
        return note if summary.is_skew_exceeded else ""
    found = "<p>These syphons measured a difference to the secondary's clock; their times are corrected.</p>"
    return note + found + table(("writer", "corrected by"), rows[:MAX_ROWS]) + _more(len(rows))


def _bill(summary: Summary) -> str:
    if not any(charge.operations for charge in summary.bill):
        return ""
    kinds = list(dict.fromkeys(charge.kind for charge in summary.bill))
    of = {(charge.meter, charge.kind): charge.operations for charge in summary.bill}
    rows: list[Row] = [((kind, *(of.get((meter, kind), "") for meter in Meter)), False) for kind in kinds]
    sums = (sum(charge.operations for charge in summary.bill if charge.meter is meter) for meter in Meter)
    rows.append((("total", *sums), False))
    note = "<p>Counted from the journals, which contain healthy sends only where that is enabled.</p>"
    return note + table(("operations", *(meter.value for meter in Meter)), rows)


def _span(start: datetime | None, end: datetime | None) -> str:
    return "" if start is None or end is None else f"{(end - start).total_seconds():.1f}"
