"""The order of sessions: which of them were received in the order sent.

Order is judged by the broker's sequence numbers, not by time, since clocks differ and timestamps can be equal. Only
messages in the journal of a receiver or a broker have a number. A message sent by two senders belongs to two orders
and is not judged.

A session's messages are anywhere among the parts of an audit, so the few columns needed travel once more, by session;
without sessions nothing does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .engine import TaskResult, Packet
from .fold import Messages
from .grouping import NULL, codes, combined, hashes, integers
from .storage import Storage
from .tables import ORDER

SESSION = ("primary", "path_key", "session_id", "sender")


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """The number of sessions of one sender each, and of those whose order was not kept."""

    sessions: int
    broken: int


def in_sessions(messages: Messages, parts: int) -> Iterator[Packet]:
    """The numbered messages of sessions, by session."""
    is_judged = np.asarray(pc.is_valid(messages.session)) & (messages.numbers["sequence_number"] != NULL)
    rows = np.flatnonzero(is_judged & (messages.sent_in != NULL))
    if not len(rows):
        return
    entity = messages.entity[rows]
    table = pa.record_batch(
        {
            "primary": pa.array([primary for primary, _ in messages.entities], pa.string()).take(
                pa.array(entity)
            ),
            "path_key": pa.array([path for _, path in messages.entities]).take(pa.array(entity)),
            "session_id": messages.session.take(pa.array(rows)),
            "sender": pa.array(messages.senders).take(pa.array(messages.sender[rows])),
            "sent_in": messages.sent_in[rows],
            "number": messages.numbers["sequence_number"][rows],
            "is_parked": messages.numbers["parked"][rows] > 0,
        }
    )
    part = (hashes(table.column("session_id")) % np.uint64(parts)).astype(np.int64)
    for each in np.unique(part):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_batch(table.filter(pa.array(part == each)))
        yield Packet(int(each), sink.getvalue().to_pybytes())


@dataclass(frozen=True, slots=True)
class Order:
    """The work on a part of the sessions: writes a part of the table ``order``; answers with SessionCounts."""

    out: Storage

    def __call__(self, part: int, packets: Iterator[bytes]) -> Iterator[TaskResult | Packet]:
        tables = []
        for packet in packets:
            with pa.ipc.open_stream(packet) as reader:
                tables.append(reader.read_all())
        found = order(pa.concat_tables(tables).combine_chunks().to_batches()[0])
        self.out.write_table("order", found, part)
        broken = pc.sum(pc.invert(found.column("is_kept"))).as_py()
        yield TaskResult(SessionCounts(found.num_rows, broken))


def order(rows: pa.RecordBatch) -> pa.Table:
    """One row per session and sender: ``messages, inversions, parked, is_kept``.

    An inversion is a message whose number is lower than that of a message sent before it.
    """
    group = combined([codes(rows.column(name)) for name in SESSION])
    place, number = integers(rows.column("sent_in")), integers(rows.column("number"))
    sequence = np.lexsort((place, group))
    _, first, group = np.unique(group[sequence], return_index=True, return_inverse=True)
    _, rank = np.unique(number[sequence], return_inverse=True)  # small enough to add a group's own offset
    level = group * (int(rank.max()) + 1) + rank
    is_inverted = np.append(False, level[1:] < np.maximum.accumulate(level)[:-1])
    is_parked = np.asarray(rows.column("is_parked"))[sequence]
    inversions = np.bincount(group, weights=is_inverted).astype(np.int64)
    names = rows.select(SESSION).take(pa.array(sequence[first]))
    return pa.table(
        [
            *names.columns,
            np.bincount(group).astype(np.int64),
            inversions,
            np.bincount(group, weights=is_parked).astype(np.int64),
            inversions == 0,
        ],
        schema=ORDER,
    )
