"""Serial number arithmetic for delivery-ids and transfer-ids (RFC 1982; AMQP 2.8.10)."""

from __future__ import annotations

from typing import Final

MASK: Final = 0xFFFFFFFF
HALF: Final = 0x80000000


def distance(start: int, stop: int) -> int:
    """Return how far ``stop`` is ahead of ``start``, negative when behind: -2^31 … 2^31 - 1."""
    return ((stop - start + HALF) & MASK) - HALF


def ids(first: int, last: int) -> range:
    """Return ``first`` to ``last`` inclusive, unwrapped: mask each with MASK."""
    return range(first, first + distance(first, last) + 1)
