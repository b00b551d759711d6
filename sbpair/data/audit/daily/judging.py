"""The messages of one day: their rows, their findings, and which of them are settled."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ..judge.evidence import Evidence
from ..judge.fold import Messages, fold, times_accepted
from ..judge.folding import Found, findings, worst
from ..judge.grouping import NULL, Bools, Ints, group_min, hashes
from ..judge.killed import needs_killed, times_forwarded_again
from ..judge.verdict import VERDICTS, Judgement, Verdict, judge
from ..read.aliases import Aliases
from ..read.clocks import MICROS, one_way_differences
from ..read.mentions import Mentions
from ..result.interface import schema_of
from ..result.tables import choose, duplicates_table, messages_table
from .kept import DayFound, Hashes
from .sessions import session_rows

DAY_MICROS = 86_400 * MICROS
OF_DAY = ("messages", "missing", "duplicates")
"""The tables with a folder for each day of messages."""
ENDS = (Verdict.EXPIRED, Verdict.DEAD_LETTERED, Verdict.DELETED, Verdict.CANCELLED)


@dataclass(frozen=True, slots=True)
class Judging:
    """The rules and the evidence of one run; ``quiet`` are primaries without a journal of arrivals."""

    shifts: Mapping[str, int]
    aliases: Aliases
    runs: Mapping[str, int]
    evidence: Evidence
    quiet: frozenset[str]

    def tables(self, mentions: Mentions) -> tuple[dict[str, pa.Table], DayFound]:
        """The tables of messages, by name in :data:`OF_DAY`, and the findings about them."""
        messages, judgement = self._judge(mentions)
        table = messages_table(messages, judgement)
        untraced = replace(judgement, is_traced=np.zeros(len(messages), bool))
        copies = duplicates_table(table, messages, self.evidence)
        missing = choose(table.select(schema_of("missing").names), judgement.where(Verdict.LOST))
        tables = dict(zip(OF_DAY, (table, missing, copies), strict=True))
        return tables, DayFound(findings(messages, untraced, table, copies), _one_way(messages))

    def sessions(self, mentions: Mentions) -> pa.Table | None:
        """The messages of sessions, as :func:`.sessions.session_rows` gives them."""
        if mentions.session is None:
            return None
        messages = fold(mentions, self.shifts, self.aliases, self.runs, self.evidence.kept)
        ids, index = np.unique(hashes(mentions.message), return_index=True)
        day = days_of(mentions)[index]
        return session_rows(messages, day[np.searchsorted(ids, hashes(messages.message))])

    def is_settled(self, mentions: Mentions) -> tuple[Bools, set[str]]:
        """Return which mentions have ids with settled messages only, and the primaries that must stay quiet for it."""
        messages, judgement = self._judge(mentions)
        number = messages.numbers
        sent = number["accepted_by_primary"] + number["parked"] + number["spooled"] + number["handed_on"] > 0
        known = sent | (number["raised"] > 0)
        arrived = number["received"] + number["completed"] > 0
        is_gone = (number["held"] <= 0) & (number["held_in_backlog"] <= 0)
        has_ended = np.isin(judgement.verdict, [VERDICTS.index(each) for each in ENDS])
        quiet = np.array([primary in self.quiet for primary, _ in messages.entities] or [False])
        is_home = number["accepted_by_primary"] + number["forwarded"] + number["stored"] > 0
        is_accepted = judgement.where(Verdict.ACCEPTED) & is_home & quiet[messages.entity]
        is_balanced = (number["shortfall"] <= 0) & (number["undelivered"] <= 0)
        is_matched = times_accepted(number) <= np.maximum(number["copies"], 1)
        has_one_end = has_ended & is_gone & ~arrived & (number["shortfall"] <= 0)
        settled = known & (arrived & is_balanced & is_matched | has_one_end)
        settled |= judgement.where(Verdict.NOT_ACCEPTED) | is_accepted
        settled &= (number["of_two_runs"] == 0) & (number["unnumbered"] <= 1)
        # whether its copies have an explanation is known only when its syphons have ended
        settled &= ~((number["copies"] > 1) & (times_forwarded_again(number) > 0))
        settled &= ~needs_killed(number)  # by the journal of a syphon, which need not mention them again
        silent = {
            messages.entities[entity][0] or "" for entity in np.unique(messages.entity[is_accepted & settled])
        }
        unsettled = np.unique(hashes(messages.message.filter(pa.array(~settled))))
        found: Bools = ~np.isin(hashes(mentions.message), unsettled)
        return found, silent

    def _judge(self, mentions: Mentions) -> tuple[Messages, Judgement]:
        messages = fold(mentions, self.shifts, self.aliases, self.runs, self.evidence.kept)
        return messages, judge(messages, self.evidence)


def _one_way(messages: Messages) -> dict[str, dict[tuple[str, str], int]]:
    """Return, by primary, the clock differences shown by messages that were received before they were forwarded."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for code, (primary, _) in enumerate(messages.entities):
        if shown := one_way_differences(messages, messages.entity == code):
            found[primary or ""] = worst(shown, found.get(primary or "", {}))
    return found


def days_of(mentions: Mentions) -> Ints:
    """Return, for each mention, the day since the epoch on which its id was first mentioned."""
    _, group = np.unique(hashes(mentions.message), return_inverse=True)
    first = group_min(group, mentions.at, int(group.max(initial=-1)) + 1)
    days = np.where(first == NULL, 0, first // DAY_MICROS)
    found: Ints = days[group]
    return found


def ids_of(mentions: Mentions) -> Hashes:
    found: Hashes = np.unique(hashes(mentions.message))
    return found


def choose_mentions(mentions: Mentions, which: Bools) -> Mentions:
    """Return these mentions, with only the contexts that they use."""
    used, context = np.unique(mentions.context[which], return_inverse=True)
    contexts = [mentions.contexts[index] for index in used]
    return mentions.choose(np.flatnonzero(which), contexts, context.astype(np.int64))


def are_of_files(mentions: Mentions, files: Container[str]) -> Bools:
    """Which mentions are in one of these files."""
    found: Bools = np.array([each.file in files for each in mentions.contexts] or [False])[mentions.context]
    return found


def merge(several: list[DayFound], traced: frozenset[str]) -> Found:
    """Combine findings; ``traced`` are the primaries whose journals record a message from end to end."""
    found = Found()
    for each in several:
        found.add(each.found)
        for primary, shown in each.one_way.items():
            if primary in traced:
                found.apart = worst(found.apart, shown)
    return found
