"""How were messages laid out in files of layout 1, and how do they become segments?

There a message was a row of 22 columns, its checksum over the text of the first 19, its annotations and body.
"""

from __future__ import annotations

import sqlite3
from typing import cast
from zlib import crc32

from ...amqp.types import decode
from ..entities.stored_message import MessageState, StoredMessage
from .columns import identity_of
from .message_rows import segment_row
from .rows import NUMBER_MASK, ChecksumDiffers, Row
from .segments import runs

_STATES = (MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED)


def to_segments(connection: sqlite3.Connection) -> None:
    """Fill the table of segments from that of messages. Raises ChecksumDiffers, DecodeError."""
    rows = connection.execute("SELECT * FROM message ORDER BY id")
    numbered = ((cast(int, row[0]), _message_of(row)) for row in rows)
    connection.executemany(
        "INSERT INTO segment VALUES (?, ?, ?)", (segment_row(first, run) for first, run in runs(numbered))
    )


def _message_of(row: Row) -> StoredMessage:
    annotations, bare = cast(bytes, row[19]), cast(bytes, row[20])
    facts = repr(row[:19]).encode("utf-8", "surrogatepass")
    if crc32(bare, crc32(annotations, crc32(facts))) != row[21]:
        raise ChecksumDiffers("a message differs from its checksum")
    (
        *numbers, session_id, partition_key, via_partition_key, durable, priority, is_ping, hops, overhead,
        dead_letter_source, message_id, amended,
    ) = row[:19]  # fmt: skip
    row_number, state, enqueued_number, enqueued_at, expires_at, scheduled_for, time_to_live, count = numbers
    return StoredMessage(
        bare=bare,
        annotations=annotations,
        message_id=None if message_id is None else identity_of(cast(bytes, message_id)),
        session_id=cast("str | None", session_id),
        partition_key=_text(cast("bytes | None", partition_key)),
        via_partition_key=_text(cast("bytes | None", via_partition_key)),
        time_to_live=cast("int | None", time_to_live),
        scheduled_for=cast("int | None", scheduled_for),
        durable=None if durable is None else bool(durable),
        priority=cast("int | None", priority),
        is_ping=bool(is_ping),
        overhead=cast(int, overhead),
        sequence_number=cast(int, row_number) & NUMBER_MASK,
        enqueued_sequence_number=cast(int, enqueued_number),
        enqueued_at=cast(int, enqueued_at),
        expires_at=cast("int | None", expires_at),
        state=_STATES[cast(int, state)],
        is_deferred=state == 1,
        delivery_count=cast(int, count),
        dead_letter_source=cast("str | None", dead_letter_source),
        amended=None if amended is None else cast("dict[str, object]", decode(cast(bytes, amended), 0)[0]),
        hops=cast(int, hops),
    )


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else stored.decode("utf-8", "surrogatepass")
