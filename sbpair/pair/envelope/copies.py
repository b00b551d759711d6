"""Messages of the SDK: checks, isolated copies, and the values that identify a message."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar, runtime_checkable

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from . import aliases as names
from .errors import ReservedPropertyError

Message = ServiceBusMessage | AmqpAnnotatedMessage
SectionT = TypeVar("SectionT", AmqpMessageHeader, AmqpMessageProperties)

ABSENT = object()
_new = object.__new__
_FIXED = frozenset({str, bytes, int, float, bool, type(None), datetime, AmqpMessageBodyType})
"""The types of most values; no copy is needed."""

_logger = logging.getLogger("sbpair")
_missed: set[str] = set()
_RESERVED_BYTES = frozenset(name.encode() for name in names.RESERVED)
_RESERVED_KEYS: frozenset[str | bytes] = names.RESERVED | _RESERVED_BYTES


def raw(message: Message) -> AmqpAnnotatedMessage:
    """Return the AMQP message that ``message`` is or wraps."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def prepare(message: object) -> AmqpAnnotatedMessage:
    """Validate a message and copy it for sending; the copy has a message id.

    Every attempt sends the same copy, whatever the caller does to the original meanwhile. A mapping is
    passed to ServiceBusMessage as keyword arguments.

    Raises TypeError when ``message`` is neither a message nor a mapping, ReservedPropertyError when an
    application property has a reserved name, and ValueError when session id and partition key differ or a
    check of the SDK fails.
    """
    if not isinstance(message, (ServiceBusMessage, AmqpAnnotatedMessage)):
        message = _from_mapping(message)
    twin = snapshot(message)
    if checked_id(twin) is None:
        properties = twin.properties or AmqpMessageProperties()
        # identifies duplicates, from any attempt
        properties.message_id = str(uuid.uuid4())
        twin.properties = properties
    return twin


def checked_id(inner: AmqpAnnotatedMessage) -> str | None:
    """Return the message id as text, or None, after the checks of :func:`prepare`.

    Raises ReservedPropertyError, ValueError.
    """
    carried = inner.application_properties
    if carried and not _RESERVED_KEYS.isdisjoint(carried):
        taken = next(key for key in carried if key in _RESERVED_KEYS)
        raise ReservedPropertyError(taken.decode() if isinstance(taken, bytes) else taken)
    properties = inner.properties
    if properties is None:
        return None
    if inner.annotations and properties.group_id is not None:
        _check_keys(properties.group_id, inner.annotations)
    found = properties.message_id
    if found is None or found.__class__ is str:
        return found
    return _id_text(found)


def _check_keys(session: object, annotations: Mapping[str | bytes, object]) -> None:
    # The SDK checks ServiceBusMessage only, and a partitioned entity would reject the message once restored.
    for name in (names.ANNOTATION_PARTITION_KEY, names.ANNOTATION_PARTITION_KEY.encode()):
        key = annotations.get(name)
        if key is not None and text_of(key) != text_of(session):
            raise ValueError("session id and partition key must be equal when a message has both")


def message_id_of(message: Message) -> str:
    """Return the message id as text, for any AMQP type; "None" without one."""
    properties = raw(message).properties
    found = None if properties is None else properties.message_id
    return found if found.__class__ is str else _id_text(found)


def _id_text(found: object) -> str:
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def session_of(message: Message) -> str | None:
    """Return the session id as text, or None."""
    properties = raw(message).properties
    found = None if properties is None else properties.group_id
    return found if found is None or found.__class__ is str else text_of(found)


def key_of(message: Message) -> str | None:
    """Return the value that pins the message to a partition: its session id, else its partition key, else None."""
    session = session_of(message)
    if session is not None:
        return session
    for name, value in (raw(message).annotations or {}).items():
        if (
            name in (names.ANNOTATION_PARTITION_KEY, names.ANNOTATION_PARTITION_KEY.encode())
            and value is not None
        ):
            return text_of(value)
    return None


@runtime_checkable
class _Keyed(Protocol):
    """A mapping as the SDK accepts it: any operand of ``**``."""

    def keys(self) -> Iterable[str]: ...

    def __getitem__(self, name: str, /) -> Any: ...  # noqa: ANN401


def _from_mapping(given: object) -> ServiceBusMessage:
    if not isinstance(given, _Keyed):
        raise TypeError(
            "a message must be a ServiceBusMessage, an AmqpAnnotatedMessage or a mapping, "
            f"not {type(given).__name__}"
        )
    return ServiceBusMessage(**given)


def text_of(value: object) -> str:
    """Return a value of the SDK as text."""
    value = unwrap(value)
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def unwrap(value: object) -> object:
    # In the SDK a value may name its AMQP type: {"TYPE": "LONG", "VALUE": 5}.
    return value["VALUE"] if isinstance(value, dict) and "VALUE" in value else value


def snapshot(message: Message) -> AmqpAnnotatedMessage:
    """Copy a message so that later changes to the caller's object do not affect the copy."""
    inner = raw(message)
    if _HAS_KNOWN_FIELDS and inner.__class__ is AmqpAnnotatedMessage:
        try:
            return _message(inner)
        except AttributeError:  # not made by its constructor
            pass
    made: AmqpAnnotatedMessage = _new(inner.__class__)
    made.__dict__ = _own_fields(inner.__dict__)
    return made


def _message(inner: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    """Return a copy of a message, made field by field, as for every send.

    Access to an object's ``__dict__`` moves its fields into it, and the SDK then reads them more slowly.
    """
    made: AmqpAnnotatedMessage = _new(AmqpAnnotatedMessage)
    made._encoding, made._body_type = inner._encoding, inner._body_type
    data, sequence, value = inner._data_body, inner._sequence_body, inner._value_body
    made._data_body = None if data is None else own(data)  # type: ignore[assignment]
    made._sequence_body = None if sequence is None else own(sequence)  # type: ignore[assignment]
    made._value_body = None if value is None else own(value)
    header, properties = inner._header, inner._properties
    made._header = None if header is None else _header(header)
    made._properties = None if properties is None else _properties(properties)
    carried, annotations = inner._application_properties, inner._annotations
    made._application_properties = None if carried is None else own(carried)  # type: ignore[assignment]
    made._annotations = None if annotations is None else own(annotations)  # type: ignore[assignment]
    delivery, footer = inner._delivery_annotations, inner._footer
    made._delivery_annotations = None if delivery is None else own(delivery)  # type: ignore[assignment]
    made._footer = None if footer is None else own(footer)  # type: ignore[assignment]
    return made


def own(value: object) -> object:
    """Copy the mutable parts of a value; the rest is shared."""
    return _COPIES.get(value.__class__, _own_base)(value)


def _own_base(value: object) -> object:
    for kind, copy in _COPIES.items():
        if isinstance(value, kind):
            return copy(value)
    return value


def _own_fields(fields: dict[Any, Any]) -> dict[Any, Any]:
    made = dict.copy(fields)
    for name, value in fields.items():
        kind = value.__class__
        if kind not in _FIXED:
            made[name] = _COPIES.get(kind, _own_base)(value)
    return made


def _own_items(items: Iterable[Any]) -> list[Any]:
    made = list(items)
    for index, item in enumerate(made):
        if item.__class__ not in _FIXED:
            made[index] = own(item)
    return made


def _shallow(section: SectionT) -> SectionT:
    made: SectionT = _new(section.__class__)
    made.__dict__ = section.__dict__.copy()
    return made


def _header(section: AmqpMessageHeader) -> AmqpMessageHeader | None:
    """Return a copy of a header; None for a header without values: the SDK would not send it, yet spend time on it."""
    values = list(section.__dict__.values())
    return None if values.count(None) == len(values) else _shallow(section)


def _properties(section: AmqpMessageProperties) -> AmqpMessageProperties:
    if section.__class__ is not AmqpMessageProperties:
        return own(section)  # type: ignore[return-value]
    made: AmqpMessageProperties = _new(AmqpMessageProperties)
    made.message_id, made.user_id, made.to = section.message_id, section.user_id, section.to
    made.subject, made.reply_to = section.subject, section.reply_to
    made.correlation_id = section.correlation_id
    made.content_type, made.content_encoding = section.content_type, section.content_encoding
    made.creation_time = section.creation_time
    made.absolute_expiry_time = section.absolute_expiry_time
    made.group_id, made.group_sequence = section.group_id, section.group_sequence
    made.reply_to_group_id = section.reply_to_group_id
    return made


def _copies_all_fields() -> bool:
    """Whether messages of this SDK have the fields that are copied one by one, and no others."""
    sample, properties = AmqpAnnotatedMessage(data_body=b""), AmqpMessageProperties()
    try:
        has_known = vars(_message(sample)).keys() == vars(sample).keys()
        return has_known and vars(_properties(properties)) == vars(properties)
    except AttributeError:
        return False


_COPIES: dict[type, Callable[[Any], object]] = {
    dict: _own_fields,
    list: _own_items,
    AmqpMessageHeader: _header,
    AmqpMessageProperties: _shallow,
    tuple: lambda items: tuple(_own_items(items)),
    bytearray: bytes,
    memoryview: bytes,
}
_HAS_KNOWN_FIELDS = _copies_all_fields()


def private(thing: object, name: str, loss: str) -> object:
    """Return a private attribute of an SDK object, or None when this SDK lacks it; ``loss`` is then logged once."""
    value = getattr(thing, name, ABSENT)
    if value is not ABSENT:
        return value
    if name not in _missed:
        _missed.add(name)
        _logger.warning("azure-servicebus no longer has %r: %s", name, loss)
    return None
