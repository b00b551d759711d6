"""The answers to forwards, and the messages that wait after one: in the order in which they will be sent, or alone.

An entity that rejects one message may accept the next, so only that message waits, and the others go on. An
entity is held only when its answers show that it accepts almost none.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import takewhile
from operator import attrgetter

from sbpair.pair.client.backoff import Backoff

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


FIRST_WAIT = 0.5  # seconds; doubled with each rejection of the same message
LONGEST_WAIT = 4.0  # seconds
MOST_ALONE = 2000  # messages of a destination that wait by themselves; with more, the entity is held


class WaitingMessages:
    """Messages of one destination that are neither sent nor waiting alone."""

    def __init__(self) -> None:
        # A dict would skip over all removed entries to find the next.
        self._messages: OrderedDict[InFlightMessage, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: InFlightMessage) -> None:
        """Let ``message`` wait, after the others."""
        self._messages[message] = None

    def add_all(self, messages: Iterable[InFlightMessage]) -> None:
        """Let ``messages`` wait, after the others."""
        self._messages.update(dict.fromkeys(messages))

    def add_first(self, messages: Iterable[InFlightMessage]) -> None:
        """Let ``messages`` wait, before the others."""
        self._messages = OrderedDict.fromkeys([*messages, *self._messages])

    def withdraw(self, message: InFlightMessage) -> None:
        """Remove ``message`` if it waits here."""
        self._messages.pop(message, None)

    def take_movable(self) -> list[InFlightMessage]:
        """Remove and return the messages that may be sent elsewhere, in order."""
        taken = [message for message in self._messages if not message.stays]
        for message in taken:
            del self._messages[message]
            message.resume()
        return taken

    def take_all(self) -> list[InFlightMessage]:
        """Remove and return all messages, in order."""
        taken = list(self._messages)
        self._messages.clear()
        return taken

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()

    def hold_all(self) -> None:
        """Let all messages be held by their origins."""
        for message in list(self._messages):
            message.hold()

    def next(self) -> InFlightMessage | None:
        """Remove the next message to send; from now on it cannot be released."""
        if not self._messages:
            return None
        message, _ = self._messages.popitem(last=False)
        message.resume()
        return message

    def next_probe(self) -> InFlightMessage | None:
        """Remove and return the next message; a fresh one if only few messages are rejected repeatedly."""
        first = next(iter(self._messages), None)
        if first is not None and first.rejections > 1:
            fresh = [message for message in self._messages if not message.rejections]
            if len(self._messages) - len(fresh) < MIN_ANSWERS:
                self.add_first(fresh[:1])
        return self.next()

    def restore_order(self) -> None:
        """Sort by delivery-id: a refused message precedes those posted meanwhile."""
        self._messages = OrderedDict.fromkeys(sorted(self._messages, key=attrgetter("delivery_id")))


class WaitingAlone:
    """Rejected messages that wait alone, each until ``ready`` is called with it."""

    def __init__(self, longest: float, ready: Callable[[InFlightMessage], None]) -> None:
        """Create an empty set. ``longest``: the longest wait in seconds, if less than ``LONGEST_WAIT``."""
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
        """Let ``message`` wait twice as long as after its last rejection, and at least ``asked`` seconds."""
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
