"""The order of sessions from run to run: of each session, the message with the highest number is kept.

A message of a later run that was sent after it must have a higher number, and one that was sent before it a lower one:
so this message alone shows whether a session is out of order, however long it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..fold import Messages
from ..grouping import Ints, codes, combined, integers
from ..order import SESSION, OrderVerdict, SessionCounts, in_sessions, order

MEMORY = 31  # days after which a session without a message is forgotten
DAY = "day"
Key = tuple[object, ...]


def session_rows(messages: Messages) -> pa.Table | None:
    """The messages of sessions that one sender sent; None without any."""
    tables = []
    for packet in in_sessions(messages, 1):
        with pa.ipc.open_stream(packet.content) as reader:
            tables.append(reader.read_all())
    return pa.concat_tables(tables) if tables else None


def judged(rows: pa.Table, highest: pa.Table | None, day: int) -> tuple[list[dict[str, Any]], pa.Table]:
    """The sessions to be kept in order that are not, and the highest of each session after ``rows`` of ``day``."""
    rows = rows.append_column(DAY, pa.array(np.full(rows.num_rows, day)))
    if highest is not None:
        recent = np.asarray(highest.column(DAY)) >= day - MEMORY
        rows = pa.concat_tables([highest.filter(pa.array(recent)), rows])
    batch = rows.combine_chunks().to_batches()[0]
    found = order(batch.select([name for name in batch.schema.names if name != DAY]))
    broken = [each for each in found.to_pylist() if each["is_promised"] and each["inversions"]]
    return broken, _highest(batch)


def _highest(batch: pa.RecordBatch) -> pa.Table:
    group: Ints = combined([codes(batch.column(name)) for name in SESSION])
    number = integers(batch.column("number"))
    by_number = np.lexsort((number, group))
    last = np.append(np.flatnonzero(np.diff(group[by_number])), len(group) - 1)
    chosen = by_number[last]
    kinds, inverse = np.unique(group, return_inverse=True)
    is_promised, newest = np.zeros(len(kinds), bool), np.zeros(len(kinds), np.int64)
    np.logical_or.at(is_promised, inverse, np.asarray(batch.column("is_promised")))
    np.maximum.at(newest, inverse, np.asarray(batch.column(DAY)))
    table = pa.Table.from_batches([batch.take(pa.array(chosen))])
    for name, values in (("is_promised", is_promised), (DAY, newest)):
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, pa.array(values))
    return table


def key_of(row: dict[str, Any]) -> Key:
    return tuple(row[name] for name in SESSION)


def counts(broken: Sequence[dict[str, Any]]) -> SessionCounts:
    """The sessions that are out of order, for a summary."""
    found = SessionCounts()
    found.verdicts[OrderVerdict.OUT_OF_ORDER] = len(broken)
    other = SessionCounts(broken=len(broken), worst=list(broken))
    found.add(other)
    return found
