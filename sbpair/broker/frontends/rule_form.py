"""Message properties in the form in which subscription rules read and write them.

Only the two property sections are re-encoded; a property that no action changes keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.errors import DecodeError, EncodeError
from sbpair.pair.amqp.message import Properties, decode_properties, encode_properties
from sbpair.pair.amqp.sections import Section, decode_map_section, join_entries, split, split_entries
from sbpair.pair.amqp.types import Described, Symbol, Timestamp

from ..entities.rules.message_properties import (
    EPOCH,
    ExtractedFieldCodec,
    HeaderOutgrownError,
    MessageProperties,
    PropertyChanges,
    instant_of,
)
from ..entities.rules.values import EvaluationError, Value
from ..entities.stored_message import StoredMessage
from .delivered_message import amended_section
from .received_message import MAX_HEADER_BYTES, MAX_ID_LENGTH

SPAN, OFFSET = Symbol("com.microsoft:timespan"), Symbol("com.microsoft:datetime-offset")
TICKS_TO_EPOCH = 621_355_968_000_000_000  # 100 ns, from the year 1
FIELDS = {
    "contenttype": "content_type",
    "correlationid": "correlation_id",
    "label": "subject",
    "messageid": "message_id",
    "replyto": "reply_to",
    "replytosessionid": "reply_to_group_id",
    "sessionid": "group_id",
    "to": "to",
}


class AmqpPropertyCodec(ExtractedFieldCodec):
    """Reads and writes the properties of messages in their AMQP encoding."""

    def read(self, message: StoredMessage) -> MessageProperties:
        """Return the properties of a message. Raises EvaluationError when they cannot be decoded."""
        try:
            sections = split(message.bare)
            properties = decode_properties(sections.properties)
            user = decode_map_section(sections.application_properties)
        except DecodeError as error:
            raise EvaluationError(f"the message's properties could not be decoded: {error}") from error
        own = {name: _id_text(getattr(properties, field)) for name, field in FIELDS.items()}
        sent = {key: value_of(value) for key, value in user.items() if isinstance(key, str)}
        return MessageProperties({**super().read(message).system, **own}, {**sent, **(message.amended or {})})

    def outgrows(self, message: StoredMessage, changes: Mapping[str, object]) -> bool:
        """Whether the message's header would exceed its limit with these application properties."""
        sections = split(message.bare)
        user = amended_section(sections, {**(message.amended or {}), **changes})
        return len(message.annotations) + len(sections.properties) + len(user) > MAX_HEADER_BYTES

    def write(self, message: StoredMessage, changes: PropertyChanges) -> None:
        """Write ``changes`` to the message. Raises EvaluationError for a value that cannot be encoded."""
        sections = split(message.bare)
        try:
            properties = _properties(sections.properties, changes)
            user = _user(sections.application_properties, changes)
        except (DecodeError, EncodeError) as error:
            raise EvaluationError(f"the changed properties could not be encoded: {error}") from error
        size = len(message.annotations) + len(properties) + len(user)
        if size > MAX_HEADER_BYTES:
            raise HeaderOutgrownError(
                f"the header would have {size} bytes, at most {MAX_HEADER_BYTES} are allowed"
            )
        super().write(message, changes)
        message.bare = properties + user + sections.body + sections.footer
        if message.amended:
            touched = changes.removed | changes.user.keys()
            message.amended = {
                key: value for key, value in message.amended.items() if key not in touched
            } or None


def value_of(value: object) -> Value:
    """Convert an AMQP value to the type with which filters compute."""
    if isinstance(value, Timestamp):
        return instant_of(value)
    if isinstance(value, Described) and isinstance(value.value, int):
        if value.descriptor == SPAN:
            return _span(value.value)
        if value.descriptor == OFFSET:
            return instant_of((value.value - TICKS_TO_EPOCH) // 10_000)
    return value


def amqp_of(value: Value) -> object:
    """Convert a computed value to the type that AMQP encodes."""
    if isinstance(value, datetime):
        return Timestamp((value - EPOCH) // timedelta(milliseconds=1))
    if isinstance(value, timedelta):
        return Described(SPAN, value // timedelta(microseconds=1) * 10)
    return value


def _span(ticks: int) -> timedelta | None:
    try:
        return timedelta(microseconds=ticks // 10)
    except OverflowError:
        return None


def _id_text(value: object) -> Value:
    return value if value is None or isinstance(value, str) else str(value)


def _properties(section: bytes, changes: PropertyChanges) -> bytes:
    written: Mapping[str, Value] = {
        FIELDS[name]: value for name, value in changes.system.items() if name in FIELDS
    }
    if not written:
        return section
    for field in ("message_id", "group_id"):
        value = written.get(field)
        if isinstance(value, str) and len(value) > MAX_ID_LENGTH:
            raise EvaluationError(f"{field} is longer than {MAX_ID_LENGTH} characters")
    properties: Properties = decode_properties(section)
    return encode_properties(replace(properties, **written))  # type: ignore[arg-type]


def _user(section: bytes, changes: PropertyChanges) -> bytes:
    touched = changes.removed | changes.user.keys()
    entries: list[tuple[object, bytes]] = [each for each in split_entries(section) if each[0] not in touched]
    entries += [(key, encode(amqp_of(value))) for key, value in changes.user.items()]
    return join_entries(Section.APPLICATION_PROPERTIES, entries)
