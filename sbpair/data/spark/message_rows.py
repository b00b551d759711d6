"""The values of one peeked message: content, position, and the original properties of parked messages.

This is the general decoder, for any AMQP; :mod:`.message_columns` reads the usual messages faster, with the same
values. Performs no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.message import (
    Body,
    DataBody,
    Header,
    Properties,
    SequenceBody,
    ValueBody,
    decode_body,
    decode_header,
    decode_properties,
)
from sbpair.pair.amqp.sections import decode_map_section, plain_data
from sbpair.pair.envelope import aliases
from sbpair.pair.envelope.scan import part_entries
from sbpair.pair.envelope.values import AliasError, read_duration, read_instant, read_key, read_text

from .glimpse import Glimpse
from .section_values import Entries
from .typed_values import is_beyond, storable, text_of, type_name

T = TypeVar("T")
PARTITION_KEY = aliases.ANNOTATION_PARTITION_KEY.encode()
_PARTITION_KEYS = frozenset((PARTITION_KEY,))
SPANS_KEPT = 1024  # times to live that were parsed
STATES = ("active", "deferred", "scheduled")


class _Once(Generic[T]):
    """A property that is computed at first use, like functools.cached_property but without a lock."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__

    def __get__(self, row: object, of: type) -> T:
        value = row.__dict__[self._name] = self._compute(row)
        return value


class Row:
    """The values of one message, decoded at first use. Every property raises DecodeError or IndexError."""

    def __init__(self, message: Glimpse) -> None:
        self.message = message
        self.troubles: list[str] = [message.trouble] if message.trouble else []

    @_Once
    def header(self) -> Header:
        encoded = self.message.sections.header
        return decode_header(encoded) if encoded else Header()

    @_Once
    def properties(self) -> Properties:
        encoded = self.message.sections.properties
        return decode_properties(encoded) if encoded else Properties()

    @_Once
    def application(self) -> Mapping[object, object]:
        return decode_map_section(self.message.sections.application_properties)

    @property
    def entries(self) -> Entries:
        """The application properties."""
        application = {str(name): value for name, value in self.application.items()}
        values = application.values()
        return [*application], [*map(type_name, values)], [*map(text_of, values)]

    @_Once
    def body(self) -> tuple[bytes | None, str | None]:
        """The body as bytes, and its type."""
        return body_of(self.message.sections.body)

    @property
    def expires_at(self) -> int | None:
        """Milliseconds since the epoch."""
        absolute, enqueued, ttl = (
            self.properties.absolute_expiry_time,
            self.message.enqueued_at,
            self.header.ttl,
        )
        return absolute if absolute is not None or ttl is None or not enqueued else enqueued + ttl

    @_Once
    def aliases(self) -> Mapping[str, object]:
        """The original properties of a parked message, by column."""
        return {name: self._alias(key, read) for name, (key, read) in ALIASES.items()}

    @property
    def trouble(self) -> str | None:
        _ = self.aliases
        beyond = [
            f"{name} is {int(milliseconds or 0)} ms since 1970, which no table holds"
            for name, milliseconds in (
                ("enqueued_time", self.message.enqueued_at),
                ("expires_at", self.expires_at),
            )
            if is_beyond(milliseconds)
        ]
        return "; ".join([*self.troubles, *beyond]) or None

    def _alias(self, key: str, read: Callable[[str, object], object]) -> object:
        application = self.application
        try:
            return read(key, application[key]) if key in application else None
        except (AliasError, ValueError) as error:
            self.troubles.append(str(error))
            return None


def seconds(milliseconds: int | None) -> float | None:
    """Milliseconds in seconds."""
    return None if milliseconds is None else milliseconds / 1000


def state_of(message: Glimpse) -> str:
    """The state of a message as text, a number if it is unknown."""
    state = message.state
    return STATES[state] if 0 <= state < len(STATES) else str(state)


def partition_key_of(message: Glimpse) -> str | None:
    """The partition key of a message as text. Raises DecodeError, IndexError."""
    annotations = message.sections.message_annotations
    if PARTITION_KEY not in annotations:
        return None
    found = part_entries(annotations, _PARTITION_KEYS).found
    return text_of(next(decode(each)[0] for each in found.values())) if found else None


def body_of(encoded: bytes) -> tuple[bytes | None, str | None]:
    """The body as bytes, and its type. Raises DecodeError, IndexError."""
    content = plain_data(encoded)
    return (content, "data") if content is not None else _body(decode_body(encoded))


@lru_cache(SPANS_KEPT)
def _span_of_text(key: str, text: str) -> float | None:
    return seconds(read_duration(key, text))


def _span(key: str, value: object) -> float | None:
    if type(value) is str:  # messages of one sender usually have the same time to live
        return _span_of_text(key, value)
    return seconds(read_duration(key, value))


ALIASES: Mapping[str, tuple[str, Callable[[str, object], object]]] = {
    "transfer_path": (aliases.PATH, read_text),
    "transfer_session_id": (aliases.SESSION_ID, read_key),
    "transfer_time_to_live": (aliases.TIME_TO_LIVE, _span),
    "transfer_scheduled_enqueue_time": (aliases.SCHEDULED, read_instant),
}
"""The columns of original properties: the application property of each, and the function that reads its value."""

REASONS = {
    "dead_letter_reason": "DeadLetterReason",
    "dead_letter_error_description": "DeadLetterErrorDescription",
}
"""The columns that are an application property as text."""

VALUES: Mapping[str, Callable[[Row], object]] = {
    "sequence_number": lambda row: row.message.number or 0,
    "message_id": lambda row: text_of(row.properties.message_id),
    "session_id": lambda row: row.properties.group_id,
    "enqueued_time": lambda row: storable(row.message.enqueued_at or None),
    "expires_at": lambda row: storable(row.expires_at),
    "time_to_live": lambda row: seconds(row.header.ttl),
    "delivery_count": lambda row: row.header.delivery_count or 0,
    "content_type": lambda row: row.properties.content_type,
    "subject": lambda row: row.properties.subject,
    "correlation_id": lambda row: text_of(row.properties.correlation_id),
    "to": lambda row: row.properties.to,
    "reply_to": lambda row: row.properties.reply_to,
    "partition_key": lambda row: partition_key_of(row.message),
    "state": lambda row: state_of(row.message),
    "body": lambda row: row.body[0],
    "body_type": lambda row: row.body[1],
    "trouble": lambda row: row.trouble,
    **{
        name: lambda row, key=key: text_of(row.application.get(key))  # type: ignore[misc]
        for name, key in REASONS.items()
    },
    **{name: lambda row, name=name: row.aliases[name] for name in ALIASES},  # type: ignore[misc]
}
"""The value of each column of a message, times in milliseconds; the maps are of :attr:`Row.entries`."""

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("namespace", "string", "short name of the namespace"),
    ("queue", "string", "path of the entity, with its sub-queue if one is read"),
    ("sequence_number", "bigint", "number that the entity has given the message"),
    ("message_id", "string", "message id; one that is not text is converted to it"),
    ("session_id", "string", "session id; of a parked message, see `transfer_session_id`"),
    ("enqueued_time", "timestamp", "when the entity accepted the message"),
    ("expires_at", "timestamp", "when it expires; null if it does not"),
    ("time_to_live", "double", "time to live in seconds"),
    ("delivery_count", "bigint", "earlier deliveries"),
    ("content_type", "string", "content type"),
    ("subject", "string", "subject, also called label"),
    ("correlation_id", "string", "correlation id; one that is not text is converted to it"),
    ("to", "string", "the property `to`"),
    ("reply_to", "string", "the property `reply_to`"),
    ("partition_key", "string", "partition key"),
    (
        "state",
        "string",
        "`active`; others are not read; a message past `expires_at` is, until the broker removes it",
    ),
    ("dead_letter_reason", "string", "reason of a dead-lettered message"),
    ("dead_letter_error_description", "string", "description of a dead-lettered message"),
    ("body", "binary", "body; null with `includeBody=false`"),
    ("body_type", "string", "`data`, `value` or `sequence`: the section of AMQP that holds the body"),
    ("application_properties", "map<string,string>", "application properties, each value as text"),
    (
        "typed_properties",
        "map<string,struct<type:string,value:string>>",
        "application properties, each with its AMQP type and its value as text",
    ),
    ("transfer_path", "string", "destination of a parked message; null for other messages"),
    ("transfer_session_id", "string", "original session id of a parked message"),
    ("transfer_time_to_live", "double", "original time to live of a parked message, in seconds"),
    ("transfer_scheduled_enqueue_time", "timestamp", "original schedule of a parked message"),
    ("trouble", "string", "parts that cannot be decoded, with the reason; null if there are none"),
)
"""The columns of a message: name, Spark type, description."""

TYPES: Mapping[str, str] = {name: kind for name, kind, _ in COLUMNS}
MESSAGE_COLUMNS = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())
OF_BODY = ("body", "body_type")


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
