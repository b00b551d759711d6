"""Copies of SDK messages that are isolated from later changes to the original."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

Message = ServiceBusMessage | AmqpAnnotatedMessage
SectionT = TypeVar("SectionT", AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties)

ABSENT = object()
_FIXED = frozenset({str, bytes, int, float, bool, datetime})  # most values; no copy is needed

_logger = logging.getLogger("sbpair")
_missed: set[str] = set()


def raw(message: Message) -> AmqpAnnotatedMessage:
    """The AMQP message that ``message`` is or wraps."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def snapshot(message: Message) -> AmqpAnnotatedMessage:
    """Copy a message so that later changes to the caller's object do not affect the copy."""
    inner = raw(message)
    twin = _twin(inner)
    if inner.header is not None:
        twin.header = _twin(inner.header)
    if inner.properties is not None:
        twin.properties = _twin(inner.properties)
    if inner.application_properties is not None:
        twin.application_properties = _owned(inner.application_properties)
    if inner.annotations is not None:
        twin.annotations = _owned(inner.annotations)
    if inner.delivery_annotations is not None:
        twin.delivery_annotations = _owned(inner.delivery_annotations)
    if inner.footer is not None:
        twin.footer = _owned(inner.footer)
    _own_body(twin)
    return twin


def _twin(thing: SectionT) -> SectionT:
    """A shallow copy. ``copy.copy`` is several times slower, and every send makes three copies."""
    made = object.__new__(type(thing))
    vars(made).update(vars(thing))
    return made


def _owned(section: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: value if value.__class__ in _FIXED else owned(value) for name, value in section.items()}


def _own_body(message: AmqpAnnotatedMessage) -> None:
    """Replace the body that a shallow copy shares with its original by a copy."""
    inner: Any = message
    loss = "a body changed during a send may differ between attempts"
    parts = private(inner, "_data_body", loss)
    if isinstance(parts, (list, tuple)):  # the usual kind; immutable parts are shared
        inner._data_body = [part if part.__class__ is bytes else owned(part) for part in parts]
        return
    for name in ("_value_body", "_sequence_body"):
        body = private(inner, name, loss)
        if body is not None:
            setattr(inner, name, owned(body))


def owned(value: object) -> object:
    """Copy the mutable parts of a value; the rest is shared."""
    if isinstance(value, dict):
        return {owned(key): owned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [owned(item) for item in value]
    if isinstance(value, tuple):
        return tuple([owned(item) for item in value])
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def private(thing: object, name: str, loss: str) -> object:
    """A private attribute of an SDK object, or None when this SDK lacks it; ``loss`` is then logged once."""
    value = getattr(thing, name, ABSENT)
    if value is not ABSENT:
        return value
    if name not in _missed:
        _missed.add(name)
        _logger.warning("azure-servicebus no longer has %r: %s", name, loss)
    return None
