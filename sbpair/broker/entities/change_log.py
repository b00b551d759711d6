"""Changes of a namespace that its store has not written yet.

    entities --- tell ---> ChangeLog --- take ---> Changes, of whole operations ---> one transaction

It remembers which rows are stale, not what was done to them: a row is read when it is written, a message that
came and went in between leaves none, and locks, which end with the process, are no change. The entities are
whole between two operations, so what is taken there is all or nothing of each: of a batch, a transaction, a
forwarded message. A namespace that is kept in memory only has no change_log.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from .stored_message import Instant, StoredMessage

if TYPE_CHECKING:
    from .entity import Entity
    from .message_store import MessageStore
    from .sessions import MessageSession


class EntityChange(Enum):
    """How an entity changed."""

    DESCRIBED = "described"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An id that duplicates are known by, with the number it was given."""

    queue: MessageStore
    message_id: Hashable
    number: int
    at: Instant


@dataclass(slots=True)
class Changes:
    """Stale rows. ``entities`` come first and in order; a row of a queue that is dropped by then is nobody's.

    Of each queue, by number: ``kept`` are messages that are new, ``changed`` those whose state, count or
    properties are others, ``gone`` those that are not there any more. ``numbered``: queues that gave out
    numbers. ``sessions``: those whose state was set or cleared.
    """

    entities: list[tuple[EntityChange, Entity]] = field(default_factory=list)
    kept: dict[MessageStore, dict[int, StoredMessage]] = field(default_factory=dict)
    changed: dict[MessageStore, dict[int, StoredMessage]] = field(default_factory=dict)
    gone: dict[MessageStore, list[int]] = field(default_factory=dict)
    numbered: dict[MessageStore, None] = field(default_factory=dict)
    accepted: list[Acceptance] = field(default_factory=list)
    sessions: dict[tuple[MessageStore, str], MessageSession] = field(default_factory=dict)


class ChangeLog:
    """The changes of one namespace since they were last taken."""

    __slots__ = ("_changes", "is_empty")

    def __init__(self) -> None:
        self._changes = Changes()
        self.is_empty = True

    def take(self) -> Changes:
        """All changes up to now; they are forgotten here."""
        changes, self._changes = self._changes, Changes()
        self.is_empty = True
        return changes

    # -- told by the namespace

    def described(self, entity: Entity) -> None:
        """An entity was made, or follows another description."""
        self.is_empty = False
        self._changes.entities.append((EntityChange.DESCRIBED, entity))

    def dropped(self, entity: Entity) -> None:
        """An entity was deleted, with its messages."""
        self.is_empty = False
        self._changes.entities.append((EntityChange.DROPPED, entity))

    # -- told by a queue, a partition or a dead-letter queue

    def placed(self, queue: MessageStore, message: StoredMessage) -> None:
        """It keeps a message under a new number."""
        self.is_empty = False
        changes = self._changes
        if (kept := changes.kept.get(queue)) is None:
            kept = changes.kept[queue] = {}
            changes.numbered[queue] = None
        kept[message.sequence_number] = message

    def displaced(self, queue: MessageStore, message: StoredMessage) -> None:
        """It keeps a message under this number no longer."""
        self.is_empty = False
        changes, number = self._changes, message.sequence_number
        if (kept := changes.kept.get(queue)) is not None and kept.pop(number, None) is not None:
            return
        if (changed := changes.changed.get(queue)) is not None:
            changed.pop(number, None)
        changes.gone.setdefault(queue, []).append(number)

    def changed(self, queue: MessageStore, message: StoredMessage) -> None:
        """A message that it keeps was set aside, failed or amended."""
        self.is_empty = False
        changes, number = self._changes, message.sequence_number
        if number not in changes.kept.get(queue, ()):
            changes.changed.setdefault(queue, {})[number] = message

    def numbered(self, queue: MessageStore) -> None:
        """It has promised a number."""
        self.is_empty = False
        self._changes.numbered[queue] = None

    def accepted(self, queue: MessageStore, message_id: Hashable, number: int, at: Instant) -> None:
        """It knows a duplicate of this id from now on."""
        self.is_empty = False
        self._changes.accepted.append(Acceptance(queue, message_id, number, at))

    def noted(self, queue: MessageStore, session: MessageSession) -> None:
        """The state of a session was set or cleared."""
        self.is_empty = False
        self._changes.sessions[queue, session.id] = session
