"""What does a front end of the service keep of a partitioned entity, for one connection? (Q-8, Q-18)

    receive ---> kept? ------ yes ------> the first of them that is still locked
                   |
                   no --> every partition locks its next: the first to answer is handed over, the rest kept

What is kept is locked, so nobody else gets it; when the connection goes, or does not ask again in time, it
comes back as its lock ends, one failed delivery richer like any lock that ends so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from .entity import Sessions, Source
from .message_session import SessionLock
from .stored_message import Instant, LockToken, StoredMessage


class Spread(Source, Protocol):
    """Several partitions, each of which can be asked."""

    @property
    def sessions(self) -> Sessions | None:
        """Its sessions, if it requires any."""

    def look(self, now: Instant) -> None:
        """Let happen in each partition what is due by now."""

    def receive_from_each(self, now: Instant) -> Sequence[StoredMessage]:
        """Lock the next message of every partition that has one (Q-8)."""


class FrontEnd:
    """One connection's way to the messages of a partitioned entity."""

    def __init__(self, whole: Spread) -> None:
        self._whole = whole
        self._kept: deque[tuple[StoredMessage, LockToken | None]] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def receive(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Hand over what is kept, else what the partitions give now; the rest of that is kept.

        Raises as the entity's own.
        """
        if session is not None or self._whole.sessions is not None:
            return self._whole.receive(now, session)
        self._whole.look(now)
        while self._kept:
            message, token = self._kept.popleft()
            if message.lock_token == token and message.locked_until > now:
                return message
        found = self._whole.receive_from_each(now)
        self._kept.extend((message, message.lock_token) for message in found[1:])
        return found[0] if found else None

    def receive_and_delete(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Nothing is kept of what would be lost: the entity's own."""
        return self._whole.receive_and_delete(now, session)
