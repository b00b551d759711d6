"""A failure that is remembered for a while, so that a refusing service is not asked again for every message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbpair.pair.ground.shortage import came_of_shortage

if TYPE_CHECKING:
    from random import Random

FIRST_SECONDS, MAX_SECONDS = 1.0, 30.0
JITTER = 0.25  # of the span, in both directions
MAX_DOUBLINGS = 5


class HeldFailure:
    """The last failure of one service, while it is held."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._held: tuple[Exception, float] | None = None  # with the end of its time: replaced as one
        self._count = 0

    def at(self, now: float) -> Exception | None:
        """Return the failure while it is held; None when the service may be asked again."""
        held = self._held
        return held[0] if held is not None and now < held[1] else None

    def failed(self, error: Exception, now: float) -> None:
        """Record a failure. Failures of concurrent requests count as one."""
        if came_of_shortage(error):
            return
        held = self._held
        if held is not None and now < held[1]:
            self._held = error, held[1]
            return
        span = min(MAX_SECONDS, FIRST_SECONDS * 2.0 ** min(self._count, MAX_DOUBLINGS))
        self._count += 1
        self._held = error, now + span * self._rng.uniform(1 - JITTER, 1 + JITTER)

    def succeeded(self) -> None:
        """Record a success: the next failure is held for the shortest time again."""
        self._held, self._count = None, 0
