"""Where do messages rest when neither namespace takes them?

    append --(one transaction, synced)--> waiting --accepted by a broker--> deleted
                                             '-----never acceptable-------> set aside, with the reason

On disk, in a file that one process owns. What is appended is there after a kill or a power cut as soon as
:meth:`Spool.append` has returned. Appends that arrive while another is being synced share the next sync.
Blocking and thread-safe; time and messages come in as arguments. Messages of one *sender* (an entity) are
in order.
"""

from __future__ import annotations

import ctypes
import sqlite3
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import SpoolError, SpoolFullError
from .names import path_key
from .spool_file import close_file, meaning, open_file

OVERHEAD = 64  # bytes a message is taken to use beside itself, in the bound


@dataclass(frozen=True, slots=True)
class Entry:
    """A message to be spooled, in the form of spool_codec.py."""

    message_id: str
    message: bytes

    @property
    def size(self) -> int:
        return len(self.message) + OVERHEAD


@dataclass(frozen=True, slots=True)
class Spooled:
    """A message in the spool. ``spooled_at``: milliseconds since the epoch."""

    number: int
    path: str
    message_id: str
    spooled_at: int
    message: bytes
    is_intact: bool


@dataclass(frozen=True, slots=True)
class SpoolCount:
    """What the spool holds for one entity. ``oldest``: milliseconds since the epoch."""

    path: str
    waiting: int
    refused: int
    bytes: int
    oldest: int


@dataclass(slots=True)
class _Ticket:
    """One append on its way to the disk."""

    path: str
    entries: Sequence[Entry]
    now: int
    is_done: bool = False
    error: SpoolError | None = None

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


@dataclass(slots=True)
class _Room:
    """How much is in the spool, what is being written included."""

    most_messages: int
    most_bytes: int
    messages: int = 0
    bytes: int = 0
    waiting: Counter[str] = field(default_factory=Counter)  # by sender; committed ones only


class Spool:
    """The spool of one client.

    Bounded by ``max_messages`` and ``max_bytes`` (of the messages; the file can be somewhat larger).
    Raises SpoolError when the file cannot be used, and names it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        primary: str | None,
        max_messages: int = 1_000_000,
        max_bytes: int = 256 * 2**20,
    ) -> None:
        self.path = Path(path)
        self._connection = open_file(self.path, primary)
        self._room = _Room(max_messages, max_bytes)
        self._counting = threading.Lock()  # around the room and the tickets; held for moments
        self._writing = threading.Lock()  # around the connection; held while the disk is synced
        self._tickets: list[_Ticket] = []
        self._passed: dict[str, int] = {}  # by sender: the last number that a broker has accepted
        self._undeleted: set[int] = set()  # accepted, and in the file still: it could not be written
        self._is_closed = self._is_broken = False
        self._next = self._load()

    # -- for those who send

    def waiting(self, path: str | None = None) -> int:
        """How many messages wait to be replayed, for this entity or for all."""
        if path is None:
            with self._counting:
                return self._room.waiting.total()
        return self._room.waiting[path_key(path)]

    def senders(self) -> list[str]:
        """The entities that messages are waiting for."""
        with self._counting:
            return [sender for sender, count in self._room.waiting.items() if count > 0]

    def append(self, path: str, entries: Sequence[Entry], now: int) -> None:
        """Write the messages of one send, all or none; they are on the disk when this returns.

        ``now`` in milliseconds since the epoch. Raises SpoolFullError, or SpoolError when writing
        failed; then none of them counts as accepted.
        """
        ticket = _Ticket(path, entries, now)
        self._reserve(ticket)
        with self._writing:  # the first in line writes for all who came meanwhile
            if not ticket.is_done:
                self._write(self._taken())
        if ticket.error is not None:
            raise type(ticket.error)(str(ticket.error)) from ticket.error  # others raise it too

    # -- for the replay

    def oldest(self, path: str, most: int) -> list[Spooled]:
        """The messages of this entity that have waited longest, in their order."""
        rows = self._read(
            "SELECT number, path, message_id, spooled_at, message, checksum FROM spooled "
            "WHERE sender = ? AND refused IS NULL AND number > ? ORDER BY number LIMIT ?",
            (path_key(path), self._passed.get(path_key(path), 0), most),
        )
        return [
            Spooled(number, path, message_id, at, message, zlib.crc32(message) == checksum)
            for number, path, message_id, at, message, checksum in rows
        ]

    def delete(self, path: str, messages: Sequence[Spooled]) -> None:
        """A broker has accepted these, the oldest of this entity: they are not handed out again.

        Raises SpoolError where the file cannot be written now. They wait for no replay then, and are
        deleted with the next that are, or at the end; who finds the file before that sends them again.
        """
        freed = sum(len(each.message) + OVERHEAD for each in messages)
        with self._counting:
            self._room.messages -= len(messages)
            self._room.bytes -= freed
            self._room.waiting[path_key(path)] -= len(messages)
            self._passed[path_key(path)] = messages[-1].number
            self._undeleted.update(each.number for each in messages)
        with self._writing:
            self._delete_accepted()

    def set_aside(self, path: str, message: Spooled, why: str) -> None:
        """No broker will ever accept this one: keep it, with the reason, out of the way of the others."""
        self._execute("UPDATE spooled SET refused = ? WHERE number = ?", [(why, message.number)])
        with self._counting:
            self._room.waiting[path_key(path)] -= 1

    # -- for operators

    def counts(self) -> list[SpoolCount]:
        """What is in it, by entity."""
        rows = self._read(
            "SELECT min(path), sum(refused IS NULL), sum(refused IS NOT NULL), sum(length(message)), "
            "min(spooled_at) FROM spooled GROUP BY sender ORDER BY sender"
        )
        return [SpoolCount(*row) for row in rows]

    def refusals(self) -> list[tuple[str, str, str]]:
        """(path, message id, reason) of every message that was set aside."""
        return self._read(
            "SELECT path, message_id, refused FROM spooled WHERE refused IS NOT NULL ORDER BY number"
        )

    def count(self, path: str | None = None, *, refused_only: bool = False) -> int:
        """How many messages :meth:`purge` would delete."""
        ((count,),) = self._read(f"SELECT count(*) {_chosen(refused_only)}", (_key(path),))
        return int(count)

    def purge(self, path: str | None = None, *, refused_only: bool = False) -> int:
        """Delete what is there for one entity, or everything; how many messages that were."""
        with self._writing:
            self._check_usable()
            try:
                gone = self._connection.execute(f"DELETE {_chosen(refused_only)}", (_key(path),)).rowcount
            except sqlite3.Error as error:
                raise meaning(self.path, error) from error
            self._load()
            return gone

    # -- the end

    def close(self) -> None:
        """Give the file back. What waits in it waits for the next owner."""
        with self._writing:
            if not self._is_closed:
                with suppress(SpoolError):
                    self._delete_accepted()
                self._is_closed = True
                close_file(self._connection, self.path)

    def disown(self) -> None:
        """In a forked child: the file is the parent's, and is not touched again from here."""
        self._is_closed = True
        # Not even when the interpreter ends: SQLite would believe it holds the parent's lock, and would
        # remove the write-ahead log under it. So one reference is never given back.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    # -- within

    def _reserve(self, ticket: _Ticket) -> None:
        with self._counting:
            room = self._room
            if room.messages + len(ticket.entries) > room.most_messages:
                raise SpoolFullError(f"the spool {self.path} is full: it holds {room.messages} messages")
            if room.bytes + ticket.size > room.most_bytes:
                raise SpoolFullError(
                    f"the spool {self.path} is full: it holds {room.bytes} of {room.most_bytes} bytes"
                )
            room.messages += len(ticket.entries)
            room.bytes += ticket.size
            self._tickets.append(ticket)

    def _taken(self) -> list[_Ticket]:
        with self._counting:
            taken, self._tickets = self._tickets, []
        return taken

    def _write(self, tickets: list[_Ticket]) -> None:
        """One transaction for all of them."""
        error: SpoolError | None = SpoolError(f"writing to the spool {self.path} was interrupted")
        try:
            self._check_usable()
            self._transact(_INSERT, self._rows(tickets))
            error = None
        except SpoolError as failed:
            error = failed
        finally:
            self._settle(tickets, error)

    def _rows(self, tickets: Iterable[_Ticket]) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for ticket in tickets:
            sender = path_key(ticket.path)
            for entry in ticket.entries:
                checksum = zlib.crc32(entry.message)
                rows.append(
                    (self._next, sender, ticket.path, entry.message_id, ticket.now, entry.message, checksum)
                )
                self._next += 1
        return rows

    def _settle(self, tickets: list[_Ticket], error: SpoolError | None) -> None:
        with self._counting:
            for ticket in tickets:
                ticket.is_done, ticket.error = True, error
                if error is None:
                    self._room.waiting[path_key(ticket.path)] += len(ticket.entries)
                else:
                    self._room.messages -= len(ticket.entries)
                    self._room.bytes -= ticket.size

    def _delete_accepted(self) -> None:
        """All that a broker has accepted; called by whoever may write."""
        with self._counting:
            numbers = sorted(self._undeleted)
        if numbers:
            self._check_usable()
            self._transact("DELETE FROM spooled WHERE number = ?", [(number,) for number in numbers])
            with self._counting:
                self._undeleted.difference_update(numbers)

    def _execute(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        with self._writing:
            self._check_usable()
            self._transact(statement, rows)

    def _transact(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            found = meaning(self.path, error)
            # After a sync that failed nobody knows what is on the disk: no more promises.
            self._is_broken = not isinstance(found, SpoolFullError)
            raise found from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _read(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._writing:
            self._check_open()
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise meaning(self.path, error) from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise SpoolError(
                f"the spool {self.path} is closed, or belongs to the process this one was forked from"
            )

    def _check_usable(self) -> None:
        self._check_open()
        if self._is_broken:
            raise SpoolError(f"the spool {self.path} could not be written; a restart will find what is in it")

    def _load(self) -> int:
        """Count what is there; the number of the next message."""
        try:
            found = self._connection.execute(
                "SELECT sender, sum(refused IS NULL), count(*), sum(length(message)), max(number) "
                "FROM spooled GROUP BY sender"
            ).fetchall()
        except sqlite3.Error as error:
            raise meaning(self.path, error) from error
        with self._counting:
            self._room.waiting = Counter({sender: waiting for sender, waiting, *_ in found})
            self._room.messages = sum(row[2] for row in found)
            self._room.bytes = sum(row[3] + OVERHEAD * row[2] for row in found)
        return 1 + max((row[4] for row in found), default=0)


_INSERT = (
    "INSERT INTO spooled (number, sender, path, message_id, spooled_at, message, checksum) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)


def _key(path: str | None) -> str | None:
    return None if path is None else path_key(path)


def _chosen(refused_only: bool) -> str:
    condition = " AND refused IS NOT NULL" if refused_only else ""
    return f"FROM spooled WHERE (?1 IS NULL OR sender = ?1){condition}"
