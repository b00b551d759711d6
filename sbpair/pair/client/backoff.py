"""When a lost or refused link is opened again: exponential back-off with jitter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from sbpair.pair.amqp.errors import DETACH_FORCED
from sbpair.pair.amqp.performatives import Condition

FIRST_RETRY = 0.5  # seconds between the first two attempts to connect or to attach
SOUND = 30.0  # seconds after which the loss of a link is the first failure of a new series

RANDOM = Random()
"""Draws of threads of this package; those of the module ``random`` are the program's, which may have seeded it."""


@dataclass(slots=True)
class Backoff:
    """The delay after consecutive failures; ``first`` and ``most`` in seconds, ``jitter`` returns a float in [0, 1)."""

    most: float
    first: float = FIRST_RETRY
    jitter: Callable[[], float] = lambda: RANDOM.random()  # as it is when called
    failures: int = 0

    def next_pause(self) -> float:
        """Record a failure; return the seconds to wait: half to all of ``first * 2**n``, at most ``most``."""
        span = min(self.most, self.first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return span * (0.5 + self.jitter() / 2)

    def link_ended(self, lasted: float, condition: Condition | None) -> float:
        """Record that a link ended after ``lasted`` seconds; return the seconds to wait before the next."""
        if lasted >= SOUND:
            self.succeeded()
            if condition is not None and condition.symbol == DETACH_FORCED:
                return 0.0  # the service detaches idle links
        return self.next_pause()

    def succeeded(self) -> None:
        """Start over from ``first``."""
        self.failures = 0
