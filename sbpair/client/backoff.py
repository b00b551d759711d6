"""Exponential back-off with jitter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FIRST_RETRY = 0.5  # seconds between the first two attempts to connect or to attach
SOUND = 30.0  # seconds after which the loss of a link is the first failure of a new series


@dataclass(slots=True)
class Backoff:
    """The delay after consecutive failures; ``first`` and ``most`` in seconds, ``jitter`` returns a float in [0, 1)."""

    first: float
    most: float
    jitter: Callable[[], float]
    failures: int = 0

    def failed(self) -> float:
        """Record a failure; return the seconds to wait: half to all of ``first * 2**n``, at most ``most``."""
        span = min(self.most, self.first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return span * (0.5 + self.jitter() / 2)

    def succeeded(self) -> None:
        """Start over from ``first``."""
        self.failures = 0
