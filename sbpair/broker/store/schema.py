"""The database of a namespace: tables, migrations, row ids and row checksums.

    setting     the namespace's settings and keys
    entity      queues, topics, subscriptions
    part        the stores of an entity: itself or its partitions, and the dead-letter queues of each
    segment     the messages of a part, a run of them in each row; locks are not written
    settled     the messages of a segment that have been removed
    amendment   messages that changed since their segment was written; takes precedence over it
    accepted    message ids for duplicate detection
    session     the state of sessions
    progress    one row: the number of commits

The row id of a message consists of its part's number and the low bits of its sequence number; that of a
segment is the row id of its first message. So the tables need no index, and the messages of a part lie in
order. Each row ends in a checksum of the values before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from zlib import crc32

NUMBER_BITS = 40
NUMBER_MASK = (1 << NUMBER_BITS) - 1

Row = tuple[object, ...]


class ChecksumDiffers(Exception):
    """A row is not what was written."""


def sealed(*values: object) -> Row:
    """A row of these values, with its checksum. Integers and not flags: it is to read back the same.

    What UTF-8 cannot write, repr escapes.
    """
    return (*values, crc32(repr(values).encode()))


def unsealed(row: Row) -> Row:
    """The values of a row. Raises ChecksumDiffers."""
    values = row[:-1]
    if crc32(repr(values).encode()) != row[-1]:
        raise ChecksumDiffers
    return values


def row_id(part: int, number: int) -> int:
    """The row id of a message of that sequence number."""
    return part << NUMBER_BITS | number & NUMBER_MASK


APPLICATION_ID = 0x53424252  # "SBBR"
IDENTITY = "identity"
"""The setting that tells one database from all others."""

Step = tuple[str, ...]

MIGRATIONS: tuple[Step, ...] = (
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
            description TEXT NOT NULL,       -- JSON: the fields as they were asked for
            rules       BLOB,                -- of a subscription: an AMQP list of maps
            created_at  INTEGER NOT NULL,    -- this and all instants: milliseconds since the epoch
            updated_at  INTEGER NOT NULL,
            checksum    INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE part (
            id          INTEGER PRIMARY KEY,
            entity      INTEGER NOT NULL,
            place       INTEGER NOT NULL,    -- among the parts of its entity
            last_number INTEGER NOT NULL,    -- the sequence number given out last
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
            gone        BLOB NOT NULL,       -- bit n, lowest of the first byte first: first number + n
            checksum    INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE amendment (
            id          INTEGER PRIMARY KEY, -- part << 40 | low 40 bits of the sequence number
            state       INTEGER NOT NULL,    -- 0 active (locked too), 1 deferred, 2 scheduled
            delivery_count INTEGER NOT NULL,
            amended     BLOB,                -- an AMQP map: application properties set since
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
"""Step n makes layout n + 1 of layout n."""


def prepare(connection: sqlite3.Connection, migrations: Sequence[Step] = MIGRATIONS) -> None:
    """Bring the file to the newest layout, one transaction a step."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number in range(version, len(migrations)):
        _migrate(connection, migrations[number], number + 1)


def _migrate(connection: sqlite3.Connection, step: Step, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in step:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
