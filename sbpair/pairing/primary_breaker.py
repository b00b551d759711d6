"""The breaker of one primary entity: while failing is dear, one send at a time asks it, and the others are parked.

    CLOSED ---an attempt used up its patience, and nothing was answered meanwhile---> HALF OPEN
      ^    ---a fifth of the last ones failed or was busy, a tenth unanswered------->     |  one send at a time asks,
      |                                                                                   |  at most once a second
      '----an attempt was accepted, and at least four fifths of the last ones were--------'

Half open is no failover: the state of the entity, its interval and its pings are those of :mod:`.health`. It concerns
senders that park what they cannot send. Performs no I/O and reads no clock: times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math

from .attempts import RecentAttempts
from .patience import Patience

PROBE_INTERVAL = 1.0  # seconds between two sends that ask a half-open entity
SPAN = 60.0  # seconds in which *busy* and unanswered attempts are remembered; the last fifth of it decides
BUSY_SHARE, FEW_BUSY = 0.2, 2
UNANSWERED_SHARE, FEW_UNANSWERED = 0.1, 1  # they are dearer: each holds its caller


class PrimaryBreaker:
    """Whether a send may ask the primary, and how long it waits for the answer.

    ``attempts`` are those that the health of the entity records, and ``longest`` is the longest patience.
    """

    def __init__(self, attempts: RecentAttempts, longest: float) -> None:
        self.patience = Patience(longest)
        self._attempts = attempts
        self._busy, self._silence = RecentAttempts(SPAN), RecentAttempts(SPAN)
        self._is_half_open = False
        self._unanswered = 0  # attempts in a row
        self._asks_at = -math.inf  # when a send may ask next, while half open

    def is_half_open(self, now: float) -> bool:
        """Whether one send at a time asks the entity. May be called in any thread."""
        self._is_half_open = (
            self._unanswered > 0
            or not self._attempts.is_over(now)
            or self._are_many(self._silence, UNANSWERED_SHARE, FEW_UNANSWERED, now)
            or self._are_many(self._busy, BUSY_SHARE, FEW_BUSY, now)
        )
        return self._is_half_open

    def _are_many(self, failed: RecentAttempts, share: float, few: int, now: float) -> bool:
        """Whether too many failed lately, and not by chance; of the few attempts while half open, few are many."""
        if self._is_half_open:
            return not failed.is_rare(share, 0, now)
        return not failed.is_rare(share, few, now, chance=1.0)

    def may_ask(self, now: float) -> bool:
        """Whether a send may ask the entity now."""
        return now >= self._asks_at if self.is_half_open(now) else not self.patience.is_silent(now)

    def is_clean(self, now: float) -> bool:
        """Whether nothing is remembered that could open it."""
        return self._unanswered == 0 and self._busy.is_clean(now) and self._silence.is_clean(now)

    def seconds(self) -> float:
        """How long the next attempt waits for its answer: longer after several were not answered."""
        return self.patience.after(self._unanswered - 1)

    def asked(self, until: float) -> None:
        """Record that a send asks, and knows by ``until``."""
        self._asks_at = until

    def accepted(self, began: float, now: float) -> None:
        """Record an attempt that was accepted."""
        self._unanswered = 0
        self._busy.succeeded(now)
        self._silence.succeeded(now)
        if self._is_half_open:
            self._asks_at = max(now, began + PROBE_INTERVAL)

    def failed(self, began: float, now: float, *, is_unanswered: bool, is_probe: bool) -> None:
        """Record an attempt that failed; ``is_unanswered`` if it used up its patience.

        The first send after the one that opened the breaker asks at once, later ones after the interval.
        """
        if is_unanswered:
            self._silence.failed(now)
            self._unanswered += not self.patience.has_answered_since(began)
        if is_probe:
            self._asks_at = max(now, began + PROBE_INTERVAL)

    def busy(self, now: float, pause: float, *, is_first: bool) -> None:
        """Record the answer *busy*, which asks for a ``pause`` in seconds, at the first attempt of a send or later.

        Only first ones count: a busy partition would count twice for each of its messages.
        """
        self._unanswered = 0
        if is_first:
            self._busy.failed(now)
        self._asks_at = now + max(pause, PROBE_INTERVAL)

    def reset(self) -> None:
        """Close it: the entity is known to be healthy."""
        self._unanswered, self._asks_at = 0, -math.inf
        self._busy.forget()
        self._silence.forget()
