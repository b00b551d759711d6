"""How many messages does a queue hold, by state?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Messages of a queue by state.

    ``active`` holds the locked ones too, and what has expired but was not yet removed (T-2); ``deferred``
    those set aside, locked or not; ``total`` and ``size_in_bytes`` include the dead-letter queue.
    """

    active: int
    dead_letter: int
    scheduled: int
    deferred: int
    transfer: int
    transfer_dead_letter: int
    total: int
    size_in_bytes: int
