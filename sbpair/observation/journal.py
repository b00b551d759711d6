"""Where are the events kept, so that an audit can prove something from them?

    DIR/_open-sender-<writer>-000002.jsonl    being written; a torn last line is possible
    DIR/sender-<writer>-000001.jsonl          closed, immutable; its last record is journal_closed

One writer writes one file after another. Its ordinals count on from file to file without a gap, so a
missing file or line shows. An event that could not be written (disk full) does not take an ordinal; the
``journal_gap`` record written when it works again says how many are missing. The sender and the syphon
never notice: :meth:`Journal.write` does not raise.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from .fork import renewed_in_children
from .journal_file import JournalFile
from .journal_reading import JournalError
from .record import Instant, Origin, PairLabels, Role, to_line, to_record

ROLL_BYTES = 64 * 1024 * 1024
LEAST_ROLL_BYTES = 4096

logger = logging.getLogger("sbpair.journal")


class Fsync(Enum):
    """When the disk must have what was written. A killed process loses nothing in any case."""

    NEVER = "never"  # the system writes when it likes: a power cut loses the last seconds
    ON_ROLL = "on_roll"  # a closed file is on the disk
    EVERY = "every"  # every record is: it costs the caller one fsync an event


@dataclass(frozen=True, slots=True)
class JournalOpened:
    """A file of the journal begins; always its first record."""

    file: int


@dataclass(frozen=True, slots=True)
class JournalClosed:
    """A file of the journal is complete; always its last record, and ``records`` counts it too.

    ``lost`` events of this writer could not be written so far. ``is_last``: the writer has ended.
    """

    file: int
    records: int
    lost: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class JournalGap:
    """``lost`` events before this record could not be written, because of ``cause``."""

    lost: int
    cause: str


@dataclass(frozen=True, slots=True)
class JournalCounters:
    """Since the journal was opened."""

    written: int  # records, those about the journal itself included
    lost: int  # events that could not be written


def system_instant() -> Instant:
    """Now, on both clocks."""
    return Instant(time.time(), time.monotonic())


class Journal:
    """Write every event to a directory, from any thread.

    ``roll_bytes``: a file of at least this size is closed and another begun. The constructor opens the first
    file and raises JournalError when it cannot; after that, no I/O error gets out. After a fork, the child's
    copy is another writer.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        role: Role,
        pair: PairLabels,
        roll_bytes: int = ROLL_BYTES,
        fsync: Fsync = Fsync.ON_ROLL,
        clock: Callable[[], Instant] = system_instant,
    ) -> None:
        if roll_bytes < LEAST_ROLL_BYTES:
            raise ValueError(f"roll_bytes must be at least {LEAST_ROLL_BYTES}, not {roll_bytes!r}")
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
            text = f"no journal can be written to {self.directory}: {error.strerror or error}"
            raise JournalError(text) from error
        renewed_in_children(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._origin = Origin(str(uuid4()), self._role, self._pair)
        self._ordinal = 0  # of the next record
        self._number = 0  # of the file being written, from 1
        self._lost = 0
        self._untold = 0  # of the lost, those that no gap record tells yet
        self._cause = ""
        self._is_overdue = False  # the file being written should have been closed already
        self._is_closed = False

    @property
    def writer(self) -> str:
        """The uuid in every record and file name of this journal."""
        return self._origin.writer

    @property
    def role(self) -> Role:
        """Who writes it."""
        return self._role

    @property
    def written(self) -> int:
        """How many records were written, those about the journal itself included."""
        return self._ordinal

    @property
    def counters(self) -> JournalCounters:
        """Both counts, as metrics read them."""
        return JournalCounters(self._ordinal, self._lost)

    @property
    def lost(self) -> int:
        """How many events could not be written."""
        return self._lost

    def write(self, event: object) -> None:
        """Write one event, a dataclass of any room. Never raises: what fails is counted and logged."""
        with self._lock:
            try:
                self._write(event)
            except (OSError, TypeError, ValueError) as error:
                self._missed(error)
                return
            self._roll_when_full()

    def roll(self) -> None:
        """Close the file being written, so that others see it; the next event begins another."""
        with self._lock:
            if not self._is_closed:
                self._end_file(is_last=False)

    def close(self) -> None:
        """Write the closing record and give the last file its final name. Events after that are lost."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._file is None:
                self._open_for_the_end()
            self._end_file(is_last=True)
            if self._file is not None:
                self._abandon(self._file)

    def forsake(self) -> None:
        """Close the file as a killed writer leaves it: its end proves nothing. Later events are lost."""
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                self._abandon(self._file)

    def renew(self) -> None:
        """Become another writer: called in a forked child, where the file is still the parent's."""
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
        if self._file is None:
            self._open_next()
        if self._untold:
            self._put(JournalGap(self._untold, self._cause))
            logger.warning("the journal is written again; %d events are missing in it", self._untold)
            self._untold = 0
        self._put(event)

    def _put(self, event: object) -> None:
        file = self._file
        if file is None:
            raise OSError("no file is open")
        line = to_line(to_record(event, self._origin, self._ordinal, self._clock()))
        try:
            file.append(line, sync=self._fsync is Fsync.EVERY)
        except OSError:
            if file.is_torn:
                self._abandon(file)
            raise
        self._ordinal += 1

    def _open_next(self) -> None:
        number = self._number + 1
        name = f"{self._role.value}-{self.writer}-{number:06}.jsonl"
        self._file = JournalFile(self.directory, name)
        self._number = number
        try:
            self._put(JournalOpened(number))
        except OSError:
            if self._file is not None:
                self._discard(self._file)
            raise

    def _open_for_the_end(self) -> None:
        """The last file of a writer says so, even if it holds nothing else."""
        try:
            self._open_next()
        except OSError as error:
            logger.error("the journal ends without its last record: %s", _why(error))

    def _roll_when_full(self) -> None:
        if self._file is not None and self._file.size >= self._roll_bytes:
            self._end_file(is_last=False)

    def _end_file(self, *, is_last: bool) -> None:
        """Close the current file. If its last record cannot be written it stays open, to grow further."""
        file = self._file
        if file is None:
            return
        try:
            if is_last and self._untold:
                self._put(JournalGap(self._untold, self._cause))
            self._put(JournalClosed(self._number, file.records + 1, self._lost, is_last))
        except OSError as error:
            if is_last or not self._is_overdue:  # tried again at every event: said once
                logger.error("a file of the journal cannot be closed now: %s", _why(error))
            self._is_overdue = True
            return
        self._file, self._is_overdue = None, False
        try:
            file.finish(sync=self._fsync is not Fsync.NEVER)
        except OSError as error:
            logger.error("a file of the journal keeps the name %s: %s", file.open_path.name, _why(error))

    def _discard(self, file: JournalFile) -> None:
        """A file without its first record is none; its number is used again."""
        self._abandon(file)
        self._number -= 1
        file.open_path.unlink(missing_ok=True)

    def _abandon(self, file: JournalFile) -> None:
        self._file = None
        try:
            file.abandon()
        except OSError as error:
            logger.error("a file of the journal cannot be closed: %s", _why(error))

    def _missed(self, error: Exception) -> None:
        self._lost += 1
        self._untold += 1
        self._cause = _why(error)
        if self._untold == 1:
            logger.error("the journal cannot be written: %s; events are missing in it from now", self._cause)


def _why(error: Exception) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error)
