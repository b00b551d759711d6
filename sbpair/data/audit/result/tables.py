"""The tables of an audit as Arrow tables: messages, duplicates, missing, order, waits and writers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ..judge.evidence import Evidence
from ..judge.fold import Messages, place_in_journal
from ..judge.grouping import NULL, Bools, Ints, nullable
from ..judge.killed import count_explained, find_unrecorded, times_forwarded_again
from ..judge.verdict import VERDICTS, Judgement
from ..judge.waits import Waits
from ..read.writers import WriterFacts
from .interface import TEXT, TEXTS, TIME, WHOLE, YES, schema_of

COUNTS_FIRST = (
    "accepted_by_primary", "left_spool", "refused_in_spool", "raised", "forwarded", "set_aside", "expired",
    "received", "stored", "handed_on", "completed", "buried", "expired_there", "deleted", "backlogged", "backlog",
)  # fmt: skip
TIMES = ("sent_at", "parked_at", "last_parked_at", "set_aside_at", "home_at", "forwarded_at", "received_at")
COUNTS_LAST = (
    "shortfall", "undelivered", "dropped", "cancelled", "copies", "parked", "spooled", "held", "held_in_backlog",
    "sequence_number", "ambiguities", "landed",
)  # fmt: skip
DUPLICATES = (
    "primary", "path", "message_id", "copies", "ambiguities", "parked", "forwarded", "again", "explained",
    "is_explained", "killed",
)  # fmt: skip
MISSING = ("primary", "path", "message_id", "session_id", "sent_at")


def messages_table(messages: Messages, found: Judgement) -> pa.Table:
    """One row per message: its counts, times, session, place in the sender's journal and verdict."""
    numbers = messages.numbers
    entities = messages.entities
    columns: dict[str, pa.Array] = {
        "secondary": _text(messages.secondary, messages.secondaries),
        "primary": _text(messages.entity, [primary for primary, _ in entities]),
        "path_key": _text(messages.entity, [path for _, path in entities]),
        "message_id": messages.message,
        **{name: nullable(numbers[name]) for name in COUNTS_FIRST},
        "sent_in": place_in_journal(messages),
        **{name: nullable(numbers[name], TIME) for name in TIMES},
        **{name: nullable(numbers[name]) for name in COUNTS_LAST},
        "session_id": messages.session,
        "path": _text(messages.path, messages.paths),
        "verdict": _text(found.verdict, [verdict.value for verdict in VERDICTS]),
        "reason": _text(found.reason, found.reasons),
        "place": _text(found.place, found.places),
    }
    return pa.table(columns)


def duplicates_table(table: pa.Table, messages: Messages, evidence: Evidence) -> pa.Table:
    """The messages with two or more copies; at most ``explained`` extra copies have an explanation.

    ``table`` are the rows of ``messages``. ``killed`` are the syphons whose end explains copies. Copies of a drill's
    canaries need no explanation.
    """
    numbers = messages.numbers
    more = np.flatnonzero(numbers["copies"] > 1)
    lost = find_unrecorded(messages, evidence)
    # a syphon forwards a message again only if it could not remove it, and counts these
    may_repeat = np.array([evidence.locks_lost(primary) != 0 for primary, _ in messages.entities] or [True])
    again = np.where(may_repeat[messages.entity], times_forwarded_again(numbers, lost.count), 0)
    reasons = count_explained(numbers, again)[more]
    is_explained = (numbers["copies"][more] - 1 <= reasons) | (numbers["canary"][more] > 0)
    killed = [lost.writers.get(row, []) for row in more.tolist()]
    whole = choose(table.select(DUPLICATES[:-4]), numbers["copies"] > 1)
    for name, column in (
        ("again", pa.array(again[more], WHOLE)),
        ("explained", pa.array(reasons, WHOLE)),
        ("is_explained", pa.array(is_explained, YES)),
        ("killed", pa.array(killed, TEXTS)),
    ):
        whole = whole.append_column(name, column)
    return whole


def choose(table: pa.Table, rows: Bools) -> pa.Table:
    """Return the rows, with texts in place of indices."""
    found = table.filter(pa.array(rows))
    plain = [
        pa.field(field.name, TEXT) if pa.types.is_dictionary(field.type) else field for field in found.schema
    ]
    return found.cast(pa.schema(plain))


def writers_table(writers: Iterable[WriterFacts]) -> pa.Table:
    """One row per writer, with the completeness of its journal."""
    rows = [
        {
            "writer": each.writer, "role": each.role, "primary": each.primary, "first_at": each.first_at,
            "last_at": each.last_at, "records": each.records, "missing": each.missing, "surplus": each.surplus,
            "lost": each.lost, "unreadable": each.unreadable, "sends": each.sends, "has_end": each.has_end,
            "reason": each.reason, "is_whole": each.is_whole,
        }
        for each in writers
    ]  # fmt: skip
    schema = schema_of("writers").remove_metadata()
    for index in (3, 4):
        schema = schema.set(index, pa.field(schema.names[index], WHOLE))
    table = pa.Table.from_pylist(rows, schema=schema)
    for index in (3, 4):
        table = table.set_column(index, schema.names[index], table.column(index).cast(TIME))
    return table


def waits_table(found: Mapping[tuple[str | None, int | None], Waits]) -> pa.Table:
    """One row per primary and backlog queue."""
    rows = [
        {"primary": primary, "backlog": backlog, "messages": each.messages, **each.quantiles()}
        for (primary, backlog), each in found.items()
    ]
    return pa.Table.from_pylist(rows, schema=schema_of("waits").remove_metadata())


def _text(index: Ints, texts: Sequence[str | None]) -> pa.DictionaryArray:
    """The texts at ``index``, where NULL and None are null."""
    nothing = np.array([text is None for text in texts] + [True])
    is_null = nothing[np.where(index == NULL, len(texts), index)]
    known = pa.array(np.where(is_null, 0, index).astype(np.int32), mask=is_null)
    return pa.DictionaryArray.from_arrays(known, pa.array([text or "" for text in texts] or [""], TEXT))
