"""How does a message become a row, and again a message?

A row ends in a checksum of what stands before it: a flipped bit is found out, wherever it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast
from zlib import crc32

from ...amqp.types import decode, encode
from ..entities.stored_message import MessageState, StoredMessage

NUMBER_BITS = 40
NUMBER_MASK = (1 << NUMBER_BITS) - 1
LARGEST = 2**63 - 1  # two instants of a sender can be further apart than SQLite counts
_SCHEDULED = MessageState.SCHEDULED

Row = tuple[object, ...]

MESSAGE_COLUMNS = 22
CHANGING = "state = ?, delivery_count = ?, amended = ?, checksum = ?"


class ChecksumDiffers(Exception):
    """A row is not what was written."""


def sealed(*values: object) -> Row:
    """A row of these values, with its checksum. Integers and not flags: it is to read back the same."""
    return (*values, crc32(repr(values).encode("utf-8", "surrogatepass")))


def unsealed(row: Row) -> Row:
    """The values of a row. Raises ChecksumDiffers."""
    values = row[:-1]
    if crc32(repr(values).encode("utf-8", "surrogatepass")) != row[-1]:
        raise ChecksumDiffers
    return values


def row_id(part: int, number: int) -> int:
    """The row id of a message of that sequence number."""
    return part << NUMBER_BITS | number & NUMBER_MASK


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


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else stored.decode("utf-8", "surrogatepass")


def changing(row: Row) -> Row:
    """What of a row may have changed, for an update of ``CHANGING`` by its id."""
    return (row[1], row[7], row[18], row[-1], row[0])


def _checksum(facts: Sequence[object], annotations: bytes, bare: bytes) -> int:
    return crc32(bare, crc32(annotations, crc32(repr(facts).encode("utf-8", "surrogatepass"))))


def message_of(row: Row, base: int) -> StoredMessage:
    """The message that was written, of a part whose sequence numbers begin at ``base``.

    Raises ChecksumDiffers, and DecodeError for a value that is none of AMQP.
    """
    annotations, bare = cast(bytes, row[19]), cast(bytes, row[20])
    if _checksum(row[:19], annotations, bare) != row[21]:
        raise ChecksumDiffers
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
        sequence_number=base | cast(int, row_number) & NUMBER_MASK,
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


_STATES = (MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED)


def identity_of(encoded: bytes) -> Hashable:
    """A message id."""
    found: Hashable = decode(encoded, 0)[0]
    return found
