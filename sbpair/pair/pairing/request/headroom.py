"""Encoded sizes of messages, and the headroom they need to be parked.

Rewriting adds up to about 600 bytes, so the primary may accept a message that is too large for a backlog queue. The
rewritten copy is compared with the smaller limit of the pair. Encoding every message twice would cost more than the
pairing itself, so messages far below the limits pass by an estimate, and only the others are encoded. Performs no I/O.
"""

from __future__ import annotations

from datetime import datetime
from types import NoneType
from typing import NamedTuple
from uuid import UUID

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import MessageSizeExceededError

from sbpair.pair.envelope import copies, park

SMALLEST_LIMIT = 256 * 1024
"""Bytes: the message size that every tier accepts."""

HEADER_LIMIT = 64 * 1024
"""The most bytes that the service accepts in all parts except the body."""

PROPERTY_LIMIT = 32 * 1024
"""The most bytes of one application property; the service answers a larger one with an internal error."""

HEADER_AND_ALIASES = 64 * 1024 + 1024  # the service's limit on all but the body, plus what parking adds
LEARN_EVERY = 60.0  # seconds between two attempts to learn the limit of the backlog queues
_NO_LIMIT = 2**40  # bytes, of a batch used for encoding only
_DATA, _LONG_DATA = 5, 8  # bytes before the content of a data section
_SHORT, _SHORT_OVERHEAD, _LONG_OVERHEAD = 256, 5, 8  # bytes a batch adds per message, by the SDK's count


class Shortage(NamedTuple):
    """A message too large to be parked: its rewritten size, or that of its header alone, and the limit, in bytes."""

    message_id: str
    size: int
    limit: int
    is_header: bool = False

    def __str__(self) -> str:
        if self.is_header:
            return f"{self.size} bytes without its body, of which the service accepts {self.limit}"
        return f"{self.size} bytes, where the smaller limit of the pair is {self.limit}"


class Headroom:
    """The known message size limits of one pairing."""

    def __init__(self) -> None:
        self.roomy = SMALLEST_LIMIT - HEADER_AND_ALIASES
        """Bodies below this many bytes always fit."""
        self._backlog: int | None = None
        self._learn_at = 0.0

    def linked(self, limit: int | None, *, is_backlog: bool) -> None:
        """Record the message size limit of an opened link; None if unknown."""
        if limit is None:
            return
        self.roomy = min(self.roomy, limit - HEADER_AND_ALIASES)
        if is_backlog:
            self._backlog = limit if self._backlog is None else min(limit, self._backlog)

    def must_learn(self, now: float) -> bool:
        """Whether to determine the unknown limit of the backlog queues now; at most once a minute."""
        if self._backlog is not None or now < self._learn_at:
            return False
        self._learn_at = now + LEARN_EVERY
        return True

    def shortage(
        self, message: copies.Message, path: str, deadline: int | None, primary: int | None
    ) -> Shortage | None:
        """Return the shortage of a message, or None if it can be parked. ``primary``: the limit of its own link.

        Raises ValueError if it cannot be rewritten.
        """
        limits = [limit for limit in (primary, self._backlog) if limit is not None]
        parked = park.park(message, path, deadline)
        size, name = encoded_size(parked), copies.message_id_of(message)
        header = size - _body_size(parked)
        if header > HEADER_LIMIT:
            return Shortage(name, header, HEADER_LIMIT, is_header=True)
        return Shortage(name, size, min(limits)) if limits and size > min(limits) else None


_HEADS = 128
"""Bytes at most of the heads of all sections, the header, and the numbers and times of the properties."""
_LONGEST_HEAD = 8
"""Bytes at most before a text, or a part of the body."""
_FIXED_SIZES: dict[type, int] = {bool: 1, float: 9, int: 9, NoneType: 1, UUID: 17, datetime: 9}


def largest_size(message: AmqpAnnotatedMessage) -> int:
    """Return the size of a message in bytes as the SDK encodes it, or a little more; plain messages are not encoded.

    Raises as :func:`encoded_size` does.
    """
    if message.body_type is not AmqpMessageBodyType.DATA:
        return encoded_size(message)
    if message.annotations or message.delivery_annotations or message.footer:
        return encoded_size(message)
    properties, carried = message.properties, message.application_properties or {}
    named = () if properties is None else vars(properties).values()
    size = _HEADS
    for value in (*message.body, *named, *carried, *carried.values()):
        kind = value.__class__
        if kind is bytes:
            size += _LONGEST_HEAD + len(value)
        elif kind is str:
            size += _LONGEST_HEAD + (len(value) if value.isascii() else 4 * len(value))
        elif kind in _FIXED_SIZES:
            size += _FIXED_SIZES[kind]
        else:
            return encoded_size(message)
    return size


def large_property(message: copies.Message) -> MessageSizeExceededError | None:
    """Return the error for an application property that is too large for the service, or None."""
    for name, value in (copies.raw(message).application_properties or {}).items():
        if (
            isinstance(value, (str, bytes)) and len(value) > PROPERTY_LIMIT // 4
        ):  # UTF-8 has up to four bytes for each
            size = len(value.encode("utf-8", "replace") if isinstance(value, str) else value)
            if size > PROPERTY_LIMIT:
                text = f"The property {name!r:.60} has {size} bytes, of which the service accepts {PROPERTY_LIMIT}."
                return MessageSizeExceededError(message=text)
    return None


def _body_size(message: copies.Message) -> int:
    """Return the size of a message's data sections; the largest possible size for other kinds of body."""
    raw = copies.raw(message)
    if raw.body_type is not AmqpMessageBodyType.DATA:
        return _NO_LIMIT
    return sum(len(part) + (_DATA if len(part) < _SHORT else _LONG_DATA) for part in raw.body)


def encoded_size(message: copies.Message) -> int:
    """Return the size of a message in bytes as the SDK encodes it. Raises the SDK's error if it cannot."""
    batch = ServiceBusMessageBatch(_NO_LIMIT)
    empty = batch.size_in_bytes
    batch.add_message(copies.snapshot(message))
    size = batch.size_in_bytes - empty
    return size - (_SHORT_OVERHEAD if size - _SHORT_OVERHEAD < _SHORT else _LONG_OVERHEAD)
