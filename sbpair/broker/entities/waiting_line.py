"""Which waiting message is next? The one with the lowest number, wherever it came from.

Most come new, with ever higher numbers, and need no sorting; those that were handed out and came back are a
heap beside them. A message that stopped waiting meanwhile (expired, say) is passed over when it is met.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from .stored_message import MessageState, StoredMessage

ACTIVE = MessageState.ACTIVE


class WaitingLine:
    """Messages that wait to be received, in the order of their sequence numbers."""

    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[StoredMessage] = deque()
        self._returned: list[tuple[int, StoredMessage]] = []

    def add(self, message: StoredMessage) -> None:
        """Take a message whose number is higher than any before."""
        self._fresh.append(message)

    def add_again(self, message: StoredMessage) -> None:
        """Take back a message that was popped."""
        heappush(self._returned, (message.sequence_number, message))

    def pop(self) -> StoredMessage | None:
        """The first message that still waits, or None; it waits no longer."""
        fresh, returned = self._fresh, self._returned
        while fresh and fresh[0].state is not ACTIVE:
            fresh.popleft()
        while returned and returned[0][1].state is not ACTIVE:
            heappop(returned)
        if returned and (not fresh or returned[0][0] < fresh[0].sequence_number):
            return heappop(returned)[1]
        return fresh.popleft() if fresh else None
