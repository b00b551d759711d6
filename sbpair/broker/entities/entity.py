"""The interface of an entity, plain or partitioned, to links, management and administration.

``Queue`` (with ``Topic`` and ``Subscription``) implements it over one store, ``Partitioned`` over several;
callers see a difference only where Q-7 to Q-10 define one. Contracts that hold for every entity are stated
here and not repeated by the implementations. A partitioned entity also raises PartitionUnavailable,
ServerBusy (Q-4) and, on a send without a key, Rerouting (Q-16).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import BrokerError
from .descriptions import QueueDescription
from .sessions import MessageSession, SessionLock
from .stored_message import Instant, LockToken, StoredMessage


class SessionSource(Protocol):
    """The sessions of an entity that requires them."""

    def __len__(self) -> int:
        """Return the number of sessions that have messages, state or a lock."""

    def browse(self) -> Iterator[MessageSession]:
        """Iterate over all sessions without changing anything."""

    def accept(self, session_id: str | None, now: Instant) -> SessionLock | None:
        """Lock the session ``session_id``, or the next available one for None.

        Returns None if none is available.
        """

    def renew(self, lock: SessionLock, now: Instant) -> Instant:
        """Restart the lock's full duration; returns its new end."""

    def check(self, lock: SessionLock, now: Instant) -> None:
        """Raise SessionLockLost unless ``lock`` still holds its session."""

    def release(self, lock: SessionLock, now: Instant) -> None:
        """Release the session and its locked messages, without counting a delivery."""

    def lapse(self, lock: SessionLock, now: Instant) -> None:
        """End the lock as if it had expired; does nothing on a lost one."""

    def lock_of(self, session_id: str) -> SessionLock | None:
        """Return the current lock on a session, or None."""

    def state(self, lock: SessionLock, now: Instant) -> bytes | None:
        """Return the session's state, or None."""

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Set the session's state; None clears it."""

    def ids(self, skip: int, limit: int, set_after: Instant | None = None) -> list[str]:
        """Page through session ids: skip ``skip`` of them and return at most ``limit``.

        Lists sessions with active messages or state; with ``set_after``, those whose state was set after it.
        """


class MessageSource(Protocol):
    """The part of an entity that a receiver needs."""

    def receive(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Lock and return the next message, or None."""

    def receive_and_delete(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Remove and return the next message, or None."""


class Entity(MessageSource, Hashable, Protocol):
    """A queue, topic, subscription or dead-letter queue; the latter belongs to its ``parent``."""

    path: str

    @property
    def description(self) -> QueueDescription:
        """The description in effect."""

    @property
    def status(self) -> str:
        """The effective status: the description's, unless a fault overrides it."""

    @property
    def parent(self) -> Entity | None:
        """The entity that this dead-letter queue belongs to, else None."""

    @property
    def top(self) -> Entity:
        """The registered entity: itself, its parent, or the partitioned entity that it belongs to."""

    @property
    def dead_letter_queue(self) -> Entity | None:
        """The dead-letter queue, if any."""

    @property
    def transfer_dead_letter_queue(self) -> Entity | None:
        """The queue of messages that could not be forwarded or transferred, if any."""

    @property
    def sessions(self) -> SessionSource | None:
        """The sessions, if the entity requires sessions."""

    @property
    def created_at(self) -> Instant:
        """When the entity was created."""

    @property
    def updated_at(self) -> Instant:
        """When the description last changed."""

    @property
    def accessed_at(self) -> Instant | None:
        """When the entity was last used, or None."""

    @property
    def size_in_bytes(self) -> int:
        """Bytes stored, including the dead-letter queues."""

    @property
    def availability(self) -> str:
        """``Available``, or ``Limited`` while a partition is down (Q-17)."""

    # -- sending

    def enqueue(self, message: StoredMessage, now: Instant) -> int:
        """Store a message and return its sequence number."""

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Store all of the messages, or none; return their sequence numbers."""

    def reserve(self, message: StoredMessage) -> int:
        """Assign the sequence number that ``message`` will get when enqueued; never reused if it is not."""

    def check_acceptable(self, messages: Sequence[StoredMessage]) -> None:
        """Raise the error that :meth:`enqueue_all` would raise now, if any."""

    def check_sends_enabled(self) -> None:
        """Raise EntityDisabled if the status forbids sending."""

    def dead_letter_untransferred(self, message: StoredMessage, why: BrokerError, now: Instant) -> None:
        """Dead-letter a message that was sent via this entity and refused by its destination."""

    def cancel_scheduled(self, numbers: Sequence[int], now: Instant) -> None:
        """Remove all of these scheduled messages, or none."""

    # -- receiving

    def source_for(self, front_end: Hashable) -> MessageSource:
        """Return the message source for receivers on ``front_end``, a connection (Q-18)."""

    def receive_deferred(
        self,
        numbers: Sequence[int],
        now: Instant,
        session: SessionLock | None = None,
        *,
        delete: bool = False,
    ) -> list[StoredMessage]:
        """Lock all of these deferred messages, or none; with ``delete``, remove them instead."""

    def delete_waiting(
        self, limit: int, before: Instant | None, now: Instant, session: SessionLock | None = None
    ) -> int:
        """Remove up to ``limit`` waiting messages enqueued before ``before`` (None: any); return how many."""

    def check_receivable(self) -> None:
        """Raise ForwardsOn if the entity forwards its messages."""

    def prepare_receive(self, now: Instant) -> None:
        """Prepare a receive: run due timers and expiries."""

    def expires_at(self, message: StoredMessage) -> Instant | None:
        """Return when a message expires, or None (T-6)."""

    # -- settlement

    def locked_message(self, token: LockToken, now: Instant) -> StoredMessage:
        """Return the message locked under ``token``.

        Raises MessageLockLost or SessionLockLost when the lock has ended.
        """

    def check_can_dead_letter(self) -> None:
        """Raise NotAllowed on a dead-letter queue."""

    def complete(self, token: LockToken, now: Instant) -> None:
        """Remove the message."""

    def abandon(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Make the message available again and count a failed delivery."""

    def release(self, token: LockToken, now: Instant) -> None:
        """Make the message available again without counting a delivery."""

    def defer(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Defer the message."""

    def dead_letter(self, token: LockToken, now: Instant, properties: Mapping[str, object]) -> None:
        """Move the message to the dead-letter queue."""

    def renew(self, token: LockToken, now: Instant) -> Instant:
        """Restart the lock's full duration; returns its new end."""

    # -- inspection

    def peek(
        self, start: int, limit: int, now: Instant, session_id: str | None = None
    ) -> list[StoredMessage]:
        """Return up to ``limit`` messages from sequence number ``start`` on, without locking them (Q-9)."""

    def browse(self, start: int, limit: int) -> list[StoredMessage]:
        """Peek for diagnostics: neither counts as use of the entity (T-21) nor runs timers."""

    def counts(self, now: Instant) -> QueueCounts:
        """Return the number of messages by state."""

    # -- management and timers

    def check_manageable(self) -> None:
        """Raise PartitionUnavailable if the entity cannot be updated or deleted now (Q-17)."""

    def touch(self, now: Instant) -> None:
        """Record a use of the entity that no other method implies (T-21)."""

    def next_timer(self) -> Instant | None:
        """Return when the next timer is due (a lock or a schedule), or None."""

    def handle_timer(self, now: Instant) -> None:
        """Expire locks and activate scheduled messages that are due at ``now``."""

    def listen(self, now: Instant) -> None:
        """Record that a receive has started; ended by :meth:`stop_listening` (T-4, T-21)."""

    def stop_listening(self, now: Instant) -> None:
        """Record that a receive has ended."""

    @property
    def idle_since(self) -> Instant | None:
        """The time of the last use (T-21), or None while the entity is in use."""

    def parts(self) -> Sequence[Entity]:
        """Return the entity, its partitions if any, and the dead-letter queues of each."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Messages of a queue by state.

    ``active`` includes locked messages and expired ones that were not yet removed; ``deferred``
    includes deferred messages that are locked; ``total`` and ``size_in_bytes`` include the dead-letter
    queues.
    """

    # T-2

    active: int
    dead_letter: int
    scheduled: int
    deferred: int
    transfer: int
    transfer_dead_letter: int
    total: int
    size_in_bytes: int
