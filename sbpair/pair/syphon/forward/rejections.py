"""What a rejected message means: that it waits by itself, or that its entity accepts none.

An entity that rejects one message may accept the next, so the message alone waits, and the others go on. The entity
is held only when its answers show that it accepts almost none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from sbpair.pair.client.backoff import Backoff

from .in_flight import InFlightMessage

FIRST_WAIT = 0.5  # seconds; doubled with each rejection of the same message
LONGEST_WAIT = 4.0  # seconds
MOST_ALONE = 2000  # messages of a destination that wait by themselves; with more, the entity is held
SPAN = 10  # seconds of answers that are judged
MIN_ANSWERS = 20
SHARE = 0.9  # of the answers


class RecentAnswers:
    """The answers of an entity in the last ``SPAN`` seconds. Pure; times are monotonic seconds."""

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
        """Return whether the entity accepts almost no message; ``awaited`` answers are to come.

        With few answers that is known only once all have come, and all were rejections.
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


class WaitingAlone:
    """Rejected messages that wait by themselves, each until ``ready`` is called with it."""

    def __init__(self, longest: float, ready: Callable[[InFlightMessage], None]) -> None:
        """``longest``: seconds of a wait at most, if that is less than ``LONGEST_WAIT``."""
        self._longest = min(longest, LONGEST_WAIT)
        self._ready = ready
        self._loop = asyncio.get_running_loop()
        self._timers: dict[InFlightMessage, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    @property
    def is_full(self) -> bool:
        """Whether no further message may wait here."""
        return len(self._timers) >= MOST_ALONE

    def begin(self, message: InFlightMessage, asked: float | None = None) -> None:
        """Let ``message`` wait for twice as long as after its last rejection, and ``asked`` seconds at least."""
        span = Backoff(self._longest, FIRST_WAIT, failures=message.rejections).next_pause()
        span = max(span, asked or 0.0)
        message.rejections += 1
        self._timers[message] = self._loop.call_later(span, self._end, message)

    def withdraw(self, message: InFlightMessage) -> None:
        """Remove ``message`` if it waits here."""
        timer = self._timers.pop(message, None)
        if timer is not None:
            timer.cancel()

    def take_all(self) -> list[InFlightMessage]:
        """Remove and return all messages."""
        taken = list(self._timers)
        for message in taken:
            self.withdraw(message)
        return taken

    def _end(self, message: InFlightMessage) -> None:
        del self._timers[message]
        self._ready(message)
