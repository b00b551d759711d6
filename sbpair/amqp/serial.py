"""Which of two delivery-ids comes first, when the counter wraps (RFC 1982; AMQP 2.8.10)?"""

from __future__ import annotations

MASK = 0xFFFFFFFF
HALF = 0x80000000


def distance(start: int, stop: int) -> int:
    """How far `stop` lies ahead of `start`; negative when it lies behind. -2^31 … 2^31 - 1."""
    return ((stop - start + HALF) & MASK) - HALF


def ids(first: int, last: int) -> range:
    """`first` … `last` before wrapping: mask each with MASK."""
    return range(first, first + distance(first, last) + 1)
