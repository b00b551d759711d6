"""Copies of SDK messages that are isolated from later changes to the original."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
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
    made = object.__new__(inner.__class__)
    made.__dict__ = _owned(inner.__dict__)
    return made


def owned(value: object) -> object:
    """Copy the mutable parts of a value; the rest is shared."""
    copy = _COPIES.get(value.__class__)
    if copy is not None:
        return copy(value)
    for kind, copy in _COPIES.items():  # a subclass
        if isinstance(value, kind):
            return copy(value)
    return value


def _owned(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: value if value.__class__ in _FIXED else owned(value) for name, value in fields.items()}


def _owned_items(items: Iterable[Any]) -> list[Any]:
    return [item if item.__class__ in _FIXED else owned(item) for item in items]


def _shallow(section: SectionT) -> SectionT:
    made = object.__new__(section.__class__)
    made.__dict__ = section.__dict__.copy()
    return made


_COPIES: dict[type, Callable[[Any], object]] = {
    dict: _owned,
    list: _owned_items,
    AmqpMessageHeader: _shallow,
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
