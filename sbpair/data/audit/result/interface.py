"""The tables of an audit as an interface: the meaning of each column, and the version that guarantees it.

Within a version, columns are only added. Each Parquet file contains schema, comments and version: as Arrow's schema
with a ``comment`` for each field, and as Spark's, which shows comments in DESCRIBE; ``sbpair.tables`` is the version.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ..judge.verdict import Verdict

VERSION = 1
"""Of the tables; another one means that a column was renamed, retyped or removed."""
VERSION_KEY = "sbpair.tables"
TEXT, WHOLE, SECONDS, YES, DAY = pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.date32()
TIME = pa.timestamp("us", tz="UTC")
TEXTS = pa.list_(TEXT)
PLACE = pa.struct([("writer", TEXT), ("ordinal", WHOLE), ("position", WHOLE)])
COLUMN_OF = {verdict: verdict.value.replace(" ", "_").replace("-", "_") for verdict in Verdict}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name and type, the meaning and unit of a value, and when it is null ("": never)."""

    name: str
    kind: pa.DataType
    meaning: str
    null: str = ""

    @property
    def comment(self) -> str:
        return self.meaning + (f"; null {self.null}" if self.null else "")


def _counts(*given: tuple[str, str]) -> tuple[Column, ...]:
    return tuple(Column(name, WHOLE, meaning) for name, meaning in given)


def _times(*given: tuple[str, str]) -> tuple[Column, ...]:
    return tuple(Column(name, TIME, meaning, "if no record says so") for name, meaning in given)


PRIMARY = Column(
    "primary", TEXT, "short name of the primary namespace, in lower case", "if no record names it"
)
PATH = Column("path", TEXT, "the entity, as one of the journals spells it", "if no record names it")
PATH_KEY = Column(
    "path_key", TEXT, "the entity in lower case: with `primary` and `message_id` the key of a message"
)
ID = Column("message_id", TEXT, "message id")
SESSION = Column("session_id", TEXT, "session id", "for a message without a session")
SENT = "when a sender first recorded that it was accepted, parked or spooled (UTC)"
SENT_AT = Column("sent_at", TIME, SENT, "if none did")

MESSAGES = (
    Column("secondary", TEXT, "short name of the secondary on which it was parked", "if on none, or several"),
    PRIMARY,
    PATH_KEY,
    ID,
    *_counts(
        ("accepted_by_primary", "times that the primary accepted it, by a sender's journal"),
        ("left_spool", "times that it was sent from a spool"),
        ("refused_in_spool", "times that the primary refused it for its content when it came from a spool"),
        ("raised", "sends of it that raised to their caller"),
        ("forwarded", "times that the primary accepted it from a syphon"),
        ("set_aside", "times that a backlog queue dead-lettered it for another reason than expiry"),
        ("expired", "times that its time to live ended in a backlog queue"),
        ("received", "records of receivers that name it"),
        ("stored", "times that a broker stored it in its entity, or dropped it there as a duplicate"),
        ("handed_on", "times that it came to its entity by forwarding from another"),
        ("completed", "copies that a broker removed because a receiver completed them"),
        ("buried", "copies that a broker dead-lettered for another reason than expiry"),
        ("expired_there", "copies that expired in their entity, by a broker's journal"),
        ("deleted", "copies that were deleted by hand or with their entity, by a broker's journal"),
        ("backlogged", "times that a backlog queue stored it, or dropped it as a duplicate, by a broker's journal"),
    ),
    Column("backlog", WHOLE, "number of its backlog queue, the greatest of several", "if it was never parked"),
    Column("sent_in", PLACE, "its place in its sender's journal: writer, ordinal of the record, index in the record",
           "if several senders sent it, or none"),
    *_times(
        ("sent_at", SENT),
        ("parked_at", "when it was first parked (UTC, its sender's clock)"),
        ("last_parked_at", "when it was last parked (UTC, its sender's clock)"),
        ("set_aside_at", "when a backlog queue last dead-lettered it, expiry included (UTC)"),
        ("home_at", "when the primary last accepted it, from a sender or a syphon (UTC)"),
        ("forwarded_at", "when a syphon last forwarded it (UTC, corrected by what the syphon measured)"),
        ("received_at", "when a receiver first recorded it (UTC)"),
    ),
    *_counts(
        ("shortfall", "times that the primary accepted it and its broker neither stored nor dropped it"),
        ("undelivered", "copies in a broker's store, one for each time that it was accepted, that reached nobody"),
        ("dropped", "copies that a broker dropped as duplicates"),
        ("cancelled", "scheduled copies that were cancelled"),
        ("copies", "greatest number of its copies that arrived at one place"),
        ("parked", "times that a backlog queue accepted it, by a sender's journal"),
        ("spooled", "times that it was spooled"),
        ("held", "copies that brokers stored in its entity and did not remove"),
        ("held_in_backlog", "copies that a broker stored in a backlog queue and did not remove"),
    ),
    Column("sequence_number", WHOLE, "least number that a broker gave it", "if no record has one"),
    *_counts(
        ("ambiguities", "records that say that a copy may be stored beside the one that is known"),
        ("landed", "times that its entity on the secondary accepted it from a syphon"),
    ),
    SESSION,
    PATH,
    Column("verdict", TEXT, f"one of {', '.join(verdict.value for verdict in Verdict)}"),
    Column("reason", TEXT, "what is open, and which journals could decide", "unless it is unproven"),
    Column("place", TEXT, "where it waits", "unless it waits"),
)  # fmt: skip

DUPLICATES = (
    PRIMARY,
    PATH,
    ID,
    *_counts(
        ("copies", "greatest number of its copies that arrived at one place: 2 or more"),
        ("ambiguities", "records that say that a copy may be stored beside the one that is known"),
        ("parked", "times that a backlog queue accepted it"),
        ("forwarded", "times that the primary accepted it from a syphon"),
        ("again", "copies that a second forward explains"),
        ("explained", "copies beyond the first that have an explanation"),
    ),
    Column("is_explained", YES, "whether all of them have one"),
    Column("killed", TEXTS, "writers of the killed syphons whose end explains a copy; empty for none"),
)
MISSING = (PRIMARY, PATH, ID, SESSION, SENT_AT)
ORDER = (
    PRIMARY,
    PATH_KEY,
    Column("session_id", TEXT, "session id"),
    Column("sender", TEXT, "writer of the sender's journal"),
    *_counts(
        ("messages", "messages that this sender sent to the session"),
        ("inversions", "messages that arrived before one that was sent earlier"),
        ("gaps", "messages whose arrival no journal shows, sent before one that arrived"),
        ("parked", "messages that were parked"),
    ),
    Column("is_kept", YES, "whether there is no inversion"),
    Column("is_promised", YES, "whether the sender keeps this order"),
    Column("overtaken", TEXT, "message id of the first that was overtaken", "without an inversion"),
    Column("overtaking", TEXT, "message id of the one that arrived before it", "without an inversion"),
    Column("verdict", TEXT, "`in order`, `in order, with gaps`, `out of order` or `unproven`"),
)
WAITS = (
    PRIMARY,
    Column("backlog", WHOLE, "number of the backlog queue", "if no record names it"),
    Column("messages", WHOLE, "messages that were forwarded from it"),
    *(
        Column(name, SECONDS, f"{what} wait of a message in it, in seconds")
        for name, what in (("p50", "median"), ("p95", "95th percentile of the"), ("p99", "99th percentile of the"),
                           ("longest", "longest"))
    ),
)  # fmt: skip
WRITERS = (
    Column("writer", TEXT, "uuid of the writer of a journal"),
    Column("role", TEXT, "`sender`, `syphon`, `receiver` or `broker`", "if no line that can be read says it"),
    Column(
        "primary",
        TEXT,
        "short name of the primary; for a broker, its own",
        "if no line that can be read says it",
    ),
    Column("first_at", TIME, "its first record (UTC)", "without a time"),
    Column("last_at", TIME, "its last record (UTC)", "without a time"),
    *_counts(
        ("records", "records that were read"),
        ("missing", "records that are missing, by their ordinals"),
        ("surplus", "records that occur more than once"),
        ("lost", "events that it could not write"),
        ("unreadable", "lines that cannot be read"),
        ("sends", "records of healthy sends"),
    ),
    Column("has_end", YES, "whether it has its last closing record"),
    Column("reason", TEXT, "why the journal is not complete", "if it is"),
    Column("is_whole", YES, "whether the journal is complete: what it does not mention did not happen"),
)
DAYS = (
    Column("day", DAY, "the day (UTC) on which a journal first mentions its messages"),
    Column("messages", WHOLE, "messages first mentioned on this day"),
    *(Column(COLUMN_OF[verdict], WHOLE, f"messages with the verdict {verdict.value}") for verdict in Verdict),
    *_counts(
        ("duplicated", "messages that arrived more than once"),
        ("unexplained", "messages with more copies than can be explained"),
        ("forwarded", "messages that were forwarded from a backlog queue"),
    ),
    *(
        Column(f"wait_{name}", SECONDS, f"{what} wait in a backlog queue, in seconds", "if nothing was forwarded")
        for name, what in (("p50", "median"), ("p95", "95th percentile of the"), ("p99", "99th percentile of the"),
                           ("longest", "longest"))
    ),
    Column("failovers", WHOLE, "failovers of entities that began on this day"),
    Column("time_to_failover", SECONDS, "longest time from a first failure to a failover, in seconds", "without one"),
    Column("longest_pause", SECONDS, "longest that an entity stayed failed over, in seconds", "without one that ended"),
)  # fmt: skip

COLUMNS: dict[str, tuple[Column, ...]] = {
    "messages": MESSAGES,
    "missing": MISSING,
    "duplicates": DUPLICATES,
    "order": ORDER,
    "waits": WAITS,
    "writers": WRITERS,
    "days": DAYS,
}
"""The columns of each table. A daily audit has ``days`` too, and a column ``day`` from the folders of most others."""


@cache
def schema_of(table: str) -> pa.Schema:
    """The schema of a table, with comments and version."""
    columns = COLUMNS[table]
    fields = [pa.field(each.name, each.kind, metadata={"comment": each.comment}) for each in columns]
    version = {VERSION_KEY: str(VERSION)}
    plain = pa.schema(fields, metadata=version)
    told = version | {
        "ARROW:schema": base64.b64encode(plain.serialize()),
        "org.apache.spark.sql.parquet.row.metadata": json.dumps(
            {"type": "struct", "fields": [_for_spark(each.name, each.kind, each.comment) for each in columns]}
        ),
    }
    return plain.with_metadata(told)


def write_parquet(
    table: str,
    rows: pa.Table,
    file: str,
    filesystem: fs.FileSystem | None = None,
    use_dictionary: list[str] | bool = True,
) -> None:
    """Write ``rows`` of a table as a file that documents its columns. Raises OSError."""
    plain = rows.schema.remove_metadata()
    with pq.ParquetWriter(
        file, plain, filesystem=filesystem, store_schema=False, use_dictionary=use_dictionary
    ) as writer:
        writer.write_table(rows.replace_schema_metadata(None))
        writer.add_key_value_metadata(schema_of(table).metadata)


_SPARK = {TEXT: "string", WHOLE: "long", SECONDS: "double", YES: "boolean", DAY: "date", TIME: "timestamp"}


def _for_spark(name: str, kind: pa.DataType, comment: str = "") -> dict[str, object]:
    told = {"comment": comment} if comment else {}
    return {"name": name, "type": _type_for_spark(kind), "nullable": True, "metadata": told}


def _type_for_spark(kind: pa.DataType) -> object:
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _type_for_spark(kind.value_type), "containsNull": True}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_for_spark(each.name, each.type) for each in kind]}
    return _SPARK[kind]
