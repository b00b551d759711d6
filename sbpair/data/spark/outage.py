"""The time limit and retry schedule of an outage. Reads no clock: callers pass the current time.

    failed(now)  ->  seconds to wait, longer each time; None when the limit is reached
    answered()   ->  the outage is over

Throttling counts as an outage with a minimum delay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sbpair.pair.client.backoff import RANDOM, Backoff

MAX_PAUSE_SECONDS = 30.0  # seconds between attempts
BUSY = 10.0  # minimum delay in seconds after throttling that requests no delay
BATCH_PATIENCE = 60.0  # default outageTimeout of batch reads and writes, in seconds
# The service states the delay in the text only.
_PAUSE = re.compile(r"\bwait (\d{1,4}) seconds", re.IGNORECASE)


def pause_of(text: str) -> float:
    """The delay in seconds that a throttling error requests."""
    match = _PAUSE.search(text)
    return float(match[1]) if match else BUSY


def limit_or(given: float | None, default: float) -> float:
    """The option outageTimeout in seconds, or its default."""
    return default if given is None else given


@dataclass(slots=True)
class OutageState:
    """The state of the current outage, if any.

    ``limit`` is its maximum duration in seconds: 0 fails at the first failure, infinity never.
    """

    limit: float = math.inf
    jitter: Callable[[], float] = RANDOM.random
    began: float | None = None
    """When the first attempt failed, on the caller's clock; None without an outage."""

    retry_at: float = 0.0
    _backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(MAX_PAUSE_SECONDS, jitter=self.jitter)

    def failed(self, now: float, at_least: float = 0.0) -> float | None:
        """Record a failed attempt: the seconds to wait, ``at_least`` that long, or None when the limit is reached."""
        if self.began is None:
            self.began = now
        left = self.began + self.limit - now
        if left <= 0:
            return None
        wait = min(max(self._backoff.next_pause(), at_least), left)
        self.retry_at = now + wait
        return wait

    def answered(self) -> None:
        """Record a success: the outage is over."""
        self.began = None
        self.retry_at = 0.0
        self._backoff.succeeded()

    def wait(self, now: float) -> float:
        """Seconds until the next attempt; 0 when it is due."""
        return max(0.0, self.retry_at - now)
