"""Was a message of this id accepted within the window? (3.6)

    --- window ---------------------------------------> now
    |  id  id     id   id                        |  id?     accepted before: dropped, and still answered
    '- forgotten, one by one, as the window moves on

The window is counted from the first acceptance; a duplicate does not extend it. What is kept is bounded by
what was accepted within one window, and forgotten when the next message comes. Each partition has
its own (Q-11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from .stored_message import Instant


class Duplicates:
    """The message ids accepted lately, each with the sequence number it was given."""

    __slots__ = ("_ids", "_numbers")

    def __init__(self) -> None:
        self._ids: deque[tuple[Instant, Hashable]] = deque()
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number_of(self, message_id: Hashable, window: int, now: Instant) -> int | None:
        """The number of the message accepted with this id less than ``window`` ms ago, or None."""
        while self._ids and self._ids[0][0] + window <= now:
            del self._numbers[self._ids.popleft()[1]]
        return self._numbers.get(message_id)

    def accepted(self, message_id: Hashable, number: int, now: Instant) -> None:
        """Remember an id that :meth:`number_of` did not know."""
        self._ids.append((now, message_id))
        self._numbers[message_id] = number
