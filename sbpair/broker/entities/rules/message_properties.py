"""The properties of a message that rules use: names, decoding, and the changes of an action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from ..stored_message import Instant, StoredMessage
from .values import EvaluationError, Value


class HeaderOutgrownError(EvaluationError):
    """The header of a message would exceed its maximum size."""


class MessageProperties:
    """System properties, by their names in lower case, and the sender's application properties (``user``)."""

    __slots__ = ("_names", "system", "user")

    def __init__(self, system: Mapping[str, Value], user: Mapping[str, Value]) -> None:
        self.system = dict(system)
        self.user = dict(user)
        self._names: dict[str, str] | None = None

    def name_of(self, name: str) -> str | None:
        """Return the exact name of an application property that equals ``name`` without regard to case.

        Prefers the same case. None if there is no such property.
        """
        if name in self.user:
            return name
        if self._names is None:
            self._names = {}
            for each in self.user:
                self._names.setdefault(each.casefold(), each)
        return self._names.get(name.casefold())

    def of_user(self, name: str) -> Value:
        """Return an application property by case-insensitive name; None (unknown) if missing."""
        spelling = self.name_of(name)
        return None if spelling is None else self.user[spelling]

    def copy(self) -> MessageProperties:
        """Return a copy for an action to modify."""
        return MessageProperties(self.system, self.user)

    def set_user(self, name: str, value: Value) -> str:
        """Set an application property; return its spelling."""
        spelling = self.name_of(name) or name
        self.user[spelling] = value
        self._names = None
        return spelling

    def remove_user(self, name: str) -> str | None:
        """Remove an application property; return its spelling, or None if it was missing."""
        spelling = self.name_of(name)
        if spelling is not None:
            del self.user[spelling]
            self._names = None
        return spelling


@dataclass(slots=True)
class PropertyChanges:
    """Changes to a copy: application properties to set and remove, and system properties to set."""

    user: dict[str, Value] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    system: dict[str, Value] = field(default_factory=dict)


class PropertyCodec(Protocol):
    """Decodes and modifies the properties of a stored message."""

    def read(self, message: StoredMessage) -> MessageProperties:
        """Return the properties of a message. Raises EvaluationError when they cannot be decoded."""

    def write(self, message: StoredMessage, changes: PropertyChanges) -> None:
        """Apply ``changes`` to a message.

        Raises EvaluationError when a value cannot be encoded, HeaderOutgrownError when the header would be too
        large.
        """

    def outgrows(self, message: StoredMessage, changes: Mapping[str, object]) -> bool:
        """Whether the header would be too large with these application properties set."""


class LazyProperties:
    """The properties of a message about to be published, decoded once, when first used."""

    __slots__ = ("_codec", "_message", "_outcome")

    def __init__(self, message: StoredMessage, codec: PropertyCodec) -> None:
        self._message = message
        self._codec = codec
        self._outcome: MessageProperties | EvaluationError | None = None

    def get(self) -> MessageProperties:
        """Return the properties. Raises EvaluationError, on each call, when they cannot be decoded."""
        if self._outcome is None:
            try:
                self._outcome = self._codec.read(self._message)
            except EvaluationError as error:
                self._outcome = error
        if isinstance(self._outcome, EvaluationError):
            raise self._outcome
        return self._outcome


TEXTS = frozenset(
    ("contenttype", "correlationid", "label", "messageid", "replyto", "replytosessionid", "sessionid", "to")
)
TIME_TO_LIVE = "timetolive"
IGNORED = "scheduledenqueuetimeutc"  # an action may set it, without effect
SETTABLE = TEXTS | {TIME_TO_LIVE, IGNORED}
REMOVABLE = SETTABLE - {"messageid"}  # some clients cannot settle a message without an id

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
    """Return the canonical name of a system property, given in any case.

    None if there is no such property.
    """
    lower = name.lower()
    lower = ALIASES.get(lower, lower)
    return lower if lower in READABLE else None


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_of(milliseconds: int) -> datetime | None:
    """Return milliseconds since the epoch as a datetime; None when out of its range."""
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


class ExtractedFieldCodec:
    """A :class:`PropertyCodec` over the fields of a stored message only.

    Its encoded sections are not parsed.
    """

    def read(self, message: StoredMessage) -> MessageProperties:
        """Return the system properties that are stored as fields."""
        return MessageProperties(properties_from_fields(message), {})

    def write(self, message: StoredMessage, changes: PropertyChanges) -> None:
        """Apply the changes to system properties that are stored as fields; ignore others."""
        for name, value in changes.system.items():
            if name == TIME_TO_LIVE:
                message.time_to_live = (
                    value // timedelta(milliseconds=1) if isinstance(value, timedelta) else None
                )
            elif name == "sessionid":
                message.session_id = None if value is None else str(value)
            elif name == "messageid":
                message.message_id = str(value)

    def outgrows(self, message: StoredMessage, changes: Mapping[str, object]) -> bool:
        """Return False: the size of the header is unknown without its bytes."""
        return False


def properties_from_fields(message: StoredMessage) -> dict[str, Value]:
    """Return the system properties that are stored as fields of a message about to be published."""
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
        TIME_TO_LIVE: None if span is None else timedelta(milliseconds=span),
        "viapartitionkey": message.via_partition_key,
    }


def _at(instant: Instant | None) -> datetime | None:
    return None if instant is None else instant_of(instant)
