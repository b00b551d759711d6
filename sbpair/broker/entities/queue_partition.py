"""A partition of a queue, or the only one of a queue that is not partitioned: the life of its messages.

      enqueue             receive             complete
    ---------> ACTIVE ---------------> LOCKED ---------> (removed)
      |          ^  ^                  |   |
      | later    |  '-- abandon, ------'   | defer
      v          |      lock expired       v
    SCHEDULED ---'                       DEFERRED --- receive by number ---> LOCKED

    To the dead-letter queue: from LOCKED by request or by one delivery too many, from ACTIVE by expiry
    or, when expiry came while locked, as the lock ends.

A partition knows nothing of connections, links or frontends. Time is passed in as ``now``, in milliseconds since
the epoch. No operation scans all waiting messages: deadlines are kept in heaps, and the next message is at
the head of a waiting line (see ``message_store``); with sessions, each session is such a line (see
``sessions``).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import (
    BrokerError,
    EntityDisabledError,
    NoSuchMessageError,
    NotAllowedError,
    QuotaExceededError,
    SessionIdMissingError,
    SessionRequiredError,
)
from .audit_recorder import Arrival, Removal
from .descriptions import QueueDescription
from .forwarding import Forwarding, reason_of
from .indexes import Deadlines, DuplicateIndex, WaitingLine
from .locked_store import LockedStore
from .message_store import DESCRIPTION, REASON
from .partition import Health, check_keys
from .queue_context import SLICE, SLICE_BYTES, QueueContext
from .sessions import MessageSession, MessageSessions, SessionLock
from .stored_message import Instant, MessageState, StoredMessage

if TYPE_CHECKING:
    from .queue import Queue

DEFERRED, SCHEDULED = MessageState.DEFERRED, MessageState.SCHEDULED


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Messages of a queue by state.

    ``active`` includes locked messages and expired ones that were not yet removed; ``deferred``
    includes deferred messages that are locked; ``total`` and ``size_in_bytes`` include the dead-letter
    queues.
    """

    active: int
    dead_letter: int
    scheduled: int
    deferred: int
    transfer: int
    transfer_dead_letter: int
    total: int
    size_in_bytes: int


class QueuePartition(LockedStore):
    """A partition of the queue ``owner``, or of its dead-letter queue: ``parent`` is then the queue's partition."""

    owner: Queue  # set by the queue

    def __init__(
        self,
        path: str,
        description: QueueDescription,
        now: Instant,
        context: QueueContext,
        parent: QueuePartition | None = None,
    ) -> None:
        super().__init__(path, description, parent, context)
        self.created_at = self.updated_at = now
        self._listeners = 0
        self._ready = context.ready
        self._rescheduled = context.rescheduled
        self._forwards = context.forwards
        self._awaited = context.awaited
        self.forwarding = Forwarding(self, to_transfer_dlq=context.legacy_forward_tdlq)
        self._schedule = Deadlines[int]()
        self._duplicates: DuplicateIndex | None = None
        if parent is None:
            if description.requires_duplicate_detection:
                self._duplicates = DuplicateIndex()
            if description.requires_session:
                self.sessions = MessageSessions(self)
            self.dead_letter_queue = QueuePartition(
                f"{path}/$DeadLetterQueue", description, now, context, self
            )
            self.transfer_dead_letter_queue = QueuePartition(
                f"{path}/$Transfer/$DeadLetterQueue", description, now, context, self
            )

    # -- sending

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Store all of the messages, or none.

        Return their sequence numbers; a duplicate gets that of the original.

        Raises as :meth:`check_acceptable`.
        """
        self.check_acceptable(messages)
        self.accessed_at = now
        if len(messages) > 1 and self._duplicates is None and self.sessions is None and _are_plain(messages):
            return self._accept_run(messages, now)
        return [self._accept_message(message, now) for message in messages]

    def _accept_run(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Accept plain messages as :meth:`_accept_message` does, at a fraction of the cost."""
        self._operations.sends += len(messages)
        numbers, added = self._store_run(messages), 0
        for message in messages:
            message.enqueued_sequence_number = message.sequence_number
            message.enqueued_at = now
            added += len(message.bare) + message.overhead  # its size, without a call
        self.size += added
        if self._audit is not None:
            for message in messages:
                self._audit.stored(self.path, message, Arrival.SENT)
        self._offer_run(messages)
        return numbers

    def check_acceptable(self, messages: Sequence[StoredMessage]) -> None:
        """Raise the error that :meth:`enqueue_all` would raise now, if any.

        Raises NotAllowedError for a dead-letter queue and for conflicting keys, SessionIdMissingError,
        EntityDisabledError, QuotaExceededError, PartitionUnavailableError and ServerBusyError.
        """
        if self.parent is not None:
            raise NotAllowedError(f"A message cannot be sent to the sub-queue '{self.path}'.")
        self.check_sends_enabled()
        needs_session, added = self.sessions is not None, 0
        for message in messages:
            if message.partition_key is not None:
                check_keys(message)
            if needs_session and message.session_id is None:
                raise SessionIdMissingError(self.path)
            last = len(message.bare) + message.overhead  # its size, without a call
            added += last
        size, quota = self.size_in_bytes, self.description.quota_in_bytes
        if added and size + added - last >= quota:  # the last one may exceed it, as in the service
            raise QuotaExceededError(self.path, size, quota)

    def check_sends_enabled(self) -> None:
        """Raise EntityDisabledError if the status forbids sending."""
        self._check_status("SendDisabled")

    def dead_letter_untransferred(self, message: StoredMessage, why: BrokerError, now: Instant) -> None:
        """Dead-letter a message that was sent via this queue and refused by its destination."""
        assert self.transfer_dead_letter_queue is not None  # noqa: S101 - nothing is sent via a sub-queue
        message.enqueued_at = now
        reason, text = reason_of(why)
        message.amend({REASON: reason, DESCRIPTION: text})
        self.transfer_dead_letter_queue._admit(message)
        if self._audit is not None:
            self._audit.stored(self.path, message, Arrival.SENT)
            self._audit.removed(self.path, message, Removal.DEAD_LETTERED, reason)

    def _accept_message(self, message: StoredMessage, now: Instant) -> int:
        if message.is_ping:
            self._operations.pings += 1
        else:
            self._operations.sends += 1
        if self._duplicates is not None and (original := self._number_of_original(message, now)) is not None:
            if self._audit is not None:
                self._audit.dropped(self.path, message)
            return original
        due = message.scheduled_for
        if due is None or due <= now:
            due = message.scheduled_for = None
            message.reserved_number = None  # due before the commit: it gets a new number
        number = self._store(message)
        if not message.hops:  # a forwarded message keeps its first number
            message.enqueued_sequence_number = number
        self.size += len(message.bare) + message.overhead  # its size, without a call
        if self._audit is not None:
            how = Arrival.SENT if due is None else Arrival.SCHEDULED
            self._audit.stored(self.path, message, Arrival.FORWARDED if message.hops else how)
        if self._duplicates is not None and not message.is_ping:
            self._duplicates.accepted(message.message_id, number, now)
            if self._change_log is not None:
                self._change_log.id_accepted(self, message.message_id, number, now)
        if due is not None:
            message.enqueued_at = due
            self._stamp(message)
            message.state = SCHEDULED
            self._schedule.set(number, due)
            self.timers_moved()
        else:
            message.enqueued_at = now
            self._offer_new(message)
        return number

    def _number_of_original(self, message: StoredMessage, now: Instant) -> int | None:
        if self._duplicates is None or message.is_ping:
            return None
        window = self.description.duplicate_detection_history_time_window
        return self._duplicates.number_of(message.message_id, window, now)

    def reserve(self, message: StoredMessage) -> int:
        """Assign the sequence number that ``message`` will get when enqueued; never reused if it is not."""
        message.reserved_number = number = self._messages.reserve()
        if self._change_log is not None:
            self._change_log.number_assigned(self)
        return number

    def cancel_scheduled(self, numbers: Sequence[int], now: Instant) -> None:
        """Remove all of these scheduled messages, or none. Raises NoSuchMessageError, EntityDisabledError."""
        self._check_status("SendDisabled")
        self.accessed_at = now
        self.handle_timer(now)
        for message in self.all_in(SCHEDULED, numbers):
            self._schedule.drop(message.sequence_number)
            self._remove(message, Removal.CANCELLED)
        self.timers_moved()

    def resubmit(self, number: int, now: Instant) -> int:
        """Move a waiting dead letter back to the queue that it came from, and return its new number there.

        It loses the dead-letter reason and is otherwise as it was sent. Its time to live starts again. Duplicate
        detection does not apply, because its id may still be known.

        Raises NoSuchMessageError when it is missing or locked, NotAllowedError unless this is a dead-letter queue, and
        as :meth:`check_acceptable` of that queue.
        """
        message, home = self._messages.get(number), self.parent
        if home is None or self is not home.dead_letter_queue:
            raise NotAllowedError(
                f"'{self.path}' is not a dead-letter queue: its messages cannot be resubmitted."
            )
        if message is None or message.state is not MessageState.ACTIVE:
            raise NoSuchMessageError(number)
        fresh = message.copy()
        fresh.amended = {
            name: value
            for name, value in (message.amended or {}).items()
            if name not in (REASON, DESCRIPTION)
        }
        fresh.dead_letter_source = None
        home.check_acceptable((fresh,))
        self._remove(message, Removal.FORWARDED)
        return home._put_back(fresh, now)

    def _put_back(self, message: StoredMessage, now: Instant) -> int:
        message.enqueued_sequence_number = number = self._store(message)
        self.size += message.size
        if self._audit is not None:
            self._audit.stored(self.path, message, Arrival.FORWARDED)
        message.enqueued_at = self.accessed_at = now
        self._offer_new(message)
        return number

    # -- receiving; with sessions, under a session lock

    def receive(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Lock and return the next message, or None; never an expired one.

        Raises EntityDisabledError, ForwardingEntityError, SessionLostError, and SessionRequiredError when ``session``
        is missing.
        """
        message = self._next(now, session)
        if message is not None:
            self._lock_all((message,), now, session)
        return message

    def receive_batch(
        self, limit: int, now: Instant, session: SessionLock | None = None
    ) -> list[StoredMessage]:
        """Lock and return up to ``limit`` messages, of about SLICE_BYTES in total.

        Raises as :meth:`receive`.
        """
        self.prepare_receive(now)
        messages = self.pop_run(self._line_for(session, now), limit, SLICE_BYTES, now)
        self._lock_all(messages, now, session)
        return messages

    def receive_and_delete(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Remove and return the next message, or None. Raises as :meth:`receive`."""
        message = self._next(now, session)
        if message is not None:
            self._operations.receives += 1
            self._remove(message, Removal.RECEIVED)
        return message

    def receive_deferred(
        self,
        numbers: Sequence[int],
        now: Instant,
        session: SessionLock | None = None,
        *,
        delete: bool = False,
    ) -> list[StoredMessage]:
        """Lock all of these deferred messages, or none; with ``delete``, remove them instead.

        Raises NoSuchMessageError, and as :meth:`receive`.
        """
        messages = self.find_deferred(numbers, now, session)
        return [self.hand_over(message, now, session, delete=delete) for message in messages]

    def find_deferred(
        self, numbers: Sequence[int], now: Instant, session: SessionLock | None
    ) -> list[StoredMessage]:
        """Return these deferred messages without locking them. Raises as :meth:`receive_deferred`."""
        self._check_status("ReceiveDisabled")
        self.accessed_at = now
        if self.sessions is not None:
            if session is None:
                raise SessionRequiredError(self.path)
            self.sessions.check(session, now)
        messages = self.all_in(DEFERRED, numbers)
        expired = [message for message in messages if self._expired(message, now)]
        for message in expired:
            self._expire(message, now)  # an attempt to receive a message applies its expiry
        foreign = [message for message in messages if session and message.session_id != session.session_id]
        if expired or foreign:
            raise NoSuchMessageError(*(message.sequence_number for message in (*expired, *foreign)))
        return messages

    def hand_over(
        self, message: StoredMessage, now: Instant, session: SessionLock | None, *, delete: bool
    ) -> StoredMessage:
        """Lock, or with ``delete`` remove, a message returned by :meth:`find_deferred`, and return it."""
        if delete:
            self._operations.receives += 1
            self._remove(message, Removal.RECEIVED)
        else:
            self._lock_all((message,), now, session)
        return message

    def delete_waiting(
        self, limit: int, before: Instant | None, now: Instant, session: SessionLock | None = None
    ) -> int:
        """Remove the oldest waiting messages, up to ``limit``; return how many were removed.

        With ``before``, only messages enqueued before that time.


        Raises as :meth:`receive`.
        """
        for count in range(limit):
            message = self._next(now, session)
            if message is None:
                return count
            if before is not None and message.enqueued_at >= before:
                self._offer_again(message, now)
                return count
            self._remove(message, Removal.DELETED)
        return limit

    def prepare_receive(self, now: Instant) -> None:
        """Prepare a receive: run due timers and expiries. Raises EntityDisabledError, ForwardingEntityError."""
        self._check_status("ReceiveDisabled")
        self.forwarding.check_receivable()
        self.accessed_at = now
        self.handle_timer(now)
        self._remove_expired(now)  # a receiver is listening
        if self.sessions is not None:
            while (ping := self._waiting.pop()) is not None:
                self._remove(ping, Removal.DELETED)

    def _next(self, now: Instant, session: SessionLock | None) -> StoredMessage | None:
        self.prepare_receive(now)
        return self.first_of(self._line_for(session, now), now, SLICE if self.sessions is None else None)

    def _line_for(self, session: SessionLock | None, now: Instant) -> WaitingLine | MessageSession:
        if self.sessions is None:
            return self._waiting
        if session is None:
            raise SessionRequiredError(self.path)
        self.sessions.check(session, now)
        return self.sessions.line_of(session)

    # -- inspection

    def peek(
        self, start: int, limit: int, now: Instant, session_id: str | None = None
    ) -> list[StoredMessage]:
        """Return up to ``limit`` messages from number ``start`` on in any state, without locking them."""
        self.accessed_at = now
        self.handle_timer(now)
        return self.browse(start, limit, session_id)

    def browse(self, start: int, limit: int, session_id: str | None = None) -> list[StoredMessage]:
        """Peek for diagnostics: neither counts as use of the queue nor runs timers."""
        numbers = self._messages.numbers_from(start)
        if session_id is not None:
            numbers = iter(()) if self.sessions is None else self.sessions.numbers(session_id, start)
        messages = (message for number in numbers if (message := self._messages.get(number)) is not None)
        return list(islice((message for message in messages if not message.is_ping), limit))

    def counts(self, now: Instant) -> QueueCounts:
        """Return the number of messages by state; expired ones not yet removed count as active."""
        self.handle_timer(now)
        dead = 0 if self.dead_letter_queue is None else len(self.dead_letter_queue._messages)
        transfer_queue = self.transfer_dead_letter_queue
        untransferred = 0 if transfer_queue is None else len(transfer_queue._messages)
        held, scheduled = len(self._messages), len(self._schedule)
        return QueueCounts(
            active=held - scheduled - self._deferred,
            dead_letter=dead,
            scheduled=scheduled,
            deferred=self._deferred,
            transfer=0,
            transfer_dead_letter=untransferred,
            total=held + dead + untransferred,
            size_in_bytes=self.size_in_bytes,
        )

    def _check_status(self, barred: str) -> None:
        if self.status in ("Disabled", barred):
            raise EntityDisabledError(self.path, self.status)
        partition = self.partition
        if partition.health is not Health.UP:
            check = partition.check_accepts if barred == "SendDisabled" else partition.check_up
            check(self.path)

    # -- management and timers

    def listen(self, now: Instant) -> None:
        """Record that a receive has started; ended by :meth:`stop_listening`."""
        self._listeners += 1
        self.accessed_at = now
        self.timers_moved()

    def stop_listening(self, now: Instant) -> None:
        """Record that a receive has ended."""
        self._listeners -= 1
        self.accessed_at = now
        self.timers_moved()

    def apply_description(self, description: QueueDescription, now: Instant) -> None:
        """Apply another description, also to stored messages without a time to live of their own."""
        self.updated_at = now
        self.set_description(description, now)

    def set_description(self, description: QueueDescription, now: Instant) -> None:
        """Use ``description`` from now on. Unlike :meth:`apply_description`, checks nothing and counts as no use."""
        self.description = description
        self.forwarding.changed(now)
        self.notify()
        if self.sessions is not None:
            self.sessions.notify_holders()
        for part in self.sub_queues:
            part.set_description(description, now)

    @property
    def idle_since(self) -> Instant | None:
        """The time of the last use, or None while the queue is in use."""
        if self._listeners or len(self._schedule) or self.description.forward_to is not None:
            return None
        latest = max(self.updated_at, self.accessed_at or 0)
        for part in self.sub_queues:  # using a sub-queue counts as using the queue
            since = part.idle_since
            if since is None:
                return None
            latest = max(latest, since)
        return latest

    def next_timer(self) -> Instant | None:
        """Return when the next timer is due: a message or session lock, a schedule, or None.

        While a receiver is listening, also the next expiry of a message.
        """
        first = self._locks.next() if self.sessions is None else self.sessions.next_expiry()
        expiry = self._expiries.next() if self._listeners else None
        return min((at for at in (first, self._schedule.next(), expiry) if at is not None), default=None)

    def handle_timer(self, now: Instant) -> None:
        """Expire locks, activate scheduled messages and, while a receiver is listening, expire messages.

        Processes a slice of each; the rest remains due.
        """
        due = self.next_timer()
        if due is None or due > now:
            return
        self.timers_moved()
        scheduled = self._schedule.pop_due(now, SLICE)
        self._work.steps += len(scheduled)
        for number in scheduled:
            self._activate(number)
        if self._listeners:
            self._remove_expired(now)
        if self.sessions is not None:
            self.sessions.expire_locks(now)
            return
        lapsed = self._locks.pop_expired(now, SLICE)
        self._work.steps += len(lapsed)
        for message in lapsed:
            self._fail_delivery(message, now)

    def _activate(self, number: int) -> None:
        message = self._messages.get(number)
        if message is not None:
            self.touch(message.enqueued_at)  # counts as if it were sent at that time
            self._unstore(message)
            self._store(message)  # a new number
            self._offer_new(message)

    def notify(self, lock: SessionLock | None = None) -> None:
        """Report a deliverable message to the receivers of the queue, or to the holder of ``lock``."""
        if lock is not None:
            self._ready.add(lock)
        else:
            self.owner.available[self] = None
            self._ready.add(self.owner)
        if self.forwarding.target is not None:
            self._forwards[self] = None

    @property
    def held(self) -> int:
        """The number of its messages, in any state."""
        return len(self._messages)

    def await_target(self, path: str) -> None:
        """Forward again when the entity at ``path`` changes or gets room."""
        self._awaited.setdefault(path.casefold(), {})[self] = None

    def freed(self) -> None:
        """Wake up the senders and forwarders that wait for room in the entity."""
        if self._awaited:
            self._forwards.update(self._awaited.pop(self.owner.counted_at.casefold(), {}))

    # -- restoring from a store

    def restore(self, message: StoredMessage) -> None:
        """Restore one message from a store, unlocked. Call in ascending order of sequence numbers."""
        super().restore(message)
        if message.state is SCHEDULED and message.scheduled_for is not None:
            self._schedule.set(message.sequence_number, message.scheduled_for)
            self.timers_moved()

    def restore_accepted(self, message_id: Hashable, number: int, at: Instant) -> None:
        """Restore an accepted message id from a store. Call in order of acceptance."""
        if self._duplicates is not None:
            self._duplicates.accepted(message_id, number, at)

    @property
    def top(self) -> Queue:
        """The queue, topic or subscription that it belongs to."""
        return self.owner.top

    @property
    def health(self) -> Health:
        """The health of the partition."""
        return self.partition.health

    def check_receivable(self) -> None:
        """Raise ForwardingEntityError if the queue forwards its messages."""
        self.forwarding.check_receivable()

    def touch(self, now: Instant) -> None:
        """Record a use of the queue that no other method implies."""
        self.accessed_at = max(self.accessed_at or 0, now)

    def timers_moved(self) -> None:
        """Report that the next timer may have changed."""
        self._rescheduled[self] = None


def _are_plain(messages: Sequence[StoredMessage]) -> bool:
    """Whether no message is a ping, scheduled or forwarded, or has its own time to live or reserved number."""
    for message in messages:
        if (
            message.time_to_live is not None
            or message.scheduled_for is not None
            or message.is_ping
            or message.hops
            or message.reserved_number is not None
        ):
            return False
    return True
