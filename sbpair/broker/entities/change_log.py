"""Changes of a namespace that have not been written to its store.

    entities --- record ---> ChangeLog --- take ---> Changes ---> one transaction of the store

The log records which rows are stale, not how they changed: the store reads the current state when it writes.
A message that was added and removed in between leaves no trace, and locks, which end with the process, are
not recorded. Changes are taken between operations only, so each operation (a batch, a transaction, a
forwarded message) is written completely or not at all. A namespace that is kept in memory only has no change
log.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from .stored_message import Instant, StoredMessage

if TYPE_CHECKING:
    from .message_store import MessageStore
    from .queue import Queue
    from .sessions import MessageSession


class EntityChange(Enum):
    """How an entity changed."""

    DESCRIBED = "described"  # created or updated
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class AcceptedId:
    """A message id recorded for duplicate detection, with the sequence number of its message."""

    queue: MessageStore
    message_id: Hashable
    number: int
    at: Instant


@dataclass(slots=True)
class Changes:
    """Stale rows. Apply ``entities`` first and in order; ignore rows of queues that these delete.

    For each queue, by sequence number: ``added`` are new messages, ``changed`` those with another state,
    delivery count or properties, ``removed`` the numbers of removed messages. ``numbered`` are queues that
    assigned sequence numbers, ``accepted`` ids for duplicate detection, ``sessions`` those whose state was
    set or cleared.
    """

    entities: list[tuple[EntityChange, Queue]] = field(default_factory=list)
    added: dict[MessageStore, dict[int, StoredMessage]] = field(default_factory=dict)
    changed: dict[MessageStore, dict[int, StoredMessage]] = field(default_factory=dict)
    removed: dict[MessageStore, list[int]] = field(default_factory=dict)
    numbered: dict[MessageStore, None] = field(default_factory=dict)
    accepted: list[AcceptedId] = field(default_factory=list)
    sessions: dict[tuple[MessageStore, str], MessageSession] = field(default_factory=dict)


class ChangeLog:
    """The changes of one namespace since they were last taken."""

    __slots__ = ("_changes", "is_empty")

    def __init__(self) -> None:
        self._changes = Changes()
        self.is_empty = True

    def take(self) -> Changes:
        """Return all changes since the last call, and clear the log."""
        changes, self._changes = self._changes, Changes()
        self.is_empty = True
        return changes

    def entity_described(self, entity: Queue) -> None:
        """Record that an entity was created or that its description changed."""
        self.is_empty = False
        self._changes.entities.append((EntityChange.DESCRIBED, entity))

    def entity_deleted(self, entity: Queue) -> None:
        """Record that an entity was deleted with its messages."""
        self.is_empty = False
        self._changes.entities.append((EntityChange.DELETED, entity))

    def message_added(self, queue: MessageStore, message: StoredMessage) -> None:
        """Record a message stored under a new sequence number."""
        self.messages_added(queue, (message.sequence_number,), (message,))

    def messages_added(
        self, queue: MessageStore, numbers: Sequence[int], messages: Sequence[StoredMessage]
    ) -> None:
        """Record messages stored under new sequence numbers."""
        self.is_empty = False
        changes = self._changes
        if (added := changes.added.get(queue)) is None:
            added = changes.added[queue] = {}
            changes.numbered[queue] = None
        added.update(zip(numbers, messages, strict=True))

    def message_removed(self, queue: MessageStore, message: StoredMessage) -> None:
        """Record that a message was removed, or is about to be stored under another number."""
        self.is_empty = False
        changes, number = self._changes, message.sequence_number
        if (added := changes.added.get(queue)) is not None and added.pop(number, None) is not None:
            return
        if (changed := changes.changed.get(queue)) is not None:
            changed.pop(number, None)
        changes.removed.setdefault(queue, []).append(number)

    def messages_removed(self, queue: MessageStore, numbers: Sequence[int]) -> None:
        """Record that messages were removed, by their sequence numbers."""
        self.is_empty = False
        changes = self._changes
        added, changed = changes.added.get(queue), changes.changed.get(queue)
        if added:
            numbers = [number for number in numbers if added.pop(number, None) is None]
        if changed:
            for number in numbers:
                changed.pop(number, None)
        if numbers:
            changes.removed.setdefault(queue, []).extend(numbers)

    def message_changed(self, queue: MessageStore, message: StoredMessage) -> None:
        """Record that a stored message was deferred or amended, or that a delivery of it failed."""
        self.is_empty = False
        changes, number = self._changes, message.sequence_number
        if number not in changes.added.get(queue, ()):
            changes.changed.setdefault(queue, {})[number] = message

    def number_assigned(self, queue: MessageStore) -> None:
        """Record that a queue reserved a sequence number."""
        self.is_empty = False
        self._changes.numbered[queue] = None

    def id_accepted(self, queue: MessageStore, message_id: Hashable, number: int, at: Instant) -> None:
        """Record a message id for duplicate detection."""
        self.is_empty = False
        self._changes.accepted.append(AcceptedId(queue, message_id, number, at))

    def session_changed(self, queue: MessageStore, session: MessageSession) -> None:
        """Record that the state of a session was set or cleared."""
        self.is_empty = False
        self._changes.sessions[queue, session.id] = session
