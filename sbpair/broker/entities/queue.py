"""A queue: what the broker knows of its messages.

      enqueue             receive             complete
    ---------> ACTIVE ---------------> LOCKED ---------> (gone)
      |          ^  ^                  |   |
      | later    |  '-- abandon, ------'   | defer
      v          |      lock expired       v
    SCHEDULED ---'                       DEFERRED --- receive by number ---> LOCKED

    To the dead-letter queue: from LOCKED by request or by one delivery too many, from ACTIVE by expiry
    (T-10) or, when expiry came while locked, as the lock ends (T-11).

It knows nothing of connections, links or faces. Time comes in as ``now``, in milliseconds since the
epoch. Nothing here looks at every waiting message: what is due is found by heaps, what is next by a
waiting line (see ``message_store``). With sessions each session is such a line: see
``sessions``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Protocol

from ..errors import (
    BrokerError,
    EntityDisabled,
    MessageNotFound,
    NotAllowed,
    QuotaExceeded,
    SessionRequired,
)
from .descriptions import QueueDescription
from .entity import Entity, QueueCounts
from .forwarding import Forwarding, reason_of
from .indexes import Deadlines, DuplicateIndex
from .locked_store import LockedStore
from .message_store import DESCRIPTION, REASON
from .partition import Health, check_keys
from .queue_context import SLICE, SLICE_BYTES, QueueContext
from .sessions import MessageSessions, SessionLock
from .stored_message import Instant, MessageState, StoredMessage
from .audit_recorder import Arrival, Removal

__all__ = ["DESCRIPTION", "REASON", "Queue", "QueueCounts"]

DEFERRED, SCHEDULED = MessageState.DEFERRED, MessageState.SCHEDULED


class PartitionOwner(Entity, Protocol):
    """What a partition is one of."""

    def partition_ready(self, partition: Queue) -> None:
        """A partition has something for who waits."""


class Queue(LockedStore):
    """A queue, or the dead-letter sub-queue of one (``parent`` is then the queue it belongs to)."""

    def __init__(
        self,
        path: str,
        description: QueueDescription,
        now: Instant,
        context: QueueContext,
        parent: Queue | None = None,
    ) -> None:
        super().__init__(path, description, parent, context)
        self.owner: PartitionOwner | None = None  # what this is a partition of
        self.created_at = self.updated_at = now
        self._listeners = 0
        self._ready = context.ready
        self._rescheduled = context.rescheduled
        self._forwards = context.forwards
        self.forwarding = Forwarding(self, to_transfer_dlq=context.legacy_forward_tdlq)
        self._schedule = Deadlines[int]()
        self._duplicates: DuplicateIndex | None = None
        if parent is None:
            if description.requires_duplicate_detection:
                self._duplicates = DuplicateIndex()
            if description.requires_session:
                self.sessions = MessageSessions(self)
            self.dead_letter_queue = Queue(f"{path}/$DeadLetterQueue", description, now, context, self)
            self.transfer_dead_letter_queue = Queue(
                f"{path}/$Transfer/$DeadLetterQueue", description, now, context, self
            )

    # -- sending

    def enqueue(self, message: StoredMessage, now: Instant) -> int:
        """Take a message and return its sequence number. Raises as :meth:`enqueue_all`."""
        return self.enqueue_all((message,), now)[0]

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Take all of the messages, or none; returns their numbers, for a duplicate that of the first.

        Raises as :meth:`check_acceptable`.
        """
        self.check_acceptable(messages)
        self.accessed_at = now
        return [self._take(message, now) for message in messages]

    def check_acceptable(self, messages: Sequence[StoredMessage]) -> None:
        """Raises NotAllowed for a dead-letter queue and for keys that clash (Q-7), SessionRequired,
        EntityDisabled, QuotaExceeded.
        """
        if self.parent is not None:
            raise NotAllowed(f"A message cannot be sent to the sub-queue '{self.path}'.")
        self.check_sends_enabled()
        need_session, more = self.sessions is not None, 0
        for message in messages:
            if message.partition_key is not None:
                check_keys(message)
            if need_session and message.session_id is None:
                raise SessionRequired(self.path)
            more += len(message.bare) + message.overhead  # its size, without a call
        size, quota = self.size_in_bytes, self.description.quota_in_bytes
        if size + more > quota:
            raise QuotaExceeded(self.path, size, quota)

    def check_sends_enabled(self) -> None:
        """Raises EntityDisabled where the status forbids sending."""
        self._check_status("SendDisabled")

    def dead_letter_untransferred(self, message: StoredMessage, why: BrokerError, now: Instant) -> None:
        """Keep, dead, a message that was sent via this queue and that its destination refused."""
        assert self.transfer_dead_letter_queue is not None  # noqa: S101 - nothing is sent to a sub-queue
        message.enqueued_at = now
        reason, text = reason_of(why)
        message.amend({REASON: reason, DESCRIPTION: text})
        self.transfer_dead_letter_queue._admit(message)
        if self._audit is not None:
            self._audit.stored(self.path, message, Arrival.SENT)
            self._audit.removed(self.path, message, Removal.DEAD_LETTERED, reason)

    def _take(self, message: StoredMessage, now: Instant) -> int:
        if message.is_ping:
            self._operations.pings += 1
        else:
            self._operations.sends += 1
        if self._duplicates is not None and (first := self._first_copy(message, now)) is not None:
            if self._audit is not None:
                self._audit.dropped(self.path, message)
            return first
        later = message.scheduled_for
        if later is None or later <= now:
            later = None
            message.reserved_number = None  # due before its commit, it gets the new number of its time
        number = self._place(message)
        if not message.hops:  # one that was forwarded tells its first number
            message.enqueued_sequence_number = number
        self.size += len(message.bare) + message.overhead  # its size, without a call
        if self._audit is not None:
            self._audit.stored(self.path, message, Arrival.FORWARDED if message.hops else Arrival.SENT)
        if self._duplicates is not None and not message.is_ping:
            self._duplicates.accepted(message.message_id, number, now)
            if self._change_log is not None:
                self._change_log.accepted(self, message.message_id, number, now)
        if later is not None:
            message.enqueued_at = later  # T-5
            self._stamp(message)
            message.state = SCHEDULED
            self._schedule.set(number, later)
            self.timers_moved()
        else:
            message.enqueued_at = now
            self._offer_new(message)
        return number

    def _first_copy(self, message: StoredMessage, now: Instant) -> int | None:
        if self._duplicates is None or message.is_ping:
            return None
        window = self.description.duplicate_detection_history_time_window
        return self._duplicates.number_of(message.message_id, window, now)

    def reserve(self, message: StoredMessage) -> int:
        """The sequence number that ``message`` will have when it is enqueued; a gap if it never is."""
        message.reserved_number = number = self._messages.reserve()
        if self._change_log is not None:
            self._change_log.numbered(self)
        return number

    def cancel_scheduled(self, numbers: Sequence[int], now: Instant) -> None:
        """Take back all of these scheduled messages, or none. Raises MessageNotFound, EntityDisabled."""
        self._check_status("SendDisabled")
        self.accessed_at = now
        self.handle_timer(now)
        for message in self.all_in(SCHEDULED, numbers):
            self._schedule.drop(message.sequence_number)
            self._forget(message, Removal.CANCELLED)
        self.timers_moved()

    # -- receiving; with sessions, under the lock of one

    def receive(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Lock the next message and hand it over; never one that expired (T-2).

        Raises EntityDisabled, SessionLockLost, and SessionRequired where ``session`` is missing.
        """
        message = self._next(now, session)
        if message is not None:
            self._lock(message, now, session)
        return message

    def receive_batch(
        self, most: int, now: Instant, session: SessionLock | None = None
    ) -> list[StoredMessage]:
        """Lock the next messages, ``most`` at most and a slice of bytes. Raises as :meth:`receive`."""
        messages: list[StoredMessage] = []
        room = SLICE_BYTES
        message = self._next(now, session)
        line = self._waiting if self.sessions is None or session is None else self.sessions.line_of(session)
        while message is not None:
            self._lock(message, now, session)
            messages.append(message)
            room -= message.size
            if len(messages) >= most or room <= 0:
                break
            message = self.first_of(line, now, SLICE)  # nothing else falls due in the same instant
        return messages

    def receive_and_delete(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Hand over the next message and forget it. Raises as :meth:`receive`."""
        message = self._next(now, session)
        if message is not None:
            self._operations.receives += 1
            self._forget(message, Removal.RECEIVED)
        return message

    def receive_deferred(
        self,
        numbers: Sequence[int],
        now: Instant,
        session: SessionLock | None = None,
        *,
        delete: bool = False,
    ) -> list[StoredMessage]:
        """Lock, or with ``delete`` take away, all of these deferred messages, or none.

        Raises MessageNotFound, and as :meth:`receive`.
        """
        messages = self.find_deferred(numbers, now, session)
        return [self.hand_over(message, now, session, delete=delete) for message in messages]

    def find_deferred(
        self, numbers: Sequence[int], now: Instant, session: SessionLock | None
    ) -> list[StoredMessage]:
        """All of these deferred messages, as they are. Raises as :meth:`receive_deferred`."""
        self._check_status("ReceiveDisabled")
        self.accessed_at = now
        if self.sessions is not None:
            if session is None:
                raise SessionRequired(self.path)
            self.sessions.check(session, now)
        messages = self.all_in(DEFERRED, numbers)
        expired = [message for message in messages if self._expired(message, now)]
        for message in expired:
            self._expire(message, now)  # touched, so expiry applies
        elsewhere = [message for message in messages if session and message.session_id != session.session_id]
        if expired or elsewhere:
            raise MessageNotFound(*(message.sequence_number for message in (*expired, *elsewhere)))
        return messages

    def hand_over(
        self, message: StoredMessage, now: Instant, session: SessionLock | None, *, delete: bool
    ) -> StoredMessage:
        """Lock a message that was found, or forget it, and return it."""
        if delete:
            self._operations.receives += 1
            self._forget(message, Removal.RECEIVED)
        else:
            self._lock(message, now, session)
        return message

    def delete_waiting(
        self, most: int, before: Instant | None, now: Instant, session: SessionLock | None = None
    ) -> int:
        """Forget up to ``most`` of the messages that wait, the oldest, enqueued before then; how many.

        Raises as :meth:`receive`.
        """
        for count in range(most):
            message = self._next(now, session)
            if message is None:
                return count
            if before is not None and message.enqueued_at >= before:
                self._offer_again(message, now)
                return count
            self._forget(message, Removal.DELETED)
        return most

    def source_for(self, front_end: Hashable) -> Queue:
        """Itself: front ends cache nothing of a plain queue."""
        return self

    def prepare_receive(self, now: Instant) -> None:
        """Prepare a receive: run due timers and expiries. Raises EntityDisabled, ForwardsOn."""
        self._check_status("ReceiveDisabled")
        self.forwarding.check_receivable()
        self.accessed_at = now
        self.handle_timer(now)
        self._remove_expired(now)  # T-4: somebody listens
        if self.sessions is not None:
            while (ping := self._waiting.pop()) is not None:
                self._forget(ping, Removal.DELETED)  # P-31

    def _next(self, now: Instant, session: SessionLock | None) -> StoredMessage | None:
        self.prepare_receive(now)
        if self.sessions is None:
            return self.first_of(self._waiting, now, SLICE)
        if session is None:
            raise SessionRequired(self.path)
        self.sessions.check(session, now)
        return self.first_of(self.sessions.line_of(session), now)

    # -- looking

    def peek(self, start: int, most: int, now: Instant, session_id: str | None = None) -> list[StoredMessage]:
        """Up to ``most`` messages from number ``start`` on: locked, deferred, scheduled, expired too."""
        self.accessed_at = now
        self.handle_timer(now)
        return self.browse(start, most, session_id)

    def browse(self, start: int, most: int, session_id: str | None = None) -> list[StoredMessage]:
        """Peek for diagnostics: neither counts as use of the queue nor triggers timers."""
        numbers = self._messages.numbers_from(start)
        if session_id is not None:
            numbers = iter(()) if self.sessions is None else self.sessions.numbers(session_id, start)
        messages = (message for number in numbers if (message := self._messages.get(number)) is not None)
        return list(islice((message for message in messages if not message.is_ping), most))

    def counts(self, now: Instant) -> QueueCounts:
        """Messages by state; what expired and was not yet removed counts as active (T-2)."""
        self.handle_timer(now)
        buried = 0 if self.dead_letter_queue is None else len(self.dead_letter_queue._messages)
        failed = self.transfer_dead_letter_queue
        unsent = 0 if failed is None else len(failed._messages)
        held, scheduled = len(self._messages), len(self._schedule)
        return QueueCounts(
            active=held - scheduled - self._deferred,
            dead_letter=buried,
            scheduled=scheduled,
            deferred=self._deferred,
            transfer=0,
            transfer_dead_letter=unsent,
            total=held + buried + unsent,
            size_in_bytes=self.size_in_bytes,
        )

    def _check_status(self, barred: str) -> None:
        if self.status in ("Disabled", barred):
            raise EntityDisabled(self.path, self.status)
        if self.partition is not None and barred == "SendDisabled":
            self.partition.check_takes(self.path)
        else:
            self.check_up()

    # -- change and time

    def listen(self, now: Instant) -> None:
        """A receive is in progress, until :meth:`stop_listening` (T-4, T-21)."""
        self._listeners += 1
        self.accessed_at = now
        self.timers_moved()

    def stop_listening(self, now: Instant) -> None:
        """A receive has ended."""
        self._listeners -= 1
        self.accessed_at = now
        self.timers_moved()

    def apply_description(self, description: QueueDescription, now: Instant) -> None:
        """Apply another description (T-6: also to messages without a TTL of their own).

        Raises InvalidDescription when a setting differs that is fixed at creation.
        """
        description.check_successor_of(self.description)
        self.updated_at = self.accessed_at = now
        self.follow(description, now)

    def follow(self, description: QueueDescription, now: Instant) -> None:
        """As :meth:`apply_description`, without using the queue."""
        self.description = description
        self.forwarding.changed(now)
        self.notify()
        if self.sessions is not None:
            self.sessions.notify_holders()
        for part in self.sub_queues:
            part.follow(description, now)

    @property
    def idle_since(self) -> Instant | None:
        """The time of the last use (T-21), or None while the queue is in use."""
        if self._listeners or len(self._schedule) or self.description.forward_to is not None:  # T-22
            return None
        latest = max(self.updated_at, self.accessed_at or 0)
        for part in self.sub_queues:  # who works on the dead letters uses the queue
            since = part.idle_since
            if since is None:
                return None
            latest = max(latest, since)
        return latest

    def next_timer(self) -> Instant | None:
        """The earliest end of a lock (with sessions: of a hold) or of a schedule; None for never.

        While somebody listens, the earliest expiry too (T-4).
        """
        first = self._locks.next() if self.sessions is None else self.sessions.next_lapse()
        expiry = self._expiries.next() if self._listeners else None
        return min((at for at in (first, self._schedule.next(), expiry) if at is not None), default=None)

    def handle_timer(self, now: Instant) -> None:
        """Let locks lapse, scheduled messages become active and, if anybody listens, others expire.

        A slice of each at once: what is left is the next timer.
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
            self.sessions.lapse(now)
            return
        lapsed = self._locks.pop_lapsed(now, SLICE)
        self._work.steps += len(lapsed)
        for message in lapsed:
            self._failed(message, now)

    def _activate(self, number: int) -> None:
        message = self._messages.get(number)
        if message is not None:
            self.touch(message.enqueued_at)  # T-21: it comes as if it were sent now
            self._displace(message)
            self._place(message)  # a new number
            self._offer_new(message)

    def notify(self, lock: SessionLock | None = None) -> None:
        """Report a deliverable message to the receivers of the queue, or to the holder of ``lock``."""
        if lock is not None:
            self._ready.add(lock)
        elif self.owner is None:
            self._ready.add(self)
        else:
            self.owner.partition_ready(self)
        if self.forwarding.target is not None:
            self._forwards[self] = None

    # -- taking up what a store has kept

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

    # -- as an entity among others

    @property
    def top(self) -> Entity:
        """The entity registered in the namespace: itself, its parent, or the partitioned entity it belongs to."""
        here = self.parent or self
        return here if here.owner is None else here.owner

    @property
    def availability(self) -> str:
        """One store that answers is all there is (Q-17)."""
        return "Available"

    @property
    def health(self) -> Health:
        """How it is, as a partition; a plain queue is well."""
        return Health.UP if self.partition is None else self.partition.health

    @property
    def known_from(self) -> Instant:
        """From when on senders without a key are led around it, if it is a partition that is down."""
        return 0 if self.partition is None else self.partition.known_from

    def check_receivable(self) -> None:
        """Raises ForwardsOn when the entity forwards its messages."""
        self.forwarding.check_receivable()

    def check_manageable(self) -> None:
        """Never raises: a plain entity is always manageable."""

    def touch(self, now: Instant) -> None:
        """Count a use that no other method of the entity shows (T-21)."""
        self.accessed_at = max(self.accessed_at or 0, now)

    def parts(self) -> list[Queue]:
        """Itself and its dead-letter queues."""
        return [self, *self.sub_queues]

    def timers_moved(self) -> None:
        """Report that the next timer may have changed."""
        self._rescheduled[self] = None
