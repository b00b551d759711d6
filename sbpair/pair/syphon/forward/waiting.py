"""The messages that wait for their destination, in the order in which they will be sent, or each one alone.

An entity that rejects one message may accept the next, so only that message waits, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from operator import attrgetter

from sbpair.pair.client.backoff import Backoff

from .answers import MIN_ANSWERS
from .in_flight import InFlightMessage

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
