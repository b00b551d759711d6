"""Tracing spans of handlers: one for each message, linked to the span that created the message."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from azure.core.settings import settings
from azure.core.tracing import Link, SpanKind

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.tracing import current
from sbpair.pair.tracing.current import Processing

from .message import ReceivedMessage

Span = Callable[[ReceivedMessage], AbstractContextManager[object]]


def spans(path: str) -> Span | None:
    """Return a function that opens a span for a message of the entity ``path``; None while tracing is off."""
    if current.active is not None:
        tracing = current.active
        return lambda message: tracing.processing(_describe(path, message))
    kind = settings.tracing_implementation()
    if kind is None:
        return None

    def span(message: ReceivedMessage) -> AbstractContextManager[object]:
        found = kind(name="ServiceBus.process", kind=SpanKind.CONSUMER, links=_links(message))
        for name, value in (
            ("az.namespace", "Microsoft.ServiceBus"),
            ("messaging.destination.name", path),
            ("sbpair.side", message.side.value),
        ):
            found.add_attribute(name, value)
        return found if isinstance(found, AbstractContextManager) else nullcontext(found)

    return span


def _links(message: ReceivedMessage) -> list[Link]:
    headers = _headers(message)
    return [Link(headers)] if headers else []


def _headers(message: ReceivedMessage) -> dict[str, str]:
    """Return the tracing context in which the message was created; empty if it has none or cannot be read."""
    try:
        return current.headers_of(message.application_properties or {})
    except (DecodeError, IndexError):
        return {}


def _describe(path: str, message: ReceivedMessage) -> Processing:
    enqueued = message.enqueued_time_utc
    return Processing(
        path,
        message.side.value,
        str(message.message_id or ""),
        message.delivery_count or 0,
        None if enqueued is None else enqueued.timestamp(),
        _headers(message),
    )
