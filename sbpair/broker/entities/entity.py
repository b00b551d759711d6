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


class Sessions(Protocol):
    """The sessions of an entity that requires them."""

    def __len__(self) -> int:
        """How many sessions there are: with messages, state or a holder."""

    def browse(self) -> Iterator[MessageSession]:
        """Every session; changes nothing."""

    def accept(self, session_id: str | None, now: Instant) -> SessionLock | None:
        """Lock a session, by name or the next available; None when none is."""

    def renew(self, lock: SessionLock, now: Instant) -> Instant:
        """Restart the lock's full duration; returns its new end."""

    def check(self, lock: SessionLock, now: Instant) -> None:
        """Raises SessionLockLost unless ``lock`` still holds its session."""

    def release(self, lock: SessionLock, now: Instant) -> None:
        """Release the session and its locked messages, without counting a delivery."""

    def lock_of(self, session_id: str) -> SessionLock | None:
        """The lock on that session, or None."""

    def state(self, lock: SessionLock, now: Instant) -> bytes | None:
        """The state of the session, or None."""

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Set the session's state; None clears it."""

    def ids(self, skip: int, most: int, set_after: Instant | None = None) -> list[str]:
        """Sessions with active messages or state; with ``set_after``, those whose state was set after it."""


class MessageSource(Protocol):
    """Where a receiver's messages come from."""

    def receive(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Lock the next message and hand it over."""

    def receive_and_delete(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Hand over the next message and forget it."""


class Entity(MessageSource, Hashable, Protocol):
    """A queue, a topic, a subscription, or a dead-letter queue (``parent`` is then what it belongs to)."""

    path: str

    @property
    def description(self) -> QueueDescription:
        """What it follows."""

    @property
    def status(self) -> str:
        """The effective status: the description's, unless a fault overrides it."""

    @property
    def parent(self) -> Entity | None:
        """What this dead-letter queue belongs to; else None."""

    @property
    def top(self) -> Entity:
        """The entity registered in the namespace: itself, its parent, or the partitioned entity it belongs to."""

    @property
    def dead_letter_queue(self) -> Entity | None:
        """Its dead-letter queue, if it has one."""

    @property
    def transfer_dead_letter_queue(self) -> Entity | None:
        """The queue of messages it could not forward or transfer, if it has one."""

    @property
    def sessions(self) -> Sessions | None:
        """Its sessions, if it requires any."""

    @property
    def created_at(self) -> Instant:
        """When it was made."""

    @property
    def updated_at(self) -> Instant:
        """When it was last given another description."""

    @property
    def accessed_at(self) -> Instant | None:
        """When it was last used; None for never."""

    @property
    def size_in_bytes(self) -> int:
        """Bytes held, the dead-letter queue's among them."""

    @property
    def availability(self) -> str:
        """``Available``, or ``Limited`` while a partition is down (Q-17)."""

    # -- sending

    def enqueue(self, message: StoredMessage, now: Instant) -> int:
        """Take a message and return its sequence number."""

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Take all of the messages, or none; returns their numbers."""

    def reserve(self, message: StoredMessage) -> int:
        """The sequence number that ``message`` will have when it is enqueued; a gap if it never is."""

    def check_acceptable(self, messages: Sequence[StoredMessage]) -> None:
        """Raises what :meth:`enqueue_all` would raise now."""

    def check_sends_enabled(self) -> None:
        """Raises EntityDisabled where the status forbids sending."""

    def dead_letter_untransferred(self, message: StoredMessage, why: BrokerError, now: Instant) -> None:
        """Keep, dead, a message that was sent via this entity and that its destination refused."""

    def cancel_scheduled(self, numbers: Sequence[int], now: Instant) -> None:
        """Take back all of these scheduled messages, or none."""

    # -- receiving

    def source_for(self, front_end: Hashable) -> MessageSource:
        """Where a receiver behind ``front_end`` (a connection) gets its messages (Q-18)."""

    def receive_deferred(
        self,
        numbers: Sequence[int],
        now: Instant,
        session: SessionLock | None = None,
        *,
        delete: bool = False,
    ) -> list[StoredMessage]:
        """Lock, or with ``delete`` take away, all of these deferred messages, or none."""

    def delete_waiting(
        self, most: int, before: Instant | None, now: Instant, session: SessionLock | None = None
    ) -> int:
        """Forget up to ``most`` of the messages that wait, enqueued before then; how many."""

    def check_receivable(self) -> None:
        """Raises ForwardsOn when the entity forwards its messages."""

    def prepare_receive(self, now: Instant) -> None:
        """Prepare a receive: run due timers and expiries."""

    def expires_at(self, message: StoredMessage) -> Instant | None:
        """When the message can no longer be received (T-6)."""

    # -- settling

    def locked_message(self, token: LockToken, now: Instant) -> StoredMessage:
        """The message locked under ``token``. Raises LockLost or SessionLockLost: it is not, or no longer."""

    def check_can_dead_letter(self) -> None:
        """Raises NotAllowed on a dead-letter queue."""

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

    # -- looking

    def peek(self, start: int, most: int, now: Instant, session_id: str | None = None) -> list[StoredMessage]:
        """Up to ``most`` messages from number ``start`` on; nothing changes (Q-9)."""

    def browse(self, start: int, most: int) -> list[StoredMessage]:
        """Peek for diagnostics: does not count as use of the entity (T-21)."""

    def counts(self, now: Instant) -> QueueCounts:
        """Messages by state."""

    # -- change and time

    def check_manageable(self) -> None:
        """Raises PartitionUnavailable where an update or a delete would (Q-17)."""

    def touch(self, now: Instant) -> None:
        """Count a use that no other method of the entity shows (T-21)."""

    def next_timer(self) -> Instant | None:
        """The earliest end of a lock or of a schedule; None for never."""

    def handle_timer(self, now: Instant) -> None:
        """Let locks lapse and scheduled messages become active, up to ``now``."""

    def listen(self, now: Instant) -> None:
        """A receive is in progress, until :meth:`stop_listening` (T-4, T-21)."""

    def stop_listening(self, now: Instant) -> None:
        """A receive has ended."""

    @property
    def idle_since(self) -> Instant | None:
        """The time of the last use (T-21), or None while the entity is in use."""

    def parts(self) -> Sequence[Entity]:
        """Itself and, of a partitioned one, its partitions; the dead-letter queues of each among them."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Messages of a queue by state.

    ``active`` holds the locked ones too, and what has expired but was not yet removed (T-2); ``deferred``
    those set aside, locked or not; ``total`` and ``size_in_bytes`` include the dead-letter queue.
    """

    active: int
    dead_letter: int
    scheduled: int
    deferred: int
    transfer: int
    transfer_dead_letter: int
    total: int
    size_in_bytes: int
