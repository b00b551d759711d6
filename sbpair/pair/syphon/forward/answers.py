"""The answers of one entity: whether some are late or lost, and whether it accepts almost no message. Pure.

An entity that rejects one message may accept the next. It is held only when its answers show that it accepts almost
none.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile

from .in_flight import InFlightMessage

LATE_AFTER = 5.0  # seconds, at least
LATE_FACTOR = 8  # times the time within which 99 of 100 answers came
KEPT = 200  # answers
SPAN = 10  # seconds of answers that are judged
MIN_ANSWERS = 20
SHARE = 0.9  # of the answers


class AwaitedAnswers:
    """The time at which each unanswered message was sent, in monotonic seconds.

    A late answer may be lost. Therefore other messages need not wait for it, although it may still come.
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
        """Stop waiting for an answer to ``message``."""
        self._sent.pop(message, None)

    def oldest(self, now: float) -> float:
        """Return for how many seconds the oldest answer has been awaited; 0 if none is."""
        return now - next(iter(self._sent.values()), now)

    def late(self, now: float) -> int:
        """Return how many answers are late and need not be waited for.

        Of the messages sent after the latest answered one, at most one counts: perhaps nothing is answered any more.
        """
        if self.oldest(now) < LATE_AFTER:
            return 0
        before = now - self._late_after()
        late = list(takewhile(lambda sent: sent <= before, self._sent.values()))
        passed = sum(1 for sent in late if sent < self._passed)
        return min(passed + 1, len(late))

    def is_lost(self, now: float, borne: float) -> bool:
        """Whether the oldest answer seems to be lost: it is late, and a message sent later was answered.

        If only one message is in flight, its answer is lost after ``borne`` seconds.
        """
        first = next(iter(self._sent.values()), now)
        if now - first < self._late_after():
            return False
        return first < self._passed or (len(self._sent) == 1 and now - first >= borne)

    def _late_after(self) -> float:
        took = sorted(self._took) or [0.0]
        return max(LATE_AFTER, LATE_FACTOR * took[len(took) * 99 // 100])


class RecentAnswers:
    """The answers of an entity in the last ``SPAN`` seconds; times are monotonic seconds."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()  # the second, its answers, and the rejections among them

    def note(self, now: float, *, is_rejection: bool) -> None:
        """Record an answer."""
        seconds, second = self._seconds, int(now)
        if not seconds or seconds[-1][0] != second:
            seconds.append([second, 0, 0])
            self._forget(second - SPAN)
        seconds[-1][1] += 1
        seconds[-1][2] += is_rejection

    def restart(self) -> None:
        """Forget all answers: the entity accepts messages again."""
        self._seconds.clear()

    def is_refusing(self, now: float, awaited: int) -> bool:
        """Whether the entity accepts almost no message; ``awaited`` answers are still to come.

        If there are few answers, this is known only once all have come and all were rejections.
        """
        self._forget(int(now) - SPAN)
        answers = sum(each[1] for each in self._seconds)
        rejections = sum(each[2] for each in self._seconds)
        if answers >= MIN_ANSWERS:
            return rejections >= SHARE * answers
        return not awaited and rejections == answers

    def _forget(self, until: int) -> None:
        while self._seconds and self._seconds[0][0] <= until:
            self._seconds.popleft()
