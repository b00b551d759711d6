"""A message at rest: the sender's bytes, what the broker decides on, and what it added.

The broker never opens a body. What it needs is lifted out of the sections once, on arrival, by the
face that knows AMQP; the rest stays the bytes the sender gave, and leaves as those bytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NewType

Instant = int
"""Milliseconds since the epoch: the unit of the wire."""

LockToken = NewType("LockToken", bytes)
"""16 bytes, as they travel in the delivery tag (a .NET guid: ``uuid.UUID(bytes_le=token)``)."""


class MessageState(IntEnum):
    """Where a message stands; the values below LOCKED are the wire's (``x-opt-message-state``)."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2
    LOCKED = 3
    GONE = 4


@dataclass(slots=True, eq=False)
class StoredMessage:
    """One message of one queue.

    Given by the sender: ``bare`` (properties, application properties, body and footer, encoded),
    ``annotations`` (the section of its message annotations, without those that are the broker's to write),
    ``message_id`` (for duplicate detection), ``session_id`` (the group-id),
    ``partition_key`` (Q-6), ``via_partition_key`` (Q-13: its key at an entity it is sent via),
    ``time_to_live`` (ms, None = the entity's), ``scheduled_for``, ``durable``, ``priority``.
    ``overhead`` counts the bytes held beside ``bare``.
    Written by the queue: the rest. ``amended`` are application properties set since (dead-letter reason,
    changes made with an abandon), which the face writes over the sender's on delivery.
    """

    bare: bytes
    annotations: bytes = b""
    message_id: Hashable = None
    session_id: str | None = None
    partition_key: str | None = None
    via_partition_key: str | None = None
    time_to_live: int | None = None
    scheduled_for: Instant | None = None
    durable: bool | None = None
    priority: int | None = None
    is_ping: bool = False  # P-31
    overhead: int = 0

    reserved_number: int | None = None  # promised before it was stored: scheduled in a transaction
    sequence_number: int = 0
    partition_id: int | None = None  # None on a plain entity
    enqueued_sequence_number: int = 0
    enqueued_at: Instant = 0
    expires_at: Instant | None = None  # T-1: only where the sender set a TTL (T-7)
    state: MessageState = MessageState.ACTIVE
    is_deferred: bool = False  # set aside once: locked or not, it is received by its number only
    delivery_count: int = 0  # deliveries that failed; the first delivery shows 0
    lock_token: LockToken | None = None
    locked_until: Instant = 0
    dead_letter_source: str | None = None
    amended: dict[str, object] | None = None
    hops: int = 0  # how often it was forwarded

    @property
    def size(self) -> int:
        """Bytes that count to the entity's quota."""
        return len(self.bare) + self.overhead

    def copy(self) -> StoredMessage:
        """The same message for another entity to take, never delivered; the bytes are shared."""
        return replace(
            self,
            scheduled_for=None,
            reserved_number=None,
            sequence_number=0,
            partition_id=None,
            expires_at=None,
            state=MessageState.ACTIVE,
            is_deferred=False,
            delivery_count=0,
            lock_token=None,
            locked_until=0,
        )

    def amend(self, properties: Mapping[str, object] | None) -> None:
        """Set application properties over the sender's; None or empty changes nothing."""
        if properties:
            self.amended = {**(self.amended or {}), **properties}
