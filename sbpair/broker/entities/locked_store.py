"""What of a queue do receivers hold, and how do they settle it?

A lock ends by settling, by its time, or with the lock of its session (3.5); then the message is gone, waits
again, is deferred, or is dead-lettered. See ``queue`` for the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import LockLost, NotAllowed, SessionLockLost
from .description import QueueDescription
from .locks import FOR_EVER, Locks
from .message_session import MessageSession, SessionLock
from .message_store import DEFERRED, DESCRIPTION, OUTGROWN, REASON, MessageStore
from .partition import Health
from .stored_message import Instant, LockToken, StoredMessage
from .witness import Removal

if TYPE_CHECKING:
    from .queue import Queue
    from .surroundings import Surroundings

COMPLETED = Removal.COMPLETED


class LockedStore(MessageStore):
    """The messages of one queue, and the locks on them."""

    def __init__(
        self,
        path: str,
        description: QueueDescription,
        parent: Queue | None,
        surroundings: Surroundings,
    ) -> None:
        super().__init__(path, description, parent, surroundings)
        self.accessed_at: Instant | None = None
        self._operations = surroundings.operations
        self._form = surroundings.form
        self._locks = Locks(surroundings.new_token)

    def check_up(self) -> None:
        """Raises PartitionUnavailable when it is a partition that is down."""
        if self.partition is not None and self.partition.health is Health.DOWN:
            self.partition.check_up(self.path)  # raises

    def handle_timer(self, now: Instant) -> None:
        """Let happen what is due."""
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
        """The receiver is done with the message; expiry no longer matters (T-3)."""
        self._forget(self._unlock(token, now), COMPLETED)

    def abandon(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Give the message back, one failed delivery richer; ``changes`` are set on its properties."""
        message = self._unlock(token, now)
        if self._amend(message, changes, now):
            self._failed(message, now)

    def release(self, token: LockToken, now: Instant) -> None:
        """Give the message back as if it had not been delivered."""
        self._offer_again(self._unlock(token, now), now)

    def defer(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Set the message aside: from now on it is received by its sequence number only."""
        message = self._unlock(token, now)
        if not self._amend(message, changes, now):
            return
        message.state = DEFERRED
        if not message.is_deferred:
            message.is_deferred = True
            self._deferred += 1
        if self._journal is not None:
            self._journal.changed(self, message)

    def _amend(self, message: StoredMessage, changes: dict[str, object] | None, now: Instant) -> bool:
        """Set ``changes``; False where they are too many for the header: then it is dead-lettered (3.2)."""
        if changes and self._form.outgrows(message, changes):
            if self.dead_letter_queue is None:
                return True  # nothing is dead-lettered out of a dead-letter queue: it waits as it is
            self._bury(message, now, OUTGROWN)
            return False
        message.amend(changes)
        return True

    def dead_letter(self, token: LockToken, now: Instant, properties: Mapping[str, object]) -> None:
        """Move the message to the dead-letter queue with these application properties, the reason among them.

        Raises NotAllowed on a dead-letter queue.
        """
        self.check_can_dead_letter()
        self._bury(self._unlock(token, now), now, properties)

    def check_can_dead_letter(self) -> None:
        """Raises NotAllowed on a dead-letter queue."""
        if self.dead_letter_queue is None:
            raise NotAllowed(f"A message cannot be dead-lettered out of '{self.path}'.")  # 3.2

    def renew(self, token: LockToken, now: Instant) -> Instant:
        """Restart the lock's full duration; returns until when it holds. Raises NotAllowed with sessions."""
        if self.sessions is not None:
            raise NotAllowed("A message of a session is locked by its session: renew that lock.")
        message = self.held(token, now)
        self._locks.extend(message, now + self.description.lock_duration)
        self.accessed_at = now
        return message.locked_until

    def held_under(self, lock: SessionLock) -> list[StoredMessage]:
        """The messages that a session's lock covers, in the order in which they were received."""
        return [message for token in lock.tokens if (message := self._locks.get(token)) is not None]

    def lose_locks(self, now: Instant) -> None:
        """Whatever is held is held no longer, as if its time were up: each message costs a delivery."""
        if self.sessions is not None:
            self.sessions.lapse(now, FOR_EVER)
        for message in self._locks.take_lapsed(FOR_EVER):
            self._failed(message, now)
        self.timers_moved()

    def state_noted(self, session: MessageSession) -> None:
        """The state of a session is another."""
        if self._journal is not None:
            self._journal.noted(self, session)

    def give_back(self, message: StoredMessage, now: Instant, *, has_failed: bool) -> None:
        """The session of a locked message is no longer held (3.5)."""
        if message.lock_token is not None:
            self._locks.end(message.lock_token)
        if has_failed:
            self._failed(message, now)
        else:
            self._offer_again(message, now)

    def held(self, token: LockToken, now: Instant) -> StoredMessage:
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
        message = self.held(token, now)
        self.accessed_at = now
        self._locks.end(token)
        if self.sessions is None:
            self.timers_moved()
        elif (lock := self.sessions.lock_of(message.session_id or "")) is not None:
            lock.tokens.pop(token, None)
        return message

    def _failed(self, message: StoredMessage, now: Instant) -> None:
        message.delivery_count += 1
        if self._journal is not None:
            self._journal.changed(self, message)
        is_spent = message.delivery_count >= self.description.max_delivery_count
        if is_spent and self.dead_letter_queue is not None and not self._expired(message, now):
            text = f"Message could not be consumed after {message.delivery_count} delivery attempts."
            self._bury(message, now, {REASON: "MaxDeliveryCountExceeded", DESCRIPTION: text})
        else:
            self._offer_again(message, now)
