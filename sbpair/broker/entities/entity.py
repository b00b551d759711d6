"""What every entity shows, plain or partitioned: the face that links, management and administration stand on.

This is the stable surface of ``entities``. ``Queue`` (with ``Topic`` and ``Subscription``) is it over one
store, ``Partitioned`` over several; who uses it cannot tell them apart but by what Q-7 to Q-10 say.
Errors are those that :class:`~.queue.Queue` names; a partitioned entity adds PartitionUnavailable,
ServerBusy (Q-4) and, on a send without a key, Rerouting (Q-16).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from ..errors import BrokerError
from .counts import QueueCounts
from .description import QueueDescription
from .message_session import SessionLock
from .stored_message import Instant, LockToken, StoredMessage


class Sessions(Protocol):
    """The sessions of an entity that requires them (3.5)."""

    def accept(self, session_id: str | None, now: Instant) -> SessionLock | None:
        """Lock a session, by name or the next available; None when none is."""

    def renew(self, lock: SessionLock, now: Instant) -> Instant:
        """Restart the lock's full duration; returns until when it holds."""

    def check(self, lock: SessionLock, now: Instant) -> None:
        """Raises SessionLockLost unless ``lock`` still holds its session."""

    def release(self, lock: SessionLock, now: Instant) -> None:
        """Give the session back, and what is locked under it, unharmed."""

    def lock_of(self, session_id: str) -> SessionLock | None:
        """The hold on that session, or None."""

    def state(self, lock: SessionLock, now: Instant) -> bytes | None:
        """What was noted on the session, or None."""

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Note ``state`` on the session; None clears it."""

    def ids(self, skip: int, most: int, set_after: Instant | None = None) -> list[str]:
        """Sessions with active messages or state; with ``set_after``, those whose state was set after it."""


class Source(Protocol):
    """Where a receiver's messages come from."""

    def receive(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Lock the next message and hand it over."""

    def receive_and_delete(self, now: Instant, session: SessionLock | None = None) -> StoredMessage | None:
        """Hand over the next message and forget it."""


class Entity(Source, Hashable, Protocol):
    """A queue, a topic, a subscription, or a dead-letter queue (``parent`` is then what it belongs to)."""

    path: str

    @property
    def description(self) -> QueueDescription:
        """What it follows."""

    @property
    def status(self) -> str:
        """What it bars now: the description's status, unless a fault has imposed another."""

    @property
    def parent(self) -> Entity | None:
        """What this dead-letter queue belongs to; else None."""

    @property
    def top(self) -> Entity:
        """What the namespace knows it by: itself, its parent, or the whole that it is a partition of."""

    @property
    def dead_letter_queue(self) -> Entity | None:
        """Its dead-letter queue, if it has one."""

    @property
    def transfer_dead_letter_queue(self) -> Entity | None:
        """Where rests what it could not hand on (3.7), if it has one."""

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
        """Bytes held, the dead-letter queue's among them (3.2)."""

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

    def keep_untransferred(self, message: StoredMessage, why: BrokerError, now: Instant) -> None:
        """Keep, dead, a message that was sent via this entity and that its destination refused (3.7)."""

    def cancel_scheduled(self, numbers: Sequence[int], now: Instant) -> None:
        """Take back all of these scheduled messages, or none."""

    # -- receiving

    def seen_from(self, front_end: Hashable) -> Source:
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
        """Forget up to ``most`` of the messages that wait, enqueued before then; how many (3.9)."""

    def check_receivable(self) -> None:
        """Raises ForwardsOn where messages are not for receivers, but for the target (3.7)."""

    def look(self, now: Instant) -> None:
        """Somebody wants to receive: let happen what is due by now."""

    def expires_at(self, message: StoredMessage) -> Instant | None:
        """When the message can no longer be received (T-6)."""

    # -- settling

    def held(self, token: LockToken, now: Instant) -> StoredMessage:
        """The message locked under ``token``. Raises LockLost or SessionLockLost: it is not, or no longer."""

    def check_can_dead_letter(self) -> None:
        """Raises NotAllowed on a dead-letter queue."""

    def complete(self, token: LockToken, now: Instant) -> None:
        """The receiver is done with the message."""

    def abandon(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Give the message back, one failed delivery richer."""

    def release(self, token: LockToken, now: Instant) -> None:
        """Give the message back as if it had not been delivered."""

    def defer(self, token: LockToken, now: Instant, changes: dict[str, object] | None = None) -> None:
        """Set the message aside."""

    def dead_letter(self, token: LockToken, now: Instant, properties: Mapping[str, object]) -> None:
        """Move the message to the dead-letter queue."""

    def renew(self, token: LockToken, now: Instant) -> Instant:
        """Restart the lock's full duration; returns until when it holds."""

    # -- looking

    def peek(self, start: int, most: int, now: Instant, session_id: str | None = None) -> list[StoredMessage]:
        """Up to ``most`` messages from number ``start`` on; nothing changes (Q-9)."""

    def browse(self, start: int, most: int) -> list[StoredMessage]:
        """As :meth:`peek`, by who is no client: it is no use of the entity (T-21)."""

    def counts(self, now: Instant) -> QueueCounts:
        """Messages by state."""

    # -- change and time

    def check_manageable(self) -> None:
        """Raises PartitionUnavailable where an update or a delete would (Q-17)."""

    def touch(self, now: Instant) -> None:
        """It is used, in a way that nothing else here tells (T-21)."""

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
        """Since when nobody has used it (T-21), or None while it is in use."""

    def parts(self) -> Sequence[Entity]:
        """Itself and, of a partitioned one, its partitions; the dead-letter queues of each among them."""
