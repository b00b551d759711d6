"""Spans of handlers, if the SDK's tracing is switched on: one a message, linked to the span that sent it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from azure.core.settings import settings
from azure.core.tracing import Link, SpanKind

from sbpair.amqp.errors import DecodeError

from .message import ReceivedMessage

HEADERS = (("traceparent", "traceparent"), ("Diagnostic-Id", "traceparent"), ("tracestate", "tracestate"))
Span = Callable[[ReceivedMessage], AbstractContextManager[object]]


def spans(path: str) -> Span | None:
    """A function that opens the span of a message of the entity ``path``; None while tracing is off."""
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
    """The span that sent the message, as its application properties name it."""
    try:
        properties = message.application_properties or {}
    except (DecodeError, IndexError):
        return []
    headers: dict[str, str] = {}
    for name, header in HEADERS:
        if isinstance(properties.get(name), str):
            headers.setdefault(header, properties[name])
    return [Link(headers)] if "traceparent" in headers else []
