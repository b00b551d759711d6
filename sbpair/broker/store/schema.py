"""The database of a namespace: tables, migrations, row ids and row checksums.

    setting     the namespace's settings and keys
    entity      queues, topics, subscriptions
    part        the stores of an entity: itself or its partitions, and the dead-letter queues of each
    segment     the messages of a part, a run of consecutive ones in each row; locks are not stored
    settled     which messages of a segment have been removed
    amendment   messages that changed after their segment was written; overrides the segment
    accepted    message ids for duplicate detection
    session     the state of sessions
    progress    one row: the number of commits

A message's row id combines the number of its part with the low bits of its sequence number; a segment has the
row id of its first message. The tables therefore need no index, and the messages of a part are stored in
order. The last column of each row is a checksum of the others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from zlib import crc32

NUMBER_BITS = 40
NUMBER_MASK = (1 << NUMBER_BITS) - 1

Row = tuple[object, ...]


class ChecksumMismatchError(Exception):
    """The values of a row do not match its checksum."""


def with_checksum(*values: object) -> Row:
    """Return ``values`` as a row with its checksum appended.

    Pass integers, not booleans: SQLite returns integers, and the checksum of a boolean would not match.
    """
    return (*values, crc32(repr(values).encode()))  # repr escapes lone surrogates, which UTF-8 cannot encode


def verify(row: Row) -> Row:
    """Return the values of ``row`` without its checksum. Raises ChecksumMismatchError when they differ from it."""
    values = row[:-1]
    if crc32(repr(values).encode()) != row[-1]:
        raise ChecksumMismatchError
    return values


def row_id(part: int, number: int) -> int:
    """Return the row id of the message with sequence number ``number`` in ``part``."""
    return part << NUMBER_BITS | number & NUMBER_MASK


APPLICATION_ID = 0x53424252  # "SBBR"
IDENTITY = "identity"
"""Name of the setting that holds the unique identity of a database."""

Migration = tuple[str, ...]

MIGRATIONS: tuple[Migration, ...] = (
    (
        """
        CREATE TABLE setting (
            name        TEXT PRIMARY KEY,
            value       TEXT NOT NULL,
            checksum    INTEGER NOT NULL
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE entity (
            id          INTEGER PRIMARY KEY,
            kind        TEXT NOT NULL,       -- queue, topic, subscription
            topic       TEXT,                -- of a subscription
            name        TEXT NOT NULL,
            description TEXT NOT NULL,       -- JSON: the fields as requested
            rules       BLOB,                -- of a subscription: an AMQP list of maps
            created_at  INTEGER NOT NULL,    -- all instants are milliseconds since the epoch
            updated_at  INTEGER NOT NULL,
            checksum    INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE part (
            id          INTEGER PRIMARY KEY,
            entity      INTEGER NOT NULL,
            place       INTEGER NOT NULL,    -- position among the parts of its entity
            last_number INTEGER NOT NULL,    -- the last sequence number assigned
            accessed_at INTEGER,
            checksum    INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE accepted (
            part        INTEGER NOT NULL,
            at          INTEGER NOT NULL,
            number      INTEGER NOT NULL,
            message_id  BLOB NOT NULL,       -- an AMQP value
            checksum    INTEGER NOT NULL,
            PRIMARY KEY (part, at, number)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE session (
            part        INTEGER NOT NULL,
            session_id  TEXT NOT NULL,
            state       BLOB NOT NULL,
            set_at      INTEGER NOT NULL,
            checksum    INTEGER NOT NULL,
            PRIMARY KEY (part, session_id)
        )
        """,
        """
        CREATE TABLE segment (
            id          INTEGER PRIMARY KEY, -- part << 40 | low 40 bits of the first sequence number
            messages    BLOB NOT NULL,       -- columns.py
            checksum    INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE settled (
            id          INTEGER PRIMARY KEY, -- of the segment
            gone        BLOB NOT NULL,       -- bit n (least significant first): first number + n
            checksum    INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE amendment (
            id          INTEGER PRIMARY KEY, -- part << 40 | low 40 bits of the sequence number
            state       INTEGER NOT NULL,    -- 0 active (locked too), 1 deferred, 2 scheduled
            delivery_count INTEGER NOT NULL,
            amended     BLOB,                -- an AMQP map: amended application properties
            checksum    INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE progress (
            id          INTEGER PRIMARY KEY, -- 1
            commits     INTEGER NOT NULL,    -- integrity.py
            checksum    INTEGER NOT NULL
        )
        """,
    ),
)
"""Migration n turns layout n into layout n + 1."""


def prepare(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Migrate the database to the latest layout, each migration in its own transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number in range(version, len(migrations)):
        _migrate(connection, migrations[number], number + 1)


def _migrate(connection: sqlite3.Connection, migration: Migration, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in migration:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
