"""A stored message: the sender's bytes, the fields that the broker decides by, and the fields it adds.

The broker never parses a body. A frontend extracts the fields once, on arrival; the sections themselves are
stored and delivered as the bytes that the sender gave.
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
    """The state of a message; values below LOCKED are sent as ``x-opt-message-state``."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2
    LOCKED = 3
    GONE = 4


@dataclass(slots=True, eq=False)
class StoredMessage:
    """One message of one queue.

    Set from the sender's message: ``bare`` (properties, application properties, body and footer, encoded),
    ``annotations`` (the encoded message annotations, without those that the broker writes itself),
    ``message_id`` (for duplicate detection), ``session_id`` (the group-id), ``partition_key``,
    ``via_partition_key`` (the key at the entity that it is sent via), ``time_to_live`` (ms, None for
    the entity's default), ``scheduled_for``, ``durable``, ``priority``, ``overhead`` (bytes stored beside ``bare``)
    and ``first_acquirer``.

    The other fields are set by the queue. ``amended`` are application properties set after arrival (the
    dead-letter reason, properties modified by an abandon); a frontend writes them over the sender's on
    delivery.
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
    is_ping: bool = False
    overhead: int = 0
    first_acquirer: bool | None = None

    reserved_number: int | None = None  # assigned before the message is stored: scheduled in a transaction
    sequence_number: int = 0
    partition_id: int | None = None  # None unless the entity is partitioned
    enqueued_sequence_number: int = 0
    enqueued_at: Instant = 0
    expires_at: Instant | None = None  # set only when the sender gave a time to live
    state: MessageState = MessageState.ACTIVE
    is_deferred: bool = False  # stays True once deferred, also while locked: received by sequence number only
    delivery_count: int = 0  # failed deliveries: 0 at the first delivery
    lock_token: LockToken | None = None
    locked_until: Instant = 0
    dead_letter_source: str | None = None
    amended: dict[str, object] | None = None
    hops: int = 0  # number of times it was forwarded

    @property
    def size(self) -> int:
        """Bytes that count towards the entity's quota."""
        return len(self.bare) + self.overhead

    def copy(self) -> StoredMessage:
        """Return a copy for another entity, in the state of a new message; the bytes are shared.

        ``scheduled_for`` is kept: it is past, and says that the message was scheduled.
        """
        return replace(
            self,
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
        """Set application properties that override the sender's. None or empty: no change."""
        if properties:
            self.amended = {**(self.amended or {}), **properties}
