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
queue of fresh messages beside a heap of those that came back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ..errors import EntityDisabled, LockLost, MessageNotFound, NotAllowed, QuotaExceeded
from .deadlines import Deadlines
from .description import QueueDescription
from .numbering import Numbering
from .stored_message import Instant, LockToken, MessageState, StoredMessage
from .surroundings import Surroundings

ACTIVE, LOCKED = MessageState.ACTIVE, MessageState.LOCKED
DEFERRED, SCHEDULED, GONE = MessageState.DEFERRED, MessageState.SCHEDULED, MessageState.GONE

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
EXPIRED = {REASON: "TTLExpiredException", DESCRIPTION: "The message expired and was dead lettered."}


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Messages of a queue by state.

    ``active`` holds the locked ones too, and what has expired but was not yet removed (T-2); ``total`` and
    ``size_in_bytes`` include the dead-letter queue.
    """

    active: int
    dead_letter: int
    scheduled: int
    deferred: int
    transfer: int
    transfer_dead_letter: int
    total: int
    size_in_bytes: int


class Queue:
    """A queue, or the dead-letter sub-queue of one (``parent`` is then the queue it belongs to)."""

    def __init__(
        self,
        path: str,
        description: QueueDescription,
        now: Instant,
        surroundings: Surroundings,
        parent: Queue | None = None,
    ) -> None:
        self.path = path
        self.description = description
        self.created_at = self.updated_at = now
        self.accessed_at: Instant | None = None
        self._listeners = 0
        self.size = 0  # bytes of this queue alone
        self.parent = parent
        self.dead_letter_queue: Queue | None = None
        self._new_token = surroundings.new_token
        self._operations = surroundings.operations
        self._ready = surroundings.ready
        self._stirred = surroundings.stirred
        self._messages = Numbering[StoredMessage]()
        self._fresh: deque[StoredMessage] = deque()  # ascending sequence numbers
        self._returned: list[tuple[int, StoredMessage]] = []  # a heap: abandoned, lapsed
        self._locked: dict[LockToken, StoredMessage] = {}
        self._locks = Deadlines[LockToken]()
        self._expiries = Deadlines[int]()  # messages with a TTL of their own
        self._schedule = Deadlines[int]()
        self._deferred = 0
        if parent is None:
            self.dead_letter_queue = Queue(f"{path}/$DeadLetterQueue", description, now, surroundings, self)

    # -- sending

    def enqueue(self, message: StoredMessage, now: Instant) -> int:
        """Take a message and return its sequence number. Raises as :meth:`enqueue_all`."""
        self.enqueue_all((message,), now)
        return message.sequence_number

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> None:
        """Take all of the messages, or none.

        Raises NotAllowed for a dead-letter queue, EntityDisabled, QuotaExceeded.
        """
        if self.parent is not None:
            raise NotAllowed(f"A message cannot be sent to the sub-queue '{self.path}'.")  # 3.2
        self._check_status("SendDisabled")
        size, quota = self.size_in_bytes, self.description.quota_in_bytes
        if size + sum(message.size for message in messages) > quota:
            raise QuotaExceeded(self.path, size, quota)
        self.accessed_at = now
        for message in messages:
            self._take(message, now)

    def _take(self, message: StoredMessage, now: Instant) -> None:
        message.sequence_number = message.enqueued_sequence_number = self._messages.add(message)
        self.size += message.size
        if message.is_ping:
            self._operations.pings += 1
        else:
            self._operations.sends += 1
        if message.scheduled_for is not None and message.scheduled_for > now:
            message.enqueued_at = message.scheduled_for  # 3.3
            message.state = SCHEDULED
            self._schedule.set(message.sequence_number, message.scheduled_for)
            self._stirred.add(self)
        else:
            message.enqueued_at = now
            self._offer_fresh(message)

    def _offer_fresh(self, message: StoredMessage) -> None:
        message.state = ACTIVE
        if message.time_to_live is not None:
            message.expires_at = message.enqueued_at + self._ceiling(message.time_to_live)
            self._expiries.set(message.sequence_number, message.expires_at)
        self._fresh.append(message)
        self._ready.add(self)

    def _ceiling(self, time_to_live: int) -> int:
        limit = self.description.default_message_time_to_live
        return time_to_live if limit is None else min(time_to_live, limit)  # T-6

    # -- receiving

    def receive(self, now: Instant) -> StoredMessage | None:
        """Lock the next message and hand it over; never one that expired (T-2). Raises EntityDisabled."""
        message = self._next(now)
        if message is not None:
            self._lock(message, now)
        return message

    def receive_and_delete(self, now: Instant) -> StoredMessage | None:
        """Hand over the next message and forget it. Raises EntityDisabled."""
        message = self._next(now)
        if message is not None:
            self._operations.receives += 1
            self._forget(message)
        return message

    def receive_deferred(self, sequence_number: int, now: Instant, *, delete: bool = False) -> StoredMessage:
        """Lock, or with ``delete`` take away, a deferred message. Raises MessageNotFound, EntityDisabled."""
        self._check_status("ReceiveDisabled")
        self.accessed_at = now
        message = self._messages.get(sequence_number)
        if message is None or message.state is not DEFERRED or self._expired(message, now):
            if message is not None and message.state is DEFERRED:
                self._expire(message, now)  # 3.2: touched, so expiry applies
            raise MessageNotFound(sequence_number)
        if delete:
            self._operations.receives += 1
            self._forget(message)
        else:
            self._deferred -= 1
            self._lock(message, now)
        return message

    def _next(self, now: Instant) -> StoredMessage | None:
        self._check_status("ReceiveDisabled")
        self.accessed_at = now
        self.handle_timer(now)
        self._reap(now)  # T-4: somebody listens
        while (message := self._pop_first()) is not None:
            if message.is_ping:
                self._forget(message)  # P-31
            elif self._expired(message, now):
                self._expire(message, now)
            else:
                return message
        return None

    def _pop_first(self) -> StoredMessage | None:
        fresh, returned = self._fresh, self._returned
        while fresh and fresh[0].state is not ACTIVE:
            fresh.popleft()
        while returned and returned[0][1].state is not ACTIVE:
            heappop(returned)
        if returned and (not fresh or returned[0][0] < fresh[0].sequence_number):
            return heappop(returned)[1]
        return fresh.popleft() if fresh else None

    def _lock(self, message: StoredMessage, now: Instant) -> None:
        self._operations.receives += 1
        token = self._new_token()
        message.state = LOCKED
        message.lock_token = token
        message.locked_until = now + self.description.lock_duration
        self._locked[token] = message
        self._locks.set(token, message.locked_until)
        self._stirred.add(self)

    # -- settling: each raises LockLost when the lock is not, or no longer, held

    def complete(self, token: LockToken, now: Instant) -> None:
        """The receiver is done with the message; expiry no longer matters (T-3)."""
        self._forget(self._unlock(token, now))

    def abandon(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Give the message back, one failed delivery richer; ``changes`` are set on its properties."""
        message = self._unlock(token, now)
        message.amend(changes)
        self._failed(message, now)

    def release(self, token: LockToken, now: Instant) -> None:
        """Give the message back as if it had not been delivered."""
        self._offer_again(self._unlock(token, now), now)

    def defer(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Set the message aside: from now on it is received by its sequence number only."""
        message = self._unlock(token, now)
        message.amend(changes)
        message.state = DEFERRED
        self._deferred += 1

    def dead_letter(self, token: LockToken, now: Instant, properties: Mapping[str, object]) -> None:
        """Move the message to the dead-letter queue with these application properties, the reason among them.

        Raises NotAllowed on a dead-letter queue.
        """
        if self.dead_letter_queue is None:
            raise NotAllowed(f"A message cannot be dead-lettered out of '{self.path}'.")  # 3.2
        self._bury(self._unlock(token, now), now, properties)

    def renew(self, token: LockToken, now: Instant) -> Instant:
        """Restart the lock's full duration; returns until when it holds."""
        message = self._held(token, now)
        message.locked_until = now + self.description.lock_duration
        self._locks.set(token, message.locked_until)
        self.accessed_at = now
        return message.locked_until

    def _held(self, token: LockToken, now: Instant) -> StoredMessage:
        message = self._locked.get(token)
        if message is None:
            raise LockLost
        if message.locked_until <= now:
            self.handle_timer(now)
            raise LockLost
        return message

    def _unlock(self, token: LockToken, now: Instant) -> StoredMessage:
        message = self._held(token, now)
        self.accessed_at = now
        del self._locked[token]
        self._locks.drop(token)
        self._stirred.add(self)
        message.lock_token = None
        return message

    def _failed(self, message: StoredMessage, now: Instant) -> None:
        message.delivery_count += 1
        limit = self.description.max_delivery_count
        if (
            message.delivery_count >= limit
            and self.dead_letter_queue is not None
            and not self._expired(message, now)
        ):
            text = f"Message could not be consumed after {message.delivery_count} delivery attempts."
            self._bury(message, now, {REASON: "MaxDeliveryCountExceeded", DESCRIPTION: text})
        else:
            self._offer_again(message, now)

    def _offer_again(self, message: StoredMessage, now: Instant) -> None:
        message.state = ACTIVE
        if self._expired(message, now):
            self._expire(message, now)  # T-3: at once, listening or not
            return
        heappush(self._returned, (message.sequence_number, message))
        if message.expires_at is not None:
            self._expiries.set(message.sequence_number, message.expires_at)
        self._ready.add(self)

    # -- expiry

    def _expired(self, message: StoredMessage, now: Instant) -> bool:
        if self.parent is not None:
            return False  # 3.2: a dead-letter queue observes no TTL
        expires_at = self.expires_at(message)
        return expires_at is not None and expires_at <= now

    def expires_at(self, message: StoredMessage) -> Instant | None:
        """When the message can no longer be received: its own instant, else the entity's TTL (T-6)."""
        if message.expires_at is not None:
            return message.expires_at
        span = self.description.default_message_time_to_live
        return None if span is None else message.enqueued_at + span

    def _reap(self, now: Instant) -> None:
        """Remove what expired by its own TTL; what follows the entity's is in order, and met at the head."""
        for number in self._expiries.take_due(now):
            message = self._messages.get(number)
            if message is not None and message.state is ACTIVE:
                self._expire(message, now)
            # Locked: looked at again when the lock ends. Deferred: when it is asked for.

    def _expire(self, message: StoredMessage, now: Instant) -> None:
        buried = self.description.dead_lettering_on_message_expiration and not message.is_ping
        if buried and self.dead_letter_queue is not None:
            self._bury(message, now, EXPIRED)  # T-10
        else:
            self._forget(message)

    def _bury(self, message: StoredMessage, now: Instant, properties: Mapping[str, object]) -> None:
        assert self.dead_letter_queue is not None  # noqa: S101 - the callers looked
        self._forget(message)
        message.dead_letter_source = self.path
        message.amend(properties)
        self.dead_letter_queue._admit(message)

    def _admit(self, message: StoredMessage) -> None:
        message.state = ACTIVE
        message.lock_token = None
        message.sequence_number = self._messages.add(message)
        self.size += message.size
        self._fresh.append(message)
        self._ready.add(self)

    def _forget(self, message: StoredMessage) -> None:
        self._messages.remove(message.sequence_number)
        self.size -= message.size
        if message.state is DEFERRED:
            self._deferred -= 1
        message.state = GONE
        if message.expires_at is not None:
            self._expiries.drop(message.sequence_number)

    # -- looking

    def peek(self, start: int, most: int, now: Instant) -> list[StoredMessage]:
        """Up to ``most`` messages from number ``start`` on: locked, deferred, scheduled, expired too."""
        self.accessed_at = now
        self.handle_timer(now)
        return [message for message in self._messages.from_number(start, most) if not message.is_ping]

    def counts(self, now: Instant) -> QueueCounts:
        """Messages by state; what expired and was not yet removed counts as active (T-2)."""
        self.handle_timer(now)
        buried = 0 if self.dead_letter_queue is None else len(self.dead_letter_queue._messages)
        held, scheduled = len(self._messages), len(self._schedule)
        return QueueCounts(
            active=held - scheduled - self._deferred,
            dead_letter=buried,
            scheduled=scheduled,
            deferred=self._deferred,
            transfer=0,
            transfer_dead_letter=0,
            total=held + buried,
            size_in_bytes=self.size_in_bytes,
        )

    @property
    def size_in_bytes(self) -> int:
        """Bytes held, the dead-letter queue's among them (3.2)."""
        return self.size + (0 if self.dead_letter_queue is None else self.dead_letter_queue.size)

    def _check_status(self, barred: str) -> None:
        if self.description.status in ("Disabled", barred):
            raise EntityDisabled(self.path, self.description.status)

    # -- change and time

    def listen(self, now: Instant) -> None:
        """A receive is in progress, until :meth:`stop_listening` (T-4, T-21)."""
        self._listeners += 1
        self.accessed_at = now

    def stop_listening(self, now: Instant) -> None:
        """A receive has ended."""
        self._listeners -= 1
        self.accessed_at = now

    def redescribe(self, description: QueueDescription, now: Instant) -> None:
        """Follow another description from now on (T-6: messages without a TTL of their own follow too)."""
        self.description = description
        self.updated_at = self.accessed_at = now
        self._ready.add(self)
        if self.dead_letter_queue is not None:
            self.dead_letter_queue.description = description

    @property
    def idle_since(self) -> Instant | None:
        """Since when nobody has used the queue (T-21), or None while it is in use."""
        if self._listeners or len(self._schedule):
            return None
        return max(self.updated_at, self.accessed_at or 0)

    def next_timer(self) -> Instant | None:
        """The earliest end of a lock or of a schedule; None for never."""
        lock, schedule = self._locks.next(), self._schedule.next()
        if lock is None or schedule is None:
            return lock if schedule is None else schedule
        return min(lock, schedule)

    def handle_timer(self, now: Instant) -> None:
        """Let locks lapse and scheduled messages become active, up to ``now``."""
        due = self.next_timer()
        if due is None or due > now:
            return
        self._stirred.add(self)
        for number in self._schedule.take_due(now):
            self._activate(number)
        for token in self._locks.take_due(now):
            message = self._locked.pop(token)
            message.lock_token = None
            self._failed(message, now)

    def _activate(self, number: int) -> None:
        message = self._messages.remove(number)
        if message is not None:
            message.sequence_number = self._messages.add(message)  # 3.6: a new number
            self._offer_fresh(message)
