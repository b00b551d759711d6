"""The order of sessions from run to run, by the day on which a session begins.

    messages of sessions that this run mentions --.
    other messages of the same sessions         --+--> order/day=2026-11-25/part-00000.parquet

A session stays with its first day, so a run reads and writes the days of those that go on, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..judge.fold import Messages
from ..judge.grouping import Ints, hashes
from ..judge.order import SESSION, SessionCounts, in_sessions, order, sum_counts
from .kept import Hashes, StateFiles

DAY = "day"


@dataclass(frozen=True, slots=True)
class OrderOfDay:
    """The table ``order`` of a day, and its counts."""

    table: pa.Table
    counts: SessionCounts


def session_rows(messages: Messages, days: Ints) -> pa.Table | None:
    """Return the messages of sessions that one sender sent, with their ``days``; None if there are none."""
    tables = []
    for packet in in_sessions(messages, 1, {DAY: pa.array(days)}):
        with pa.ipc.open_stream(packet.content) as reader:
            tables.append(reader.read_all())
    return pa.concat_tables(tables) if tables else None


def replace_messages(
    kept: StateFiles, known: set[int], rows: pa.Table | None, late: Hashes
) -> dict[int, OrderOfDay | None]:
    """Replace the rows of the messages ``late`` by ``rows``; return the orders of the changed days.

    ``known`` are the days with sessions; the result is None for those of them that have no sessions any more.
    """
    sessions = _sessions(rows)
    homes = np.full(len(sessions), -1)
    touched = set()
    for day in sorted(known):
        is_here = kept.are_sessions_of(day, sessions)
        homes[is_here] = day
        if is_here.any() or kept.has_message_of_session(day, late):
            touched.add(day)
    homes = _settle(homes, sessions, rows)
    found: dict[int, OrderOfDay | None] = {}
    for day in sorted(touched | set(homes.tolist())):
        before = kept.session_rows(day) if day in known else None
        parts = [] if before is None else [before.filter(pa.array(~np.isin(_ids(before), late)))]
        parts += [] if rows is None else [rows.filter(pa.array(homes == day))]
        now = pa.concat_tables(parts)
        found[day] = order_of = _order_of(now) if now.num_rows else None
        if order_of is None:
            kept.forget_sessions(day)
        else:
            kept.save_session_rows(day, now, np.unique(_sessions(now)), np.unique(_ids(now)))
            kept.save_session_counts(day, order_of.counts)
    return found


def _order_of(rows: pa.Table) -> OrderOfDay:
    table = order(rows.drop_columns([DAY]).combine_chunks().to_batches()[0])
    return OrderOfDay(table, sum_counts(table))


def _settle(homes: Ints, sessions: Hashes, rows: pa.Table | None) -> Ints:
    """Return ``homes``, with the first day of each session filled in where it is missing."""
    if rows is None:
        return homes
    _, group = np.unique(sessions, return_inverse=True)
    first = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, group, np.asarray(rows.column(DAY)))
    found: Ints = np.where(homes < 0, first[group], homes)
    return found


def _sessions(rows: pa.Table | None) -> Hashes:
    """Return, for each row, a number that identifies its session and sender."""
    if rows is None:
        return np.zeros(0, np.uint64)
    texts = [pc.fill_null(rows.column(name), "") for name in SESSION]
    return hashes(pc.binary_join_element_wise(*texts, "\0").combine_chunks())


def _ids(rows: pa.Table) -> Hashes:
    return hashes(rows.column("message_id").combine_chunks())
