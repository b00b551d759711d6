"""The breaker of one primary entity: while failures are costly, one send at a time tries it and the others park.

    CLOSED ---an attempt used up its patience, and nothing was answered meanwhile---> HALF OPEN
      ^    ---a fifth of the last ones failed or was busy, a tenth unanswered------->     |  one send at a time tries,
      |                                                                                   |  at most once a second
      '----an attempt was accepted, and at least four fifths of the last ones were--------'

Half open does not mean failed over: the state of the entity, its interval and its pings are those of :mod:`.health`. It
concerns senders that park the messages they cannot send. Performs no I/O and reads no clock: times are seconds of a
monotonic clock.
"""

from __future__ import annotations

import math

from .attempts import RecentAttempts
from .patience import Patience

PROBE_INTERVAL = 1.0  # seconds between two sends that ask a half-open entity
SPAN = 60.0  # seconds in which *busy* and unanswered attempts are remembered; the last fifth of it decides
FIRST_HOLD, MAX_HOLD = (
    12.0,
    30.0,
)  # seconds that a share counts as too large, where it was so within a minute before
BUSY_SHARE, FEW_BUSY = 0.2, 2
UNANSWERED_SHARE, FEW_UNANSWERED = 0.1, 1  # they are dearer: each holds its caller


class FailedShare:
    """Whether too large a share of the last attempts failed in one way, and not by chance.

    While the share is too large, few attempts are made, so it must fall to the limit itself to be trusted again. Each
    time it soon becomes too large again, it stays so for longer.
    """

    def __init__(self, share: float, few: int) -> None:
        self._share, self._few = share, few
        self._attempts = RecentAttempts(SPAN)
        self._is_large = False
        self._large_until = self._over_at = -math.inf
        self._hold = 0.0

    def record(self, now: float, *, has_failed: bool) -> None:
        """Record one attempt."""
        (self._attempts.failed if has_failed else self._attempts.succeeded)(now)

    def is_large(self, now: float) -> bool:
        """Whether the share is too large."""
        if self._is_large:
            if now >= self._large_until and self._attempts.is_rare(self._share, 0, now):
                self._is_large, self._over_at = False, now
        elif not self._attempts.is_rare(self._share, self._few, now, chance=1.0):
            is_again = now - self._over_at < SPAN
            self._hold = min(max(2 * self._hold, FIRST_HOLD), MAX_HOLD) if is_again else 0.0
            self._large_until, self._is_large = now + self._hold, True
        return self._is_large

    def is_clean(self, now: float) -> bool:
        """Whether no failure is remembered."""
        return not self._is_large and self._attempts.is_clean(now)

    def forget(self) -> None:
        """Forget all attempts."""
        self._attempts.forget()
        self._is_large, self._over_at, self._hold = False, -math.inf, 0.0


class PrimaryBreaker:
    """Whether a send may ask the primary, and how long it waits for the answer.

    ``attempts`` are those that the health of the entity records, and ``longest`` is the longest patience.
    """

    def __init__(self, attempts: RecentAttempts, longest: float) -> None:
        self.patience = Patience(longest)
        self._attempts = attempts
        self._busy = FailedShare(BUSY_SHARE, FEW_BUSY)
        self._silence = FailedShare(UNANSWERED_SHARE, FEW_UNANSWERED)
        self._is_half_open = False
        self._unanswered = 0  # attempts in a row
        self._asks_at = -math.inf  # when a send may ask next, while half open

    def is_half_open(self, now: float) -> bool:
        """Whether only one send at a time may try the entity. May be called in any thread."""
        is_large = self._silence.is_large(now) | self._busy.is_large(now)
        self._is_half_open = is_large or self._unanswered > 0 or not self._attempts.is_over(now)
        return self._is_half_open

    def may_ask(self, now: float) -> bool:
        """Whether a send may try the entity now."""
        return now >= self._asks_at if self.is_half_open(now) else not self.patience.is_silent(now)

    def is_clean(self, now: float) -> bool:
        """Whether nothing is remembered that could open the breaker."""
        return self._unanswered == 0 and self._busy.is_clean(now) and self._silence.is_clean(now)

    def seconds(self) -> float:
        """Return how long the next attempt waits for its answer: longer after several unanswered ones."""
        return self.patience.after(self._unanswered - 1)

    def asked(self, until: float) -> None:
        """Record that a send tries the entity, and will have its result by ``until``."""
        self._asks_at = until

    def accepted(self, began: float, now: float) -> None:
        """Record an attempt that was accepted."""
        self._unanswered = 0
        self._busy.record(now, has_failed=False)
        self._silence.record(now, has_failed=False)
        if self._is_half_open:
            self._asks_at = max(now, began + PROBE_INTERVAL)

    def failed(self, began: float, now: float, *, is_unanswered: bool, is_probe: bool) -> None:
        """Record an attempt that failed; ``is_unanswered`` if it used up its patience.

        After the breaker opens, the first send tries the entity at once, later ones after the interval.
        """
        if is_unanswered:
            self._silence.record(now, has_failed=True)
            self._unanswered += not self.patience.has_answered_since(began)
        if is_probe:
            self._asks_at = max(now, began + PROBE_INTERVAL)

    def busy(self, now: float, pause: float, *, is_first: bool) -> None:
        """Record the answer *busy*, with the requested ``pause`` in seconds, to the first or a later attempt of a send.

        Only first attempts count: otherwise a busy partition would count twice for each of its messages.
        """
        self._unanswered = 0
        if is_first:
            self._busy.record(now, has_failed=True)
        self._asks_at = now + max(pause, PROBE_INTERVAL)

    def reset(self) -> None:
        """Close the breaker, because the entity is known to be healthy."""
        self._unanswered, self._asks_at = 0, -math.inf
        self._busy.forget()
        self._silence.forget()
