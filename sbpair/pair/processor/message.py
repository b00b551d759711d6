"""A received message with the names of the SDK's ``ServiceBusReceivedMessage``, decoded from its bytes on first use.

Names and types are the SDK's, so that a handler works with either class. Values differ in one respect: they have the
type that was sent. The SDK returns the keys and strings of application properties, and those inside a body, as
``bytes``; here they are ``str``, and an integer keeps its AMQP type (:class:`sbpair.pair.amqp.Int` is an ``int``).

The message is read-only. To send it on, pass ``message.raw_amqp_message`` to a sender.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import (
    Body,
    DataBody,
    Header,
    Properties,
    SequenceBody,
    ValueBody,
    decode_body,
    decode_header,
    decode_message_id,
    decode_properties,
)
from sbpair.pair.amqp.sections import Sections, decode_map_section, split
from sbpair.pair.amqp.types import Timestamp
from sbpair.pair.ground.side import Side

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessageState
    from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

T = TypeVar("T")
MessageId = str | bytes | int | UUID
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCK_TOKEN = 16  # bytes of a delivery tag that is a lock token


class ReceivedMessage:
    """A message passed to a handler. Reading a value raises DecodeError if the message is not valid AMQP."""

    __slots__ = ("__dict__", "_is_settled", "_locked_until", "_tag", "auto_renew_error", "payload", "side")

    side: Side
    """The namespace from which the message was received."""

    def __init__(
        self,
        payload: bytes,
        tag: bytes = b"",
        side: Side = Side.PRIMARY,
        locked_until: datetime | None = None,
    ) -> None:
        """Create a message from its encoding ``payload`` and its delivery tag ``tag``.

        ``locked_until``, the end of a session's lock or a renewed lock, replaces the time in the message.
        """
        self.payload = payload
        self.side = side
        self.auto_renew_error: Exception | None = None
        self._tag = tag
        self._locked_until = locked_until
        self._is_settled = False

    @classmethod
    def from_bytes(cls, message: bytes) -> ReceivedMessage:
        """Read an encoded message. Raises TypeError or ValueError, as the SDK does."""
        if not isinstance(message, bytes):
            raise TypeError("message must be bytes.")
        if not message:
            raise ValueError("message cannot be empty.")
        try:
            split(message)
        except DecodeError as error:
            raise ValueError(f"message is not a valid AMQP 1.0 message: {error}") from error
        return cls(message)

    def renewed(self, until: datetime) -> None:
        """Record a renewed lock."""
        self._locked_until = until

    def settled(self) -> None:
        """Record that the message is settled and no longer locked."""
        self._is_settled = True

    # Sections, each decoded once.

    def _once(self, name: str, read: Callable[[], T]) -> T:
        try:
            found: T = self.__dict__[name]
        except KeyError:
            found = self.__dict__[name] = read()
        return found

    @property
    def _sections(self) -> Sections:
        return self._once("sections", lambda: split(self.payload))

    @property
    def _header(self) -> Header:
        return self._once("header", lambda: decode_header(self._sections.header))

    @property
    def _properties(self) -> Properties:
        return self._once("properties", lambda: decode_properties(self._sections.properties))

    @property
    def _annotations(self) -> dict[object, object]:
        return self._once("annotations", lambda: decode_map_section(self._sections.message_annotations))

    @property
    def _body(self) -> Body | None:
        return self._once("body", lambda: decode_body(self._sections.body))

    # The sender's.

    @property
    def application_properties(self) -> dict[str, Any] | None:
        """The sender's own properties, with the types that were sent; None without any."""
        return self._once("application_properties", self._decode_application_properties)

    def _decode_application_properties(self) -> dict[str, Any] | None:
        section = self._sections.application_properties
        return {str(key): value for key, value in decode_map_section(section).items()} if section else None

    @property
    def body(self) -> Any:  # noqa: ANN401 - a value body is any value
        """An iterator over the ``bytes`` of a data body or the lists of a sequence body; else the value."""
        body = self._body
        match body:
            case DataBody():
                return (part for part in body.sections)
            case SequenceBody():
                return (part for part in body.sections)
            case ValueBody():
                return body.value
            case None:
                return None

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """The type of the body: data, sequence or value; value for a message without a body."""
        from azure.servicebus.amqp import AmqpMessageBodyType  # imported late: few handlers need it

        match self._body:
            case DataBody():
                return AmqpMessageBodyType.DATA
            case SequenceBody():
                return AmqpMessageBodyType.SEQUENCE
            case _:
                return AmqpMessageBodyType.VALUE

    @property
    def content_type(self) -> str | None:
        """The media type of the body."""
        return _text(self._properties.content_type)

    @property
    def correlation_id(self) -> MessageId | None:
        """The correlation id."""
        return self._properties.correlation_id

    @property
    def message_id(self) -> MessageId | None:
        """The message id."""
        return self._once("message_id", lambda: decode_message_id(self._sections.properties))

    @property
    def partition_key(self) -> str | None:
        """The partition key."""
        found = self._annotations.get("x-opt-partition-key")
        return found.decode() if isinstance(found, bytes) else _text(found)

    @property
    def reply_to(self) -> str | None:
        """The address for replies."""
        return self._properties.reply_to

    @property
    def reply_to_session_id(self) -> str | None:
        """The session for replies."""
        return self._properties.reply_to_group_id

    @property
    def scheduled_enqueue_time_utc(self) -> datetime | None:
        """The time for which the sender scheduled the message."""
        return self._instant("x-opt-scheduled-enqueue-time")

    @property
    def session_id(self) -> str | None:
        """The id of the message's session."""
        return self._properties.group_id

    @property
    def subject(self) -> str | None:
        """The subject, also called label."""
        return self._properties.subject

    @property
    def time_to_live(self) -> timedelta | None:
        """The time to live of the message, counted from its enqueued time; None without a limit."""
        milliseconds = self._header.ttl
        return timedelta(milliseconds=milliseconds) if milliseconds else None

    @property
    def to(self) -> str | None:
        """The address that the sender intended."""
        return self._properties.to

    # The broker's.

    @property
    def dead_letter_error_description(self) -> str | None:
        """The description of the reason for which the message was dead-lettered."""
        return _text((self.application_properties or {}).get("DeadLetterErrorDescription"))

    @property
    def dead_letter_reason(self) -> str | None:
        """The reason for which the message was dead-lettered."""
        return _text((self.application_properties or {}).get("DeadLetterReason"))

    @property
    def dead_letter_source(self) -> str | None:
        """The entity that dead-lettered the message, if it was forwarded afterwards."""
        return _text(self._annotations.get("x-opt-deadletter-source"))

    @property
    def delivery_count(self) -> int | None:
        """The number of earlier deliveries that were abandoned or lost their lock."""
        return self._header.delivery_count

    @property
    def enqueued_sequence_number(self) -> int | None:
        """The sequence number that the message had in the entity from which it was forwarded."""
        return _whole(self._annotations.get("x-opt-enqueue-sequence-number"))

    @property
    def enqueued_time_utc(self) -> datetime | None:
        """When the entity stored the message."""
        return self._instant("x-opt-enqueued-time")

    @property
    def expires_at_utc(self) -> datetime | None:
        """The enqueued time plus the time to live."""
        enqueued, span = self.enqueued_time_utc, self.time_to_live
        return enqueued + span if enqueued and span else None

    @property
    def lock_token(self) -> UUID | None:
        """The token of the lock; None once the message is settled."""
        if self._is_settled or len(self._tag) != _LOCK_TOKEN:
            return None
        return UUID(bytes_le=self._tag)

    @property
    def locked_until_utc(self) -> datetime | None:
        """When the lock expires unless it is renewed; None once the message is settled."""
        if self._is_settled:
            return None
        return self._locked_until or self._instant("x-opt-locked-until")

    @property
    def sequence_number(self) -> int | None:
        """The number that the entity assigned to the message."""
        return _whole(self._annotations.get("x-opt-sequence-number"))

    @property
    def state(self) -> ServiceBusMessageState:
        """Active, deferred or scheduled."""
        from azure.servicebus import ServiceBusMessageState  # imported late: few handlers need it

        return ServiceBusMessageState(_whole(self._annotations.get("x-opt-message-state")) or 0)

    @property
    def raw_amqp_message(self) -> AmqpAnnotatedMessage:
        """The message as the SDK's ``AmqpAnnotatedMessage``, which senders accept."""
        return self._once("raw_amqp_message", self._as_annotated)

    @property
    def message(self) -> AmqpAnnotatedMessage:
        """Deprecated, as in the SDK: use :attr:`raw_amqp_message`, which this returns."""
        warnings.warn(
            "The `message` property is deprecated: use `raw_amqp_message`.", DeprecationWarning, stacklevel=2
        )
        return self.raw_amqp_message

    def _as_annotated(self) -> AmqpAnnotatedMessage:
        from azure.servicebus.amqp import AmqpAnnotatedMessage  # imported late: few handlers need it

        sections, header, properties = self._sections, self._header, self._properties
        body = self._body
        kinds: dict[str, Any] = {"value_body": body.value if isinstance(body, ValueBody) else None}
        if isinstance(body, DataBody):
            kinds = {"data_body": list(body.sections)}
        elif isinstance(body, SequenceBody):
            kinds = {"sequence_body": list(body.sections)}
        return AmqpAnnotatedMessage(
            header={
                "delivery_count": header.delivery_count,
                "time_to_live": header.ttl,
                "first_acquirer": header.first_acquirer,
                "durable": header.durable,
                "priority": header.priority,
            }
            if sections.header
            else None,
            properties={name: getattr(properties, name) for name in Properties.__slots__}
            if sections.properties
            else None,
            application_properties=_sdk_properties(self.application_properties),
            annotations=_sdk_map(sections.message_annotations),
            delivery_annotations=_sdk_map(sections.delivery_annotations),
            footer=_sdk_map(sections.footer),
            **kinds,
        )

    def _instant(self, annotation: str) -> datetime | None:
        found = _whole(self._annotations.get(annotation))
        return _EPOCH + timedelta(milliseconds=found) if found else None

    def __str__(self) -> str:
        match self._body:
            case DataBody(sections):
                return b"".join(sections).decode()
            case SequenceBody(lists):
                return str(list(lists))
            case ValueBody(value):
                return str(value)
            case None:
                return str(None)

    def __repr__(self) -> str:
        try:
            shown = f"message_id={self.message_id!r}, sequence_number={self.sequence_number!r}, "
        except DecodeError as error:
            shown = f"unreadable: {error}, "
        return f"<ReceivedMessage {shown}side={self.side.value}, {len(self.payload)} bytes>"


def _sdk_properties(properties: dict[str, Any] | None) -> dict[Any, Any] | None:
    """Return properties that the SDK can send: it needs timestamps as ``datetime``."""
    if properties is None:
        return None
    return {
        key: _EPOCH + timedelta(milliseconds=value) if isinstance(value, Timestamp) else value
        for key, value in properties.items()
    }


def _sdk_map(section: bytes) -> dict[Any, Any] | None:
    """Return a map with ``bytes`` as keys, by which the SDK looks up annotations."""
    if not section:
        return None
    entries = decode_map_section(section).items()
    return {key.encode() if isinstance(key, str) else key: value for key, value in entries}


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None
