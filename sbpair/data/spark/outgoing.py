"""Conversion of rows to messages: the accepted columns, and the strategies for message ids."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import uuid4

from sbpair.pair.envelope.aliases import RESERVED

from .encoded_rows import encoded_row
from .typed_values import SPARK_TYPES, in_utc, sendable

if TYPE_CHECKING:
    import pyarrow as pa
    from azure.servicebus import ServiceBusMessage
    from pyspark.sql import Row

COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "message_id": ("string",),
    "session_id": ("string",),
    "partition_key": ("string",),
    "content_type": ("string",),
    "subject": ("string",),
    "correlation_id": ("string",),
    "to": ("string",),
    "reply_to": ("string",),
    "time_to_live": ("double", "float", "int", "bigint"),
    "scheduled_enqueue_time": ("timestamp",),
    "application_properties": (),
    "typed_properties": ("map<string,struct<type:string,value:string>>",),
    "entity_path": ("string",),
}
"""The accepted columns and their Spark types; ``time_to_live`` is in seconds. Only ``body`` is required.

``application_properties`` is a map from strings, or a struct, of simple types: see :func:`property_types`.
"""

COLUMN, UNIQUE, HASH = "column", "unique", "hash"
STRATEGIES = (COLUMN, UNIQUE, HASH)
MAX_ID_LENGTH = 128  # characters, the service's limit
IdOf = Callable[["OutgoingRow", int], str]
PropertyTypes = Mapping[str, str]
"""The AMQP type of each application property by name; of all, under EVERY, if they are a map."""

EVERY = "*"


@dataclass(frozen=True, slots=True)
class OutgoingRow:
    """One row: its body, and its other columns that are not null."""

    body: bytes
    values: Mapping[str, object]

    @property
    def session(self) -> str | None:
        session = self.values.get("session_id")
        return None if session is None else str(session)


def known_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as in COLUMNS, ignoring case as Spark does.

    Names that differ only in case are possible only with ``spark.sql.caseSensitive``; they are returned unchanged.
    """
    by_key = {name.lower(): name for name in COLUMNS}
    keys = [name.lower() for name in names]
    return tuple(
        by_key.get(key, name) if keys.count(key) == 1 else name for name, key in zip(names, keys, strict=True)
    )


def id_strategy(
    columns: Mapping[str, str],
    strategy: str | None,
    entity_path: str | None,
    id_columns: Sequence[str] = (),
) -> str:
    """Validate ``columns`` (name: Spark type) and return the message id strategy to use.

    ``strategy`` is the configured one, None for the default; ``id_columns`` are the columns to hash.
    Names are as in COLUMNS: see :func:`known_names`. Raises ValueError naming the column when rows with these columns
    cannot be sent.
    """
    for name, kind in columns.items():
        kinds = COLUMNS.get(name)
        if kinds is None:
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(COLUMNS)}"
            raise ValueError(f"sbpair: unknown column {name!r}; {hint}")
        if kinds and kind not in kinds:
            raise ValueError(f"sbpair: the column {name} must be {' or '.join(kinds)}, not {kind}")
    if "application_properties" in columns and "typed_properties" in columns:
        raise ValueError("sbpair: give application_properties or typed_properties, not both")
    if "body" not in columns:
        raise ValueError("sbpair: the column body is missing")
    if entity_path is None and "entity_path" not in columns:
        raise ValueError("sbpair: no destination; give the option entityPath, or a column entity_path")
    if strategy == COLUMN and "message_id" not in columns:
        raise ValueError("sbpair: messageIdStrategy=column needs a column message_id")
    for name in id_columns:
        if name not in columns:
            raise ValueError(
                f"sbpair: messageIdColumns names {name!r}; the rows have {', '.join(sorted(columns))}"
            )
    return strategy or (COLUMN if "message_id" in columns else UNIQUE)


def property_types(kind: str, fields: Mapping[str, str]) -> PropertyTypes:
    """The AMQP types for a column ``application_properties`` of the Spark type ``kind``.

    ``fields`` are the Spark types by field name, of a map's values under EVERY. Raises ValueError naming the type.
    """
    found = {name: SPARK_TYPES.get(each) for name, each in fields.items()}
    known = {name: each for name, each in found.items() if each is not None}
    if not found or len(known) < len(found):
        raise ValueError(
            f"sbpair: the column application_properties must be a map from strings, or a struct, of simple types "
            f"({', '.join(SPARK_TYPES)}), not {kind[:80]}"
        )
    return known


def outgoing(columns: Sequence[str], row: Sequence[object]) -> OutgoingRow:
    """The row as an OutgoingRow; a body that is null is empty."""
    values = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
    body = values.pop("body", b"")
    return OutgoingRow(body.encode() if isinstance(body, str) else bytes(body), values)  # type: ignore[call-overload]


def outgoing_rows(columns: Sequence[str], items: Iterable[Row | pa.RecordBatch]) -> Iterator[OutgoingRow]:
    """The rows that Spark passes to a task, one by one or in Arrow batches."""
    for item in items:
        if isinstance(item, tuple):
            yield outgoing(columns, item)
            continue
        for values in zip(*(column.to_pylist() for column in item.columns), strict=True):
            yield outgoing(columns, values)


def id_maker(strategy: str, prefix: str, id_columns: Sequence[str] = ()) -> IdOf:
    """A function from a row and its index in the task to a message id.

    ``prefix`` identifies the batch and the partition. COLUMN and HASH give a row the same id in every task and
    attempt. UNIQUE gives ids that are never repeated.
    """
    if strategy == UNIQUE:
        run = uuid4().hex
        return lambda row, place: f"{prefix}:{run}:{place}"
    if strategy == HASH:
        return lambda row, place: digest(row, id_columns)
    return _column


def _column(row: OutgoingRow, place: int) -> str:
    given = row.values.get("message_id")
    if not isinstance(given, str) or not 0 < len(given) <= MAX_ID_LENGTH:
        problem = "is null or empty" if not given else f"has more than {MAX_ID_LENGTH} characters"
        raise ValueError(f"sbpair: the message_id of a row {problem}; see messageIdStrategy")
    return given


def digest(row: OutgoingRow, columns: Sequence[str] = ()) -> str:
    """The SHA-256 of ``columns`` of a row, by default of all except ``message_id``."""
    values = {
        name: _digestible(value)
        for name, value in row.values.items()
        if (name in columns if columns else name != "message_id")
    }
    body = row.body if not columns or "body" in columns else b""
    text = json.dumps(values, sort_keys=True, default=str).encode()
    return hashlib.sha256(len(text).to_bytes(8, "big") + text + body).hexdigest()


def _digestible(value: object) -> object:
    """Return a value in one form, independent of how Spark passed it: times in UTC, maps and structs as mappings."""
    if isinstance(value, datetime):
        return in_utc(value).isoformat()
    if isinstance(value, Mapping | list | tuple):
        return {name: _digestible(each) for name, each in as_mapping(value).items()}
    return value


def as_mapping(value: object) -> dict[str, object]:
    """A map or struct as a dict: Arrow passes a map as a list of pairs, Spark a struct as a Row."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "asDict"):
        return dict(value.asDict())
    return dict(value)  # type: ignore[call-overload, no-any-return]


def properties_of(row: OutgoingRow, types: PropertyTypes) -> dict[str, object] | None:
    """The application properties of a row, with ``types``, for the SDK; None if it has none.

    A field of a struct that is null is absent. Raises ValueError for a value that is not of its type.
    """
    given = row.values.get("application_properties")
    if given is not None:
        values, every = as_mapping(given), types.get(EVERY)
        if every is not None:
            return {name: sendable(every, value) for name, value in values.items()}
        return {
            name: sendable(types.get(name, "string"), value)
            for name, value in values.items()
            if value is not None
        }
    typed = row.values.get("typed_properties")
    if typed is None:
        return None
    pairs = {name: as_mapping(each) for name, each in as_mapping(typed).items() if each is not None}
    return {
        name: sendable(str(each.get("type") or "string"), each.get("value")) for name, each in pairs.items()
    }


def to_message(
    row: OutgoingRow, message_id: str, types: PropertyTypes = MappingProxyType({})
) -> ServiceBusMessage:
    """The SDK message of a row, with its application properties of ``types``.

    Raises ValueError, and the SDK's exceptions for invalid values.
    """
    from azure.servicebus import ServiceBusMessage

    values = dict(row.values)
    span, due = values.get("time_to_live"), values.get("scheduled_enqueue_time")
    return ServiceBusMessage(
        row.body,
        message_id=message_id,
        session_id=row.session,
        partition_key=_text(values.get("partition_key")),
        content_type=_text(values.get("content_type")),
        subject=_text(values.get("subject")),
        correlation_id=_text(values.get("correlation_id")),
        to=_text(values.get("to")),
        reply_to=_text(values.get("reply_to")),
        time_to_live=timedelta(seconds=float(span)) if isinstance(span, int | float) else None,
        scheduled_enqueue_time_utc=in_utc(due) if isinstance(due, datetime) else None,
        application_properties=properties_of(row, types),  # type: ignore[arg-type]  # pairs of type and value
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


@dataclass(slots=True)
class RowMessage:
    """The message of one row."""

    row: OutgoingRow
    message_id: str
    types: PropertyTypes
    encoded: bytes | None
    """None if only the SDK can encode it."""

    _made: ServiceBusMessage | None = None

    def original(self) -> ServiceBusMessage:
        """The message for the SDK."""
        return self._made or to_message(self.row, self.message_id, self.types)


def outgoing_message(row: OutgoingRow, message_id: str, types: PropertyTypes) -> RowMessage:
    """The message of a row, with its application properties of ``types``.

    Raises ValueError, and the SDK's exceptions for invalid values.
    """
    properties = properties_of(row, types) or {}
    for name in RESERVED.intersection(properties):
        raise ValueError(f"sbpair: the application property {name!r} is reserved for parked messages")
    encoded = encoded_row(row.body, row.values, message_id, properties)
    made = None if encoded is not None else to_message(row, message_id, types)
    return RowMessage(row, message_id, types, encoded, made)
