"""A file as it was in layout 1: the statements and rows with which messages were written then."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from sbpair.amqp.types import encode
from sbpair.broker.entities import StoredMessage
from sbpair.broker.entities.stored_message import MessageState
from sbpair.broker.store.schema import MIGRATIONS

NUMBER_BITS = 40
NUMBER_MASK = (1 << NUMBER_BITS) - 1
LARGEST = 2**63 - 1
_SCHEDULED = MessageState.SCHEDULED
Row = tuple[object, ...]


def brought_back(file: Path, messages: Sequence[tuple[int, StoredMessage]]) -> None:
    """Make of a closed file one of layout 1, with these messages, each with the number of its part."""
    connection = sqlite3.connect(file)
    (create,) = (statement for statement in MIGRATIONS[0] if "TABLE message" in str(statement))
    connection.execute(str(create))
    connection.executemany(
        f"INSERT INTO message VALUES ({', '.join('?' * 22)})",
        [message_row(part, each.sequence_number, each) for part, each in messages],
    )
    for table in ("segment", "settled", "amendment"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


def message_row(part: int, number: int, message: StoredMessage) -> Row:
    """A message as a row."""
    state = 1 if message.is_deferred else 2 if message.state is _SCHEDULED else 0
    amended = None if message.amended is None else encode(message.amended)
    facts = (
        part << NUMBER_BITS | number & NUMBER_MASK,
        state,
        message.enqueued_sequence_number,
        message.enqueued_at,
        _capped(message.expires_at),
        message.scheduled_for,
        _capped(message.time_to_live),
        message.delivery_count,
        message.session_id,
        _bytes(message.partition_key),
        _bytes(message.via_partition_key),
        None if message.durable is None else int(message.durable),
        None if message.priority is None else int(message.priority),
        int(message.is_ping),
        message.hops,
        message.overhead,
        message.dead_letter_source,
        None if message.message_id is None else encode(message.message_id),
        amended,
    )
    annotations, bare = message.annotations, message.bare
    return (*facts, annotations, bare, _checksum(facts, annotations, bare))


def _capped(span: int | None) -> int | None:
    return span if span is None or span < LARGEST else LARGEST


def _bytes(text: str | None) -> bytes | None:
    """A key may have been binary: then it has characters that no UTF-8 has."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _checksum(facts: Sequence[object], annotations: bytes, bare: bytes) -> int:
    return crc32(bare, crc32(annotations, crc32(repr(facts).encode("utf-8", "surrogatepass"))))
