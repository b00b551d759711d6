"""Message locks and settlement.

A lock ends when its message is settled, when it expires, or with the lock of its session. The message is then
removed, made active again, deferred or dead-lettered. See ``queue`` for the states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import LockLostError, NotAllowedError, SessionLostError
from .audit_recorder import Removal
from .descriptions import QueueDescription
from .indexes import Deadlines
from .message_store import DEFERRED, DESCRIPTION, OUTGROWN, REASON, MessageStore
from .partition import Health
from .sessions import MessageSession, SessionLock
from .stored_message import Instant, LockToken, MessageState, StoredMessage

if TYPE_CHECKING:
    from .queue_context import QueueContext
    from .queue_partition import QueuePartition

NEVER: Instant = 2**63
LOCKED = MessageState.LOCKED


class Locks:
    """The message locks of one queue, by token.

    A lock expires on its own, unless it was taken under a session lock: then it ends with that lock.
    """

    __slots__ = ("_latest", "_line", "_messages", "_new_token", "_others")

    def __init__(self, new_token: Callable[[], LockToken]) -> None:
        self._new_token = new_token
        self._messages: dict[LockToken, StoredMessage] = {}
        self._line: deque[LockToken] = deque()  # in order of expiry; may include tokens of ended locks
        self._latest: Instant = 0  # expiry of the last lock that joined the line
        # renewed locks, and those that would break the order of the line
        self._others = Deadlines[LockToken]()

    def take(
        self, messages: Iterable[StoredMessage], until: Instant, *, expires: bool = True
    ) -> list[LockToken]:
        """Lock ``messages`` until ``until`` and return the tokens.

        With ``expires`` False, the locks have no timer.
        """
        new_token, held = self._new_token, self._messages
        tokens: list[LockToken] = []
        for message in messages:
            message.lock_token = token = new_token()
            message.state = LOCKED
            message.locked_until = until
            held[token] = message
            tokens.append(token)
        if expires:
            self._expire(tokens, until)
        return tokens

    def _expire(self, tokens: list[LockToken], until: Instant) -> None:
        if until < self._latest:
            for token in tokens:
                self._others.set(token, until)
            return
        self._latest = until
        self._line += tokens
        if len(self._line) > 2 * len(self._messages) + 1024:
            self._line = deque(token for token in self._line if self._is_in_line(token))

    def _is_in_line(self, token: LockToken) -> bool:
        return token in self._messages and token not in self._others

    def all_held(self, tokens: Iterable[LockToken | None], now: Instant) -> list[StoredMessage] | None:
        """Return the messages locked under ``tokens`` at ``now``, in this order; None when a lock has ended."""
        get, messages = self._messages.get, []
        for token in tokens:
            message = None if token is None else get(token)
            if message is None or message.locked_until <= now:
                return None
            messages.append(message)
        return messages

    def get(self, token: LockToken) -> StoredMessage | None:
        """Return the message locked under ``token``, or None."""
        return self._messages.get(token)

    def extend(self, message: StoredMessage, until: Instant) -> None:
        """Extend the lock of ``message``, one that expires on its own, to ``until``."""
        assert message.lock_token is not None  # noqa: S101 - it is locked
        message.locked_until = until
        self._others.set(message.lock_token, until)

    def end(self, token: LockToken) -> StoredMessage:
        """End the lock and return its message; the caller decides its next state."""
        message = self._messages.pop(token)
        message.lock_token = None
        if self._others:
            self._others.drop(token)
        return message

    def end_all(self, messages: Iterable[StoredMessage]) -> None:
        """End the locks of these messages; the caller decides their next state."""
        held, others = self._messages, self._others
        for message in messages:
            token = message.lock_token
            assert token is not None  # noqa: S101 - it is locked
            del held[token]
            message.lock_token = None
            if others:
                others.drop(token)

    def next(self) -> Instant | None:
        """Return when the first lock expires, or None."""
        line, other = self._line, self._others.next()
        while line and not self._is_in_line(line[0]):
            line.popleft()
        if not line:
            return other
        first = self._messages[line[0]].locked_until
        return first if other is None else min(first, other)

    def pop_expired(self, now: Instant, limit: int | None = None) -> list[StoredMessage]:
        """End up to ``limit`` locks that expired by ``now``, earliest first; return their messages."""
        lapsed: list[StoredMessage] = []
        while len(lapsed) != limit and (at := self.next()) is not None and at <= now:
            others = self._others.pop_due(at, 1)
            lapsed.append(self.end(others[0] if others else self._line[0]))
        return lapsed


COMPLETED = Removal.COMPLETED


class LockedStore(MessageStore):
    """A message store with locks."""

    def __init__(
        self,
        path: str,
        description: QueueDescription,
        parent: QueuePartition | None,
        context: QueueContext,
    ) -> None:
        super().__init__(path, description, parent, context)
        self.accessed_at: Instant | None = None
        self._operations = context.operations
        self._codec = context.codec
        self._locks = Locks(context.new_token)

    def check_up(self) -> None:
        """Raise PartitionUnavailableError if the partition is down."""
        if self.partition.health is Health.DOWN:
            self.partition.check_up(self.path)  # raises

    def handle_timer(self, now: Instant) -> None:
        """Run due timers."""
        raise NotImplementedError

    def _lock_all(self, messages: Sequence[StoredMessage], now: Instant, session: SessionLock | None) -> None:
        self._operations.receives += len(messages)
        if session is None:
            self._locks.take(messages, now + self.description.lock_duration)
            self.timers_moved()
        else:
            session.tokens.update(
                dict.fromkeys(self._locks.take(messages, session.locked_until, expires=False))
            )

    # -- settlement: each method raises LockLostError or SessionLostError when the lock has ended

    def complete(self, token: LockToken, now: Instant) -> None:
        """Remove the message, even if it has expired meanwhile."""
        self._remove(self._unlock(token, now), COMPLETED)

    def complete_all(self, tokens: Sequence[LockToken | None], now: Instant) -> bool:
        """Complete all of the messages, or none.

        Return False, and do nothing, if one of the locks has ended, if a token is missing, or on a queue with sessions.
        The caller must then complete them one by one.
        """
        if self.sessions is not None:
            return False
        messages = self._locks.all_held(tokens, now)
        if messages is None:
            return False
        self.accessed_at = now
        self._locks.end_all(messages)
        self.timers_moved()
        self._remove_all(messages, COMPLETED)
        return True

    def abandon(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Make the message available again and count a failed delivery.

        ``changes`` are application properties to set on the message.
        """
        message = self._unlock(token, now)
        if self._amend(message, changes, now):
            self._fail_delivery(message, now)

    def release(self, token: LockToken, now: Instant) -> None:
        """Make the message available again without counting a delivery."""
        self._offer_again(self._unlock(token, now), now)

    def defer(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Defer the message: from now on it is received by sequence number only. This counts a delivery."""
        message = self._unlock(token, now)
        if not self._amend(message, changes, now) or self._count_delivery(message, now):
            return
        message.state = DEFERRED
        if not message.is_deferred:
            message.is_deferred = True
            self._deferred += 1
        if self._change_log is not None:
            self._change_log.message_changed(self, message)

    def _amend(self, message: StoredMessage, changes: dict[str, object] | None, now: Instant) -> bool:
        """Set ``changes`` on the message.

        Return False if the header would be too large: it is dead-lettered.
        """
        if changes and self._codec.outgrows(message, changes):
            if self.dead_letter_queue is None:
                return True  # a message in a dead-letter queue stays as it is
            self._dead_letter(message, now, OUTGROWN)
            return False
        message.amend(changes)
        return True

    def dead_letter(self, token: LockToken, now: Instant, properties: Mapping[str, object]) -> None:
        """Move the message to the dead-letter queue and set ``properties`` on it, the reason among them.

        Raises NotAllowedError on a dead-letter queue.
        """
        self.check_can_dead_letter()
        self._dead_letter(self._unlock(token, now), now, properties)

    def check_can_dead_letter(self) -> None:
        """Raise NotAllowedError on a dead-letter queue."""
        if self.dead_letter_queue is None:
            raise NotAllowedError(f"A message cannot be dead-lettered out of '{self.path}'.")

    def renew(self, token: LockToken, now: Instant) -> Instant:
        """Restart the lock's full duration; return its new end.

        Raises NotAllowedError on an entity with sessions.
        """
        if self.sessions is not None:
            raise NotAllowedError(
                "A message of a session is locked through its session: renew the session lock."
            )
        message = self.locked_message(token, now)
        self._locks.extend(message, now + self.description.lock_duration)
        self.timers_moved()  # the duration may have been shortened
        self.accessed_at = now
        return message.locked_until

    def messages_under(self, lock: SessionLock) -> list[StoredMessage]:
        """Return the messages locked under a session lock, in the order in which they were received."""
        return [message for token in lock.tokens if (message := self._locks.get(token)) is not None]

    def lose_locks(self, now: Instant) -> None:
        """Expire every lock now; each message counts a failed delivery."""
        if self.sessions is not None:
            self.sessions.expire_locks(now, NEVER)
        for message in self._locks.pop_expired(NEVER):
            self._fail_delivery(message, now)
        self.timers_moved()

    def session_state_changed(self, session: MessageSession) -> None:
        """Record that the state of a session has changed."""
        if self._change_log is not None:
            self._change_log.session_changed(self, session)

    def return_message(self, message: StoredMessage, now: Instant, *, has_failed: bool) -> None:
        """Make a message available again after its session lock ended.

        ``has_failed`` counts a failed delivery.
        """
        if message.lock_token is not None:
            self._locks.end(message.lock_token)
        if has_failed:
            self._fail_delivery(message, now)
        else:
            self._offer_again(message, now)

    def locked_message(self, token: LockToken, now: Instant) -> StoredMessage:
        """Return the message locked under ``token``.

        Raises LockLostError or SessionLostError when the lock has ended.
        """
        self.check_up()
        message = self._locks.get(token)
        if message is None:
            raise LockLostError
        if message.locked_until <= now:
            self.handle_timer(now)
            raise LockLostError if self.sessions is None else SessionLostError
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

    def _fail_delivery(self, message: StoredMessage, now: Instant) -> None:
        if not self._count_delivery(message, now):
            self._offer_again(message, now)

    def _count_delivery(self, message: StoredMessage, now: Instant) -> bool:
        """Count a delivery, except in a dead-letter queue.

        Return True if the maximum is exceeded and the message was dead-lettered.
        """
        message.delivery_count += self.dead_letter_queue is not None
        if self._change_log is not None:
            self._change_log.message_changed(self, message)
        is_exhausted = message.delivery_count >= self.description.max_delivery_count
        if not is_exhausted or self.dead_letter_queue is None or self._expired(message, now):
            return False
        text = f"Message could not be consumed after {message.delivery_count} delivery attempts."
        self._dead_letter(message, now, {REASON: "MaxDeliveryCountExceeded", DESCRIPTION: text})
        return True
