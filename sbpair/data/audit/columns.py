"""The columns of a journal read as a table: the fields of all events, side by side.

A row has the columns of its own event; the others are null. ``journal_file`` and ``journal_offset`` locate it. Types
have the names of Spark's SQL; :func:`arrow_schema` gives them as Arrow types.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

# Field and type; see SPARK_TYPES for the names that the journal uses.
HEADER: tuple[tuple[str, str], ...] = (
    ("v", "int"),
    ("writer", "string"),
    ("role", "string"),
    ("ordinal", "bigint"),
    ("at", "timestamp"),
    ("mono", "double"),
    ("pair", "struct<primary: string, secondary: string>"),
    ("event", "string"),
    ("path", "string"),
)
EVENT_FIELDS: tuple[tuple[str, str], ...] = (
    ("age", "double"),
    ("ahead", "double"),
    ("ambiguous", "boolean"),
    ("backlog", "bigint"),
    ("backlog_queue", "string"),
    ("cause", "string"),
    ("checksum", "bigint"),
    ("checksums", "array<bigint>"),
    ("completed", "bigint"),
    ("count", "bigint"),
    ("created", "array<string>"),
    ("dead_lettered", "bigint"),
    ("description", "string"),
    ("enqueued", "array<bigint>"),
    ("error", "string"),
    ("file", "bigint"),
    ("forwarded", "bigint"),
    ("handled", "boolean"),
    ("holds_messages", "boolean"),
    ("how", "string"),
    ("is_last", "boolean"),
    ("landed", "bigint"),
    ("left", "bigint"),
    ("limit", "bigint"),
    ("lock_lost", "bigint"),
    ("lost", "bigint"),
    ("message_id", "string"),
    ("message_ids", "array<string>"),
    ("number", "bigint"),
    ("out_of_reach", "double"),
    ("pending", "bigint"),
    ("reason", "string"),
    ("received", "bigint"),
    ("receives", "bigint"),
    ("records", "bigint"),
    ("released", "bigint"),
    ("seconds", "double"),
    ("session", "string"),
    ("session_id", "string"),
    ("sessions", "bigint"),
    ("stored_in", "string"),
    ("retry_in", "double"),
    ("sequence_numbers", "array<bigint>"),
    ("session_ids", "array<string>"),
    ("side", "string"),
    ("size", "bigint"),
    ("threshold", "double"),
    ("until", "double"),
    ("key", "string"),
    ("verb", "string"),
)
POSITION: tuple[tuple[str, str], ...] = (("journal_file", "string"), ("journal_offset", "bigint"))
LINE_CHECKSUM = "line_checksum"
"""The column with the CRC-32 of each line, which only an audit reads."""

UNREADABLE = "unreadable_line"
"""The event of a row for an invalid line, which has only its position and the writer."""

UNREAD = "unread_file"
"""The event of a row for a file that may be a journal but is not read: ``journal_file`` and ``reason``."""

TYPES = dict((*HEADER, *EVENT_FIELDS, *POSITION))


def columns(names: Iterable[str]) -> str:
    """The schema of these columns, as DDL."""
    return ", ".join(f"`{name}` {TYPES[name]}" for name in names)


_TEXT = pa.string()
_ARROW: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": _TEXT,
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(_TEXT),
    "array<bigint>": pa.list_(pa.int64()),
    "struct<primary: string, secondary: string>": pa.struct([("primary", _TEXT), ("secondary", _TEXT)]),
}


def arrow_schema(names: Iterable[str]) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(name, _ARROW[TYPES[name]]) for name in names])


JOURNAL_COLUMNS = columns(TYPES)
SPARK_TYPES = {
    "int": "bigint",
    "float": "double",
    "str": "string",
    "bool": "boolean",
    "list[str]": "array<string>",
    "list[int]": "array<bigint>",
}
"""The Spark type for each type name in the journal reference."""
