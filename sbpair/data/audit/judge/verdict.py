"""The verdict on each message: the fate that the journals prove.

One record proves that something happened. That it did *not* happen follows only from a complete journal without
such a record (:mod:`.writers`), up to a time at which its writer found the queue empty.

The rules are SQL, and depend on few values of a message: whether its counts are positive, how some times compare, and
the evidence on its pair. Messages with the same values share a verdict, and SQLite is asked once for each combination.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache

import numpy as np

from .evidence import Evidence, PairEvidence
from .fold import Messages, times_accepted
from .grouping import NULL, Bools, Ints, combine, ranks
from .places import Place, name_places
from .sql import first_row


class Verdict(Enum):
    """The verdict on one message."""

    DELIVERED = "delivered"  # received, by a receiver's journal, or completed, by the broker's
    RECOVERED = "recovered"  # its send raised an error, but it arrived
    DEAD_LETTERED = (
        "dead-lettered"  # dead-lettered by the syphon or the broker, for a reason other than expiry
    )
    EXPIRED = "expired"  # removed or dead-lettered because its time to live had passed
    CANCELLED = "cancelled"  # while it was scheduled, by the broker's journal
    DELETED = "deleted"  # by hand or with its entity, according to the broker's journal: nobody received it
    MISPLACED = "misplaced"  # it arrived in another session than it was sent to
    CHANGED = "changed"  # it arrived with another body than it was sent with
    ACCEPTED = "accepted"  # by the primary, or landed on the secondary; no journal shows that it was received
    WAITING = "waiting"  # in a backlog queue, a spool or its entity, by journals that are complete
    LOST = "lost"  # accepted, but stored nowhere and not received
    NOT_ACCEPTED = "not accepted"  # its send raised an error and no journal shows that it was stored
    CANARY = "canary"  # of `sbpair drill`, which keeps no journal
    UNEXPECTED = "unexpected"  # it arrived, but complete journals of the senders do not mention it
    UNPROVEN = "unproven"  # a journal that could decide is incomplete or missing


SOUND = (
    Verdict.DELIVERED,
    Verdict.RECOVERED,
    Verdict.DEAD_LETTERED,
    Verdict.EXPIRED,
    Verdict.CANCELLED,
    Verdict.ACCEPTED,
    Verdict.WAITING,
    Verdict.NOT_ACCEPTED,
    Verdict.CANARY,
)


COUNTS = (  # of a message: the rules see whether it is positive
    "received", "completed", "accepted_by_primary", "parked", "spooled", "handed_on", "raised", "forwarded",
    "landed", "stored", "backlogged", "expired_there", "buried", "deleted", "expired", "set_aside", "refused_in_spool",
    "of_two_runs", "canary", "cancelled", "undelivered", "shortfall", "scheduled", "misplaced", "changed", "unmatched",
)  # fmt: skip
BALANCES = ("held", "held_in_backlog")  # may be negative: the rules see the sign
EVIDENCE = (
    "senders_whole",
    "senders_tell",
    "syphons_whole",
    "syphons_cover",
    "receivers_whole",
    "primary_kept",
    "secondary_kept",
    "has_stranded",
)
OF_PAIR = (  # times of the evidence
    "stranded_from", "drained_at", "emptied_at", "passed_at", "primary_from", "primary_until", "secondary_from",
    "secondary_until",
)  # fmt: skip
# Comparisons, unknown if either value is. Columns: those of a message, and of the evidence on its pair.
COMPARISONS: tuple[tuple[str, tuple[str, str, str]], ...] = (
    ("is_spooled", ("spooled", ">", "left_spool")),
    ("was_aside_last", ("set_aside_at", ">=", "home_at")),  # otherwise it was redriven
    ("is_beyond_syphons", ("backlog", ">=", "stranded_from")),
    ("was_emptied_later", ("emptied_at", ">", "home_at")),
    ("was_passed", ("passed_at", ">", "home_at")),
    ("was_emptied_around", ("held_emptied_at", ">", "put_at")),
    ("was_drained_later", ("drained_at", ">", "last_parked_at")),
    ("was_home_after_start", ("first_home_at", ">", "primary_from")),
    ("was_home_before_end", ("home_at", "<", "primary_until")),
    ("was_parked_after_start", ("parked_at", ">", "secondary_from")),
    ("was_parked_before_end", ("last_parked_at", "<", "secondary_until")),
    ("was_parked_after_start_of_primary", ("parked_at", ">", "primary_from")),
    ("has_time_at_home", ("home_at", ">=", "home_at")),
)
# Conditions used in RULES, over the above.
FACTS: tuple[tuple[str, str], ...] = (
    ("arrived", "received + completed > 0"),
    ("is_sent", "accepted_by_primary + parked + spooled + handed_on > 0"),
    ("is_home", "accepted_by_primary + forwarded + stored > 0"),
    ("is_aside", "has_time_at_home IS NULL OR was_aside_last"),
    ("is_strange", "NOT (accepted_by_primary + parked + spooled + handed_on > 0)"
     " AND raised = 0 AND backlogged = 0 AND senders_tell"),
    ("is_stranded", "has_stranded AND is_beyond_syphons"),
    # recorded as accepted, in a period that the broker's complete journal covers, more often than stored,
    # only by senders whose records do not occur twice
    ("is_unseen", "shortfall > 0 AND primary_kept AND was_home_after_start AND was_home_before_end"
     " AND (stored = 0 OR coalesce(senders_whole, FALSE))"),
    ("is_undelivered", "undelivered > 0 AND CASE WHEN landed > 0 THEN secondary_kept ELSE primary_kept END"),
    ("is_told", "coalesce(primary_kept AND stored > 0, FALSE)"),
    ("is_never_parked", "parked > 0 AND backlogged = 0 AND secondary_kept"
     " AND was_parked_after_start AND was_parked_before_end"),
    ("left_backlog", "backlogged > 0 AND held_in_backlog <= 0 AND secondary_kept"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class VerdictRule:
    """A condition, its verdict, and the question that an *unproven* message leaves open.

    ``{role}`` in the question is replaced by the defect of that role's journals (:meth:`.Evidence.fill_in`).
    """

    condition: str
    verdict: Verdict
    question: str = ""
    place: Place | None = None  # of a message that waits


# The first condition that is true decides.
RULES = (
    VerdictRule("of_two_runs > 0", Verdict.UNPROVEN, "its id is of senders of two runs: audit each run by itself"),
    VerdictRule("misplaced > 0", Verdict.MISPLACED),
    VerdictRule("changed > 0", Verdict.CHANGED),
    VerdictRule("stored > 0 AND is_strange AND canary > 0", Verdict.CANARY),
    VerdictRule("stored > 0 AND is_strange AND senders_whole", Verdict.UNEXPECTED),
    # the complete record of a broker about each destination outranks an arrival at one of them
    VerdictRule("is_unseen AND is_sent", Verdict.LOST),
    VerdictRule("is_undelivered AND held > 0 AND was_emptied_around AND scheduled = 0", Verdict.UNPROVEN,
     "by the broker's journal it is still there, and a receiver found the place empty: deferred, or lost"),
    VerdictRule("is_undelivered AND held > 0 AND landed > 0", Verdict.WAITING, place=Place.LANDED),
    VerdictRule("is_undelivered AND held > 0", Verdict.WAITING, place=Place.ENTITY),
    VerdictRule("is_undelivered AND deleted > 0", Verdict.DELETED),
    VerdictRule("is_undelivered AND buried > 0", Verdict.DEAD_LETTERED),
    VerdictRule("is_undelivered AND expired_there > 0", Verdict.EXPIRED),
    VerdictRule("is_undelivered AND cancelled > 0", Verdict.CANCELLED),
    VerdictRule("arrived AND is_sent AND unmatched > 0 AND (shortfall > 0 OR NOT coalesce(primary_kept, FALSE))",
     Verdict.UNPROVEN,
     "its id was accepted more often than it arrived: a duplicate was dropped, or one is missing. {broker}"),
    VerdictRule("arrived AND is_sent", Verdict.DELIVERED),
    VerdictRule("arrived AND raised > 0", Verdict.RECOVERED),
    VerdictRule("arrived AND NOT senders_tell", Verdict.DELIVERED),  # healthy sends are not recorded
    VerdictRule("arrived AND canary > 0", Verdict.CANARY),
    VerdictRule("arrived AND senders_whole", Verdict.UNEXPECTED),
    VerdictRule("arrived", Verdict.UNPROVEN, "it arrived, but was it sent? {sender}"),
    VerdictRule("stored > 0 AND is_strange", Verdict.UNPROVEN, "the broker stored it, but was it sent? {sender}"),
    VerdictRule("expired_there > 0 AND held <= 0", Verdict.EXPIRED),
    VerdictRule("buried > 0 AND held <= 0", Verdict.DEAD_LETTERED),
    VerdictRule("deleted > 0 AND held <= 0 AND held_in_backlog <= 0", Verdict.DELETED),
    VerdictRule("cancelled > 0 AND held <= 0 AND held_in_backlog <= 0", Verdict.CANCELLED),
    VerdictRule("held_in_backlog > 0 AND secondary_kept AND NOT is_home", Verdict.WAITING, place=Place.BACKLOG),
    VerdictRule("expired > 0 AND is_aside", Verdict.EXPIRED),
    VerdictRule("set_aside > 0 AND is_aside OR refused_in_spool > 0 AND NOT is_home", Verdict.DEAD_LETTERED),
    VerdictRule("is_home AND is_sent AND was_emptied_later AND NOT is_told", Verdict.UNPROVEN,
     "it was not received, and a receiver found its entity empty: deferred, expired, or lost. {broker}"),
    VerdictRule("is_home AND is_sent AND was_passed AND NOT is_told", Verdict.UNPROVEN,
     "it was not received, and one that came later was: it waits, or was deferred, expired, or lost. {broker}"),
    VerdictRule("is_sent AND shortfall > 0 AND primary_kept", Verdict.UNPROVEN,
     "the broker's journal does not contain it, but it was accepted before its beginning, or near its end"),
    VerdictRule("is_home AND is_sent", Verdict.ACCEPTED),
    VerdictRule("is_home AND raised > 0", Verdict.ACCEPTED),
    VerdictRule("stored > 0", Verdict.ACCEPTED),  # its sender does not record healthy sends
    VerdictRule("is_home AND canary > 0", Verdict.CANARY),
    VerdictRule("is_home AND senders_whole", Verdict.UNEXPECTED),
    VerdictRule("is_home", Verdict.UNPROVEN, "it was forwarded, but was it sent? {sender}"),
    VerdictRule("landed > 0", Verdict.ACCEPTED),  # on the secondary
    VerdictRule("is_never_parked", Verdict.LOST),
    # the message arrived nowhere:
    VerdictRule("left_backlog AND primary_kept AND was_parked_after_start_of_primary", Verdict.LOST),
    VerdictRule("left_backlog", Verdict.UNPROVEN, "it left its backlog queue, but did it arrive? {broker}"),
    VerdictRule("parked > 0 AND was_drained_later AND NOT is_stranded AND syphons_whole", Verdict.LOST),
    VerdictRule("parked > 0 AND syphons_whole AND syphons_cover", Verdict.WAITING, place=Place.BACKLOG),
    VerdictRule("parked > 0", Verdict.UNPROVEN, "it was parked, but was it forwarded? {way}"),
    VerdictRule("backlogged > 0", Verdict.UNPROVEN, "a backlog queue stored it, but was it forwarded? {secondary}"),
    VerdictRule("is_spooled AND senders_whole", Verdict.WAITING, place=Place.SPOOL),
    VerdictRule("spooled > 0", Verdict.UNPROVEN, "it was spooled, but did it leave the spool? {sender}"),
    VerdictRule("raised > 0", Verdict.NOT_ACCEPTED),
    VerdictRule("TRUE", Verdict.UNPROVEN, "no record shows where it was stored"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on each message, as an index into ``VERDICTS``, and the reason for each unproven one."""

    verdict: Ints
    reason: Ints  # NULL if there is none
    reasons: list[str]
    place: Ints  # where a message waits, as an index into ``places``; NULL for others
    places: list[str]
    is_traced: Bools  # whether senders and syphons recorded all that they did with it

    def where(self, verdict: Verdict) -> Bools:
        found: Bools = self.verdict == VERDICTS.index(verdict)
        return found


VERDICTS = tuple(Verdict)


def judge(messages: Messages, evidence: Evidence) -> Judgement:
    """Return the verdicts on ``messages``."""
    pairs, pair = _pairs(messages, evidence)
    columns = dict(messages.numbers)
    columns["held_emptied_at"] = _emptied_around(messages, evidence)
    columns["unmatched"] = np.maximum(times_accepted(columns) - np.maximum(columns["copies"], 1), 0)
    for name in OF_PAIR:
        known = [getattr(each, name) for each in pairs]
        columns[name] = np.array([NULL if value is None else value for value in known] or [NULL], np.int64)[
            pair
        ]
    seen: dict[str, Ints] = {name: np.minimum(columns[name], 1) for name in COUNTS}
    seen |= {name: np.sign(columns[name]) for name in BALANCES}
    seen |= {name: _compare(columns[a], how, columns[b]) for name, (a, how, b) in COMPARISONS}
    varying = (values for values in seen.values() if values.min(initial=0) != values.max(initial=0))
    sizes = [(pair, len(pairs) + 1), *((values + 1, 3) for values in varying)]
    _, first, inverse = np.unique(combine(sizes), return_index=True, return_inverse=True)
    rules, reasons, kinds = [], [], []
    for row in first:
        values = tuple(
            None if seen[name][row] < 0 and name in UNKNOWN else int(seen[name][row]) for name in seen
        )
        rule = _rule(tuple(seen), values, pairs[pair[row]].facts())
        rules.append(VERDICTS.index(RULES[rule].verdict))
        place = RULES[rule].place
        kinds.append(NULL if place is None else int(place))
        primary, _ = messages.entities[messages.entity[row]]
        secondary = messages.secondary[row]
        on = None if secondary == NULL else messages.secondaries[secondary]
        reasons.append(evidence.fill_in(RULES[rule].question, primary, on) or None)
    rank, texts = ranks(reasons)
    whole = [each.senders_tell and each.senders_whole and each.syphons_whole for each in pairs]
    is_traced = np.array(whole, bool)[pair]
    place_of, places = name_places(messages, np.array(kinds, np.int64)[inverse], evidence)
    verdicts = np.array(rules, np.int64)[inverse]
    return Judgement(verdicts, rank[inverse], texts, place_of, places, is_traced)


UNKNOWN = {name for name, _ in COMPARISONS}
_COMPARE = {">": np.greater, ">=": np.greater_equal, "<": np.less}


def _compare(left: Ints, how: str, right: Ints) -> Ints:
    """1 for true, 0 for false, -1 for unknown."""
    found: Ints = np.where((left == NULL) | (right == NULL), -1, _COMPARE[how](left, right))
    return found


def _emptied_around(messages: Messages, evidence: Evidence) -> Ints:
    """Return when the destination with a copy of each message was found empty; NULL for never."""
    found = np.full(len(messages), NULL)
    rows = np.flatnonzero((messages.held_in != NULL) & (messages.numbers["landed"] == 0))
    if len(rows):
        size = len(messages.destinations)
        codes, inverse = np.unique(messages.entity[rows] * size + messages.held_in[rows], return_inverse=True)
        when = []
        for code in codes.tolist():
            primary, path = messages.entities[code // size]
            at = evidence.emptied_at(primary, path + messages.destinations[code % size])
            when.append(NULL if at is None else at)
        found[rows] = np.array(when, np.int64)[inverse]
    return found


def _pairs(messages: Messages, evidence: Evidence) -> tuple[list[PairEvidence], Ints]:
    """The evidence on the pair and entity of each message, as an index into a list."""
    size = len(messages.secondaries) + 1
    secondary = np.where(messages.secondary == NULL, size - 1, messages.secondary)
    kinds, inverse = np.unique(messages.entity * size + secondary, return_inverse=True)
    names: list[str | None] = [*messages.secondaries, None]
    found = []
    for kind in kinds:
        primary, path = messages.entities[kind // size]
        found.append(evidence.of(primary, path, names[kind % size]))
    return found, inverse


@lru_cache(4096)
def _rule(names: tuple[str, ...], values: tuple[int | None, ...], facts: tuple[bool | None, ...]) -> int:
    """The index of the first rule that is true."""
    given = dict(zip((*names, *EVIDENCE), (*values, *facts), strict=True))
    return int(first_row(_query(names), given)[0])


@cache
def _query(names: tuple[str, ...]) -> str:
    columns = ", ".join(f":{name} AS {name}" for name in (*names, *EVIDENCE))
    conditions = ", ".join(f"{condition} AS {name}" for name, condition in FACTS)
    rules = " ".join(f"WHEN {rule.condition} THEN {index}" for index, rule in enumerate(RULES))
    return f"SELECT CASE {rules} END FROM (SELECT *, {conditions} FROM (SELECT {columns}))"  # noqa: S608
