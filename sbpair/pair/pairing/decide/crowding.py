"""How many asyncio sends share one link: fewer while links are lost again and again.

    100 --a link lost that was opened after the last loss--> 10 --another--> 1
     ^--------------- tenfold after each half minute without a loss ---------'

When a link is lost, every send on it loses an attempt, and its outcome may be unknown. Performs no I/O: times are
seconds of a monotonic clock.
"""

from __future__ import annotations

import math

CROWD = 100  # calls on one link above which another is opened
STEP = 10
REPEATED_SECONDS = 10.0
CALM_SECONDS = 30.0


class Crowding:
    """The limit of one pool."""

    __slots__ = ("_lost_at", "limit")

    def __init__(self) -> None:
        self.limit = CROWD
        """The calls on one link above which another is opened."""
        self._lost_at = -math.inf

    @property
    def is_reduced(self) -> bool:
        """Whether the limit is reduced because links were lost repeatedly."""
        return self.limit < CROWD

    def lost(self, opened_at: float, now: float) -> None:
        """Record that a link with calls was lost; all links that were open at the last loss count as one loss."""
        if opened_at > self._lost_at >= now - REPEATED_SECONDS:
            self.limit = max(1, self.limit // STEP)
        self._lost_at = now

    def succeeded(self, now: float) -> None:
        """Record a call that succeeded while the limit is reduced."""
        if now - self._lost_at > CALM_SECONDS:
            self.limit = min(CROWD, self.limit * STEP)
            self._lost_at = now  # the next step takes as long again
