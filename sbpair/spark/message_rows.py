"""Conversion of peeked messages to rows: content, position, and the original properties of parked messages.

Performs no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sbpair.amqp.errors import DecodeError
from sbpair.amqp.message import (
    Body,
    DataBody,
    Header,
    Message,
    Properties,
    SequenceBody,
    ValueBody,
)
from sbpair.envelope import aliases
from sbpair.envelope.inspect import read_parked
from sbpair.envelope.values import AliasError, read_duration, read_instant, read_key, read_text

from .ranges import ACTIVE, Seen
from .typed_values import instant, text_of, type_name

T = TypeVar("T")
STATES = ("active", "deferred", "scheduled")
NUMBER, ENQUEUED, STATE = "x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-message-state"

COLUMNS: tuple[tuple[str, str], ...] = (
    ("namespace", "string"),
    ("queue", "string"),
    ("sequence_number", "bigint"),
    ("message_id", "string"),
    ("session_id", "string"),
    ("enqueued_time", "timestamp"),
    ("expires_at", "timestamp"),
    ("time_to_live", "double"),
    ("delivery_count", "bigint"),
    ("content_type", "string"),
    ("subject", "string"),
    ("correlation_id", "string"),
    ("to", "string"),
    ("reply_to", "string"),
    ("partition_key", "string"),
    ("state", "string"),
    ("dead_letter_reason", "string"),
    ("dead_letter_error_description", "string"),
    ("body", "binary"),
    ("body_type", "string"),
    ("application_properties", "map<string,string>"),
    ("typed_properties", "map<string,struct<type:string,value:string>>"),
    ("transfer_path", "string"),
    ("transfer_session_id", "string"),
    ("transfer_time_to_live", "double"),
    ("transfer_scheduled_enqueue_time", "timestamp"),
    ("trouble", "string"),
)
MESSAGE_COLUMNS = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Peeked:
    """A peeked message. When it cannot be decoded, ``message`` is empty and ``trouble`` the reason."""

    seen: Seen
    message: Message
    trouble: str | None = None


def peeked(payload: bytes) -> Peeked:
    """Decode a message. Never raises: a malformed message keeps its sequence number and has ``trouble``."""
    try:
        message = Message.decode(payload)
    except (DecodeError, IndexError) as error:
        parked = read_parked(payload)
        seen = Seen(parked.sequence_number or 0, parked.parked_at or 0)
        return Peeked(seen, Message(), f"not well-formed AMQP: {error}")
    annotations = message.message_annotations
    number, at = _whole(annotations.get(NUMBER)), _whole(annotations.get(ENQUEUED))
    return Peeked(Seen(number or 0, at or 0, _whole(annotations.get(STATE)) or ACTIVE), message)


def to_row(namespace: str, path: str, peeked: Peeked, *, with_body: bool = True) -> Row:
    """The values of COLUMNS, in their order; the body is null unless ``with_body``."""
    message = peeked.message
    header, properties = message.header or Header(), message.properties or Properties()
    application, annotations = message.application_properties, message.message_annotations
    body, kind = _body(message.body) if with_body else (None, None)
    troubles = [] if peeked.trouble is None else [peeked.trouble]

    def alias(name: str, read: Callable[[str, object], T]) -> T | None:
        try:
            return read(name, application[name]) if name in application else None
        except (AliasError, ValueError) as error:
            troubles.append(str(error))
            return None

    path_alias = alias(aliases.PATH, read_text)
    session = alias(aliases.SESSION_ID, read_key)
    span, due = alias(aliases.TIME_TO_LIVE, read_duration), alias(aliases.SCHEDULED, read_instant)
    enqueued = peeked.seen.enqueued_at
    return (
        namespace,
        path,
        peeked.seen.number,
        text_of(properties.message_id),
        properties.group_id,
        instant(enqueued or None),
        instant(_expiry(properties.absolute_expiry_time, enqueued, header.ttl)),
        None if header.ttl is None else header.ttl / 1000,
        header.delivery_count or 0,
        properties.content_type,
        properties.subject,
        text_of(properties.correlation_id),
        properties.to,
        properties.reply_to,
        text_of(annotations.get(aliases.ANNOTATION_PARTITION_KEY)),
        STATES[peeked.seen.state] if peeked.seen.state < len(STATES) else str(peeked.seen.state),
        text_of(application.get("DeadLetterReason")),
        text_of(application.get("DeadLetterErrorDescription")),
        body,
        kind,
        {str(name): text_of(value) for name, value in application.items()},
        {str(name): (type_name(value), text_of(value)) for name, value in application.items()},
        path_alias,
        session,
        None if span is None else span / 1000,
        instant(due),
        "; ".join(troubles) or None,
    )


def _expiry(absolute: int | None, enqueued: int, ttl: int | None) -> int | None:
    if absolute is not None or ttl is None or not enqueued:
        return absolute
    return enqueued + ttl


def _body(body: Body | None) -> tuple[bytes | None, str | None]:
    """The body as bytes, and its type: data and binary values unchanged, text as UTF-8, other values as JSON."""
    match body:
        case DataBody():
            return body.data, "data"
        case ValueBody(value=bytes(value)):
            return value, "value"
        case ValueBody(value=str(value)):
            return value.encode(), "value"
        case ValueBody(value=value):
            return _json(value), "value"
        case SequenceBody(sections=sections):
            return _json([each for section in sections for each in section]), "sequence"
    return None, None


def _json(value: object) -> bytes:
    def key(each: object) -> object:
        if isinstance(each, dict):
            return {str(name): key(inner) for name, inner in each.items()}
        return [key(inner) for inner in each] if isinstance(each, list | tuple) else each

    return json.dumps(key(value), default=text_of).encode()


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
