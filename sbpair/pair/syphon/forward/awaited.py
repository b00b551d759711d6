"""The messages whose answers are awaited, and which of the answers are late. Pure."""

from __future__ import annotations

from collections import deque
from itertools import takewhile

from .in_flight import InFlightMessage

LATE_AFTER = 5.0  # seconds, at least
LATE_FACTOR = 8  # times the time within which 99 of 100 answers came
KEPT = 200  # answers


class AwaitedAnswers:
    """When each message was sent that has no answer yet; times are monotonic seconds.

    A late answer may be lost. Therefore others need not wait for it, although it may still come.
    """

    def __init__(self) -> None:
        self._sent: dict[InFlightMessage, float] = {}  # in the order of sending
        self._took: deque[float] = deque(maxlen=KEPT)
        self._passed = 0.0  # the latest sending of a message that was answered

    def sent(self, message: InFlightMessage, now: float) -> None:
        """Record that ``message`` was sent."""
        self._sent[message] = now

    def answered(self, message: InFlightMessage, now: float) -> None:
        """Record the answer for ``message``."""
        since = self._sent.pop(message, None)
        if since is not None:
            self._took.append(now - since)
            self._passed = max(self._passed, since)

    def forget(self, message: InFlightMessage) -> None:
        """Await no answer for ``message``."""
        self._sent.pop(message, None)

    def oldest(self, now: float) -> float:
        """Return for how many seconds the first answer is awaited; 0 without one."""
        return now - next(iter(self._sent.values()), now)

    def late(self, now: float) -> int:
        """Return how many answers are late and need not be waited for.

        Of those sent after any message that was answered, that is one: maybe nothing is answered any more.
        """
        if self.oldest(now) < LATE_AFTER:
            return 0
        before = now - self._late_after()
        late = list(takewhile(lambda sent: sent <= before, self._sent.values()))
        passed = sum(1 for sent in late if sent < self._passed)
        return min(passed + 1, len(late))

    def is_lost(self, now: float, borne: float) -> bool:
        """Return whether the first answer seems to be lost: it is late, and one for a message sent later came.

        For the only message in flight none can come: then its answer is lost after ``borne`` seconds.
        """
        first = next(iter(self._sent.values()), now)
        if now - first < self._late_after():
            return False
        return first < self._passed or (len(self._sent) == 1 and now - first >= borne)

    def _late_after(self) -> float:
        took = sorted(self._took) or [0.0]
        return max(LATE_AFTER, LATE_FACTOR * took[len(took) * 99 // 100])
