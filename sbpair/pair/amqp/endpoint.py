"""Common parts of connections, sessions and links: open and closed states, and serial numbers.

An endpoint has two halves, local and remote, and each only moves forward: UNOPENED, OPEN, CLOSED. The states of the
standard (ATTACH SENT, DETACH RCVD, ...) are pairs of halves.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Half(IntEnum):
    """The state of one side of an endpoint; it only moves forward."""

    UNOPENED = 0
    OPEN = 1
    CLOSED = 2


# an attribute lookup on the enum costs ten times as much in Python 3.11
UNOPENED: Final = Half.UNOPENED
OPEN: Final = Half.OPEN
CLOSED: Final = Half.CLOSED

MASK: Final = 0xFFFFFFFF
HALF: Final = 0x80000000


class Endpoint:
    """A local and a remote half."""

    __slots__ = ("local", "remote")

    def __init__(self) -> None:
        self.local = UNOPENED
        self.remote = UNOPENED

    @property
    def is_open(self) -> bool:
        """Whether both peers opened it and neither closed it."""
        return self.local is OPEN and self.remote is OPEN

    @property
    def is_closed(self) -> bool:
        """Whether both peers closed it."""
        return self.local is CLOSED and self.remote is CLOSED


def distance(start: int, stop: int) -> int:
    """Return by how much a delivery-id or transfer-id is ahead of another (RFC 1982; 2.8.10): -2^31 … 2^31 - 1."""
    return ((stop - start + HALF) & MASK) - HALF


def ids(first: int, last: int) -> range:
    """Return ``first`` to ``last`` inclusive, unwrapped: mask each with MASK."""
    return range(first, first + distance(first, last) + 1)
