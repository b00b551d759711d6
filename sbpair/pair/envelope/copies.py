"""Copies of SDK messages that are isolated from later changes to the original."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

Message = ServiceBusMessage | AmqpAnnotatedMessage
SectionT = TypeVar("SectionT", AmqpMessageHeader, AmqpMessageProperties)

ABSENT = object()
_new = object.__new__
_FIXED = frozenset({str, bytes, int, float, bool, type(None), datetime, AmqpMessageBodyType})
"""The types of most values; no copy is needed."""

_logger = logging.getLogger("sbpair")
_missed: set[str] = set()


def raw(message: Message) -> AmqpAnnotatedMessage:
    """Return the AMQP message that ``message`` is or wraps."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


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
    """Copy a message field by field, as every send does.

    Asking an object for its ``__dict__`` moves its fields into one, from which the SDK then reads them more slowly.
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
    """A copy of a header; None for one without values, which the SDK does not send but examines at some cost."""
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
