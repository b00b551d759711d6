"""The messages of a queue with their locks, and settlement.

A lock ends when its message is settled, when it expires, or with the lock of its session. The message is then
removed, active again, deferred or dead-lettered. See ``queue`` for the states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import LockLost, NotAllowed, SessionLockLost
from .descriptions import QueueDescription
from .indexes import Deadlines
from .message_store import DEFERRED, DESCRIPTION, OUTGROWN, REASON, MessageStore
from .partition import Health
from .sessions import MessageSession, SessionLock
from .stored_message import Instant, LockToken, MessageState, StoredMessage
from .audit_recorder import Removal

if TYPE_CHECKING:
    from .queue import Queue
    from .queue_context import QueueContext

FOR_EVER: Instant = 2**63
LOCKED = MessageState.LOCKED


class Locks:
    """The message locks of one queue, by token.

    A lock lapses by itself at its instant, unless a session's lock covers it: then that one does.
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

    def pop_lapsed(self, now: Instant, most: int | None = None) -> list[StoredMessage]:
        """The messages whose locks lapsed up to ``now``, earliest first, ``most`` at most; they are ended."""
        return [self.end(token) for token in self._deadlines.pop_due(now, most)]


COMPLETED = Removal.COMPLETED


class LockedStore(MessageStore):
    """The messages of one queue, and the locks on them."""

    def __init__(
        self,
        path: str,
        description: QueueDescription,
        parent: Queue | None,
        context: QueueContext,
    ) -> None:
        super().__init__(path, description, parent, context)
        self.accessed_at: Instant | None = None
        self._operations = context.operations
        self._form = context.form
        self._locks = Locks(context.new_token)

    def check_up(self) -> None:
        """Raises PartitionUnavailable when it is a partition that is down."""
        if self.partition is not None and self.partition.health is Health.DOWN:
            self.partition.check_up(self.path)  # raises

    def handle_timer(self, now: Instant) -> None:
        """Run due timers."""
        raise NotImplementedError

    def _lock(self, message: StoredMessage, now: Instant, session: SessionLock | None) -> None:
        self._operations.receives += 1
        if session is None:
            self._locks.take(message, now + self.description.lock_duration)
            self.timers_moved()
        else:
            token = self._locks.take(message, session.locked_until, lapses=False)
            session.tokens[token] = None

    # -- settling: each raises LockLost, or SessionLockLost, when the lock is not, or no longer, held

    def complete(self, token: LockToken, now: Instant) -> None:
        """Remove the message; expiry no longer matters (T-3)."""
        self._forget(self._unlock(token, now), COMPLETED)

    def abandon(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Make the message available again and count a failed delivery; ``changes`` are set on its properties."""
        message = self._unlock(token, now)
        if self._amend(message, changes, now):
            self._failed(message, now)

    def release(self, token: LockToken, now: Instant) -> None:
        """Make the message available again without counting a delivery."""
        self._offer_again(self._unlock(token, now), now)

    def defer(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Defer the message: from now on it is received by its sequence number only."""
        message = self._unlock(token, now)
        if not self._amend(message, changes, now):
            return
        message.state = DEFERRED
        if not message.is_deferred:
            message.is_deferred = True
            self._deferred += 1
        if self._change_log is not None:
            self._change_log.changed(self, message)

    def _amend(self, message: StoredMessage, changes: dict[str, object] | None, now: Instant) -> bool:
        """Set ``changes``; False where they are too many for the header: then it is dead-lettered."""
        if changes and self._form.outgrows(message, changes):
            if self.dead_letter_queue is None:
                return True  # nothing is dead-lettered out of a dead-letter queue: it waits as it is
            self._dead_letter(message, now, OUTGROWN)
            return False
        message.amend(changes)
        return True

    def dead_letter(self, token: LockToken, now: Instant, properties: Mapping[str, object]) -> None:
        """Move the message to the dead-letter queue with these application properties, the reason among them.

        Raises NotAllowed on a dead-letter queue.
        """
        self.check_can_dead_letter()
        self._dead_letter(self._unlock(token, now), now, properties)

    def check_can_dead_letter(self) -> None:
        """Raises NotAllowed on a dead-letter queue."""
        if self.dead_letter_queue is None:
            raise NotAllowed(f"A message cannot be dead-lettered out of '{self.path}'.")

    def renew(self, token: LockToken, now: Instant) -> Instant:
        """Restart the lock's full duration; returns its new end. Raises NotAllowed with sessions."""
        if self.sessions is not None:
            raise NotAllowed("A message of a session is locked by its session: renew that lock.")
        message = self.locked_message(token, now)
        self._locks.extend(message, now + self.description.lock_duration)
        self.accessed_at = now
        return message.locked_until

    def messages_under(self, lock: SessionLock) -> list[StoredMessage]:
        """The messages that a session's lock covers, in the order in which they were received."""
        return [message for token in lock.tokens if (message := self._locks.get(token)) is not None]

    def lose_locks(self, now: Instant) -> None:
        """Expire every lock now; each message counts a failed delivery."""
        if self.sessions is not None:
            self.sessions.lapse(now, FOR_EVER)
        for message in self._locks.pop_lapsed(FOR_EVER):
            self._failed(message, now)
        self.timers_moved()

    def session_state_changed(self, session: MessageSession) -> None:
        """Record that the state of a session has changed."""
        if self._change_log is not None:
            self._change_log.noted(self, session)

    def give_back(self, message: StoredMessage, now: Instant, *, has_failed: bool) -> None:
        """Return a locked message whose session lock has ended."""
        if message.lock_token is not None:
            self._locks.end(message.lock_token)
        if has_failed:
            self._failed(message, now)
        else:
            self._offer_again(message, now)

    def locked_message(self, token: LockToken, now: Instant) -> StoredMessage:
        """The message locked under ``token``. Raises LockLost or SessionLockLost: it is not, or no longer."""
        self.check_up()
        message = self._locks.get(token)
        if message is None:
            raise LockLost
        if message.locked_until <= now:
            self.handle_timer(now)
            raise LockLost if self.sessions is None else SessionLockLost
        return message

    def _unlock(self, token: LockToken, now: Instant) -> StoredMessage:
        message = self.locked_message(token, now)
        self.accessed_at = now
        self._locks.end(token)
        if self.sessions is None:
            self.timers_moved()
        elif (lock := self.sessions.lock_of(message.session_id or "")) is not None:
            lock.tokens.pop(token, None)
        return message

    def _failed(self, message: StoredMessage, now: Instant) -> None:
        message.delivery_count += 1
        if self._change_log is not None:
            self._change_log.changed(self, message)
        is_spent = message.delivery_count >= self.description.max_delivery_count
        if is_spent and self.dead_letter_queue is not None and not self._expired(message, now):
            text = f"Message could not be consumed after {message.delivery_count} delivery attempts."
            self._dead_letter(message, now, {REASON: "MaxDeliveryCountExceeded", DESCRIPTION: text})
        else:
            self._offer_again(message, now)
