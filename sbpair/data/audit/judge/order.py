"""The order of sessions: which of them arrived in the order sent.

Order is judged by the broker's sequence numbers, not by time, since clocks differ and timestamps can be equal. Only
messages in the journal of a receiver or a broker have a number. A message sent by two senders belongs to two orders and
is not judged. Nor is a message whose send raised and was repeated only after the sender had sent others of the session:
its place is not promised.

A session's messages are spread over the parts of an audit, so the few necessary columns are regrouped by session, if
there are any sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..engine import Packet, TaskResult
from ..read.mentions import POSITIONS
from ..result.interface import schema_of
from ..result.storage import Storage
from .fold import Messages
from .grouping import NULL, Bools, Ints, codes, combine, count, group_max, hashes, integers, nullable, take

SESSION = ("primary", "path_key", "session_id", "sender")
MAX_ROWS = 50  # sessions in the report; the table contains all


class OrderVerdict(Enum):
    """The verdict on one session of one sender."""

    OUT_OF_ORDER = "out of order"  # a message arrived before one that was sent earlier
    WITH_GAPS = "in order, with gaps"  # a message sent before one that arrived has no known arrival
    UNPROVEN = "unproven"  # no journal has the broker's numbers
    IN_ORDER = "in order"


VERDICTS = tuple(OrderVerdict)


@dataclass
class SessionCounts:
    """The findings about the parts of the sessions, added up over all parts."""

    verdicts: Counter[OrderVerdict] = field(default_factory=Counter)
    broken: int = 0  # out of order, although the sender keeps their order
    worst: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: SessionCounts) -> None:
        self.verdicts.update(other.verdicts)
        self.broken += other.broken
        self.worst = sorted(self.worst + other.worst, key=_badness)[:MAX_ROWS]


def _badness(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        VERDICTS.index(OrderVerdict(row["verdict"])), not row["is_promised"], -row["inversions"], -row["gaps"],
        *(row[name] or "" for name in SESSION),
    )  # fmt: skip


def in_sessions(
    messages: Messages, parts: int, more: Mapping[str, pa.Array] | None = None
) -> Iterator[Packet]:
    """Yield the messages of sessions that one sender sent, by session; ``more`` are further columns of ``messages``."""
    rows = np.flatnonzero(np.asarray(pc.is_valid(messages.session)) & (messages.sent_in != NULL))
    if not len(rows):
        return
    numbers, entity = messages.numbers, messages.entity[rows]
    has_landed = numbers["landed"][rows] > 0  # numbered by another namespace
    number = np.where(has_landed, NULL, numbers["sequence_number"][rows])
    table = pa.record_batch(
        {
            "primary": take(pa.array([primary for primary, _ in messages.entities], pa.string()), entity),
            "path_key": take(pa.array([path for _, path in messages.entities]), entity),
            "session_id": take(messages.session, rows),
            "sender": take(pa.array(messages.senders), messages.sender[rows]),
            "message_id": take(messages.message, rows),
            "sent_in": messages.sent_in[rows],
            "raised_in": nullable(messages.raised_in[rows]),
            "number": nullable(number),
            "has_arrived": has_landed | (number != NULL) | (numbers["received"][rows] > 0),
            "is_parked": numbers["parked"][rows] > 0,
            "is_promised": messages.is_promised[rows],
            **{name: take(column, rows) for name, column in (more or {}).items()},
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
    """The work on a part of the sessions: writes a part of the table ``order``; returns SessionCounts."""

    out: Storage

    def __call__(self, part: int, packets: Iterator[bytes]) -> Iterator[TaskResult | Packet]:
        tables = []
        for packet in packets:
            with pa.ipc.open_stream(packet) as reader:
                tables.append(reader.read_all())
        found = order(pa.concat_tables(tables).combine_chunks().to_batches()[0])
        self.out.write_table("order", found, part)
        yield TaskResult(sum_counts(found))


def sum_counts(table: pa.Table) -> SessionCounts:
    """The numbers of a part of the table ``order``."""
    verdict = np.array([VERDICTS.index(OrderVerdict(each)) for each in table.column("verdict").to_pylist()])
    is_broken = np.asarray(table.column("is_promised")) & (
        verdict == VERDICTS.index(OrderVerdict.OUT_OF_ORDER)
    )
    badness = np.lexsort((-integers(table.column("inversions").combine_chunks()), verdict))[:MAX_ROWS]
    worst = sorted(table.take(pa.array(badness)).to_pylist(), key=_badness)
    counts = Counter({VERDICTS[code]: int(n) for code, n in enumerate(np.bincount(verdict)) if n})
    return SessionCounts(counts, int(is_broken.sum()), worst)


def order(rows: pa.RecordBatch) -> pa.Table:
    """One row per session and sender, with the columns of :data:`.interface.ORDER`.

    An inversion is a message whose number is lower than that of a message sent before it. The first of a session is
    ``overtaking``, and ``overtaken`` the message with the highest number before it. A gap is a message without a known
    arrival, sent before one that arrived.
    """
    group = combine([codes(rows.column(name)) for name in SESSION])
    rows = rows.take(pa.array(np.lexsort((integers(rows.column("sent_in")), group))))
    group = np.sort(group)
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    size = len(first)
    has_arrived = np.asarray(rows.column("has_arrived"))
    last = group_max(group[has_arrived], np.flatnonzero(has_arrived), size)
    is_gap = ~has_arrived & (np.arange(len(group)) < last[group])
    is_judged = (integers(rows.column("number")) != NULL) & ~_is_misplaced(rows, group)
    judged = np.flatnonzero(is_judged)
    is_inverted, highest = _inversions(group[judged], integers(rows.column("number"))[judged])
    inverted = judged[is_inverted]
    inversions, gaps = count(group[inverted], size), count(group[is_gap], size)
    some, index = np.unique(group[inverted], return_index=True)
    overtaking, overtaken = np.full(size, NULL), np.full(size, NULL)
    overtaking[some], overtaken[some] = inverted[index], judged[highest[is_inverted][index]]
    is_promised = count(group[np.asarray(rows.column("is_promised"))], size) > 0
    names, ids = rows.select(SESSION).take(pa.array(first)), rows.column("message_id")
    numbered = count(group[judged], size)
    verdict = np.select([inversions > 0, gaps > 0, numbered == 0], [0, 1, 2], 3)
    return pa.table(
        [
            *names.columns,
            np.bincount(group).astype(np.int64),
            inversions,
            gaps,
            count(group[np.asarray(rows.column("is_parked"))], size),
            inversions == 0,
            is_promised,
            ids.take(nullable(overtaken)),
            ids.take(nullable(overtaking)),
            pa.array([each.value for each in VERDICTS]).take(pa.array(verdict)),
        ],
        schema=schema_of("order").remove_metadata(),
    )


def _is_misplaced(rows: pa.RecordBatch, group: Ints) -> Bools:
    """Return whether other messages of the session were sent between a send that raised and its repetition.

    ``rows`` are by group, then by place.
    """
    event, raised = (integers(rows.column(name)) for name in ("sent_in", "raised_in"))
    first = np.where(raised == NULL, event, np.minimum(raised, event)) // POSITIONS
    event = event // POSITIONS
    _, rank = np.unique(np.concatenate([event, first]), return_inverse=True)
    offset = group * (int(rank.max()) + 1)
    own, began = rank[: len(event)] + offset, rank[len(event) :] + offset
    found: Bools = np.searchsorted(own, began) < np.searchsorted(own, own)
    return found


def _inversions(group: Ints, number: Ints) -> tuple[Bools, Ints]:
    """Compare each row with the earlier rows of its group; the rows are sorted by group, then by place.

    Return whether one of them has a higher number, and the index of the row with the highest number so far.
    """
    if not len(group):
        return np.zeros(0, bool), np.zeros(0, np.int64)
    _, rank = np.unique(number, return_inverse=True)  # small enough to add a group's own offset
    level = group * (int(rank.max()) + 1) + rank
    greatest = np.maximum.accumulate(level)
    highest = np.maximum.accumulate(np.where(level == greatest, np.arange(len(level)), 0))
    return level < greatest, highest
