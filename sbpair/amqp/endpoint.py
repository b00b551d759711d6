"""The handshake that connections, sessions and links have in common.

Each endpoint has two halves, ours and the peer's. A half only moves forward: UNOPENED, OPEN,
CLOSED. The state names of the standard (ATTACH SENT, DETACH RCVD, ...) are pairs of halves, so
there is no list of them to keep.
"""

from __future__ import annotations

from enum import IntEnum


class Half(IntEnum):
    """One side of an endpoint; it only moves forward."""

    UNOPENED, OPEN, CLOSED = range(3)


UNOPENED, OPEN, CLOSED = Half  # Python 3.11 looks them up at ten times the price as members of an enum


class Endpoint:
    """Two halves."""

    __slots__ = ("local", "remote")

    def __init__(self) -> None:
        self.local = UNOPENED
        self.remote = UNOPENED

    @property
    def is_open(self) -> bool:
        """Both peers opened it and neither closed it."""
        return self.local is OPEN and self.remote is OPEN

    @property
    def is_closed(self) -> bool:
        """Nothing more will be said about it by either peer."""
        return self.local is CLOSED and self.remote is CLOSED
