"""The pace of sending to one entity: as fast as it answers, until it is busy or has been out of reach. Pure.

                busy                              busy: half the rate, after the pause that was asked for
    FREE ---------------------> PACED, towards the rate at which it was busy <----.
     ^ ^                          |  | and beyond, slowly near it ----------------'
     | '--- far above that rate --'  |
     |                               '-- half the rate is as busy --> BUSY ANYWAY: faster, as long as no busier
     |                                                                   | no longer busy
     '----- FAST reached -------- PACED, from FIRST_RATE, doubling <-----'<--- out of reach

While FREE, answers set the pace: a few messages are in flight at first, and each accepted one makes room for one more,
so that their number doubles with each round trip. That does not slow down a strong entity. An entity that was busy, or
has just come back, may have room for few messages, and clients send to it too: messages are then spread evenly.

Slowing down helps an entity that is busy because of the messages it gets. If it answers *busy* to the same share of
messages at half the rate, the rate is not the cause, and slowing down would only take longer. Its messages then wait
one by one for the time that it asks for, and the rate grows as long as the share of *busy* does not. Times are
monotonic seconds.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from heapq import nsmallest

from sbpair.pair.envelope.names import path_key
from sbpair.pair.ground.asked_pause import bounded

from .credit import AFTER_LOSS

FIRST_WINDOW = 256  # messages in flight, as many as a backlog delivers at first
LARGEST_WINDOW = 100_000  # messages: more are never in flight
FIRST_RATE = 50.0  # messages per second, for an entity that was out of reach
LOWEST_RATE = 2.0  # messages per second
FAST = 3000.0  # messages per second; above that, answers set the pace
DOUBLING = 0.7  # messages per second for each message accepted: a rate doubles in a second
HALVED_EVERY = 1.0  # seconds, at least
RECOVERS_IN = 30.0  # seconds from half of a rate until it is reached again, at most
RECOVERY = 0.4  # seconds of that for each message per second: a little too much of a low rate is little
SMOOTHED = 0.01  # seconds of messages that are sent together
BATCHED = 0.1  # seconds of messages of an ordered session that are sent as one batch
BURST = 8  # messages that are sent together after a moment without any
ENOUGH = 40  # answers that are enough to judge how busy an entity is
CLEAN = 200  # answers without *busy*, after which the next *busy* begins a new trial
JUDGED_FOR = 30.0  # seconds: older answers do not count
FORGOTTEN = 150.0  # seconds without a busy answer after which the entity is as any other
MAX_SHOWN = 200  # rates of a metric
MAX_PATHS = 10_000  # paces kept, of those used last; senders choose the paths
OUTAGE = 5.0  # seconds: a side that was away for longer may come back with little room
REMEMBERED = 600.0  # seconds for which an entity counts as having just come back


@dataclass(slots=True)
class Answers:
    """The answers of an entity since ``since``."""

    since: float
    accepted: int = 0
    busy: int = 0

    @property
    def count(self) -> int:
        """The number of answers."""
        return self.accepted + self.busy

    @property
    def odds(self) -> float:
        """The ratio of busy answers to accepted messages."""
        return (self.busy + 0.5) / (self.accepted + 0.5)

    def are_busier_than(self, odds: float, deviations: int) -> bool:
        """Whether more answers are busy than these odds and ``deviations`` standard deviations of chance explain."""
        share = odds / (1 + odds)
        return self.busy > self.count * share + deviations * math.sqrt(self.count * share * (1 - share))


class Pace:
    """The pace for one entity; ``max_rate`` in messages per second, None for no limit."""

    def __init__(self, max_rate: float | None = None) -> None:
        self._max_rate = math.inf if max_rate is None else max_rate
        self._window = FIRST_WINDOW
        self._rate: float | None = None  # when PACED; before growing back, if a ceiling is known
        self._ceiling: float | None = None  # the rate at which it was busy, as far as one was seen
        self._grows_from = 0.0  # when growing back began
        self._next_at = 0.0  # when the next message is due, if sent evenly
        self._paused_until = 0.0
        self._forgotten_at = math.inf
        self._halved_at = -math.inf
        self._second, self._accepted, self._accepted_before = 0, 0, 0
        self._answers = Answers(0.0)  # since the rate was halved, or lately
        self._is_halved = False  # and has been found busy at each rate since
        self._faster: Answers | None = None  # the answers before the rate was halved again
        self._anyway: float | None = None  # the odds of busy that are the same at any rate

    @property
    def is_free(self) -> bool:
        """Whether only answers set the pace."""
        return self._rate is None and self._max_rate == math.inf

    def rate(self, now: float) -> float:
        """Return the messages per second; infinite while answers set the pace."""
        ceiling = self._ceiling
        has_grown = ceiling is not None and self._grown(now) >= max(FAST, 4 * ceiling)
        if has_grown or now >= self._forgotten_at:
            self._be_free()
        return self.shown(now)

    def shown(self, now: float) -> float:
        """Return the messages per second, like :meth:`rate`, without changing anything; may be called in any thread."""
        grown = self._grown(now)
        return self._max_rate if grown == math.inf else min(self._max_rate, max(LOWEST_RATE, grown))

    def room(self, now: float, in_flight: int) -> int:
        """Return how many messages may be sent now; ``in_flight`` are unanswered."""
        if now < self._paused_until:
            return 0
        rate = self.rate(now)
        room = self._window - in_flight if self._rate is None else LARGEST_WINDOW
        if rate < math.inf:
            room = min(room, math.floor((now - max(self._next_at, now)) * rate + self._burst(rate)))
        return max(0, room)

    def batch(self, now: float) -> int:
        """Return how many messages may be sent as one batch: few while messages are spread evenly."""
        rate = self.rate(now)
        return LARGEST_WINDOW if rate == math.inf else max(1, int(rate * BATCHED))

    def sent(self, now: float, count: int = 1) -> None:
        """Record that a message was sent, or a batch of ``count``."""
        rate = self._max_rate if self._rate is None else self.rate(now)
        if rate < math.inf:
            self._next_at = max(self._next_at, now) + count / rate

    def due(self, now: float) -> float:
        """Return when there may be room again without an answer; infinite if only an answer makes room."""
        rate = self.rate(now)
        if rate < math.inf:
            rate = self.shown(max(now, self._next_at))  # by then
            return max(now + SMOOTHED, self._paused_until, self._next_at - (self._burst(rate) - 1) / rate)
        return self._paused_until if now < self._paused_until else math.inf

    def accepted(self, now: float, count: int = 1) -> None:
        """Record that the entity accepted a message, or a batch of ``count``: one answer."""
        second = int(now)
        if second != self._second:
            self._accepted_before = self._accepted if second == self._second + 1 else 0
            self._second, self._accepted = second, 0
        self._accepted += count
        if self._rate is None:
            if self._window < LARGEST_WINDOW:
                self._window += 1
            if self._anyway is None:
                return
        elif self._ceiling is None and not self._is_tried(now):
            self._rate += DOUBLING * count
            if self._rate >= FAST:
                self._be_free()
        if now >= self._answers.since:
            self._answers.accepted += 1
            self._judge(now)

    def was_busy(self, now: float, hint: float | None = None) -> None:
        """Record that the entity was busy; ``hint``: the seconds that it asked to wait."""
        if now >= self._answers.since:
            self._answers.busy += 1
            self._judge(now)
        if self._anyway is not None or self._is_tried(now):
            return
        if hint is not None:
            self._paused_until = max(self._paused_until, now + bounded(hint))
        if now >= self._halved_at + HALVED_EVERY:
            self._slow_down(now)
        self._answers.since = max(self._answers.since, self._paused_until)
        self._grows_from = max(now, self._answers.since)
        self._forgotten_at = self._grows_from + FORGOTTEN

    def link_lost(self) -> None:
        """Record that a link ended with messages in flight: from now on fewer are sent at a time."""
        self._window = max(AFTER_LOSS, self._window // 2)

    def was_out_of_reach(self, now: float) -> None:
        """Record that the entity did not answer: it may have room for few messages when it comes back."""
        if self.rate(now) > FIRST_RATE:
            self._rate, self._ceiling = FIRST_RATE, None
        self._begin(now)

    def paused_for(self, now: float) -> float:
        """Return for how many seconds the entity asked to wait."""
        return max(0.0, self._paused_until - now)

    def _is_tried(self, now: float) -> bool:
        """Whether half the rate is on trial, to see how busy the entity then is; meanwhile the rate stays the same."""
        answers = self._answers
        is_under_way = answers.since <= now < answers.since + JUDGED_FOR
        return self._is_halved and is_under_way and answers.count < ENOUGH

    def _grown(self, now: float) -> float:
        """Return the recovered rate, which grows towards the rate at which the entity was busy, and beyond."""
        rate, ceiling = self._rate, self._ceiling  # read once: other threads ask too
        if rate is None:
            return math.inf
        if ceiling is None:
            return rate
        since = 0.0 if self._is_tried(now) else max(0.0, now - self._grows_from)
        part = since / min(RECOVERS_IN, ceiling * RECOVERY)
        return ceiling + (ceiling - rate) * (part - 1) ** 3

    # How busy it is

    def _judge(self, now: float) -> None:
        """Judge the answers, once there are enough from at least one second."""
        answers, anyway = self._answers, self._anyway
        if self._is_halved and answers.count == ENOUGH:
            self._grows_from = now
        if now < answers.since + HALVED_EVERY or answers.count < ENOUGH:
            return
        if anyway is not None:
            is_faster_busier = answers.are_busier_than(1.25 * anyway, deviations=2)
            if is_faster_busier or not answers.busy or now > answers.since + JUDGED_FOR:
                self._begin(now)
            else:
                self._anyway = min(anyway, (anyway + answers.odds) / 2)
                self._answers = Answers(now)
        elif not answers.busy and (not self._is_halved or answers.accepted >= CLEAN):
            self._begin(now)

    def _begin(self, now: float) -> None:
        """Start over: treat the next busy answer as the first."""
        self._answers, self._is_halved = Answers(now), False
        self._faster = self._anyway = None

    def _slow_down(self, now: float) -> None:
        """Send at half the rate, unless the last halving did not help."""
        answers, faster, rate = self._answers, self._faster, self.rate(now)
        if not self._is_halved:
            self._note_ceiling(now, rate)
            rate = min(rate, self._ceiling or FIRST_RATE) if self._rate is None else rate
            self._is_halved = True
        elif faster is not None and answers.are_busier_than(faster.odds / 2, deviations=1):
            self._begin(now)  # had the rate been the cause, half of it would have halved the odds
            self._anyway = Answers(0.0, answers.accepted + faster.accepted, answers.busy + faster.busy).odds
            self._rate = min(2 * rate, self._ceiling or math.inf)
            self._grows_from = self._paused_until = now
            return
        else:
            self._faster = answers
        self._rate, self._halved_at = rate / 2, now
        self._answers = Answers(now + HALVED_EVERY)

    def _note_ceiling(self, now: float, rate: float) -> None:
        """Remember the rate at which the entity became busy, if it was really sent at that rate."""
        proven = float(max(self._accepted, self._accepted_before)) if int(now) == self._second else 0.0
        if self._rate is not None:
            self._ceiling = rate if proven >= rate / 2 else self._ceiling
        elif proven >= FIRST_RATE:
            self._ceiling = proven

    def _be_free(self) -> None:
        self._rate = self._ceiling = None
        self._forgotten_at = math.inf
        self._window = FIRST_WINDOW

    def _burst(self, rate: float) -> float:
        """Return how many messages may be sent together: only one while a rate is tried."""
        return max(1 if self._is_halved else BURST, 2 * SMOOTHED * rate)


class Paces:
    """One :class:`Pace` for each path of a side, kept across links and connections.

    A side that has come back must serve its clients first; so the pace applies to all messages sent to it: those of
    backlogs, of ordered sessions, and those that land. ``max_rate`` is in messages per second, None for no limit.
    """

    def __init__(self, max_rate: float | None = None) -> None:
        self._max_rate = max_rate
        self._paces: OrderedDict[str, Pace] = OrderedDict()
        self._lost_at: float | None = None
        self._returned_at = -math.inf

    def of(self, path: str, now: float) -> Pace:
        """Return the pace of a path."""
        key = path_key(path)
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = Pace(self._max_rate)
            if now < self._returned_at + REMEMBERED:
                pace.was_out_of_reach(now)
            if len(self._paces) > MAX_PATHS:
                self._paces.popitem(last=False)
        else:
            self._paces.move_to_end(key)
        return pace

    def rates(self, now: float) -> dict[str, float]:
        """Return the messages per second for each path with a limited pace, in lower case: the MAX_SHOWN slowest.

        May be called in any thread.
        """
        shown = ((pace.shown(now), key) for key, pace in list(self._paces.items()))
        slowest = nsmallest(MAX_SHOWN, ((rate, key) for rate, key in shown if rate < math.inf))
        return {key: rate for rate, key in slowest}

    @property
    def is_side_lost(self) -> bool:
        """Whether the side was out of reach, and has not been reached since."""
        return self._lost_at is not None

    def side_lost(self, now: float) -> None:
        """Record that the side is out of reach."""
        if self._lost_at is None:
            self._lost_at = now

    def side_reached(self, now: float) -> None:
        """Record that the side is connected: after an outage, all entities begin slowly."""
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is not None and now - lost_at >= OUTAGE:
            self._returned_at = now
            for pace in self._paces.values():
                pace.was_out_of_reach(now)
