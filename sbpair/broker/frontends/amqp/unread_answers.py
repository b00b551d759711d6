"""The answers of a connection's $management nodes that its client has not read yet.

    a request arrives while more than MAX_UNREAD bytes are unread    it waits, and everything behind it
    the client reads                                                 the waiting requests are answered
    it sends MAX_WAITING bytes more meanwhile                        its connection is closed

A peek of 150 bytes is answered with up to a megabyte, so one read of the socket can ask for hundreds of megabytes.
"""

from __future__ import annotations

from sbpair.pair.amqp.events import Event
from sbpair.pair.amqp.session import Session

MAX_UNREAD = 2**20  # bytes of answers; the next one may exceed it
MAX_WAITING = 2**20  # bytes that may arrive while requests wait


class UnreadAnswers:
    """Counts the unread answers of one connection, and keeps the events that wait until the client reads."""

    __slots__ = ("_sessions", "_waited", "size", "waiting")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of answers that were not known to be read, when the client stopped reading or closed a window."""
        self.waiting: list[Event] = []
        """Events that were not processed yet."""
        self._waited = 0
        self._sessions: set[Session] = set()

    def answered(self, size: int, session: Session) -> None:
        """Count an answer on a link of ``session``."""
        self.size += size
        self._sessions.add(session)

    @property
    def are_too_many(self) -> bool:
        """Whether the next request must wait."""
        return self.size > MAX_UNREAD

    def passed_on(self) -> None:
        """Report that the socket accepted all output: only data waiting for a session window is unread."""
        if self.size:
            self._sessions = {session for session in self._sessions if session.pending}
            if not self._sessions:
                self.size = 0

    def take_waiting(self) -> list[Event]:
        """Return the events that waited, and forget them."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def count_arrival(self, size: int) -> bool:
        """Count bytes that arrived; returns False if too many arrived while requests wait."""
        self._waited = self._waited + size if self.waiting else 0
        return self._waited <= MAX_WAITING
