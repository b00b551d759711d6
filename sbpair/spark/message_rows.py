"""Conversion of peeked messages to Arrow: content, position, and the original properties of parked messages.

Only the sections that the selected columns need are decoded. Performs no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sbpair.amqp.decoding import decode
from sbpair.amqp.errors import DecodeError
from sbpair.amqp.message import (
    Body,
    DataBody,
    Header,
    Properties,
    Sections,
    SequenceBody,
    ValueBody,
    decode_body,
    decode_header,
    decode_map_section,
    decode_properties,
)
from sbpair.envelope import aliases
from sbpair.envelope.scan import part_entries
from sbpair.envelope.values import AliasError, read_duration, read_instant, read_key, read_text

from .glimpse import Glimpse
from .typed_values import instant, text_of, type_name

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
PARTITION_KEY = frozenset((aliases.ANNOTATION_PARTITION_KEY.encode(),))
DATA = b"\x00\x53\x75\xb0"
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

    def __init__(self, namespace: str, path: str, message: Glimpse) -> None:
        self.namespace = namespace
        self.path = path
        self.message = message
        self.troubles: list[str] = [] if message.trouble is None else [message.trouble]

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
    def partition_key(self) -> str | None:
        found = part_entries(self.message.sections.message_annotations, PARTITION_KEY).found
        return text_of(next(decode(each)[0] for each in found.values())) if found else None

    @_Once
    def body(self) -> tuple[bytes | None, str | None]:
        """The body as bytes, and its type."""
        encoded = self.message.sections.body
        if encoded[:4] == DATA and len(encoded) == 8 + int.from_bytes(encoded[4:8], "big"):
            return encoded[8:], "data"  # the usual body: one section, with its length in four bytes
        return _body(decode_body(encoded))

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
    def aliases(self) -> tuple[str | None, str | None, int | None, int | None]:
        """The original properties of a parked message: path, session, time to live and due time in milliseconds."""
        return (
            self._alias(aliases.PATH, read_text),
            self._alias(aliases.SESSION_ID, read_key),
            self._alias(aliases.TIME_TO_LIVE, read_duration),
            self._alias(aliases.SCHEDULED, read_instant),
        )

    @property
    def trouble(self) -> str | None:
        _ = self.aliases
        return "; ".join(self.troubles) or None

    def _alias(self, name: str, read: Callable[[str, object], T]) -> T | None:
        application = self.application
        try:
            return read(name, application[name]) if name in application else None
        except (AliasError, ValueError) as error:
            self.troubles.append(str(error))
            return None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _state(row: Row) -> str:
    state = row.message.state
    return STATES[state] if state < len(STATES) else str(state)


def _typed(row: Row) -> dict[str, dict[str, str | None]]:
    return {
        str(name): {"type": type_name(value), "value": text_of(value)}
        for name, value in row.application.items()
    }


COLUMNS: tuple[tuple[str, str, Callable[[Row], object]], ...] = (
    ("namespace", "string", lambda row: row.namespace),
    ("queue", "string", lambda row: row.path),
    ("sequence_number", "bigint", lambda row: row.message.number or 0),
    ("message_id", "string", lambda row: text_of(row.properties.message_id)),
    ("session_id", "string", lambda row: row.properties.group_id),
    ("enqueued_time", "timestamp", lambda row: instant(row.message.enqueued_at or None)),
    ("expires_at", "timestamp", lambda row: instant(row.expires_at)),
    ("time_to_live", "double", lambda row: _seconds(row.header.ttl)),
    ("delivery_count", "bigint", lambda row: row.header.delivery_count or 0),
    ("content_type", "string", lambda row: row.properties.content_type),
    ("subject", "string", lambda row: row.properties.subject),
    ("correlation_id", "string", lambda row: text_of(row.properties.correlation_id)),
    ("to", "string", lambda row: row.properties.to),
    ("reply_to", "string", lambda row: row.properties.reply_to),
    ("partition_key", "string", lambda row: row.partition_key),
    ("state", "string", _state),
    ("dead_letter_reason", "string", lambda row: text_of(row.application.get("DeadLetterReason"))),
    (
        "dead_letter_error_description",
        "string",
        lambda row: text_of(row.application.get("DeadLetterErrorDescription")),
    ),
    ("body", "binary", lambda row: row.body[0]),
    ("body_type", "string", lambda row: row.body[1]),
    (
        "application_properties",
        "map<string,string>",
        lambda row: {str(name): text_of(value) for name, value in row.application.items()},
    ),
    ("typed_properties", "map<string,struct<type:string,value:string>>", _typed),
    ("transfer_path", "string", lambda row: row.aliases[0]),
    ("transfer_session_id", "string", lambda row: row.aliases[1]),
    ("transfer_time_to_live", "double", lambda row: _seconds(row.aliases[2])),
    ("transfer_scheduled_enqueue_time", "timestamp", lambda row: instant(row.aliases[3])),
    ("trouble", "string", lambda row: row.trouble),
)
"""Each column: its name, its Spark type, and its value in a row."""

OF_BODY = ("body", "body_type")
TYPES = {name: kind for name, kind, _ in COLUMNS}
MESSAGE_COLUMNS = ", ".join(f"`{name}` {kind}" for name, kind, _ in COLUMNS)
_VALUES = {name: value for name, _, value in COLUMNS}


def batch_of(
    namespace: str, path: str, messages: Sequence[Glimpse], schema: pa.Schema, *, with_body: bool = True
) -> pa.RecordBatch:
    """The columns of ``schema`` of messages; bodies are null unless ``with_body``.

    Of a message that cannot be decoded only its position is given, and the reason as ``trouble``.
    """
    import pyarrow as pa

    wanted = [_nothing if name in OF_BODY and not with_body else _VALUES[name] for name in schema.names]
    rows: list[list[object]] = []
    for message in messages:
        row = Row(namespace, path, message)
        try:
            rows.append([value(row) for value in wanted])
        except (DecodeError, IndexError) as error:
            trouble = f"not well-formed AMQP: {error}"
            empty = Glimpse(message.number, message.enqueued_at, message.state, Sections(), trouble)
            rows.append([value(Row(namespace, path, empty)) for value in wanted])
    columns = zip(*rows, strict=True) if rows else ([] for _ in wanted)
    arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _nothing(row: Row) -> None:
    return None


def _array(values: Sequence[Mapping[str, object]] | Sequence[object], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if not pa.types.is_map(kind):
        return pa.array(values, kind)
    offsets: list[int] = [0]
    keys: list[object] = []
    items: list[object] = []
    for each in values:
        assert isinstance(each, Mapping)  # noqa: S101 - as the columns of a map type are
        keys += each.keys()
        items += each.values()
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(keys, kind.key_type),
        pa.array(items, kind.item_type),
        type=kind,
    )


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
