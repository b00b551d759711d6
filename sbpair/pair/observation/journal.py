"""The journal: an audit log of events in JSON Lines files.

    DIR/_open-sender-<writer>-000002.jsonl    being written; the last line may be torn
    DIR/sender-<writer>-000001.jsonl          closed, immutable; its last record is journal_closed

A writer writes one file after another. Its ordinals run through all of its files without a gap, so a missing
file or line is detectable. An event that could not be written (disk full) takes no ordinal; once writing
works again, a ``journal_gap`` record says how many are missing. :meth:`Journal.write` never raises, so a
failing disk does not affect sender or syphon.

Readers of a directory skip names with a leading underscore (Spark does so by default), so a visible file never
changes.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from .journal_reading import OPEN_PREFIX, JournalError
from .record import Instant, Origin, PairLabels, WriterRole, to_line, to_record
from .sinks import renew_in_children

ROLL_BYTES = 64 * 1024 * 1024
MIN_ROLL_BYTES = 4096

logger = logging.getLogger("sbpair.journal")


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a file: bytes, records, the sum of its lines' CRC-32, and whether the last record closes it."""

    size: int = 0
    records: int = 0
    checksum: int = 0
    is_complete: bool = False

    def with_line(self, line: bytes, *, closes: bool) -> _Content:
        checksum = self.checksum + zlib.crc32(memoryview(line)[:-1])
        return _Content(self.size + len(line), self.records + 1, checksum, closes)


class JournalFile:
    """One file of a journal, from creation to rename. Not thread-safe.

    Lines are appended completely or not at all, and are counted if and only if they are in the file, even if a signal
    raises at any point of :meth:`append`. Every method may raise OSError. ``first`` is the ordinal of its first record.
    """

    def __init__(self, directory: Path, name: str, number: int, first: int) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / name
        self.open_path = directory / f"{OPEN_PREFIX}{name}"
        self.open_path.unlink(
            missing_ok=True
        )  # of a call that a signal interrupted: the name is this writer's
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._fd = os.open(self.open_path, flags, 0o600)
        self.number = number
        self._first = first
        self._counted = _Content()  # replaced at once
        self._pending: _Content | None = None  # with the line that is being appended
        self.is_torn = False  # a partial line could not be truncated: nothing may follow it

    def append(self, line: bytes, *, sync: bool = False, closes: bool = False) -> None:
        """Append a line; ``closes`` marks the last one. On failure the file is unchanged, or :attr:`is_torn` is set."""
        content = self._content()
        after = content.with_line(line, closes=closes)
        self._pending = after
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            if sync:
                os.fsync(self._fd)
        except OSError:
            self._cut(content.size)
            raise
        self._counted = after
        self._pending = None

    def _content(self) -> _Content:
        """Return the content of the file, also after an interrupted append."""
        after = self._pending
        if after is not None:
            length = os.fstat(self._fd).st_size
            if length == after.size:
                self._counted = after
            elif length > self._counted.size:
                self._cut(self._counted.size)
            self._pending = None
        return self._counted

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            self.is_torn = True

    @property
    def size(self) -> int:
        """The number of bytes in the file."""
        return self._content().size

    @property
    def records(self) -> int:
        """The number of records in the file."""
        return self._content().records

    @property
    def checksum(self) -> int:
        """The sum of the CRC-32 of each line in the file, without its newline."""
        return self._content().checksum

    @property
    def next_ordinal(self) -> int:
        """The ordinal of the record after the last one in the file."""
        return self._first + self.records

    @property
    def is_complete(self) -> bool:
        """Whether the closing record is in the file: nothing may follow it."""
        return self._content().is_complete

    def finish(self, *, sync: bool) -> None:
        """Close the file and give it its final name. The file is closed even if this raises."""
        try:
            if sync and self._fd >= 0:
                os.fsync(self._fd)
        finally:
            self.abandon()
        if self.open_path.exists() or not self.path.exists():  # else an earlier call was interrupted
            os.rename(self.open_path, self.path)
        if sync:
            _sync_directory(self.path.parent)

    def abandon(self) -> None:
        """Close the file under its current name, without the rename."""
        self._content()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _sync_directory(directory: Path) -> None:
    """Make the rename survive a power cut, where directories can be opened (not on Windows)."""
    try:
        fd = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Fsync(Enum):
    """When to fsync. A killed process loses nothing in any case; a power cut can."""

    NEVER = "never"  # a power cut can lose the last seconds
    ON_ROLL = "on_roll"  # closed files survive a power cut
    EVERY = "every"  # every record survives, at the cost of one fsync per event


@dataclass(frozen=True, slots=True)
class JournalOpened:
    """The first record of every file."""

    file: int


@dataclass(frozen=True, slots=True)
class JournalClosed:
    """The last record of every complete file. ``records`` includes this one.

    ``lost``: events that this writer could not write so far. ``is_last``: the writer was closed. ``checksum``: the sum
    of the CRC-32 of each line before this one in the file.
    """

    file: int
    records: int
    lost: int
    is_last: bool
    checksum: int


@dataclass(frozen=True, slots=True)
class JournalGap:
    """``lost`` events before this record could not be written; ``cause`` is the error."""

    lost: int
    cause: str


@dataclass(frozen=True, slots=True)
class JournalCounters:
    """Totals since the journal was opened."""

    written: int  # records, including those about the journal itself
    lost: int  # events that could not be written


def system_instant() -> Instant:
    """Return the current time on both clocks."""
    return Instant(time.time(), time.monotonic())


class Journal:
    """A sink that writes every event to files in ``directory``. Thread-safe.

    When a file reaches ``roll_bytes`` (4096 or more), it is closed and the next one begun. After a fork, the child's
    copy is a separate writer. Once the journal is open, I/O errors are counted and logged, never raised.

    Raises JournalError when the first file cannot be opened, ValueError for ``roll_bytes`` out of range.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        role: WriterRole,
        pair: PairLabels,
        roll_bytes: int = ROLL_BYTES,
        fsync: Fsync = Fsync.ON_ROLL,
        clock: Callable[[], Instant] = system_instant,
    ) -> None:
        if roll_bytes < MIN_ROLL_BYTES:
            raise ValueError(f"roll_bytes must be at least {MIN_ROLL_BYTES}, not {roll_bytes!r}")
        self.directory = Path(directory)
        self._role, self._pair = role, pair
        self._roll_bytes = roll_bytes
        self._fsync = fsync
        self._clock = clock
        self._file: JournalFile | None = None
        self._begin()
        try:
            self._open_next()
        except OSError as error:
            text = f"cannot write a journal to {self.directory}: {error.strerror or error}"
            raise JournalError(text) from error
        renew_in_children(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._origin = Origin(str(uuid4()), self._role, self._pair)
        self._first = 0  # ordinal of the first record of the next file
        self._number = 0  # of the file being written, from 1
        self._lost = 0
        self._unreported = 0  # lost events that no gap record counts yet
        self._cause = ""
        self._is_overdue = False  # the file being written should have been closed already
        self._is_closed = False

    @property
    def writer(self) -> str:
        """The UUID in every record and file name of this journal."""
        return self._origin.writer

    @property
    def role(self) -> WriterRole:
        """The role of the writer."""
        return self._role

    @property
    def written(self) -> int:
        """Number of records written, including those about the journal itself."""
        return self._ordinal

    @property
    def _ordinal(self) -> int:
        """The ordinal of the next record."""
        file = self._file
        return self._first if file is None else file.next_ordinal

    @property
    def counters(self) -> JournalCounters:
        """The numbers of records written and of events lost."""
        return JournalCounters(self._ordinal, self._lost)

    @property
    def lost(self) -> int:
        """Number of events that could not be written."""
        return self._lost

    def write(self, event: object) -> None:
        """Write one event, any dataclass instance. Never raises: failures are counted and logged."""
        with self._lock:
            try:
                self._write(event)
            except (OSError, TypeError, ValueError) as error:
                self._missed(error)
                return
            self._roll_when_full()

    def roll(self) -> None:
        """Close the current file so that readers see it; the next event begins a new one."""
        with self._lock:
            if not self._is_closed:
                self._end_file(is_last=False)

    def close(self) -> None:
        """Write the closing record and give the last file its final name. Later events are lost."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if not self._is_begun:
                self._open_for_the_end()
            self._end_file(is_last=True)
            if self._file is not None:
                self._abandon(self._file)

    def abandon(self) -> None:
        """Close the file without a closing record, as if the writer had been killed. Later events are lost."""
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                self._abandon(self._file)

    def renew(self) -> None:
        """Become a separate writer. Called in a forked child; the open file belongs to the parent."""
        was_closed = self._is_closed
        if self._file is not None:
            self._abandon(self._file)
        self._begin()
        self._is_closed = was_closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Under the lock.

    def _write(self, event: object) -> None:
        if self._is_closed:
            raise ValueError("the journal is closed")
        if self._file is not None and self._file.is_complete:
            self._finish(self._file)
        if not self._is_begun:
            self._open_next()
        if self._unreported:
            self._put(JournalGap(self._unreported, self._cause))
            logger.warning("journal writable again; %d events are missing from it", self._unreported)
            self._unreported = 0
        self._put(event)

    def _put(self, event: object, *, closes: bool = False) -> None:
        file = self._file
        if file is None:
            raise OSError("no file is open")
        line = to_line(to_record(event, self._origin, self._ordinal, self._clock()))
        try:
            file.append(line, sync=self._fsync is Fsync.EVERY, closes=closes)
        except OSError:
            if file.is_torn:
                self._abandon(file)
            raise

    @property
    def _is_begun(self) -> bool:
        """Whether a file is open and contains its first record."""
        return self._file is not None and self._file.records > 0

    def _open_next(self) -> None:
        """Open a file and write its first record; continue with a file that an interrupted call has opened."""
        if self._file is None:
            number = self._number + 1
            name = f"{self._role.value}-{self.writer}-{number:06}.jsonl"
            self._file = JournalFile(self.directory, name, number, self._first)
        self._number = self._file.number
        try:
            self._put(JournalOpened(self._number))
        except OSError:
            if self._file is not None:
                self._discard(self._file)
            raise

    def _open_for_the_end(self) -> None:
        """Open a file that will contain only the closing record."""
        try:
            self._open_next()
        except OSError as error:
            logger.error("journal closed without its closing record: %s", _why(error))

    def _roll_when_full(self) -> None:
        if self._file is not None and self._file.size >= self._roll_bytes:
            self._end_file(is_last=False)

    def _end_file(self, *, is_last: bool) -> None:
        """Close the current file. If its last record cannot be written, the file stays open, and grows."""
        file = self._file
        if file is None:
            return
        try:
            if is_last and self._unreported:
                self._put(JournalGap(self._unreported, self._cause))
            if not file.is_complete:
                closed = JournalClosed(self._number, file.records + 1, self._lost, is_last, file.checksum)
                self._put(closed, closes=True)
        except OSError as error:
            if is_last or not self._is_overdue:  # retried at every event, logged once
                logger.error("cannot close journal file: %s", _why(error))
            self._is_overdue = True
            return
        self._finish(file)

    def _finish(self, file: JournalFile) -> None:
        """Give a complete file its final name; if a signal interrupts this, the next call continues."""
        self._is_overdue = False
        try:
            file.finish(sync=self._fsync is not Fsync.NEVER)
        except OSError as error:
            logger.error("cannot rename journal file %s: %s", file.open_path.name, _why(error))
        self._first = file.next_ordinal
        self._file = None

    def _discard(self, file: JournalFile) -> None:
        """Remove a file that lacks its first record; its number is reused."""
        self._abandon(file)
        self._number -= 1
        file.open_path.unlink(missing_ok=True)

    def _abandon(self, file: JournalFile) -> None:
        try:
            file.abandon()
        except OSError as error:
            logger.error("cannot close journal file: %s", _why(error))
        self._first = file.next_ordinal
        self._file = None

    def _missed(self, error: Exception) -> None:
        self._lost += 1
        self._unreported += 1
        self._cause = _why(error)
        if self._unreported == 1:
            logger.error("cannot write the journal: %s; events are lost until it is writable", self._cause)


def _why(error: Exception) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error)
