"""How is a namespace laid out on disk, and how does a file of an older layout become one of this?

    setting     what the namespace was made with, and its keys
    entity      queues, topics, subscriptions
    part        the stores of an entity: itself, or its partitions, and the dead-letter queues of each
    message     what each part keeps; a lock is not written, it ends with the process
    accepted    the ids that duplicates are known by
    session     the state noted on sessions

A message's row id is its part's and the low bits of its sequence number: no index beside the table, and a
part's messages lie in their order. Each row ends in a checksum of itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ..errors import StoreDamaged, StoreError

APPLICATION_ID = 0x53424252  # "SBBR"

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE setting (
        name        TEXT PRIMARY KEY,
        value       TEXT NOT NULL,
        checksum    INTEGER NOT NULL
    ) WITHOUT ROWID;
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
    );
    CREATE TABLE part (
        id          INTEGER PRIMARY KEY,
        entity      INTEGER NOT NULL,
        place       INTEGER NOT NULL,    -- among the parts of its entity
        last_number INTEGER NOT NULL,    -- the sequence number given out last
        accessed_at INTEGER,
        checksum    INTEGER NOT NULL
    );
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
    );
    CREATE TABLE accepted (
        part        INTEGER NOT NULL,
        at          INTEGER NOT NULL,
        number      INTEGER NOT NULL,
        message_id  BLOB NOT NULL,       -- an AMQP value
        checksum    INTEGER NOT NULL,
        PRIMARY KEY (part, at, number)
    ) WITHOUT ROWID;
    CREATE TABLE session (
        part        INTEGER NOT NULL,
        session_id  TEXT NOT NULL,
        state       BLOB NOT NULL,
        set_at      INTEGER NOT NULL,
        checksum    INTEGER NOT NULL,
        PRIMARY KEY (part, session_id)
    );
    """,
)
"""Script n makes layout n + 1 of layout n."""


def prepare(connection: sqlite3.Connection, path: Path, migrations: Sequence[str] = MIGRATIONS) -> None:
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
    for number in range(version, len(migrations)):
        connection.executescript(  # one transaction: a step is done whole or not at all
            f"BEGIN IMMEDIATE; {migrations[number]}; PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {number + 1}; COMMIT;"
        )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    problems = [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]
    if problems:
        raise StoreDamaged(path, " ".join(problems[0].split()))
