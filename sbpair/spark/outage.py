"""The time limit and retry schedule of an outage. Pure: every call takes the current time.

    failed(now)  ->  seconds to wait, longer each time, or None when the limit is reached
    answered()   ->  the outage is over

A throttle is an outage with a given delay.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sbpair.syphon.backoff import Backoff

FIRST, MOST = 0.5, 30.0  # seconds between two questions
BUSY = 10.0  # seconds at least after a throttle that does not say how long
BATCH_PATIENCE = 60.0  # seconds that a batch read or written once waits, unless told otherwise
_PAUSE = re.compile(r"\bwait (\d{1,4}) seconds", re.IGNORECASE)  # the service says it in words only


def pause_of(text: str) -> float:
    """The seconds that a throttle asks for."""
    said = _PAUSE.search(text)
    return float(said[1]) if said else BUSY


@dataclass(slots=True)
class Outage:
    """One outage at a time. ``limit``: seconds after which it is given up; 0 for at once, inf for never."""

    limit: float = math.inf
    jitter: Callable[[], float] = random.random
    began: float | None = None
    """When the first question went unanswered, on the caller's clock; None while all are answered."""

    retry_at: float = 0.0
    _backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(FIRST, MOST, self.jitter)

    def failed(self, now: float, at_least: float = 0.0) -> float | None:
        """Note a question without an answer: the seconds to wait, or None when the time is up."""
        if self.began is None:
            self.began = now
        left = self.began + self.limit - now
        if left <= 0:
            return None
        wait = min(max(self._backoff.failed(), at_least), left)
        self.retry_at = now + wait
        return wait

    def answered(self) -> None:
        self.began = None
        self.retry_at = 0.0
        self._backoff.succeeded()

    def wait(self, now: float) -> float:
        """Seconds until the next question; 0 when it may be asked now."""
        return max(0.0, self.retry_at - now)
