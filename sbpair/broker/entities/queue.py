"""A queue as links, management and administration see it: one entity over one or more partitions.

                    key -> index_of          .--> partition 0 ---.   the next one with a message
    enqueue --------------------------------+---> partition 1 ---+--------------------------> receive
                    no key -> next in turn   '--> partition 2 ---'

A queue that is not partitioned has one partition, ``only``, and the following about keys and turns does not apply to
it. The lock tokens of a partitioned queue begin with the index of their partition, and the top 16 bits of its sequence
numbers contain it, so tokens and numbers identify their partition without a lookup table. A receive asks only the
partitions that have reported a message. A partition that is down is skipped; its messages wait.

A front end of the service may cache messages of a partitioned entity for one connection: each partition locks its next
message, the first one found is delivered, and the others stay locked in the cache for the next receives. If the
connection closes or does not receive in time, these locks expire, which counts as a failed delivery as for any other
lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import astuple
from typing import TypeAlias

from ..errors import (
    BrokerError,
    EntityDisabledError,
    LockLostError,
    NoSuchMessageError,
    NotAllowedError,
    PartitionUnavailableError,
    ReroutingError,
    ServerBusyError,
    SessionRequiredError,
)
from .descriptions import KeptText, QueueDescription
from .partition import Health, Layout, index_of, index_of_number, key_of
from .queue_context import QueueContext
from .queue_partition import QueueCounts, QueuePartition
from .sessions import QueueSessions, SessionLock
from .stored_message import Instant, LockToken, MessageState, StoredMessage


def new_queue(
    path: str, resolved: QueueDescription, now: Instant, context: QueueContext, layout: Layout
) -> Queue:
    """Create a queue in a namespace with the given layout."""
    each = layout.partition_description(resolved)
    partitions = [
        QueuePartition(path, each, now, its_context)
        for its_context in layout.partition_contexts(resolved, context)
    ]
    return Queue(path, layout.reported_description(resolved), partitions, context, layout)


class Queue:
    """A queue, or the dead-letter queue of ``parent``; topics and subscriptions are queues too.

    ``description`` is the one in effect, as clients see it; ``kept`` is text that the administration API returns
    besides. A partitioned queue also raises PartitionUnavailableError, ServerBusyError and, on a send without a key,
    ReroutingError.
    """

    def __init__(
        self,
        path: str,
        description: QueueDescription,
        partitions: Sequence[QueuePartition],
        context: QueueContext,
        layout: Layout,
        parent: Queue | None = None,
    ) -> None:
        self.path = path
        self.description = description
        self.partitions = tuple(partitions)
        self.parent = parent
        self.kept = KeptText()
        self.layout = layout
        self.is_partitioned = partitions[0].partition.store is not None
        self.only = None if self.is_partitioned else partitions[0]
        self._context = context
        self._turn = layout.first % len(partitions)
        self.available: dict[QueuePartition, None] = {}  # those that reported a message
        self._prepared_at: Instant = -1
        self.sessions = None if partitions[0].sessions is None else QueueSessions(partitions)
        for partition in partitions:
            partition.owner = self
        self.dead_letter_queue = self._combine([each.dead_letter_queue for each in partitions])
        self.transfer_dead_letter_queue = self._combine(
            [each.transfer_dead_letter_queue for each in partitions]
        )

    def _combine(self, sub_queues: Sequence[QueuePartition | None]) -> Queue | None:
        """Return the dead-letter queue that combines those of the partitions, or None if they have none."""
        found = [each for each in sub_queues if each is not None]
        if not found:
            return None
        return Queue(found[0].path, self.description, found, self._context, self.layout, self)

    # -- sending

    def enqueue(self, message: StoredMessage, now: Instant) -> int:
        """Store a message and return its sequence number. Raises as :meth:`enqueue_all`."""
        return self.enqueue_all((message,), now)[0]

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Store all of the messages in one partition, or none; return their sequence numbers.

        Raises as :meth:`QueuePartition.enqueue_all`, and NotAllowedError for messages with different keys,
        PartitionUnavailableError or ServerBusyError when the partition of the key is down or throttled, and
        ReroutingError.
        """
        if self.only is not None:
            return self.only.enqueue_all(messages, now)
        return self.partition_for(messages, now).enqueue_all(messages, now)

    def partition_for(self, messages: Sequence[StoredMessage], now: Instant) -> QueuePartition:
        """Return the partition for messages that are sent together. Raises as :meth:`enqueue_all`."""
        detects = self.description.requires_duplicate_detection
        key = key_of(messages[0], detects_duplicates=detects)
        if len(messages) > 1 and any(key_of(each, detects_duplicates=detects) != key for each in messages):
            raise NotAllowedError(_MIXED_WITH_IDS if detects else _MIXED)
        if key is None:
            return self._next_in_turn(now)
        return self.partition_of(key)

    def key_of(self, message: StoredMessage) -> str | None:
        """Return the key that selects the partition of a message in this entity, or None."""
        return key_of(message, detects_duplicates=self.description.requires_duplicate_detection)

    def check_acceptable(self, messages: Sequence[StoredMessage]) -> None:
        """Raise the error that :meth:`enqueue_all` would raise now, if any.

        The messages may belong to several sends. Those without a key are checked against the next partition in turn.
        """
        if self.only is not None:
            self.only.check_acceptable(messages)
            return
        by_partition: dict[QueuePartition, list[StoredMessage]] = {}
        for message in messages:
            by_partition.setdefault(self._partition_for(message), []).append(message)
        for partition, own_messages in by_partition.items():
            partition.check_acceptable(own_messages)

    def check_sends_enabled(self) -> None:
        """Raise EntityDisabledError if the status forbids sending."""
        if self.status in ("Disabled", "SendDisabled"):
            raise EntityDisabledError(self.path, self.status)

    def dead_letter_untransferred(self, message: StoredMessage, why: BrokerError, now: Instant) -> None:
        """Dead-letter a message that was sent via this entity and refused by its destination."""
        self._partition_for(message).dead_letter_untransferred(message, why, now)

    def reserve(self, message: StoredMessage) -> int:
        """Assign the sequence number that ``message`` will get when enqueued; never reused if it is not."""
        return self._partition_for(message).reserve(message)

    def _partition_for(self, message: StoredMessage) -> QueuePartition:
        key = self.key_of(message)
        return self.partitions[self._turn] if key is None else self.partition_of(key)

    def partition_of(self, key: str) -> QueuePartition:
        """Return the partition for ``key``, whatever its health."""
        return self.partitions[index_of(key, len(self.partitions))]

    def _next_in_turn(self, now: Instant) -> QueuePartition:
        partitions = self.partitions
        is_busy = False
        for _ in partitions:
            partition = partitions[self._turn]
            self._turn = (self._turn + 1) % len(partitions)
            health = partition.health
            if health is Health.UP:
                return partition
            if health is Health.DOWN and partition.partition.known_from > now:
                raise ReroutingError(self.path, partition.partition.known_from)
            is_busy = is_busy or health is Health.THROTTLED
        raise ServerBusyError if is_busy else PartitionUnavailableError(self.path, self._turn)

    def cancel_scheduled(self, numbers: Sequence[int], now: Instant) -> None:
        """Remove all of these scheduled messages, or none. Raises NoSuchMessageError, EntityDisabledError."""
        by_partition = self._by_partition(numbers)
        for partition in by_partition:
            partition.check_sends_enabled()
            partition.handle_timer(now)
        self._check_all(
            by_partition, lambda partition, own_numbers: partition.all_in(MessageState.SCHEDULED, own_numbers)
        )
        for partition, own_numbers in by_partition.items():
            partition.cancel_scheduled(own_numbers, now)

    # -- receiving

    def receive(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Lock and return the next message of any partition, or None. Raises as :meth:`QueuePartition.receive`."""
        if (single := self.only if session is None else session.queue) is not None:
            return single.receive(now, session)
        return self._next(now, lambda partition: partition.receive(now))

    def receive_and_delete(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Remove and return the next message of any partition, or None. Raises as :meth:`receive`."""
        if (single := self.only if session is None else session.queue) is not None:
            return single.receive_and_delete(now, session)
        return self._next(now, lambda partition: partition.receive_and_delete(now))

    def _next(
        self, now: Instant, take: Callable[[QueuePartition], StoredMessage | None]
    ) -> StoredMessage | None:
        self.prepare_receive(now)
        if self.sessions is not None:
            raise SessionRequiredError(self.path)
        available = self.available
        while available:
            partition = next(iter(available))
            message = None if partition.health is Health.DOWN else take(partition)
            if message is not None:
                del available[partition]
                available[partition] = None  # the last in turn
                return message
            del available[partition]
        return None

    def receive_from_each(self, now: Instant) -> list[StoredMessage]:
        """Lock and return the next message of each partition. Raises as :meth:`receive`."""
        self.prepare_receive(now)
        messages: list[StoredMessage] = []
        for partition in list(self.available):
            message = None if partition.health is Health.DOWN else partition.receive(now)
            if message is None:
                del self.available[partition]
            else:
                messages.append(message)
        return messages

    def source_for(self, front_end: Hashable) -> MessageSource:
        """Return the source from which a receiver on the connection ``front_end`` takes its messages.

        It is the only partition, the queue itself or, when front ends cache messages, a cache.
        """
        if self.only is not None:
            return self.only
        if not (self._context.front_ends_cache or self._context.is_cache_imposed):
            return self
        caches = self._context.front_ends.setdefault(front_end, {})
        if self not in caches:
            caches[self] = FrontEnd(self)
        return caches[self]

    def receive_deferred(
        self,
        numbers: Sequence[int],
        now: Instant,
        session: SessionLock | None = None,
        *,
        delete: bool = False,
    ) -> list[StoredMessage]:
        """Lock all of these deferred messages, or none; with ``delete``, remove them instead.

        Raises as :meth:`QueuePartition.receive_deferred`.
        """
        if (single := self.only if session is None else session.queue) is not None:
            return single.receive_deferred(numbers, now, session, delete=delete)
        by_partition = self._by_partition(numbers)
        found = {
            message.sequence_number: (partition, message)
            for partition, messages in self._check_all(
                by_partition, lambda partition, own_numbers: partition.find_deferred(own_numbers, now, None)
            )
            for message in messages
        }
        return [
            partition.hand_over(message, now, None, delete=delete)
            for partition, message in (found[number] for number in dict.fromkeys(numbers))
        ]

    def check_receivable(self) -> None:
        """Raise ForwardingEntityError if the entity forwards its messages."""
        self.partitions[0].check_receivable()

    def prepare_receive(self, now: Instant) -> None:
        """Prepare a receive: run due timers and expiries of each partition, once per instant.

        Raises EntityDisabledError, ForwardingEntityError.
        """
        if now == self._prepared_at:
            return
        for partition in self.partitions:
            if partition.health is not Health.DOWN:
                partition.prepare_receive(now)
        self._prepared_at = now

    def expires_at(self, message: StoredMessage) -> Instant | None:
        """Return when a message expires, or None."""
        return self.partitions[0].expires_at(message)

    def delete_waiting(
        self, limit: int, before: Instant | None, now: Instant, session: SessionLock | None = None
    ) -> int:
        """Remove up to ``limit`` waiting messages enqueued before ``before`` (None: any); return how many.

        Raises NotAllowedError on a partitioned entity, and as :meth:`receive`.
        """
        if self.only is not None:
            return self.only.delete_waiting(limit, before, now, session)
        raise NotAllowedError(f"Batch delete is not supported on the partitioned entity '{self.path}'.")

    # -- settlement

    def locked_message(self, token: LockToken, now: Instant) -> StoredMessage:
        """Return the message locked under ``token``.

        Raises LockLostError or SessionLostError when the lock has ended.
        """
        return self._partition_of_token(token).locked_message(token, now)

    def check_can_dead_letter(self) -> None:
        """Raise NotAllowedError on a dead-letter queue."""
        self.partitions[0].check_can_dead_letter()

    def complete_all(self, tokens: Sequence[LockToken | None], now: Instant) -> bool:
        """Complete all of the messages, or none; return False when they must be completed one by one."""
        return self.only is not None and self.only.complete_all(tokens, now)

    def complete(self, token: LockToken, now: Instant) -> None:
        """Remove the message."""
        self._partition_of_token(token).complete(token, now)

    def abandon(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Make the message available again and count a failed delivery; set ``changes`` on its properties."""
        self._partition_of_token(token).abandon(token, now, changes)

    def release(self, token: LockToken, now: Instant) -> None:
        """Make the message available again without counting a delivery."""
        self._partition_of_token(token).release(token, now)

    def defer(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Defer the message."""
        self._partition_of_token(token).defer(token, now, changes)

    def dead_letter(self, token: LockToken, now: Instant, properties: Mapping[str, object]) -> None:
        """Move the message to the dead-letter queue and set ``properties`` on it."""
        self._partition_of_token(token).dead_letter(token, now, properties)

    def renew(self, token: LockToken, now: Instant) -> Instant:
        """Restart the lock's full duration; return its new end."""
        return self._partition_of_token(token).renew(token, now)

    def _partition_of_token(self, token: LockToken) -> QueuePartition:
        if self.only is not None:
            return self.only
        if token[0] >= len(self.partitions):
            raise LockLostError
        return self.partitions[token[0]]

    # -- inspection

    def peek(
        self, start: int, limit: int, now: Instant, session_id: str | None = None
    ) -> list[StoredMessage]:
        """Return up to ``limit`` messages from number ``start`` on, of the first partition that has any.

        Continue from the last number plus 1 until the result is empty to see all messages.
        """
        if session_id is not None:
            home = self.partition_of(session_id)
            home.check_up()
            return home.peek(start, limit, now, session_id)
        for partition in self.partitions[max(0, index_of_number(start)) :]:
            if partition.health is not Health.DOWN:
                messages = partition.peek(start, limit, now)
                if messages:
                    return messages
        return []

    def browse(self, start: int, limit: int) -> list[StoredMessage]:
        """Peek for diagnostics, also in partitions that are down."""
        for partition in self.partitions[max(0, index_of_number(start)) :]:
            messages = partition.browse(start, limit)
            if messages:
                return messages
        return []

    def counts(self, now: Instant) -> QueueCounts:
        """Return the number of messages by state in all partitions together."""
        each = [partition.counts(now) for partition in self.partitions]
        return each[0] if len(each) == 1 else QueueCounts(*map(sum, zip(*map(astuple, each), strict=True)))

    @property
    def size_in_bytes(self) -> int:
        """Bytes stored in all partitions, including the dead-letter queues."""
        return sum(partition.size_in_bytes for partition in self.partitions)

    # -- health

    def set_health(self, index: int, health: Health, known_from: Instant = 0) -> None:
        """Set the health of one partition.

        While it is down, senders are rerouted from ``known_from`` on.
        """
        self.partitions[index].partition.set(health, known_from)
        self.health_changed()

    def health_changed(self) -> None:
        """Apply a change of health of a partition or its store, and notify waiting receivers."""
        self._prepared_at = -1
        for each in self.all_partitions():
            each.partition.refresh()
            each.notify()

    @property
    def availability(self) -> str:
        """``Available``, or ``Limited`` while a partition is down."""
        is_limited = any(partition.health is Health.DOWN for partition in self.partitions)
        return "Limited" if is_limited else "Available"

    def check_manageable(self) -> None:
        """Raise PartitionUnavailableError while a partition is down."""
        for partition in self.partitions:
            partition.check_up()

    # -- management and timers

    def apply_description(self, resolved: QueueDescription, now: Instant) -> None:
        """Apply another description, which may not differ in a setting that is fixed at creation."""
        self._describe(self.layout.reported_description(resolved))
        for partition in self.partitions:
            partition.apply_description(self.layout.partition_description(resolved), now)

    def _describe(self, description: QueueDescription) -> None:
        for each in self.parts():
            each.description = description

    @property
    def status(self) -> str:
        """The effective status: the description's, unless a fault overrides it."""
        return self.partitions[0].status

    @property
    def top(self) -> Queue:
        """The entity registered in the namespace: itself, or the parent of a dead-letter queue."""
        return self.parent or self

    @property
    def counted_at(self) -> str:
        """The path of the entity against whose size limit its messages count."""
        return self.path if self.parent is None else self.parent.counted_at

    @property
    def created_at(self) -> Instant:
        """When the entity was created."""
        return self.partitions[0].created_at

    @property
    def updated_at(self) -> Instant:
        """When the description last changed."""
        return self.partitions[0].updated_at

    @property
    def accessed_at(self) -> Instant | None:
        """When the entity was last used, or None."""
        used = [each.accessed_at for each in self.partitions if each.accessed_at is not None]
        return max(used, default=None)

    def touch(self, now: Instant) -> None:
        """Record a use of the entity that no other method implies."""
        self.partitions[0].touch(now)

    def listen(self, now: Instant) -> None:
        """Record that a receive has started; ended by :meth:`stop_listening`."""
        for partition in self.partitions:
            partition.listen(now)

    def stop_listening(self, now: Instant) -> None:
        """Record that a receive has ended."""
        for partition in self.partitions:
            partition.stop_listening(now)

    @property
    def idle_since(self) -> Instant | None:
        """The time of the last use of any partition, or None while one is in use."""
        since = [partition.idle_since for partition in self.partitions]
        used = [each for each in since if each is not None]
        return max(used) if len(used) == len(since) else None

    def parts(self) -> list[Queue]:
        """Return the queue and its dead-letter queues."""
        subs = (self.dead_letter_queue, self.transfer_dead_letter_queue)
        return [self, *(each for each in subs if each is not None)]

    def all_partitions(self) -> list[QueuePartition]:
        """Return the partitions, each with its dead-letter queues, always in the same order."""
        return [part for partition in self.partitions for part in (partition, *partition.sub_queues)]

    def _by_partition(self, numbers: Sequence[int]) -> dict[QueuePartition, list[int]]:
        """Group sequence numbers by partition. Raises NoSuchMessageError for numbers of no partition."""
        if self.only is not None:
            return {self.only: list(numbers)}
        found: dict[QueuePartition, list[int]] = {}
        missing: list[int] = []
        for number in numbers:
            index = index_of_number(number)
            if 0 <= index < len(self.partitions):
                found.setdefault(self.partitions[index], []).append(number)
            else:
                missing.append(number)
        if missing:
            raise NoSuchMessageError(*missing)
        return found

    def _check_all(
        self,
        by_partition: Mapping[QueuePartition, list[int]],
        find: Callable[[QueuePartition, list[int]], list[StoredMessage]],
    ) -> list[tuple[QueuePartition, list[StoredMessage]]]:
        """Call ``find`` for each partition and return the results.

        Raises NoSuchMessageError with all missing numbers.
        """
        found: list[tuple[QueuePartition, list[StoredMessage]]] = []
        missing: list[int] = []
        for partition, own_numbers in by_partition.items():
            try:
                found.append((partition, find(partition, own_numbers)))
            except NoSuchMessageError as error:
                missing += error.sequence_numbers
        if missing:
            raise NoSuchMessageError(*missing)
        return found


_MIXED = (
    "Batching brokered messages with distinct SessionId or PartitionKey "
    "is not supported for an entity with partitioning enabled."
)
_MIXED_WITH_IDS = (
    "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId "
    "is not supported for an entity with partitioning and duplicate detection enabled."
)


class FrontEnd:
    """A cache of locked messages of a partitioned entity for one connection."""

    def __init__(self, entity: Queue) -> None:
        self._entity = entity
        self._cached: deque[tuple[StoredMessage, LockToken | None]] = deque()

    def __len__(self) -> int:
        return len(self._cached)

    def receive(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Return the next cached message that is still locked; if there is none, refill from all partitions.

        Raises as :meth:`Queue.receive`.
        """
        if session is not None or self._entity.sessions is not None:
            return self._entity.receive(now, session)
        self._entity.prepare_receive(now)
        while self._cached:
            message, token = self._cached.popleft()
            if message.lock_token == token and message.locked_until > now:
                return message
        found = self._entity.receive_from_each(now)
        self._cached.extend((message, message.lock_token) for message in found[1:])
        return found[0] if found else None

    def receive_and_delete(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Remove and return the next message; messages deleted on receive are never cached."""
        return self._entity.receive_and_delete(now, session)


MessageSource: TypeAlias = Queue | QueuePartition | FrontEnd
"""The source from which a receiver takes its messages."""
