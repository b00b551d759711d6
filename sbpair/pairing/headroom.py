"""Could this message be parked, if it had to be? (P-22)

Rewriting adds up to about 600 bytes, so a message close to the limit is accepted by the primary and by no
backlog queue. The size that matters is that of the rewritten copy, beside the smaller limit of the pair. To
encode every message twice for that would cost more than the pairing itself; so all that is surely far from
any limit passes on a sum, and only what is near is encoded. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from . import envelope

SMALLEST_LIMIT = 256 * 1024
"""Bytes of a message: what every tier takes."""

HEADER_AND_ALIASES = 64 * 1024 + 1024  # the service's limit on all but the body, and what parking adds
LEARN_EVERY = 60.0  # seconds between two attempts to learn the limit of the backlog queues
_NO_LIMIT = 2**40  # bytes, of a batch that is never sent
_SHORT, _SHORT_OVERHEAD, _LONG_OVERHEAD = 256, 5, 8  # what a batch adds to a message, as the SDK counts


@dataclass(frozen=True, slots=True)
class Shortage:
    """A message that could not be parked: its size once rewritten, and the limit."""

    message_id: str
    size: int
    limit: int


class Headroom:
    """What is known of the limits of one pairing."""

    def __init__(self) -> None:
        self.roomy = SMALLEST_LIMIT - HEADER_AND_ALIASES
        """Bodies with fewer bytes than this need no look."""
        self._backlog: int | None = None
        self._learn_at = 0.0

    def linked(self, limit: int | None, *, is_backlog: bool) -> None:
        """A link says how large a message may be; None when it does not."""
        if limit is None:
            return
        self.roomy = min(self.roomy, limit - HEADER_AND_ALIASES)
        if is_backlog:
            self._backlog = limit if self._backlog is None else min(limit, self._backlog)

    def must_learn(self, now: float) -> bool:
        """Whether the limit of the backlog queues is unknown, and to be asked for now."""
        if self._backlog is not None or now < self._learn_at:
            return False
        self._learn_at = now + LEARN_EVERY
        return True

    def shortage(
        self, message: envelope.Message, path: str, deadline: int | None, primary: int | None
    ) -> Shortage | None:
        """What is wrong with a message that is near a limit, if something is.

        Raises ValueError when it cannot be rewritten at all.
        """
        limits = [limit for limit in (primary, self._backlog) if limit is not None]
        if not limits:
            return None
        size = encoded_size(envelope.park(message, path, deadline))
        return Shortage(envelope.message_id_of(message), size, min(limits)) if size > min(limits) else None


def encoded_size(message: AmqpAnnotatedMessage) -> int:
    """How many bytes the SDK makes of it. Raises what the SDK raises for what it cannot encode."""
    batch = ServiceBusMessageBatch(_NO_LIMIT)
    empty = batch.size_in_bytes
    batch.add_message(envelope.snapshot(message))
    size = batch.size_in_bytes - empty
    return size - (_SHORT_OVERHEAD if size - _SHORT_OVERHEAD < _SHORT else _LONG_OVERHEAD)
