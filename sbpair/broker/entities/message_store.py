"""The messages of a queue: storage, delivery order, expiry and dead-lettering.

    store --> SCHEDULED | offer --> ACTIVE --> popped by a receiver
                             ^                       |
                             '---- offer again ------'      expired: dead-lettered or removed

Locks are in ``locked_store``. Waiting messages form one line for the queue or, with sessions, one for each
session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import NoSuchMessageError
from .audit_recorder import Removal
from .descriptions import QueueDescription
from .indexes import Deadlines, NumberedItems, WaitingLine
from .partition import INDEX_SHIFT
from .queue_context import SLICE
from .sessions import MessageSession, MessageSessions, SessionLock
from .stored_message import Instant, MessageState, StoredMessage

if TYPE_CHECKING:
    from .audit_recorder import AuditRecorder
    from .queue_context import QueueContext
    from .queue_partition import QueuePartition

ACTIVE, DEFERRED, GONE = MessageState.ACTIVE, MessageState.DEFERRED, MessageState.GONE
REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
EXPIRED = {REASON: "TTLExpiredException", DESCRIPTION: "The message expired and was dead lettered."}

OUTGROWN = {
    REASON: "HeaderSizeExceeded",
    DESCRIPTION: "The size quota for this stream has been exceeded.",
}


class MessageStore:
    """The messages of one queue, and the choice of the next one to deliver."""

    def __init__(
        self,
        path: str,
        description: QueueDescription,
        parent: QueuePartition | None,
        context: QueueContext,
    ) -> None:
        self.path = path
        self.description = description
        self.imposed_status: str | None = None  # set by a fault; overrides the description
        self.parent = parent
        self.dead_letter_queue: QueuePartition | None = None
        # messages that could not be forwarded or transferred
        self.transfer_dead_letter_queue: QueuePartition | None = None
        self.sessions: MessageSessions | None = None
        self.size = 0  # bytes, without the sub-queues
        self.partition = partition = context.partition
        self._change_log = context.change_log
        self._audit = context.audit
        self._work = context.work
        self._partition_id = None if partition.store is None else partition.index
        self._messages = NumberedItems[StoredMessage](partition.index << INDEX_SHIFT)
        self._waiting = WaitingLine()  # with sessions, pings only
        self._expiries = Deadlines[int]()  # messages with a TTL of their own
        self._deferred = 0

    @property
    def status(self) -> str:
        """The effective status: the description's, unless a fault overrides it."""
        return self.imposed_status or self.description.status

    def message(self, number: int) -> StoredMessage | None:
        """Return the message with this sequence number in any state, or None."""
        return self._messages.get(number)

    def all_in(self, state: MessageState, numbers: Iterable[int]) -> list[StoredMessage]:
        """Return the messages with these numbers, without repetition.

        Raises NoSuchMessageError when some are missing or not in ``state``.
        """
        found = {number: self._messages.get(number) for number in numbers}
        messages = [message for message in found.values() if message is not None and message.state is state]
        if len(messages) < len(found):
            matching = {message.sequence_number for message in messages}
            raise NoSuchMessageError(*(number for number in found if number not in matching))
        return messages

    @property
    def size_in_bytes(self) -> int:
        """Bytes stored, including the dead-letter queues."""
        dead, unsent = self.dead_letter_queue, self.transfer_dead_letter_queue
        return self.size + (dead.size if dead else 0) + (unsent.size if unsent else 0)

    @property
    def sub_queues(self) -> list[QueuePartition]:
        """The dead-letter queue and the transfer dead-letter queue, as far as they exist."""
        parts = (self.dead_letter_queue, self.transfer_dead_letter_queue)
        return [part for part in parts if part is not None]

    def freed(self) -> None:
        """Report that messages have been removed."""
        raise NotImplementedError

    def notify(self, lock: SessionLock | None = None) -> None:
        """Report a deliverable message to the receivers of the queue, or to the holder of ``lock``."""
        raise NotImplementedError

    def timers_moved(self) -> None:
        """Report that the next timer may have changed."""
        raise NotImplementedError

    def _store(self, message: StoredMessage) -> int:
        message.sequence_number = number = self._messages.add(message, message.reserved_number)
        message.reserved_number = None
        message.partition_id = self._partition_id
        if self.sessions is not None and not message.is_ping:
            self.sessions.message_stored(message)
        if self._change_log is not None:
            self._change_log.message_added(self, message)
        return number

    def _store_run(self, messages: Sequence[StoredMessage]) -> list[int]:
        """Store messages without a reserved number in a queue without sessions, as :meth:`_store` does one by one."""
        numbers = self._messages.add_all(messages)
        partition_id = self._partition_id
        for number, message in zip(numbers, messages, strict=True):
            message.sequence_number = number
            message.partition_id = partition_id
        if self._change_log is not None:
            self._change_log.messages_added(self, numbers, messages)
        return numbers

    def _unstore(self, message: StoredMessage) -> None:
        self._messages.remove(message.sequence_number)
        if self.sessions is not None and not message.is_ping:
            self.sessions.message_removed(message)
        if self._change_log is not None:
            self._change_log.message_removed(self, message)

    def _offer_new(self, message: StoredMessage) -> None:
        message.state = ACTIVE
        if message.time_to_live is not None:
            self._stamp(message)
            if message.expires_at is not None:
                self._expiries.set(message.sequence_number, message.expires_at)
                self.timers_moved()
        if self.sessions is not None and not message.is_ping:
            self.sessions.offer(message)
        else:
            self._waiting.add(message)
            self.notify()

    def _offer_run(self, messages: Sequence[StoredMessage]) -> None:
        """Offer new messages without a time to live in a queue without sessions, as :meth:`_offer_new` does."""
        self._waiting.add_all(messages)
        self.notify()

    def restore_all(self, messages: Sequence[StoredMessage]) -> None:
        """Restore messages from a store, in ascending order of their sequence numbers."""
        if self.sessions is None and all(map(self._only_waits, messages)):
            self._restore_run(messages)
            return
        for message in messages:
            self.restore(message)

    def _only_waits(self, message: StoredMessage) -> bool:
        """Whether a restored message only waits to be received, so that no timer needs to be set for it."""
        return (
            message.state is ACTIVE
            and not message.is_deferred
            and (message.time_to_live is None or self.parent is not None)
        )

    def _restore_run(self, messages: Sequence[StoredMessage]) -> None:
        """Restore messages as :meth:`restore` does, at a fraction of the cost and without recording a change."""
        self._messages.restore_all([message.sequence_number for message in messages], messages)
        partition_id = self._partition_id
        restored = 0
        for message in messages:
            message.partition_id = partition_id
            restored += len(message.bare) + message.overhead  # its size, without a call
        self.size += restored
        self._offer_run(messages)

    def restore(self, message: StoredMessage) -> None:
        """Restore one message from a store, unlocked. Call in ascending order of sequence numbers."""
        message.reserved_number = message.sequence_number
        self._store(message)
        self.size += message.size
        if message.is_deferred:
            self._deferred += 1
        elif message.state is ACTIVE and self.parent is None:
            self._offer_new(message)
        elif message.state is ACTIVE:
            self._waiting.add(message)
            self.notify()

    @property
    def last_number(self) -> int:
        """The last sequence number assigned."""
        return self._messages.last

    def continue_after(self, number: int) -> None:
        """Assign only sequence numbers above ``number`` from now on."""
        self._messages.continue_after(number)

    def _stamp(self, message: StoredMessage) -> None:
        """Set the expiry of a message that has its own time to live, unless already set."""
        span, limit = message.time_to_live, self.description.default_message_time_to_live
        if span is not None and message.expires_at is None:
            message.expires_at = message.enqueued_at + (span if limit is None else min(span, limit))

    def _offer_again(self, message: StoredMessage, now: Instant) -> None:
        message.state = ACTIVE
        if self._expired(message, now):
            self._expire(message, now)  # at once, whether or not a receiver is listening
        elif message.is_deferred:
            message.state = DEFERRED  # from now on received by sequence number only
        else:
            if message.expires_at is not None:
                self._expiries.set(message.sequence_number, message.expires_at)
                self.timers_moved()
            if self.sessions is not None:
                self.sessions.offer(message)
            else:
                self._waiting.put_back(message)
                self.notify()

    def first_of(
        self, line: WaitingLine | MessageSession, now: Instant, limit: int | None = None
    ) -> StoredMessage | None:
        """Pop the first deliverable message of ``line``, or None; expired messages and pings are removed.

        With ``limit``, gives up after that many messages: returns None and reports the queue as ready again.
        """
        passed = 0
        while passed != limit and (message := line.pop()) is not None:
            passed += 1
            if not (message.is_ping or self._expired(message, now)):
                return message
            self._discard(message, now)
        self._work.steps += passed
        if passed == limit:
            self.notify()
        return None

    def pop_run(
        self, line: WaitingLine | MessageSession, limit: int, room: int, now: Instant
    ) -> list[StoredMessage]:
        """Pop the first deliverable messages of ``line``: at most ``limit``, and about ``room`` bytes.

        Like :meth:`first_of`, gives up after SLICE messages that cannot be delivered.
        """
        found: list[StoredMessage] = []
        pop, size = line.pop, 0
        may_expire = self.parent is None  # messages in a dead-letter queue do not
        span = self.description.default_message_time_to_live
        passed = 0
        while len(found) < limit and size < room and passed < SLICE and (message := pop()) is not None:
            has_expiry = may_expire and (span is not None or message.expires_at is not None)
            if message.is_ping or (has_expiry and self._expired(message, now)):
                passed += 1
                self._discard(message, now)
            else:
                found.append(message)
                size += len(message.bare) + message.overhead  # its size, without a call
        self._work.steps += passed
        if passed == SLICE:
            self.notify()
        return found

    def _discard(self, message: StoredMessage, now: Instant) -> None:
        if message.is_ping:
            self._remove(message, Removal.DELETED)
        else:
            self._expire(message, now)

    # -- auto-forwarding

    def next_to_forward(self, now: Instant) -> StoredMessage | None:
        """Pop the next message to forward, or None; it stays stored until passed to :meth:`forwarded`."""
        self._remove_expired(now)
        message = self.first_of(self._waiting, now, SLICE)
        return message if message is not None or self.sessions is None else self.sessions.pop(now)

    def forwarded(self, message: StoredMessage) -> None:
        """Remove a message that its destination has accepted."""
        self._remove(message, Removal.FORWARDED)

    def dead_letter_unforwardable(self, message: StoredMessage, reason: str, text: str, now: Instant) -> bool:
        """Dead-letter a message that cannot be forwarded; False when this is a dead-letter queue."""
        if self.dead_letter_queue is None:
            return False
        self._dead_letter(message, now, {REASON: reason, DESCRIPTION: text})
        return True

    def worked(self, steps: int) -> None:
        """Count ``steps`` processed messages as work."""
        self._work.steps += steps

    def requeue(self, message: StoredMessage, now: Instant) -> None:
        """Make a message that was not forwarded available again."""
        self._offer_again(message, now)

    # -- expiry and dead letters

    def _expired(self, message: StoredMessage, now: Instant) -> bool:
        if self.parent is not None:
            return False  # messages in a dead-letter queue do not expire
        expires_at = self.expires_at(message)
        return expires_at is not None and expires_at <= now

    def expires_at(self, message: StoredMessage) -> Instant | None:
        """Return when a message expires: by its own time to live, else the entity's; None for never."""
        if message.expires_at is not None:
            return message.expires_at
        span = self.description.default_message_time_to_live
        return None if span is None else message.enqueued_at + span

    def _remove_expired(self, now: Instant) -> None:
        """Expire messages by their own time to live.

        Messages under the entity's default expire in the order of the line, so they are checked when popped.
        """
        expired = self._expiries.pop_due(now, SLICE)
        self._work.steps += len(expired)
        for number in expired:
            message = self._messages.get(number)
            if message is not None and message.state is ACTIVE:
                self._expire(message, now)
            # A locked message is checked again when its lock ends, a deferred one when it is received.

    def _expire(self, message: StoredMessage, now: Instant) -> None:
        is_dead_lettered = self.description.dead_lettering_on_message_expiration and not message.is_ping
        if is_dead_lettered and self.dead_letter_queue is not None:
            self._dead_letter(message, now, EXPIRED)
        else:
            self._remove(message, Removal.EXPIRED)

    def _dead_letter(self, message: StoredMessage, now: Instant, properties: Mapping[str, object]) -> None:
        assert self.dead_letter_queue is not None  # noqa: S101 - checked by the callers
        self._remove(message, Removal.DEAD_LETTERED, str(properties.get(REASON, "")))
        dead = message.copy()  # a copy, since the removed message may still be in a waiting line
        dead.delivery_count = message.delivery_count
        dead.amend(properties)
        self.dead_letter_queue._admit(dead)

    def _admit(self, message: StoredMessage) -> None:
        self._store(message)
        self.size += message.size
        self._waiting.add(message)
        self.notify()

    def _remove(self, message: StoredMessage, how: Removal, reason: str = "") -> None:
        self._unstore(message)
        if self._audit is not None:
            self._audit.removed(self.path, message, how, reason)
        self.size -= message.size
        self.freed()
        if message.is_deferred:
            self._deferred -= 1
        message.state = GONE
        if message.expires_at is not None:
            self._expiries.drop(message.sequence_number)

    def _remove_all(self, messages: Sequence[StoredMessage], how: Removal) -> None:
        """Remove messages of a queue without sessions, at a fraction of the cost of removing each."""
        numbers = [message.sequence_number for message in messages]
        self._messages.remove_all(numbers)
        if self._change_log is not None:
            self._change_log.messages_removed(self, numbers)
        if self._audit is not None:
            for message in messages:
                self._audit.removed(self.path, message, how)
        freed = 0
        for message in messages:
            freed += len(message.bare) + message.overhead  # its size, without a call
            message.state = GONE
            if message.is_deferred:
                self._deferred -= 1
            if message.expires_at is not None:
                self._expiries.drop(message.sequence_number)
        self.size -= freed
        self.freed()

    def record_deleted(self, audit: AuditRecorder) -> None:
        """Record that every message was deleted with the entity."""
        for number in self._messages.numbers_from(0):
            if (message := self._messages.get(number)) is not None:
                audit.removed(self.path, message, Removal.DELETED)
