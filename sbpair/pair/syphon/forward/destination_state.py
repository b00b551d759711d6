"""The states of a destination; see :mod:`~sbpair.pair.syphon.forward.delivery`."""

from __future__ import annotations

from enum import Enum


class DestinationState(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    METERED = "metered"
    WAITING = "waiting"
    PROBING = "probing"


CLOSED, OPENING, OPEN, METERED, WAITING, PROBING = DestinationState
