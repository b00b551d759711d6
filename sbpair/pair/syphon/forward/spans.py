"""Tracing spans of forwarded and dead-lettered messages, for those that carry the context of their creation."""

from __future__ import annotations

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.sections import decode_map_section, split
from sbpair.pair.envelope.inspect import message_id_of
from sbpair.pair.tracing import current
from sbpair.pair.tracing.current import Tracing


def trace_forward(
    tracing: Tracing,
    payload: bytes,
    path: str,
    backlog: str,
    *,
    seconds: float = 0.0,
    side: str = "primary",
    refusal: str = "",
) -> None:
    """Record the span of a message that was forwarded in ``seconds``, or dead-lettered with the reason ``refusal``."""
    try:
        headers = current.headers_of(decode_map_section(split(payload).application_properties))
    except (DecodeError, IndexError):
        return  # poison: its content cannot be trusted
    if headers:
        attributes = {
            "messaging.message.id": message_id_of(payload),
            "sbpair.backlog": backlog,
            "sbpair.side": side,
        }
        tracing.forwarded(headers, attributes, path, seconds, refusal)
