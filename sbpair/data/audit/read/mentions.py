"""Mentions: a mention is a message named in an event. This module finds and classifies them.

Events differ in few values: writer, pair, entity, kind of event and the like. Rows with the same values have the same
:class:`Kind`, and only kinds are classified, by the conditions of :data:`COUNTS` and :data:`CLASSES`: SQL that runs in
SQLite, and in Spark for the live queries. A mention is then a few numbers and the message's id.

A message is identified by primary, entity (both compared without case) and message id, since two entities may use the
same ids. A topic's subscriptions and an entity's dead-letter queue are *places* of the entity where a copy may arrive;
one copy at each of two subscriptions counts as one copy. A message that landed on the secondary is the same message.

The journal of a broker is per namespace. Its events on a backlog queue belong to the primary in the queue's name: their
``in_store`` is ``'backlog'``; it is ``'entity'`` for events on entities, and null for other journals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbpair.pair.ground.recorded import NO_CHECKSUM

from ..judge.grouping import NULL, Bools, Ints, codes, combine, integers, nullable
from ..judge.sql import first_row

EXPIRED = "TTLExpiredException"  # the dead-letter reason of an expired message
MANY = ("send_accepted", "message_parked", "message_spooled", "spool_replayed", "send_raised",
        "messages_forwarded", "messages_in_doubt", "messages_received", "messages_stored", "messages_removed",
        "duplicates_dropped")  # fmt: skip
SINGLE = ("message_set_aside", "spooled_message_refused")
BACKLOGS = "/x-servicebus-transfer/"  # in the name of a backlog queue, after the primary
DEAD_LETTERS = "/$deadletterqueue"
SUBSCRIPTIONS, SUB_QUEUES = "/subscriptions", (DEAD_LETTERS, "/$transfer")
IS_BACKLOG = "role = 'broker' AND backlog_queue <> ''"
IN_STORE = """CASE WHEN role <> 'broker' THEN NULL WHEN backlog_queue = '' THEN 'entity'
    WHEN backlog IS NOT NULL THEN 'backlog' ELSE 'dead letters of a backlog' END"""
HERE, PARKED_HERE = "in_store = 'entity'", "in_store = 'backlog'"
IS_ALIVE = f"place NOT LIKE '%{DEAD_LETTERS}'"
NO_NUMBER = 0  # in a receiver's record, for a message without a sequence number

# The counts of a message, and the mentions that each counts.
COUNTS: Mapping[str, str] = {
    "accepted_by_primary": "(event = 'send_accepted' AND stored_in = 'primary')"
    " OR (event = 'spool_replayed' AND backlog IS NULL)",
    "accepted_by_backlog": "event = 'send_accepted' AND stored_in = 'backlog'",
    "parked_events": "event = 'message_parked'",
    "accepted_by_spool": "event = 'send_accepted' AND stored_in = 'spool'",
    "spooled_events": "event = 'message_spooled'",
    "left_spool": "event = 'spool_replayed'",
    "refused_in_spool": "event = 'spooled_message_refused'",
    "raised": "event = 'send_raised'",
    "raised_ambiguously": "event = 'send_raised' AND ambiguous",
    "stored_ambiguously": "event IN ('message_parked', 'message_spooled') AND ambiguous",
    "accepted_ambiguously": "event = 'send_accepted' AND stored_in <> 'primary' AND ambiguous",
    "accepted_by_primary_ambiguously": "event = 'send_accepted' AND stored_in = 'primary' AND ambiguous",
    "forwarded": "event = 'messages_forwarded' AND coalesce(side, '') <> 'secondary'",
    "landed": "event = 'messages_forwarded' AND side = 'secondary'",
    "in_doubt": "event = 'messages_in_doubt'",
    "set_aside": f"event = 'message_set_aside' AND reason <> '{EXPIRED}'"
    f" OR {PARKED_HERE} AND how = 'dead-lettered' AND reason <> '{EXPIRED}'",
    "expired": f"event = 'message_set_aside' AND reason = '{EXPIRED}'"
    f" OR {PARKED_HERE} AND (how = 'expired' OR how = 'dead-lettered' AND reason = '{EXPIRED}')",
    "received": "event = 'messages_received'",
    # from the journal of a broker
    "stored": f"{HERE} AND event IN ('messages_stored', 'duplicates_dropped')",
    "taken_in": f"{HERE} AND place = ''"
    " AND (event = 'messages_stored' AND how IN ('sent', 'scheduled') OR event = 'duplicates_dropped')",
    "dropped": f"{HERE} AND event = 'duplicates_dropped'",
    "scheduled": f"{HERE} AND event = 'messages_stored' AND how = 'scheduled'",
    "handed_on": f"{HERE} AND event = 'messages_stored' AND how = 'forwarded'",
    "completed": f"{HERE} AND event = 'messages_removed' AND how IN ('completed', 'received')",
    "buried": f"{HERE} AND event = 'messages_removed' AND how = 'dead-lettered' AND reason <> '{EXPIRED}'",
    "expired_there": f"{HERE} AND event = 'messages_removed'"
    f" AND (how = 'expired' OR how = 'dead-lettered' AND reason = '{EXPIRED}')",
    "deleted": "event = 'messages_removed' AND how = 'deleted'",
    "cancelled": "event = 'messages_removed' AND how = 'cancelled'",
    "backlogged": f"{PARKED_HERE} AND event IN ('messages_stored', 'duplicates_dropped')",
    # changes of the number of copies in a broker's store
    "put": f"{HERE} AND {IS_ALIVE} AND event = 'messages_stored'",
    "taken": f"{HERE} AND {IS_ALIVE} AND event = 'messages_removed'",
    "put_in_backlog": f"{PARKED_HERE} AND event = 'messages_stored'",
    "taken_from_backlog": f"{PARKED_HERE} AND event = 'messages_removed'",
}
# Further classes of mentions, which are not counted.
CLASSES: Mapping[str, str] = {
    "is_sent": "event IN ('send_accepted', 'message_parked', 'message_spooled')",
    "is_parked": "event = 'message_parked' OR (event = 'send_accepted' AND stored_in = 'backlog')",
    "is_in_store_of_backlog": PARKED_HERE,
    # whose session, if any, has its order kept by the sender
    "is_kept_in_order": "event IN ('message_parked', 'message_spooled')",
    # copies that left a destination, because they reached somebody, or another entity
    "is_done": f"{HERE} AND event = 'messages_removed'"
    f" AND (how IN ('completed', 'received') OR {IS_ALIVE} AND how IN ('forwarded', 'published'))",
    # mentions with a valid sequence number of the entity
    "is_arrival": f"event = 'messages_received' OR {HERE} AND event = 'messages_stored'",
}
FACTS = {name: 1 << bit for bit, name in enumerate((*COUNTS, *CLASSES))}
MILLIS = 1000  # microseconds per millisecond
POSITIONS = 2**20  # more than the messages of an event, so that ordinal and position fit into one number
KINDS_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Kind:
    """The values of an event on which the classification of its mentions depends."""

    writer: str | None
    role: str | None
    primary: str | None  # the namespaces as labelled in the journal
    secondary: str | None
    event: str | None
    path: str | None
    stored_in: str | None
    backlog: int | None
    backlog_queue: str | None
    ambiguous: bool | None
    how: str | None
    side: str | None
    is_expiry: bool | None  # whether the reason is EXPIRED


@dataclass(frozen=True, slots=True)
class MentionContext:
    """Values shared by the mentions of one kind; ``facts`` has one bit for each of :data:`FACTS`, set if it is true."""

    primary: str | None
    secondary: str | None
    path: str | None
    place: str
    in_store: str
    writer: str | None
    backlog: int | None
    facts: int
    file: str = ""  # of the journal, by survey.key_of
    on_secondary: bool = False  # whether it concerns a message that landed


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a journal, and the kind of each as an index into ``kinds``."""

    rows: pa.RecordBatch
    kinds: list[Kind]
    kind: Ints

    def column(self, name: str) -> pa.Array:
        return self.rows.column(name)


@dataclass(frozen=True, slots=True)
class Mentions:
    """Mentions in numpy; ``context`` is an index into ``contexts``, and NULL stands for null."""

    contexts: list[MentionContext]
    context: Ints
    at: Ints  # microseconds since the epoch, by the writer's clock
    sent_in: Ints  # the place in the writer's journal: ordinal * POSITIONS + index in the event
    number: Ints  # the broker's sequence number
    enqueued: Ints  # microseconds since the epoch, by the broker's clock, from a receiver's record
    checksum: Ints  # of the body
    message: pa.Array
    session: pa.Array | None  # None if no mention has one

    def choose(self, rows: Ints, contexts: list[MentionContext], context: Ints) -> Mentions:
        """Return these rows, with ``context`` as an index into ``contexts``."""
        index = pa.array(rows)
        return Mentions(
            contexts,
            context,
            self.at[rows],
            self.sent_in[rows],
            self.number[rows],
            self.enqueued[rows],
            self.checksum[rows],
            self.message.take(index),
            None if self.session is None else self.session.take(index),
        )


def block(rows: pa.RecordBatch) -> Block:
    """Find the kinds of ``rows``."""
    pair = rows.column("pair")
    columns = {name: rows.column(name) for name in
               ("writer", "role", "event", "path", "stored_in", "backlog", "backlog_queue", "ambiguous", "how", "side")
               } | {"primary": pc.struct_field(pair, "primary"), "secondary": pc.struct_field(pair, "secondary"),
                    "is_expiry": pc.equal(rows.column("reason"), EXPIRED)}  # fmt: skip
    used = [field.name for field in fields(Kind)]
    code = combine([codes(columns[name]) for name in used])
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    values = {name: columns[name].take(pa.array(first)).to_pylist() for name in used}
    kinds = [Kind(*(values[name][index] for name in used)) for index in range(len(first))]
    return Block(rows, kinds, kind.astype(np.int64))


def mentions(block: Block, file: str = "") -> Mentions:
    """Return the messages named in the events of ``block``, which are in the ``file`` with this key."""
    contexts = [replace(context(kind), file=file) for kind in block.kinds]
    many = _where(block, MANY)
    lists = block.column("message_ids")
    parts = [_of_lists(block, many, lists)]
    single = np.flatnonzero(_where(block, SINGLE))
    if len(single):
        parts.append(
            (single, np.zeros(len(single), np.int64), block.column("message_id").take(pa.array(single)))
        )
    row = np.concatenate([each[0] for each in parts])
    position = np.concatenate([each[1] for each in parts])
    message = pa.concat_arrays([each[2] for each in parts])
    named = np.asarray(pc.fill_null(pc.not_equal(message, ""), False))
    if not named.all():
        row, position, message = row[named], position[named], message.filter(pa.array(named))
    facts = np.array([each.facts for each in contexts] or [0], np.int64)
    which = block.kind[row]
    number = _element(block.column("sequence_numbers"), row, position)
    number[(number == NO_NUMBER) | ((facts[which] & FACTS["is_arrival"]) == 0)] = NULL
    enqueued = _element(block.column("enqueued"), row, position)
    enqueued = np.where((enqueued == NULL) | (enqueued == NO_NUMBER), NULL, enqueued * MILLIS)
    checksums = block.column("checksums")
    checksum = _element(checksums, row, position)
    is_parallel = integers(pc.list_value_length(checksums)) == integers(pc.list_value_length(lists))
    checksum[(checksum == NO_CHECKSUM) | ~is_parallel[row]] = NULL
    ordinal = integers(block.column("ordinal"))[row]
    sent_in = np.where(ordinal == NULL, NULL, ordinal * POSITIONS + position)
    session = _sessions(block, row, position)
    at = integers(block.column("at"))[row]
    return Mentions(contexts, which, at, sent_in, number, enqueued, checksum, message, session)


def _where(block: Block, events: tuple[str, ...]) -> Bools:
    """The rows with one of these events."""
    return np.array([kind.event in events for kind in block.kinds] or [False], bool)[block.kind]


def _of_lists(block: Block, wanted: Bools, lists: pa.ListArray) -> tuple[Ints, Ints, pa.Array]:
    """The row, the position and the id of each message in ``message_ids`` of the ``wanted`` rows."""
    values, starts = lists.flatten(), _starts(lists)
    row = np.repeat(np.arange(len(lists)), np.diff(starts))
    position = np.arange(len(row)) - starts[row]
    if wanted.all():
        return row, position, values
    keep = wanted[row]
    return row[keep], position[keep], values.filter(pa.array(keep))


def _starts(lists: pa.ListArray) -> Ints:
    """The offset of each list's elements in ``lists.flatten()``, and the end of the last."""
    sizes = integers(pc.list_value_length(lists).fill_null(0))
    return np.concatenate([[0], np.cumsum(sizes)])


def _indices(lists: pa.ListArray, row: Ints, position: Ints) -> tuple[Ints, Bools]:
    """The index in ``lists.flatten()`` of the element at ``position`` of ``row``, and whether there is one."""
    starts = _starts(lists)
    index = starts[row] + position
    return index, index < starts[row + 1]


def _element(lists: pa.ListArray, row: Ints, position: Ints) -> Ints:
    found = np.full(len(row), NULL)
    if lists.null_count < len(lists):
        index, exists = _indices(lists, row, position)
        found[exists] = integers(lists.flatten())[index[exists]]
    return found


def _sessions(block: Block, row: Ints, position: Ints) -> pa.Array | None:
    """The session of each mention: its own in ``session_ids``, or that of the event; None if no mention has one."""
    lists, one = block.column("session_ids"), block.column("session_id")
    if lists.null_count == len(lists) and one.null_count == len(one):
        return None
    index, exists = _indices(lists, row, position)
    own = lists.flatten().take(nullable(np.where(exists, index, NULL)))
    found = pc.coalesce(own, one.take(pa.array(row)))
    return found if pc.any(pc.not_equal(found, "")).as_py() else None


@lru_cache(KINDS_REMEMBERED)
def context(kind: Kind) -> MentionContext:
    """Classify a kind, with primary, entity and place normalised."""
    is_backlog = kind.role == "broker" and bool(kind.backlog_queue)
    primary, secondary = kind.primary, kind.secondary
    if is_backlog:
        primary, secondary = (kind.backlog_queue or "").rpartition(BACKLOGS)[0], kind.primary
    path, place = kind.path, ""
    if path and "/" in path:
        place, path = _place(path)
    in_store, facts = _classify(kind, place)
    return MentionContext(
        _lower(primary), _lower(secondary), path, place, in_store, kind.writer, kind.backlog, facts,
        on_secondary=kind.role == "receiver" and kind.side == "secondary",
    )  # fmt: skip


def _place(path: str) -> tuple[str, str]:
    """Return the place in lower case, and the path without it: a subscription, a dead-letter queue, or both."""
    entity = path
    for sub_queue in SUB_QUEUES:
        if entity.lower().endswith(sub_queue):
            entity = entity[: -len(sub_queue)]
    topic, _, subscription = entity.rpartition("/")
    if subscription and topic.lower().endswith(SUBSCRIPTIONS):
        entity = topic[: -len(SUBSCRIPTIONS)]
    return path[len(entity) :].lower(), entity


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _classify(kind: Kind, place: str) -> tuple[str, int]:
    """Return ``in_store``, "" for null, and the facts of a kind."""
    given: dict[str, str | int | None] = {
        "role": kind.role, "event": kind.event, "stored_in": kind.stored_in, "backlog": kind.backlog,
        "backlog_queue": kind.backlog_queue, "ambiguous": kind.ambiguous, "how": kind.how, "side": kind.side,
        "place": place,
        "reason": None if kind.is_expiry is None else EXPIRED if kind.is_expiry else "another",
    }  # fmt: skip
    in_store, facts = first_row(_QUERY, given)
    return in_store or "", facts


def _query() -> str:
    columns = ", ".join(f":{name} AS {name}" for name in ASKED)
    bits = " | ".join(
        f"CASE WHEN {condition} THEN {FACTS[name]} ELSE 0 END"
        for name, condition in (*COUNTS.items(), *CLASSES.items())
    )
    return f"SELECT in_store, {bits} FROM (SELECT *, {IN_STORE} AS in_store FROM (SELECT {columns}))"  # noqa: S608


ASKED = (
    "role",
    "event",
    "stored_in",
    "backlog",
    "backlog_queue",
    "ambiguous",
    "how",
    "side",
    "place",
    "reason",
)
_QUERY = _query()
