"""Which now is meant? Four, and none of them is read here."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """One instant on the clocks a face needs."""

    connection: float
    """Seconds, monotonic: handshakes and heartbeats, which the peer times too."""
    wall: int
    """Seconds since the epoch: expiry of tokens."""
    entity: int
    """Milliseconds since the epoch: locks, time to live, schedules; a test may drive it."""
    ahead: float = 0.0
    """Seconds a test has set connection time ahead; ``wall`` has them in it."""

    @property
    def idle(self) -> float:
        """Seconds of connection time: how long a link or connection has been idle."""
        return self.connection + self.ahead
