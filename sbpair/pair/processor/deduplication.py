"""Deduplication: the message ids that were recently handled, on either side. Pure."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

MAX_IDS = 200_000  # remembered ids; beyond that, the oldest are forgotten


class Sighting(Enum):
    """Whether the id of an arriving message was seen before."""

    NEW = "new"
    RUNNING = "running"
    HANDLED = "handled"


class Deduplication:
    """Remembers handled ids for ``window`` seconds, at most ``most`` of them; times are monotonic seconds."""

    def __init__(self, window: float, most: int = MAX_IDS) -> None:
        self._window = window
        self._most = most
        # In the order of their times; a dict would skip over all removed entries to find the first.
        self._handled: OrderedDict[str, float] = OrderedDict()
        self._running: set[str] = set()

    def __len__(self) -> int:
        return len(self._handled)

    def begin(self, message_id: str, now: float) -> Sighting:
        """Record an arriving message; a NEW one counts as running until :meth:`end`."""
        self._forget(now)
        if message_id in self._handled:
            return Sighting.HANDLED
        if message_id in self._running:
            return Sighting.RUNNING
        self._running.add(message_id)
        return Sighting.NEW

    def end(self, message_id: str, now: float, *, is_handled: bool) -> None:
        """Record that a message is no longer running: it was handled, or will be delivered again."""
        self._running.discard(message_id)
        if is_handled:
            self._handled.pop(message_id, None)
            self._handled[message_id] = now
            if len(self._handled) > self._most:
                self._handled.popitem(last=False)

    def _forget(self, now: float) -> None:
        oldest = now - self._window
        handled = self._handled
        while handled:
            first = next(iter(handled))
            if handled[first] > oldest:
                return
            del handled[first]
