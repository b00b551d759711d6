"""Which now is meant? Three, and none of them is read here."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """One instant on the three clocks a face needs."""

    connection: float
    """Seconds, monotonic: idle time-outs of connections."""
    wall: int
    """Seconds since the epoch: expiry of tokens."""
    entity: int
    """Milliseconds since the epoch: locks, time to live, schedules; a test may drive it."""
