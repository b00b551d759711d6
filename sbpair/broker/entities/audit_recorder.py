"""A record of what happened to each message of a namespace, for a later audit.

    queues --- tell ---> AuditRecorder --- take ---> events, written before anything is answered

It gathers: all that the messages of one turn went through together, at one entity and in one way, is one
event. Pings are nobody's messages. Without a audit a queue asks one question a message, and goes on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from .rules.values import EvaluationError
from .stored_message import StoredMessage

if TYPE_CHECKING:
    from .rules.message_properties import MessageForm

MOST = 1000  # messages of one event
BACKLOG, PATH = "/x-servicebus-transfer/", "x-ms-path"  # P-10, P-20


class Arrival(Enum):
    """How a message came to an entity."""

    SENT = "sent"
    FORWARDED = "forwarded"  # by the entity before it
    PUBLISHED = "published"  # to a subscription, by its topic


class Removal(Enum):
    """How a message left an entity."""

    COMPLETED = "completed"  # a receiver is done with it
    RECEIVED = "received"  # and deleted, in one
    EXPIRED = "expired"  # and nobody keeps it (T-10 says when somebody does)
    DEAD_LETTERED = "dead-lettered"  # it is in the entity's dead-letter queue
    FORWARDED = "forwarded"  # the entity it goes on to has it
    PUBLISHED = "published"  # a topic keeps nothing: its subscriptions have their copies
    CANCELLED = "cancelled"  # its schedule was
    DELETED = "deleted"  # by a batch delete, or with its entity


@dataclass(frozen=True, slots=True)
class MessagesStored:
    """A broker keeps these messages; ``how`` they came: ``sent``, ``forwarded``, ``published``.

    Of a ``backlog`` queue, ``path`` is the entity that its messages are parked for (P-20).
    """

    path: str | None
    backlog: str
    how: Arrival
    message_ids: tuple[str, ...]
    session_ids: tuple[str, ...]
    sequence_numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MessagesRemoved:
    """A broker keeps these messages no longer; ``how`` they left, and of dead letters the ``reason``."""

    path: str | None
    backlog: str
    how: Removal
    reason: str
    message_ids: tuple[str, ...]
    sequence_numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DuplicatesDropped:
    """A broker was sent these messages again, and kept none of them."""

    path: str | None
    backlog: str
    message_ids: tuple[str, ...]


Event: TypeAlias = "MessagesStored | MessagesRemoved | DuplicatesDropped"
Place: TypeAlias = "tuple[str | None, str]"  # the path, and the backlog queue or ""


@dataclass(slots=True)
class Group:
    """Messages with one fate; the lists go together."""

    ids: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def cut(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]]:
        """The lists, in pieces for one event each."""
        for at in range(0, len(self.ids), MOST):
            part = slice(at, at + MOST)
            yield tuple(self.ids[part]), tuple(self.sessions[part]), tuple(self.numbers[part])


class AuditRecorder:
    """What happened since it was last requested. ``form`` reads what a parked message is parked for."""

    __slots__ = ("_dropped", "_form", "_removed", "_stored", "is_empty")

    def __init__(self, form: MessageForm | None = None) -> None:
        self._form = form
        self._begin()

    def _begin(self) -> None:
        self.is_empty = True
        self._stored: dict[tuple[Place, Arrival], Group] = {}
        self._removed: dict[tuple[Place, Removal, str], Group] = {}
        self._dropped: dict[Place, list[str]] = {}

    def stored(self, path: str, message: StoredMessage, how: Arrival) -> None:
        """The entity at ``path`` keeps a message, under the number it has."""
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
        """The entity at ``path`` keeps a message no longer."""
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
        """The entity at ``path`` knows the id already, and keeps nothing."""
        self._dropped.setdefault(self._place(path, message), []).append(as_text(message.message_id))
        self.is_empty = False

    def _place(self, path: str, message: StoredMessage) -> Place:
        if BACKLOG not in path:
            return path, ""
        if self._form is None:
            return None, path
        try:
            parked_for = self._form.read(message).of_user(PATH)
        except EvaluationError:
            parked_for = None
        return (parked_for if isinstance(parked_for, str) else None), path

    def take(self) -> list[Event]:
        """All of it; it is forgotten here."""
        events: list[Event] = []
        for (place, arrival), group in self._stored.items():
            for ids, sessions, numbers in group.cut():
                session_ids = sessions if any(sessions) else ()
                events.append(MessagesStored(*place, arrival, ids, session_ids, numbers))
        for place, ids_again in self._dropped.items():
            parts = range(0, len(ids_again), MOST)
            events += [DuplicatesDropped(*place, tuple(ids_again[at : at + MOST])) for at in parts]
        for (place, how, reason), group in self._removed.items():
            events += [MessagesRemoved(*place, how, reason, ids, numbers) for ids, _, numbers in group.cut()]
        self._begin()
        return events


def as_text(message_id: Hashable) -> str:
    """An id as journals have it; "" for a message without one."""
    if isinstance(message_id, str):
        return message_id
    if isinstance(message_id, bytes):
        return message_id.hex()
    return "" if message_id is None else str(message_id)
