"""Records what happens to each message of a namespace, for a later audit.

    queues --- record ---> AuditRecorder --- take ---> events, written before anything is answered

Messages that were stored or removed in the same way at the same entity since the last take share one event.
Pings are not recorded. A namespace without a recorder pays for one attribute check per message.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from .rules.values import EvaluationError
from .stored_message import StoredMessage

if TYPE_CHECKING:
    from .rules.message_properties import PropertyCodec

MAX_MESSAGES = 1000  # messages in one event
BACKLOG, PATH = "/x-servicebus-transfer/", "x-ms-path"  # P-10, P-20


class Arrival(Enum):
    """How a message came to an entity."""

    SENT = "sent"
    SCHEDULED = "scheduled"  # sent, to become available later
    FORWARDED = "forwarded"  # by the entity before it
    PUBLISHED = "published"  # to a subscription, by its topic


class Removal(Enum):
    """How a message left an entity."""

    COMPLETED = "completed"  # settled by a receiver
    RECEIVED = "received"  # received and deleted in one operation
    EXPIRED = "expired"  # and discarded; an expired message that is dead-lettered (T-10) is DEAD_LETTERED
    DEAD_LETTERED = "dead-lettered"  # moved to the entity's dead-letter queue
    FORWARDED = "forwarded"  # stored by the next entity
    PUBLISHED = "published"  # copied to the subscriptions of a topic, which keeps nothing itself
    CANCELLED = "cancelled"  # while it was scheduled
    DELETED = "deleted"  # by a batch delete or with its entity


@dataclass(frozen=True, slots=True)
class MessagesStored:
    """A broker stored these messages; ``how`` they came: ``sent``, ``scheduled``, ``forwarded`` or ``published``.

    In a ``backlog`` queue, ``path`` is the entity that the messages are parked for (P-20).
    """

    path: str | None
    backlog: str
    how: Arrival
    message_ids: tuple[str, ...]
    session_ids: tuple[str, ...]
    sequence_numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MessagesRemoved:
    """A broker removed these messages; ``how`` they left and, for dead letters, the ``reason``."""

    path: str | None
    backlog: str
    how: Removal
    reason: str
    message_ids: tuple[str, ...]
    sequence_numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DuplicatesDropped:
    """A broker dropped these messages as duplicates."""

    path: str | None
    backlog: str
    message_ids: tuple[str, ...]


Event: TypeAlias = "MessagesStored | MessagesRemoved | DuplicatesDropped"
Place: TypeAlias = "tuple[str | None, str]"  # the path, and the backlog queue or ""


@dataclass(slots=True)
class Group:
    """Messages that share one event, as parallel lists."""

    ids: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def chunks(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]]:
        """Split the lists into chunks of at most MAX_MESSAGES messages."""
        for at in range(0, len(self.ids), MAX_MESSAGES):
            part = slice(at, at + MAX_MESSAGES)
            yield tuple(self.ids[part]), tuple(self.sessions[part]), tuple(self.numbers[part])


class AuditRecorder:
    """The messages stored, removed and dropped since the last take.

    ``codec`` reads the destination of parked messages; without it the destination is recorded as None.
    """

    __slots__ = ("_codec", "_dropped", "_removed", "_stored", "is_empty")

    def __init__(self, codec: PropertyCodec | None = None) -> None:
        self._codec = codec
        self._clear()

    def _clear(self) -> None:
        self.is_empty = True
        self._stored: dict[tuple[Place, Arrival], Group] = {}
        self._removed: dict[tuple[Place, Removal, str], Group] = {}
        self._dropped: dict[Place, list[str]] = {}

    def stored(self, path: str, message: StoredMessage, how: Arrival) -> None:
        """Record that the entity at ``path`` stored a message under its current sequence number."""
        if message.is_ping:  # P-31
            return
        key = self._place(path, message), how
        group = self._stored.get(key)
        if group is None:
            group = self._stored[key] = Group()
            self.is_empty = False
        group.ids.append(as_text(message.message_id))
        group.sessions.append(message.session_id or "")
        group.numbers.append(message.sequence_number)

    def removed(self, path: str, message: StoredMessage, how: Removal, reason: str = "") -> None:
        """Record that the entity at ``path`` removed a message."""
        if message.is_ping:
            return
        key = self._place(path, message), how, reason
        group = self._removed.get(key)
        if group is None:
            group = self._removed[key] = Group()
            self.is_empty = False
        group.ids.append(as_text(message.message_id))
        group.numbers.append(message.sequence_number)

    def dropped(self, path: str, message: StoredMessage) -> None:
        """Record that the entity at ``path`` dropped a duplicate."""
        self._dropped.setdefault(self._place(path, message), []).append(as_text(message.message_id))
        self.is_empty = False

    def _place(self, path: str, message: StoredMessage) -> Place:
        if BACKLOG not in path:
            return path, ""
        if self._codec is None:
            return None, path
        try:
            parked_for = self._codec.read(message).of_user(PATH)
        except EvaluationError:
            parked_for = None
        return (parked_for if isinstance(parked_for, str) else None), path

    def take(self) -> list[Event]:
        """Return the events since the last call, and clear the record."""
        events: list[Event] = []
        for (place, arrival), group in self._stored.items():
            for ids, sessions, numbers in group.chunks():
                session_ids = sessions if any(sessions) else ()
                events.append(MessagesStored(*place, arrival, ids, session_ids, numbers))
        for place, dropped_ids in self._dropped.items():
            parts = range(0, len(dropped_ids), MAX_MESSAGES)
            events += [DuplicatesDropped(*place, tuple(dropped_ids[at : at + MAX_MESSAGES])) for at in parts]
        for (place, how, reason), group in self._removed.items():
            events += [
                MessagesRemoved(*place, how, reason, ids, numbers) for ids, _, numbers in group.chunks()
            ]
        self._clear()
        return events


def as_text(message_id: Hashable) -> str:
    """Return a message id as text for a journal; "" when there is none."""
    if isinstance(message_id, str):
        return message_id
    if isinstance(message_id, bytes):
        return message_id.hex()
    return "" if message_id is None else str(message_id)
