"""Which message is held under which token, and until when?"""

from __future__ import annotations

from collections.abc import Callable

from .deadlines import Deadlines
from .stored_message import Instant, LockToken, MessageState, StoredMessage

FOR_EVER: Instant = 2**63
LOCKED = MessageState.LOCKED


class Locks:
    """The message locks of one queue, by token.

    A lock lapses by itself at its instant, unless a session's lock covers it: then that one does (3.5).
    """

    __slots__ = ("_deadlines", "_messages", "_new_token")

    def __init__(self, new_token: Callable[[], LockToken]) -> None:
        self._new_token = new_token
        self._messages: dict[LockToken, StoredMessage] = {}
        self._deadlines = Deadlines[LockToken]()

    def take(self, message: StoredMessage, until: Instant, *, lapses: bool = True) -> LockToken:
        """Lock ``message`` and return the token."""
        token = self._new_token()
        message.state = LOCKED
        message.lock_token = token
        message.locked_until = until
        self._messages[token] = message
        if lapses:
            self._deadlines.set(token, until)
        return token

    def get(self, token: LockToken) -> StoredMessage | None:
        """The message held under ``token``, or None."""
        return self._messages.get(token)

    def extend(self, message: StoredMessage, until: Instant) -> None:
        """Let the lock of ``message``, one that lapses by itself, hold until ``until``."""
        assert message.lock_token is not None  # noqa: S101 - it is held
        message.locked_until = until
        self._deadlines.set(message.lock_token, until)

    def end(self, token: LockToken) -> StoredMessage:
        """End the lock and return its message, which is for the caller to place."""
        message = self._messages.pop(token)
        message.lock_token = None
        self._deadlines.drop(token)
        return message

    def next(self) -> Instant | None:
        """When the first lock lapses; None for never."""
        return self._deadlines.next()

    def take_lapsed(self, now: Instant) -> list[StoredMessage]:
        """The messages whose locks lapsed up to ``now``, earliest first; their locks are ended."""
        return [self.end(token) for token in self._deadlines.take_due(now)]
