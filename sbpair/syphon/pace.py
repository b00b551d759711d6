"""The pace of sending to one entity: as fast as it answers, until it is busy or has been out of reach (H-10). Pure.

                busy                              busy: half the rate, after the pause that was asked for
    FREE ---------------------> PACED, below the rate at which it was busy <------.
     ^ ^                          |  | grows back within RECOVERS_IN, then faster --'
     | '--- far above that rate --'
     |
     '----- FAST reached -------- PACED, from FIRST_RATE, doubling <------ out of reach

While FREE, answers set the pace: a few messages are in flight at first, and each that is accepted makes room for one
more, so that their number doubles with each round trip. That takes no time from a strong entity. An entity that was
busy, or that has just come back, may have room for little, and clients send to it too: messages are then spread
evenly. Times are monotonic seconds.
"""

from __future__ import annotations

import math

from .credit import AFTER_LOSS

FIRST_WINDOW = 256  # messages in flight, as many as a backlog delivers at first
LARGEST_WINDOW = 100_000  # messages: more are never in flight
FIRST_RATE = 50.0  # messages per second, for an entity that was out of reach
LOWEST_RATE = 2.0  # messages per second
FAST = 3000.0  # messages per second; above that, answers set the pace
DOUBLING = 0.7  # messages per second for each message accepted: a rate doubles in a second
HALVED_EVERY = 1.0  # seconds, at least
RECOVERS_IN = 30.0  # seconds from half of a rate until it is reached again
SMOOTHED = 0.01  # seconds of messages that are sent together
BURST = 8  # messages that are sent together after a moment without any


class Pace:
    """The pace for one entity; ``max_rate`` in messages per second, None for no limit."""

    def __init__(self, max_rate: float | None = None) -> None:
        self._max_rate = math.inf if max_rate is None else max_rate
        self._window = FIRST_WINDOW
        self._rate: float | None = None  # when PACED; before growing back, if a ceiling is known
        self._ceiling: float | None = None  # the rate at which it was busy
        self._grows_from = 0.0  # when growing back began
        self._next_at = 0.0  # when the next message is due, if sent evenly
        self._paused_until = 0.0
        self._halved_at = -math.inf
        self._second, self._accepted, self._accepted_before = 0, 0, 0

    @property
    def is_free(self) -> bool:
        """Whether only answers set the pace."""
        return self._rate is None and self._max_rate == math.inf

    def rate(self, now: float) -> float:
        """Return the messages per second; infinite while answers set the pace."""
        ceiling = self._ceiling
        if ceiling is not None and self._grown(ceiling, now) >= max(FAST, 4 * ceiling):
            self._be_free()
        return self.shown(now)

    def shown(self, now: float) -> float:
        """Return the messages per second as :meth:`rate` does; changes nothing, in any thread."""
        rate, ceiling = self._rate, self._ceiling
        if rate is None:
            return self._max_rate
        if ceiling is not None:
            rate = self._grown(ceiling, now)
        return min(self._max_rate, max(LOWEST_RATE, rate))

    def room(self, now: float, in_flight: int) -> int:
        """Return how many messages may be sent now; ``in_flight`` are unanswered."""
        if now < self._paused_until:
            return 0
        rate = self.rate(now)
        room = self._window - in_flight if self._rate is None else LARGEST_WINDOW
        if rate < math.inf:
            room = min(room, math.floor((now - max(self._next_at, now)) * rate + _burst(rate)))
        return max(0, room)

    def sent(self, now: float) -> None:
        """Record that a message was sent."""
        rate = self._max_rate if self._rate is None else self.rate(now)
        if rate < math.inf:
            self._next_at = max(self._next_at, now) + 1 / rate

    def due(self, now: float) -> float:
        """Return when there may be room again without an answer; infinite if only an answer makes room."""
        if now < self._paused_until:
            return self._paused_until
        rate = self.rate(now)
        if rate == math.inf:
            return math.inf
        return max(now + SMOOTHED, self._next_at - (_burst(rate) - 1) / rate)

    def accepted(self, now: float) -> None:
        """Record that the entity accepted a message."""
        second = int(now)
        if second != self._second:
            self._accepted_before = self._accepted if second == self._second + 1 else 0
            self._second, self._accepted = second, 0
        self._accepted += 1
        if self._rate is None:
            if self._window < LARGEST_WINDOW:
                self._window += 1
        elif self._ceiling is None:
            self._rate += DOUBLING
            if self._rate >= FAST:
                self._be_free()

    def was_busy(self, now: float, hint: float | None = None) -> None:
        """Record that the entity was busy; ``hint``: the seconds that it asked to wait."""
        self._paused_until = max(self._paused_until, now + (hint or 0.0))
        if now >= self._halved_at + HALVED_EVERY:
            self._halved_at = now
            self._ceiling = self._proven(now) if self._rate is None else self.rate(now)
            self._rate = self._ceiling
        self._grows_from = max(now, self._paused_until)

    def link_lost(self) -> None:
        """Record that a link ended with messages in flight: fewer are unknown if that happens again (H-13)."""
        self._window = max(AFTER_LOSS, self._window // 2)

    def was_out_of_reach(self, now: float) -> None:
        """Record that the entity did not answer: it may have little room when it comes back."""
        if self.rate(now) > FIRST_RATE:
            self._rate, self._ceiling = FIRST_RATE, None

    def paused_for(self, now: float) -> float:
        """Return for how many seconds the entity asked to wait."""
        return max(0.0, self._paused_until - now)

    def _grown(self, ceiling: float, now: float) -> float:
        """Return the rate that has grown back towards, or beyond, the rate at which the entity was busy."""
        part = max(0.0, now - self._grows_from) / RECOVERS_IN
        return ceiling * (1 + (part - 1) ** 3 / 2)

    def _proven(self, now: float) -> float:
        """Return the messages that were accepted within a second, at least ``FIRST_RATE``."""
        if int(now) != self._second:
            return FIRST_RATE
        return max(FIRST_RATE, self._accepted, self._accepted_before)

    def _be_free(self) -> None:
        self._rate = self._ceiling = None
        self._window = FIRST_WINDOW


def _burst(rate: float) -> float:
    return max(BURST, 2 * SMOOTHED * rate)
