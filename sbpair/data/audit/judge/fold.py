"""One row per message, folded from its mentions in numpy.

A group is a message, numbered from 0; each column of the result is an array with one element per group.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..canary_ids import PATTERN, PREFIX
from ..read.aliases import Aliases
from ..read.mentions import COUNTS, DEAD_LETTERS, FACTS, POSITIONS, MentionContext, Mentions
from .grouping import NULL, Bools, Ints, combine, count, group_max, group_min, ranks

RECORDED_TWICE = {  # parking and spooling have events of their own, and send_accepted where that is enabled
    "parked": ("parked_events", "accepted_by_backlog"),
    "spooled": ("spooled_events", "accepted_by_spool"),
    "detoured_ambiguously": ("stored_ambiguously", "accepted_ambiguously"),
}
AMBIGUITIES = ("raised_ambiguously", "detoured_ambiguously", "accepted_by_primary_ambiguously", "in_doubt")
HELD_IN_BACKLOG = ("put_in_backlog", "taken_from_backlog")  # copies in a broker's store: added, removed
PARTS = {
    *(part for parts in RECORDED_TWICE.values() for part in parts), *AMBIGUITIES, *HELD_IN_BACKLOG, "put", "taken",
}  # fmt: skip
TIMES = {  # the first or last time of the mentions with any of these facts
    "sent_at": (group_min, ("is_sent",)),
    "parked_at": (group_min, ("is_parked",)),
    "last_parked_at": (group_max, ("is_parked",)),
    "set_aside_at": (group_max, ("set_aside", "expired")),
    "first_home_at": (group_min, ("accepted_by_primary", "forwarded")),
    "home_at": (group_max, ("accepted_by_primary", "forwarded")),
    "stored_at": (group_min, ("taken_in",)),
    "put_at": (group_max, ("put",)),
    "backlogged_at": (group_min, ("backlogged",)),
    "forwarded_at": (group_max, ("forwarded",)),
    "received_at": (group_min, ("received",)),
}
HANDS = {  # the writer that did it, if there is only one
    "sender": ("is_sent",),
    "syphon": ("forwarded",),
    "receiver": ("received",),
    "broker": ("taken_in",),
    "other broker": ("backlogged",),
}
BALANCED = ("put", "taken", "is_done")
Texts: TypeAlias = "Sequence[str | None]"
Entity: TypeAlias = "tuple[str | None, str]"


@dataclass(frozen=True, slots=True)
class Forwards:
    """Forwards recorded by syphons for messages that arrived more than once: message, writer and time."""

    group: Ints
    writer: Ints  # an index into Messages.senders
    at: Ints


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last record that names a message: its time in microseconds, file, ordinal (-1 without one) and writer."""

    at: int
    file: str
    ordinal: int
    writer: str


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages side by side. Texts are indices into lists, or NULL; ``numbers`` are the columns of numbers."""

    message: pa.Array
    entity: Ints
    entities: list[Entity]  # primary and path in lower case
    path: Ints
    paths: list[str]  # in order, as are the following
    secondary: Ints
    secondaries: list[str]
    sender: Ints
    senders: list[str]  # all writers
    sent_in: Ints
    raised_in: Ints  # where the same sender first recorded that a send of it raised
    session: pa.Array  # null for messages without one
    is_promised: Bools  # whether the sender keeps the order of the session
    numbers: Mapping[str, Ints]
    forwards: Forwards
    hands: Mapping[str, Ints]  # by HANDS, as an index into ``senders``; NULL for none, or several
    held_in: Ints  # a destination that has a copy, as an index into ``destinations``
    destinations: list[str]  # "" for a queue, or the end of the path of a subscription
    mentions: Mentions  # from which they were folded
    group: Ints  # the message of each mention

    def last_seen(self, messages: Ints) -> list[LastSeen | None]:
        """The last mention of each of these messages; None for one without a time."""
        last: dict[int, tuple[int, str, int, str]] = {}
        for row in np.flatnonzero(np.isin(self.group, messages) & (self.mentions.at != NULL)).tolist():
            place, context = self.mentions.sent_in[row], self.mentions.contexts[self.mentions.context[row]]
            ordinal = -1 if place == NULL else int(place) // POSITIONS
            found = int(self.mentions.at[row]), context.file, ordinal, context.writer or ""
            group = int(self.group[row])
            last[group] = max(found, last.get(group, found))
        return [LastSeen(*last[each]) if each in last else None for each in messages.tolist()]

    def __len__(self) -> int:
        return len(self.message)


def fold(
    mentions: Mentions,
    shifts: Mapping[str, int],
    aliases: Aliases,
    runs: Mapping[str, int],
    kept: Container[str | None] = (),
) -> Messages:
    """Fold ``mentions``, which hold all mentions of their messages.

    ``shifts`` are corrections of writers' times, in microseconds; ``aliases`` are other names of namespaces;
    ``runs`` are the runs of the writers, which may use the same ids; ``kept`` are primaries whose broker recorded all.
    """
    contexts = [aliases.in_context(each) for each in mentions.contexts]
    mentions = replace(mentions, contexts=contexts)
    shift = np.array([shifts.get(each.writer or "", 0) for each in mentions.contexts], np.int64)
    shift = shift[mentions.context]
    at = np.where(mentions.at == NULL, NULL, mentions.at + shift)
    return _Fold(_with_landed(_with_paths(replace(mentions, at=at))), runs, kept).messages()


class _Fold:
    def __init__(self, mentions: Mentions, runs: Mapping[str, int], kept: Container[str | None]) -> None:
        self.of = mentions
        self.runs = runs
        facts = np.array([context.facts for context in mentions.contexts], np.int64)
        self.facts = facts[mentions.context]
        self.seen = int(np.bitwise_or.reduce(facts, initial=0))
        index: dict[Entity, int] = {}
        entity = np.array([index.setdefault(_entity(each), len(index)) for each in mentions.contexts])
        self.entities = list(index)
        encoded = mentions.message.dictionary_encode()
        self.group = np.asarray(encoded.indices, np.int64)
        self.message, self.entity = encoded.dictionary, np.zeros(len(encoded.dictionary), np.int64)
        if len(self.entities) > 1:
            both = self.group * len(self.entities) + entity[mentions.context]
            keys, self.group = np.unique(both, return_inverse=True)
            self.message = encoded.dictionary.take(pa.array(keys // len(self.entities)))
            self.entity = keys % len(self.entities)
        self.size = len(self.message)
        self.is_kept = np.array([primary in kept for primary, _ in self.entities] or [False])[self.entity]

    def messages(self) -> Messages:
        path, paths = self._of_context([context.path for context in self.of.contexts])
        secondary, secondaries = self._of_context([context.secondary for context in self.of.contexts])
        writer, writers = self._of_context([context.writer for context in self.of.contexts])
        is_sent = self.has("is_sent")
        hands = {name: self._only(writer, self.has(*facts)) for name, facts in HANDS.items()}
        sender = hands["sender"]
        sent_in = self._fold(group_min, self.of.sent_in, is_sent)
        has_raised = self.has("raised") & (writer == sender[self.group])
        session, is_promised, is_misplaced = self._sessions()
        numbers = self._numbers()
        held_in, destinations = self._balance(numbers)
        numbers["misplaced"] = is_misplaced
        numbers["changed"] = self._changed()
        return Messages(
            self.message,
            self.entity,
            self.entities,
            group_min(self.group, path, self.size),
            paths,
            self._only(secondary, self.has("is_parked", "is_in_store_of_backlog")),
            secondaries,
            sender,
            writers,
            np.where(sender == NULL, NULL, sent_in),
            self._fold(group_min, self.of.sent_in, has_raised),
            session,
            is_promised,
            numbers,
            self._forwards(writer, numbers["copies"]),
            hands,
            held_in,
            destinations,
            self.of,
            self.group,
        )

    def has(self, *names: str) -> Bools:
        """Return which mentions have any of these facts."""
        wanted = sum(FACTS[name] for name in names)
        if not self.seen & wanted:
            return np.zeros(len(self.facts), bool)
        found: Bools = self.facts & wanted != 0
        return found

    def _of_context(self, texts: Texts) -> tuple[Ints, list[str]]:
        """Return a text from the context of each mention, as an index into the sorted texts, and these texts."""
        rank, ordered = ranks(texts)
        return rank[self.of.context], ordered

    def _fold(self, how: object, values: Ints, which: Bools) -> Ints:
        assert callable(how)  # noqa: S101  (for mypy)
        if not which.any():
            return np.full(self.size, NULL)
        found: Ints = how(self.group[which], values[which], self.size)
        return found

    def _only(self, values: Ints, which: Bools) -> Ints:
        """Return the single value of each message; NULL if it has no value or several."""
        first, last = self._fold(group_min, values, which), self._fold(group_max, values, which)
        return np.where(first == last, first, NULL)

    def _sessions(self) -> tuple[pa.Array, Bools, Ints]:
        """Return the session of each message, whether its order is kept, and 1 where its session is contradictory.

        It is contradictory if records name two sessions, or if the message arrived without its session. A message in a
        backlog has another session id.
        """
        if self.of.session is None:
            return pa.nulls(self.size, pa.string()), np.zeros(self.size, bool), np.zeros(self.size, np.int64)
        encoded = self.of.session.dictionary_encode()
        rank, ordered = ranks([text or None for text in encoded.dictionary.to_pylist()])
        index = np.asarray(encoded.indices.fill_null(len(rank)), np.int64)
        session = np.where(self.has("is_in_store_of_backlog"), NULL, np.append(rank, NULL)[index])
        greatest = group_max(self.group, session, self.size)
        is_misplaced = (group_min(self.group, session, self.size) != greatest).astype(np.int64)
        is_lost = self.has("received", "put") & np.asarray(pc.fill_null(pc.equal(self.of.session, ""), False))
        is_misplaced[self.group[is_lost & (greatest != NULL)[self.group]]] = 1
        is_promised = np.zeros(self.size, bool)
        is_promised[self.group[self.has("is_kept_in_order") & (session != NULL)]] = True
        sessions = pa.array(ordered, pa.string()).take(pa.array(greatest, mask=greatest == NULL))
        return sessions, is_promised, is_misplaced

    def _changed(self) -> Ints:
        """Return 1 for a message with a body that no sender recorded, although a sender recorded another body."""
        found, body = np.zeros(self.size, np.int64), self.of.checksum
        is_given = self.has("is_sent", "raised") & (body != NULL)
        first, last = self._fold(group_min, body, is_given), self._fold(group_max, body, is_given)
        is_strange = (body != NULL) & ~is_given & (first != NULL)[self.group]
        is_strange &= (body != first[self.group]) & (body != last[self.group])
        if is_strange.any():  # few: of those, not one of a third body
            given = is_given & np.isin(self.group, self.group[is_strange])
            bodies = set(zip(self.group[given].tolist(), body[given].tolist(), strict=True))
            strange = zip(self.group[is_strange].tolist(), body[is_strange].tolist(), strict=True)
            found[[group for group, sum in strange if (group, sum) not in bodies]] = 1
        return found

    def _numbers(self) -> dict[str, Ints]:
        counts = {name: self._count(name) for name in COUNTS}
        counts |= {name: np.maximum(counts[a], counts[b]) for name, (a, b) in RECORDED_TWICE.items()}
        put, taken = HELD_IN_BACKLOG
        counts["held_in_backlog"] = counts[put] - counts[taken]
        ambiguities = sum((counts[name] for name in AMBIGUITIES), np.zeros(self.size, np.int64))
        kept = {name: each for name, each in counts.items() if name not in PARTS}
        received = self._fold(group_min, self.of.number, self.has("received"))
        stored = group_min(self.group, self.of.number, self.size)
        times = {name: self._fold(how, self.of.at, self.has(*facts)) for name, (how, facts) in TIMES.items()}
        backlog = np.array([NULL if each.backlog is None else each.backlog for each in self.of.contexts])
        copies = self._copies()
        return {
            **kept,
            **times,
            "enqueued_at": self._fold(group_min, self.of.enqueued, self.has("received")),
            "backlog": group_max(self.group, backlog[self.of.context], self.size),
            "sequence_number": np.where(received == NULL, stored, received),
            "copies": copies,
            "unnumbered": count(self.group[self.has("received") & (self.of.number == NULL)], self.size),
            "canary": self._canaries(),
            "ambiguities": ambiguities,
            "of_two_runs": self._of_two_runs(copies),
        }

    def _balance(self, numbers: dict[str, Ints]) -> tuple[Ints, list[str]]:
        """Add up what brokers recorded at each destination, and return the destinations with a copy that did not leave.

        A queue is one destination, and so is each subscription, including its dead letters. ``shortfall``: how often
        the entity accepted the message but neither stored it nor dropped it as a duplicate. ``undelivered``: how many
        of the copies that a destination stored, one for each time that the message was accepted, were received by
        nobody. Each storing or removal counts as that of another copy, even under the same number, because a queue may
        be recreated.
        """
        times = np.maximum(times_accepted(numbers), 1)
        homeward = np.minimum(numbers["forwarded"], np.maximum(numbers["parked"], 1))
        taken_in = numbers.pop("taken_in")
        numbers["undelivered"] = np.zeros(self.size, np.int64)
        numbers["held"] = np.zeros(self.size, np.int64)
        held_in = np.full(self.size, NULL)
        of_context = [each.place.removesuffix(DEAD_LETTERS) for each in self.of.contexts]
        place, places = self._of_context([*of_context])
        here = self.has("put", "taken", "is_done")
        for code in np.unique(place[here]).tolist():
            at = here & (place == code)
            put, taken, done = (count(self.group[at & self.has(name)], self.size) for name in BALANCED)
            wanted = np.minimum(put, times)
            numbers["undelivered"] = np.maximum(numbers["undelivered"], wanted - done)
            numbers["held"] += put - taken
            there = np.where(self.is_kept, np.maximum(put, taken), 0)
            numbers["copies"] = np.maximum(numbers["copies"], there)
            held_in[(put > taken) & (wanted > done)] = code
            if places[code]:  # a topic has accepted the messages of its subscriptions
                taken_in = np.maximum(taken_in, put)
        numbers["shortfall"] = np.maximum(numbers["accepted_by_primary"] + homeward - taken_in, 0)
        return held_in, places

    def _canaries(self) -> Ints:
        """Return 1 for a message with the id of a drill's canary that is in no sender's journal."""
        found = np.zeros(self.size, np.int64)
        if pc.any(pc.starts_with(self.message, PREFIX)).as_py():
            found[np.asarray(pc.match_substring_regex(self.message, PATTERN))] = 1
            found[self.group[self.has("is_sent", "accepted_by_primary", "raised")]] = 0
        return found

    def _forwards(self, writer: Ints, copies: Ints) -> Forwards:
        rows = np.zeros(0, np.int64)
        if copies.max(initial=0) > 1:
            rows = np.flatnonzero((copies > 1)[self.group] & self.has("forwarded", "landed"))
        return Forwards(self.group[rows], writer[rows], self.of.at[rows])

    def _count(self, name: str) -> Ints:
        if not self.seen & FACTS[name]:
            return np.zeros(self.size, np.int64)
        return count(self.group[self.has(name)], self.size)

    def _of_two_runs(self, copies: Ints) -> Ints:
        """Return 1 for an id that senders of two runs used for messages, of which no two are known to have arrived."""
        run = np.array([self.runs.get(each.writer or "", NULL) for each in self.of.contexts], np.int64)
        of_sender = run[self.of.context]
        which = self.has("is_sent") & (of_sender != NULL)
        first, last = self._fold(group_min, of_sender, which), self._fold(group_max, of_sender, which)
        found: Ints = np.where((first != last) & (copies < 2), 1, 0)
        return found

    def _copies(self) -> Ints:
        """Return the greatest number of copies at one place, by distinct sequence numbers or enqueued times there.

        A receiver and a broker may report different numbers of one message, so they count as separate places. An
        arrival without a number counts as another copy, unless the broker recorded all copies.
        """
        is_arrival = self.has("is_arrival")
        if self.is_kept.any():
            is_told = self.is_kept & (count(self.group[self.has("put")], self.size) > 0)
            is_arrival &= ~(is_told[self.group] & (self.of.number == NULL))
        arrival = np.flatnonzero(is_arrival)
        arrivals = count(self.group[arrival], self.size)
        arrival = arrival[arrivals[self.group[arrival]] > 1]
        copies = np.minimum(arrivals, 1)
        if not len(arrival):
            return copies
        places = [context.place + context.in_store for context in self.of.contexts]
        place, _ = self._of_context(list(places))
        namespace = np.array([each.on_secondary for each in self.of.contexts], np.int64)[self.of.context]
        writer, _ = self._of_context([context.writer or "" for context in self.of.contexts])
        number, position = self.of.number[arrival], self.of.sent_in[arrival]
        is_known = number != NULL
        own = np.where(is_known, -1, writer[arrival])  # with the position, in place of the number
        group, at = self.group[arrival], place[arrival]
        when = self._enqueued(arrival, number)
        rows = np.column_stack(
            [group, at, own, np.where(is_known, number, position), namespace[arrival], when]
        )
        distinct = np.unique(rows, axis=0)
        held = combine([(distinct[:, 0], self.size), (distinct[:, 1], len(places) + 1)])
        first = np.flatnonzero(np.diff(held, prepend=-1))
        there = np.diff(np.append(first, len(held)))
        np.maximum.at(copies, distinct[first, 0], there)
        return copies

    def _enqueued(self, arrival: Ints, number: Ints) -> Ints:
        """Return the enqueued time of each arrival if those of its message differ.

        If the time of an arrival is unknown, return its number.
        """
        group, when = self.group[arrival], self.of.enqueued[arrival]
        differs = group_min(group, when, self.size) != group_max(group, when, self.size)
        rows = np.flatnonzero(differs[group])
        found = np.zeros(len(arrival), np.int64)
        if len(rows):
            _, key = np.unique(np.column_stack([group[rows], number[rows]]), axis=0, return_inverse=True)
            known = group_max(key, when[rows], len(rows))[key]
            found[rows] = np.where(when[rows] == NULL, known, when[rows])
        return found


def times_accepted(numbers: Mapping[str, Ints]) -> Ints:
    """Return how often each message was accepted."""
    return numbers["accepted_by_primary"] + numbers["parked"] + numbers["spooled"] - numbers["left_spool"]


def _entity(context: MentionContext) -> Entity:
    return context.primary, (context.path or "").lower()


def _with_paths(mentions: Mentions) -> Mentions:
    """Give each mention without a path those at which a message of its id and primary was parked.

    A message may be dead-lettered without a valid path. If none was parked, its path is "".
    """
    contexts = list(mentions.contexts)
    pathless = np.array([each.path is None for each in contexts] or [False])[mentions.context]
    if not pathless.any():
        return mentions
    parked_at = _paths_of_parked(mentions, mentions.message.filter(pa.array(pathless)).unique())
    known: dict[MentionContext, int] = {}
    rows, codes = [np.flatnonzero(~pathless)], [mentions.context[~pathless]]
    for row in np.flatnonzero(pathless):
        context = contexts[mentions.context[row]]
        paths = parked_at.get((context.primary, mentions.message[row].as_py()), [""])
        found = [known.setdefault(replace(context, path=path), len(contexts) + len(known)) for path in paths]
        rows.append(np.full(len(found), row))
        codes.append(np.array(found))
    return mentions.choose(np.concatenate(rows), contexts + list(known), np.concatenate(codes))


def _with_landed(mentions: Mentions) -> Mentions:
    """Assign the records of the secondary's broker about landed messages to these messages of the primary."""
    landed = _landed(mentions)
    if not landed:
        return mentions
    contexts, context = list(mentions.contexts), mentions.context.copy()
    is_landed = pc.is_in(mentions.message, pa.array({message for message, _ in landed}))
    known: dict[MentionContext, int] = {}
    for row in np.flatnonzero(np.asarray(is_landed)):
        each = contexts[context[row]]
        if each.in_store != "entity":
            continue
        primary = landed.get((mentions.message[row].as_py(), _entity(each)))
        if primary is not None:
            there = replace(
                each, primary=primary, secondary=each.primary, on_secondary=True,
                facts=each.facts & ~(FACTS["taken_in"] | FACTS["handed_on"]),
            )  # fmt: skip
            context[row] = known.setdefault(there, len(contexts) + len(known))
    return replace(mentions, contexts=contexts + list(known), context=context)


def _landed(mentions: Mentions) -> dict[tuple[str, Entity], str | None]:
    """Return the primary for which a message landed, by its id and its entity on the secondary."""
    has_landed = np.array([bool(each.facts & FACTS["landed"]) for each in mentions.contexts])
    found: dict[tuple[str, Entity], str | None] = {}
    for row in np.flatnonzero(has_landed[mentions.context]) if has_landed.any() else ():
        each = mentions.contexts[mentions.context[row]]
        there = each.secondary, (each.path or "").lower()
        found[mentions.message[row].as_py(), there] = each.primary
    return found


def _paths_of_parked(mentions: Mentions, ids: pa.Array) -> dict[tuple[str | None, str], list[str]]:
    """The paths, one for each entity, at which messages of these ids were parked, by primary and id."""
    parked = np.array([bool(each.facts & FACTS["parked_events"]) for each in mentions.contexts])
    wanted = parked[mentions.context] & np.asarray(pc.is_in(mentions.message, ids))
    found: dict[tuple[str | None, str], dict[str, str]] = {}
    for row in np.flatnonzero(wanted):
        context = mentions.contexts[mentions.context[row]]
        if context.path is not None:
            key = (context.primary, mentions.message[row].as_py())
            found.setdefault(key, {}).setdefault(context.path.lower(), context.path)
    return {key: list(paths.values()) for key, paths in found.items()}


def place_in_journal(messages: Messages) -> pa.Array:
    """``sent_in`` as writer, ordinal and position; null if several senders sent the message, or none."""
    is_null = messages.sent_in == NULL
    known = np.where(is_null, 0, messages.sent_in)
    writer = pa.array(messages.senders or [""], pa.string()).take(
        pa.array(np.where(messages.sender == NULL, 0, messages.sender))
    )
    return pa.StructArray.from_arrays(
        [writer, pa.array(known // POSITIONS), pa.array(known % POSITIONS)],
        ["writer", "ordinal", "position"],
        mask=pa.array(messages.sender == NULL),
    )
