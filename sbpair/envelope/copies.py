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
    """Copy a message so that later changes to the caller's object do not affect the copy.

    Every send makes one, so it is short: of what the message holds, by whatever name, the mutable parts are copied.
    """
    inner = raw(message)
    made: AmqpAnnotatedMessage = _new(inner.__class__)
    made.__dict__ = _owned(inner.__dict__)
    return made


def owned(value: object) -> object:
    """Copy the mutable parts of a value; the rest is shared."""
    return _COPIES.get(value.__class__, _owned_by_base)(value)


def _owned_by_base(value: object) -> object:
    for kind, copy in _COPIES.items():
        if isinstance(value, kind):
            return copy(value)
    return value


def _owned(fields: dict[Any, Any]) -> dict[Any, Any]:
    made = dict.copy(fields)
    for name, value in fields.items():
        kind = value.__class__
        if kind not in _FIXED:
            made[name] = _COPIES.get(kind, _owned_by_base)(value)
    return made


def _owned_items(items: Iterable[Any]) -> list[Any]:
    made = list(items)
    for index, item in enumerate(made):
        if item.__class__ not in _FIXED:
            made[index] = owned(item)
    return made


def _shallow(section: SectionT) -> SectionT:
    made: SectionT = _new(section.__class__)
    made.__dict__ = section.__dict__.copy()
    return made


def _header(section: AmqpMessageHeader) -> AmqpMessageHeader | None:
    """A copy of a header; None for one without values, which the SDK does not send but examines at some cost."""
    values = list(section.__dict__.values())
    return None if values.count(None) == len(values) else _shallow(section)


_COPIES: dict[type, Callable[[Any], object]] = {
    dict: _owned,
    list: _owned_items,
    AmqpMessageHeader: _header,
    AmqpMessageProperties: _shallow,
    tuple: lambda items: tuple(_owned_items(items)),
    bytearray: bytes,
    memoryview: bytes,
}


def private(thing: object, name: str, loss: str) -> object:
    """Return a private attribute of an SDK object, or None when this SDK lacks it; ``loss`` is then logged once."""
    value = getattr(thing, name, ABSENT)
    if value is not ABSENT:
        return value
    if name not in _missed:
        _missed.add(name)
        _logger.warning("azure-servicebus no longer has %r: %s", name, loss)
    return None
