"""How is a namespace laid out on disk, and how does a file of an older layout become one of this?

    setting     what the namespace was made with, and its keys
    entity      queues, topics, subscriptions
    part        the stores of an entity: itself, or its partitions, and the dead-letter queues of each
    segment     what each part keeps, a run of messages a row; a lock is not written, it ends with the process
    settled     which messages of a segment are not there any more
    amendment   messages that changed since, over what their segment tells
    accepted    the ids that duplicates are known by
    session     the state noted on sessions

A message's row id is its part's and the low bits of its sequence number; a segment's is that of its first: no
index beside the table, and a part's messages lie in their order. Each row ends in a checksum of itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from ...amqp.types import DecodeError
from ..errors import StoreDamaged, StoreError
from .layout_1 import to_segments
from .rows import ChecksumDiffers

APPLICATION_ID = 0x53424252  # "SBBR"

Step = tuple[str | Callable[[sqlite3.Connection], None], ...]

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
        CREATE TABLE message (
            id          INTEGER PRIMARY KEY, -- part << 40 | low 40 bits of the sequence number
            state       INTEGER NOT NULL,    -- 0 active (locked too), 1 deferred, 2 scheduled
            enqueued_number INTEGER NOT NULL,
            enqueued_at INTEGER NOT NULL,
            expires_at  INTEGER,
            scheduled_for INTEGER,
            time_to_live INTEGER,
            delivery_count INTEGER NOT NULL,
            session_id  TEXT,
            partition_key BLOB,              -- this and the next: UTF-8, and what a binary key has beside
            via_partition_key BLOB,
            durable     INTEGER,
            priority    INTEGER,
            is_ping     INTEGER NOT NULL,
            hops        INTEGER NOT NULL,
            overhead    INTEGER NOT NULL,
            dead_letter_source TEXT,
            message_id  BLOB,                -- an AMQP value
            amended     BLOB,                -- an AMQP map: application properties set since
            annotations BLOB NOT NULL,
            bare        BLOB NOT NULL,
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
    ),
    (
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
        to_segments,
        "DROP TABLE message",
    ),
)
"""Step n makes layout n + 1 of layout n."""


def prepare(connection: sqlite3.Connection, path: Path, migrations: Sequence[Step] = MIGRATIONS) -> None:
    """Bring the file to the newest layout. Raises StoreError: another program's, newer, or damaged."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or tables):
        raise StoreError(f"The file {path} is a database of another program, not a broker's.")
    if version > len(migrations):
        raise StoreError(
            f"The file {path} has layout {version}; this sbpair knows {len(migrations)}: use a newer one."
        )
    if tables:
        _check(connection, path)
    try:
        for number in range(version, len(migrations)):
            _take(connection, migrations[number], number + 1)
    except (ChecksumDiffers, DecodeError) as error:
        raise StoreDamaged(path, str(error)) from error


def _take(connection: sqlite3.Connection, step: Step, version: int) -> None:
    """Done whole or not at all: one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for each in step:
            connection.execute(each) if isinstance(each, str) else each(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check(connection: sqlite3.Connection, path: Path) -> None:
    problems = [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]
    if problems:
        raise StoreDamaged(path, " ".join(problems[0].split()))
