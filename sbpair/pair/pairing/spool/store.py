"""The spool: messages on disk that neither namespace accepted.

    append --(one transaction, synced)--> waiting --accepted by a broker----------> deleted
                                           ^   '---refused by the primary entity--> refused, with the reason
                                           '-------------- redrive -----------------'

The file belongs to one process. Once :meth:`Spool.append` returns, its messages survive a kill or a power cut. Appends
that arrive during a sync share the next one, which also deletes the messages that brokers have accepted. Messages of
one entity stay in order.
"""

from __future__ import annotations

import ctypes
import sqlite3
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from sbpair.pair.envelope.names import path_key

from ..errors import SpoolError, SpoolFullError
from .entries import OVERHEAD, Entry, Recent, Spooled, Ticket
from .file import (
    SpoolUnwritableError,
    check_whole,
    close_file,
    empty_file,
    lengthen_log,
    open_file,
    spool_error,
)

__all__ = ["OVERHEAD", "Entry", "Spool", "SpoolCount", "Spooled", "Ticket"]


@dataclass(frozen=True, slots=True)
class SpoolCount:
    """The messages of one entity. ``oldest``: milliseconds since the epoch."""

    path: str
    waiting: int
    refused: int
    bytes: int
    oldest: int


@dataclass(slots=True)
class _Room:
    """Usage, including appends in progress. Refused messages do not count."""

    most_messages: int
    most_bytes: int
    messages: int = 0
    bytes: int = 0
    waiting: Counter[str] = field(default_factory=Counter)  # committed messages by entity


Method = TypeVar("Method", bound=Callable[..., Any])


def _counting(method: Method) -> Method:
    """Decorate a method that changes the counts: if it is interrupted, the next call recounts."""

    @wraps(method)
    def counting(spool: Spool, *args: Any, **named: Any) -> Any:  # noqa: ANN401 -- as the method has them
        try:
            return method(spool, *args, **named)
        except Exception:
            raise
        except BaseException:
            spool.must_recount = True
            raise

    return cast("Method", counting)


class Spool:
    """The spool of one client. Blocking and thread-safe.

    ``primary`` is the name of the primary namespace; None opens a spool of any namespace, and creates none.
    ``max_messages`` and ``max_bytes`` bound the waiting messages; the file can be somewhat larger. With
    ``is_read_later``, the check for damage, which reads the whole file, is left to the first append or replay.

    With ``may_be_absent``, a file that cannot be written, for lack of space or permission, counts as empty and full
    until :meth:`reopen` succeeds. Raises SpoolError, naming the file, when it cannot be used.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        primary: str | None,
        max_messages: int = 1_000_000,
        max_bytes: int = 256 * 2**20,
        is_read_later: bool = False,
        may_be_absent: bool = False,
    ) -> None:
        self.path = Path(path)
        self._primary = primary
        self.absence: SpoolError | None = None
        """Why there is no file."""
        try:
            self._connection = open_file(self.path, primary)
        except (SpoolFullError, SpoolUnwritableError) as error:
            if not may_be_absent:
                raise
            self.absence, self._connection = error, empty_file()
        self._room = _Room(max_messages, max_bytes)
        self._counting = threading.Lock()  # guards room and tickets; held briefly
        self._writing = threading.Lock()  # guards the connection; held during a sync
        self._tickets: list[Ticket] = []
        self._passed: dict[str, int] = {}  # by entity: the last number accepted by a broker, or overtaken
        self._overtaken: dict[
            str, list[int]
        ] = {}  # by entity: refused by the backlogs, waiting for the primary
        self._recent = Recent()
        self._undeleted: set[int] = set()  # accepted, but deleting them failed
        self._is_closed = self._is_broken = False
        self._is_whole = False  # checked for damage
        self.must_recount = False
        """Whether a signal interrupted a change, so that the counts may be wrong."""
        try:
            if not is_read_later:
                self._check_whole()
            self._next = self._load()
        except BaseException:
            close_file(self._connection, self.path)
            raise

    @property
    def takes_messages(self) -> bool:
        """Whether the file can be written, as far as is known."""
        return self.absence is None and not self._is_broken

    def reopen(self) -> bool:
        """Try to open a file that was absent; return whether it is open.

        Blocks; raises SpoolError if it is unusable.
        """
        try:
            opened = open_file(self.path, self._primary)
        except (SpoolFullError, SpoolUnwritableError):
            return False
        with self._writing:
            if self._is_closed:
                close_file(opened, self.path)
                return False
            self._connection, self._is_whole = opened, False
            self._check_whole()
            self._next = self._load()
            self.absence = None
        return True

    # -- for senders

    def waiting(self, path: str | None = None) -> int:
        """Return the number of messages waiting for replay, of one entity or of all."""
        self._recount()
        if path is None:
            with self._counting:
                return self._room.waiting.total()
        return self._room.waiting[path_key(path)]

    def depth(self) -> dict[str, float]:
        """Return the number of waiting messages by entity key (:func:`path_key`).

        It is 0 for entities whose messages have left.
        """
        with self._counting:
            return {sender: float(count) for sender, count in self._room.waiting.items()}

    def in_line(self, path: str) -> int:
        """Return the number of messages of this entity ahead of a new one: those waiting and not overtaken."""
        self._recount()
        with self._counting:
            key = path_key(path)
            return self._room.waiting[key] - len(self._overtaken.get(key, ()))

    def senders(self) -> list[str]:
        """The entities with waiting messages."""
        self._recount()
        with self._counting:
            return [sender for sender, count in self._room.waiting.items() if count > 0]

    @_counting
    def append(self, path: str, entries: Sequence[Entry], now: int) -> None:
        """Write the messages of one send, all or none; they are on disk when this returns.

        ``now`` is in milliseconds since the epoch. Raises SpoolFullError when the bounds or the disk leave no
        room, and SpoolError when writing fails; none of the messages is accepted then.
        """
        self._recount()
        ticket = Ticket(path, entries, now)
        self._reserve(ticket)
        self._commit(ticket)

    @_counting
    def submit(
        self, path: str, entries: Sequence[Entry], now: int, ended: Callable[[SpoolError | None], object]
    ) -> Ticket:
        """Reserve space for the messages of one send, for :meth:`write_submitted`. Raises SpoolFullError."""
        self._recount()
        ticket = Ticket(path, entries, now, ended)
        self._reserve(ticket)
        return ticket

    def write_submitted(self) -> None:
        """Write the submitted messages; each ticket gets its error. Blocks as long as the disk does."""
        if self._tickets:
            with self._writing:
                self._write(self._take())

    def prepare(self) -> None:
        """Prepare the file so that the next writes are fast. Blocks."""
        with self._writing:
            if self.absence is None and not self._is_closed:
                lengthen_log(self.path)

    def withdraw(self, ticket: Ticket) -> bool:
        """Withdraw a ticket; return False if its messages are already written or being written."""
        with self._counting:
            if ticket not in self._tickets:
                return False
            self._tickets.remove(ticket)
            self._room.messages -= len(ticket.entries)
            self._room.bytes -= ticket.size
        return True

    # -- for the replay

    def oldest(self, path: str, most: int, *, most_bytes: int | None = None, after: int = 0) -> list[Spooled]:
        """Return the oldest waiting messages of this entity, in order, at most ``most``.

        With ``most_bytes``, only as many as have that total size, but at least one. With ``after``, only messages with
        a higher number.
        """
        self._recount()
        with self._counting:
            recent = self._recent.oldest(path_key(path), self._room.waiting[path_key(path)], most, after)
        if recent is not None:
            return _fitting(recent, most_bytes)
        return self._select(
            "sender = ? AND refused IS NULL AND number > ? ORDER BY number LIMIT ?",
            (path_key(path), max(after, self._passed.get(path_key(path), 0)), most),
            most_bytes,
        )

    def overtake(self, path: str, message: Spooled) -> None:
        """Let later messages pass this one, the oldest, which only the primary can accept.

        Not persisted: after a restart the message is tried in its turn again.
        """
        with self._counting:
            self._recent.forget()
            self._overtaken.setdefault(path_key(path), []).append(message.number)
            self._passed[path_key(path)] = message.number

    def oldest_overtaken(self, path: str) -> Spooled | None:
        """Return the oldest overtaken message of this entity."""
        with self._counting:
            numbers = self._overtaken.get(path_key(path), [])[:1]
        rows = self._select("number = ? AND refused IS NULL", tuple(numbers)) if numbers else []
        return rows[0] if rows else None

    @_counting
    def accepted(self, path: str, messages: Sequence[Spooled]) -> None:
        """Record that a broker has accepted the oldest messages of this entity.

        They are deleted with the next write, or on close. A process killed before that sends them again.
        """
        with self._counting:
            self._uncount(path, messages)
            key = path_key(path)
            self._passed[key] = max(self._passed.get(key, 0), messages[-1].number)
            self._undeleted.update(each.number for each in messages)
            self._recent.accepted(key, len(messages))

    @_counting
    def delete(self, path: str, messages: Sequence[Spooled]) -> None:
        """Delete the oldest messages of this entity, which a broker has accepted.

        Raises SpoolError when the file cannot be written; even then, this process does not replay the messages.
        """
        self.accepted(path, messages)
        self.delete_accepted()

    @property
    def undeleted(self) -> int:
        """The number of accepted messages that are still in the file."""
        return len(self._undeleted)

    def delete_accepted(self) -> None:
        """Delete accepted messages. Raises SpoolError if the file cannot be written."""
        with self._writing:
            self._delete_accepted()

    @_counting
    def refuse(self, path: str, message: Spooled, reason: str) -> None:
        """Remove from the replay a message that the primary does not accept, and store the reason.

        It no longer counts against the bounds.
        """
        self._execute("UPDATE spooled SET refused = ? WHERE number = ?", [(reason, message.number)])
        with self._counting:
            self._recent.forget()
            self._uncount(path, [message])

    # -- for operators

    def counts(self) -> list[SpoolCount]:
        """Return the contents by entity."""
        rows = self._read(
            "SELECT min(path), sum(refused IS NULL), sum(refused IS NOT NULL), sum(length(message)), "
            "min(spooled_at) FROM spooled GROUP BY sender ORDER BY sender"
        )
        return [SpoolCount(*row) for row in rows]

    def refusals(self) -> list[tuple[str, str, str]]:
        """Return path, message id and reason of every refused message."""
        return self._read(
            "SELECT path, message_id, refused FROM spooled WHERE refused IS NOT NULL ORDER BY number"
        )

    def export(
        self, path: str | None = None, *, refused_only: bool = False
    ) -> Iterator[tuple[Spooled, str | None]]:
        """Yield the messages of one entity, or of all, in their order, each with the reason if it was refused."""
        query = _EXPORT + _OF_ENTITY + (_REFUSED if refused_only else "") + _NEXT
        last = 0
        while rows := self._read(query, (_key(path), last)):
            ((last, of, message_id, at, message, checksum, reason),) = rows
            yield Spooled(last, of, message_id, at, message, zlib.crc32(message) == checksum), reason

    def count(self, path: str | None = None, *, refused_only: bool = False) -> int:
        """Return the number of messages that :meth:`purge` would delete."""
        condition = _OF_ENTITY + (_REFUSED if refused_only else "")
        ((count,),) = self._read(_COUNT + condition, (_key(path),))
        return int(count)

    def purge(self, path: str | None = None, *, refused_only: bool = False) -> int:
        """Delete the messages of one entity, or of all; return their number."""
        return self._change("DELETE FROM spooled", _REFUSED if refused_only else "", path)

    def redrive(self, path: str | None = None) -> int:
        """Return the refused messages of one entity, or of all, to the replay; return their number.

        Each keeps its place in the order. The bounds do not apply.
        """
        return self._change("UPDATE spooled SET refused = NULL", _REFUSED, path)

    # -- the end

    def close(self) -> None:
        """Close the file. Waiting messages stay in it for the next owner."""
        with self._writing:
            if not self._is_closed:
                if self._tickets:
                    self._write(self._take())
                with suppress(SpoolError):
                    self._delete_accepted()
                with self._counting:
                    self._is_closed = True
                self._complete(self._take(), self._closed_error())
                close_file(self._connection, self.path)

    def disown(self) -> None:
        """Stop using the file in a forked child, because it belongs to the parent."""
        self._is_closed = True
        # The connection must not be finalized even at exit: SQLite would believe it holds the parent's lock and
        # would remove the write-ahead log. So leak a reference.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    # -- within

    def _reserve(self, ticket: Ticket) -> None:
        if self.absence is not None:
            raise type(self.absence)(str(self.absence))
        with self._counting:
            if self._is_closed:
                raise self._closed_error()
            room = self._room
            if room.messages + len(ticket.entries) > room.most_messages:
                raise SpoolFullError(
                    f"the spool {self.path} is full: it holds {room.messages} of {room.most_messages} messages "
                    "(spool_max_messages)"
                )
            if room.bytes + ticket.size > room.most_bytes:
                raise SpoolFullError(
                    f"the spool {self.path} is full: it holds {room.bytes} of {room.most_bytes} bytes (spool_max_bytes)"
                )
            room.messages += len(ticket.entries)
            room.bytes += ticket.size
            self._tickets.append(ticket)

    def _commit(self, ticket: Ticket) -> None:
        """Wait until the ticket is on disk; the first waiting thread also writes for those that arrived meanwhile."""
        with self._writing:
            if not ticket.is_done:
                self._write(self._take())
        if not ticket.is_done:  # a signal interrupted the thread that wrote for this one
            raise SpoolError(self._interrupted)
        if ticket.error is not None:
            raise type(ticket.error)(
                str(ticket.error)
            ) from ticket.error  # a copy: other threads raise it too

    def _take(self) -> list[Ticket]:
        with self._counting:
            taken, self._tickets = self._tickets, []
        return taken

    def _write(self, tickets: list[Ticket]) -> None:
        """Write these tickets in one transaction."""
        error: SpoolError | None = SpoolError(self._interrupted)
        try:
            self._check_usable()
            self._transact(_INSERT, self._rows(tickets))
            error = None
        except SpoolError as failed:
            error = failed
            if isinstance(failed, SpoolFullError):  # deleting needs less space than appending
                with suppress(SpoolError):
                    self._delete_accepted()
        finally:
            self._complete(tickets, error)

    def _rows(self, tickets: Iterable[Ticket]) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for ticket in tickets:
            sender, ticket.first = path_key(ticket.path), self._next
            for entry in ticket.entries:
                checksum = zlib.crc32(entry.message)
                rows.append(
                    (self._next, sender, ticket.path, entry.message_id, ticket.now, entry.message, checksum)
                )
                self._next += 1
        return rows

    def _complete(self, tickets: list[Ticket], error: SpoolError | None) -> None:
        with self._counting:
            for ticket in tickets:
                ticket.is_done, ticket.error = True, error
                if error is None:
                    key = path_key(ticket.path)
                    self._recent.written(key, ticket.spooled(), self._room.waiting[key])
                    self._room.waiting[key] += len(ticket.entries)
                else:
                    self._room.messages -= len(ticket.entries)
                    self._room.bytes -= ticket.size
        for ticket in tickets:
            ticket.ended(error)

    def _delete_accepted(self) -> None:
        """Delete everything a broker has accepted. Called under the writing lock."""
        if self._undeleted:
            self._check_usable()
            self._transact(_DELETE, [])

    def _uncount(self, path: str, messages: Sequence[Spooled]) -> None:
        """Remove messages from the counts. Called under the counting lock."""
        key = path_key(path)
        self._room.messages -= len(messages)
        self._room.bytes -= sum(len(each.message) + OVERHEAD for each in messages)
        self._room.waiting[key] -= len(messages)
        if overtaken := self._overtaken.get(key):
            gone = {each.number for each in messages}
            self._overtaken[key] = [number for number in overtaken if number not in gone]

    @_counting
    def _change(self, statement: str, condition: str, path: str | None) -> int:
        """Apply an operator's change in one transaction and recount; return the number of rows."""
        with self._writing:
            self._check_usable()
            try:
                changed = self._connection.execute(
                    f"{statement}{_OF_ENTITY}{condition}", (_key(path),)
                ).rowcount
            except sqlite3.Error as error:
                raise spool_error(self.path, error) from error
            self._load()
            return changed

    def _execute(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        with self._writing:
            self._check_usable()
            self._transact(statement, rows)

    def _transact(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        """Execute a statement for each of the rows, and delete everything that a broker has accepted."""
        with self._counting:
            accepted = sorted(self._undeleted)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(statement, rows)
            self._connection.executemany(_DELETE, [(number,) for number in accepted])
            self._connection.execute("COMMIT")
            with self._counting:
                self._undeleted.difference_update(accepted)
        except sqlite3.Error as error:
            found = spool_error(self.path, error)
            # After a failed sync the state of the disk is unknown: accept nothing more.
            self._is_broken = not isinstance(found, SpoolFullError)
            raise found from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _select(
        self, condition: str, values: tuple[object, ...], most_bytes: int | None = None
    ) -> list[Spooled]:
        columns = "SELECT number, path, message_id, spooled_at, message, checksum FROM spooled WHERE "

        def fetch(cursor: sqlite3.Cursor) -> list[Spooled]:
            rows = (
                Spooled(number, path, message_id, at, message, zlib.crc32(message) == checksum)
                for number, path, message_id, at, message, checksum in cursor
            )
            return _fitting(rows, most_bytes)

        return self._read(columns + condition, values, fetch)

    def _read(
        self,
        query: str,
        values: tuple[object, ...] = (),
        fetch: Callable[[sqlite3.Cursor], list[Any]] = sqlite3.Cursor.fetchall,
    ) -> list[Any]:
        with self._writing:
            self._check_open()
            try:
                with closing(self._connection.execute(query, values)) as cursor:
                    return fetch(cursor)
            except sqlite3.Error as error:
                raise spool_error(self.path, error) from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed_error()
        self._check_whole()

    def _closed_error(self) -> SpoolError:
        return SpoolError(
            f"the spool {self.path} is closed, or belongs to the process this one was forked from"
        )

    def _check_whole(self) -> None:
        if not self._is_whole:
            check_whole(self._connection, self.path)
            self._is_whole = True

    def _check_usable(self) -> None:
        self._check_open()
        if self._is_broken:
            raise SpoolError(
                f"the spool {self.path} accepts no more messages since a write to it failed; restart the process"
            )

    @property
    def _interrupted(self) -> str:
        return f"writing to the spool {self.path} was interrupted"

    def _recount(self) -> None:
        """Recount after an interrupted change; overtaken messages are tried in order again."""
        if not self.must_recount or self._is_closed:
            return
        with self._writing:
            self._delete_accepted()
            self._load()
            with self._counting:
                self._passed.clear()
                self._overtaken.clear()
            self.must_recount = False

    def _load(self) -> int:
        """Count the waiting messages, including those being appended; return the number for the next message."""
        try:
            found = self._connection.execute(
                # By the partial index: reading `refused` would read each message, whose column precedes it.
                "SELECT sender, count(*), sum(length(message)) FROM spooled INDEXED BY spooled_by_sender "
                "WHERE refused IS NULL GROUP BY sender"
            ).fetchall()
            ((last,),) = self._connection.execute("SELECT max(number) FROM spooled").fetchall()
        except sqlite3.Error as error:
            raise spool_error(self.path, error) from error
        with self._counting:
            self._recent.forget()
            self._room.waiting = Counter({sender: waiting for sender, waiting, _ in found})
            self._room.messages = self._room.waiting.total() + sum(
                len(each.entries) for each in self._tickets
            )
            self._room.bytes = sum(size + OVERHEAD * waiting for _, waiting, size in found)
            self._room.bytes += sum(each.size for each in self._tickets)
        return 1 + (last or 0)


_INSERT = (
    "INSERT INTO spooled (number, sender, path, message_id, spooled_at, message, checksum) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)


_DELETE = "DELETE FROM spooled WHERE number = ?"
_COUNT = "SELECT count(*) FROM spooled"
_EXPORT = "SELECT number, path, message_id, spooled_at, message, checksum, refused FROM spooled"
_OF_ENTITY = " WHERE (?1 IS NULL OR sender = ?1)"
_REFUSED = " AND refused IS NOT NULL"
_NEXT = " AND number > ?2 ORDER BY number LIMIT 1"


def _fitting(messages: Iterable[Spooled], most_bytes: int | None) -> list[Spooled]:
    """Return the leading messages up to a total size, but at least one; the others are not read."""
    if most_bytes is None:
        return list(messages)
    taken: list[Spooled] = []
    size = 0
    for each in messages:
        size += len(each.message)
        if taken and size > most_bytes:
            break
        taken.append(each)
    return taken


def _key(path: str | None) -> str | None:
    return None if path is None else path_key(path)
