"""The breaker of the secondary: when it fails as a whole, one send a second asks it, not every one.

    CLOSED ---two queues, or a send's only one twice, failed for reasons of the side, and none accepted---> OPEN
      ^                                                                         |  one trial a second
      '-----------------------------a queue accepted----------------------------'

Performs no I/O: time and randomness are arguments.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

TRIAL_INTERVAL = 1.0  # seconds between two trials, with a jitter of a quarter
SPAN = 10.0  # seconds in which two queues must have failed
QUIET = 1.0  # seconds in which none accepted
TRIAL_JITTER = 0.25
MIN_QUEUES = 2


class SideBreaker:
    """Whether the secondary may be asked. ``cause`` is the error of its last failure while it is open."""

    def __init__(self, rng: Random) -> None:
        self.cause: Exception | None = None
        self._rng = rng
        self._failed: dict[int, float] = {}  # when each queue failed last, since the last success
        self._failures = 0  # of queues that were the only one of their send, since then
        self._accepted_at = -math.inf
        self._trial_at = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether the secondary counts as failing as a whole."""
        return self.cause is not None

    def may_ask(self, now: float) -> bool:
        """Whether a send may ask the secondary now; while open, True for one send per trial."""
        if self.cause is None:
            return True
        if now < self._trial_at:
            return False
        self._schedule(now)
        return True

    def failed(self, backlog: int, cause: Exception | None, now: float, *, is_only: bool = False) -> None:
        """Record that a queue failed with an error of its side: connection, token, name or busy.

        ``is_only``: its send could choose no other.
        """
        self._failed[backlog] = now
        self._failures += is_only
        recent = max(sum(now - at <= SPAN for at in self._failed.values()), self._failures)
        if cause is not None and (self.cause is not None or self._is_silent(recent, now)):
            self.cause = cause
            self._schedule(now)

    def succeeded(self, now: float) -> None:
        """Record that a queue accepted a message: the side is available."""
        self.cause, self._accepted_at = None, now
        self._failed.clear()
        self._failures = 0

    def _is_silent(self, recent: int, now: float) -> bool:
        return recent >= MIN_QUEUES and now - self._accepted_at > QUIET

    def _schedule(self, now: float) -> None:
        self._trial_at = now + TRIAL_INTERVAL * (1 + self._rng.uniform(-TRIAL_JITTER, TRIAL_JITTER))
