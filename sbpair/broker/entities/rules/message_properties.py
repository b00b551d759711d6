"""Properties of a message as rules see them: names, how they are read, and what an action changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from ..stored_message import Instant, StoredMessage
from .values import EvaluationError, Value


class HeaderOutgrown(EvaluationError):
    """The header would be larger than a message's may be."""


class MessageProperties:
    """A message's own properties (``system``, by their names in lower case) and its sender's (``user``)."""

    __slots__ = ("_names", "system", "user")

    def __init__(self, system: Mapping[str, Value], user: Mapping[str, Value]) -> None:
        self.system = dict(system)
        self.user = dict(user)
        self._names: dict[str, str] | None = None

    def name_of(self, name: str) -> str | None:
        """How the sender spelt a property: as requested for, else the first that differs in case alone."""
        if name in self.user:
            return name
        if self._names is None:
            self._names = {}
            for each in self.user:
                self._names.setdefault(each.casefold(), each)
        return self._names.get(name.casefold())

    def of_user(self, name: str) -> Value:
        """The sender's property of that name in any case; None, unknown, for one that is not there."""
        spelt = self.name_of(name)
        return None if spelt is None else self.user[spelt]

    def copy(self) -> MessageProperties:
        """The same, for an action to write on."""
        return MessageProperties(self.system, self.user)

    def set_user(self, name: str, value: Value) -> str:
        """Set the sender's property; returns how it is spelt."""
        spelt = self.name_of(name) or name
        self.user[spelt] = value
        self._names = None
        return spelt

    def remove_user(self, name: str) -> str | None:
        """Take the sender's property away; returns how it was spelt, None where there was none."""
        spelt = self.name_of(name)
        if spelt is not None:
            del self.user[spelt]
            self._names = None
        return spelt


@dataclass(slots=True)
class PropertyChanges:
    """What is to be written on a copy: the sender's properties set and removed, the message's own set."""

    user: dict[str, Value] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    system: dict[str, Value] = field(default_factory=dict)


class MessageForm(Protocol):
    """Reads and writes the properties in a stored message's bytes."""

    def read(self, message: StoredMessage) -> MessageProperties:
        """Its properties. Raises EvaluationError for bytes that do not read as properties."""

    def write(self, message: StoredMessage, changes: PropertyChanges) -> None:
        """Write ``changes`` on the message.

        Raises EvaluationError for what cannot be written, and HeaderOutgrown.
        """

    def outgrows(self, message: StoredMessage, changes: Mapping[str, object]) -> bool:
        """Whether its header would be larger than it may be with these application properties set."""


class LazyProperties:
    """A message about to be published: its properties are read when the first rule asks, once."""

    __slots__ = ("_form", "_message", "_outcome")

    def __init__(self, message: StoredMessage, form: MessageForm) -> None:
        self._message = message
        self._form = form
        self._outcome: MessageProperties | EvaluationError | None = None

    def get(self) -> MessageProperties:
        """The properties. Raises EvaluationError, each time."""
        if self._outcome is None:
            try:
                self._outcome = self._form.read(self._message)
            except EvaluationError as error:
                self._outcome = error
        if isinstance(self._outcome, EvaluationError):
            raise self._outcome
        return self._outcome


TEXTS = frozenset(
    ("contenttype", "correlationid", "label", "messageid", "replyto", "replytosessionid", "sessionid", "to")
)
SPAN = "timetolive"
IGNORED = "scheduledenqueuetimeutc"  # an action may set it, and nothing comes of it
SETTABLE = TEXTS | {SPAN, IGNORED}
REMOVABLE = SETTABLE - {"messageid"}  # without one a message cannot be settled by every client

ALIASES = {"subject": "label"}
READABLE = SETTABLE | {
    "deadlettersource",
    "deliverycount",
    "enqueuedsequencenumber",
    "enqueuedtimeutc",
    "expiresatutc",
    "forcepersistence",
    "lockeduntilutc",
    "locktoken",
    "partitionkey",
    "sequencenumber",
    "size",
    "state",
    "viapartitionkey",
}


def canonical(name: str) -> str | None:
    """The name by which the property is known here, whatever its case; None for one that does not exist."""
    lower = name.lower()
    lower = ALIASES.get(lower, lower)
    return lower if lower in READABLE else None


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_of(milliseconds: int) -> datetime | None:
    """Milliseconds since the epoch as an instant; None for one that no calendar has."""
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


class LiftedForm:
    """Reads and writes what a stored message holds beside its bytes."""

    def read(self, message: StoredMessage) -> MessageProperties:
        """The message's own properties that are known without its bytes. Raises EvaluationError in others."""
        return MessageProperties(lifted(message), {})

    def write(self, message: StoredMessage, changes: PropertyChanges) -> None:
        """Write the changes that are known without the bytes. Raises EvaluationError in others."""
        for name, value in changes.system.items():
            if name == SPAN:
                message.time_to_live = (
                    value // timedelta(milliseconds=1) if isinstance(value, timedelta) else None
                )
            elif name == "sessionid":
                message.session_id = None if value is None else str(value)
            elif name == "messageid":
                message.message_id = str(value)

    def outgrows(self, message: StoredMessage, changes: Mapping[str, object]) -> bool:
        """Never: how large the rest of the header is, the bytes alone tell."""
        return False


def lifted(message: StoredMessage) -> dict[str, Value]:
    """The properties of a message about to be published, by their names in lower case."""
    span, number = message.time_to_live, message.enqueued_sequence_number
    return {
        "deadlettersource": message.dead_letter_source,
        "deliverycount": message.delivery_count,
        "enqueuedsequencenumber": number,
        "enqueuedtimeutc": instant_of(message.enqueued_at),
        "expiresatutc": _at(None if span is None else message.enqueued_at + span),
        "forcepersistence": False,
        "messageid": str(message.message_id),
        "partitionkey": message.partition_key,
        "scheduledenqueuetimeutc": _at(message.scheduled_for),
        "sequencenumber": number,
        "sessionid": message.session_id,
        "size": message.size,
        "state": "Active",
        SPAN: None if span is None else timedelta(milliseconds=span),
        "viapartitionkey": message.via_partition_key,
    }


def _at(instant: Instant | None) -> datetime | None:
    return None if instant is None else instant_of(instant)
