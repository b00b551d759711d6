"""The thread that writes a spool: sends pass their messages to it, and wait no longer than their time allows.

submit --> written with all that arrived meanwhile, in one transaction with one sync --> ``ended`` of each messages that
brokers accepted are deleted with the next write, or TIDY seconds later
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from sbpair.pair.ground.interruptible import Flag, Waiter

from ..errors import SpoolError
from .store import Entry, Spool, Ticket

_logger = logging.getLogger("sbpair")

TIDY = 0.25  # seconds for which deleting waits for something to write
MAX_UNTIDY = 512  # messages for which it does
REOPEN = 5.0  # seconds between two tries to open a file on a disk that fails
PAUSE = 1.0  # seconds between two tries to delete on a disk that fails


class Writing:
    """The write of one send. ``ended`` is called once when it ends, with its error or None, in any thread."""

    def __init__(self, writer: Writer, ended: Callable[[SpoolError | None], object]) -> None:
        self._writer = writer
        self._ended = ended
        self._done = Flag()
        self._error: SpoolError | None = None
        self._ticket: Ticket | None = None
        self._then: Callable[[], object] | None = None

    def begin(self, path: str, entries: Sequence[Entry]) -> None:
        """Pass the messages to the writer. Raises SpoolFullError when there is no room for them."""
        try:
            now = time.time_ns() // 1_000_000
            self._ticket = self._writer.submit(path, entries, now, self._end)
        except SpoolError as error:
            self._ended(error)
            raise

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the write; return whether it ended in time."""
        return self._done.wait(seconds)

    def then(self, call: Callable[[], object]) -> None:
        """Call a function when the write ends, in any thread, possibly twice."""
        self._then = call
        if self._done.is_set():
            call()

    def withdraw(self) -> bool:
        """Take the messages back; return False if they may be on disk nevertheless."""
        is_back = self._ticket is not None and self._writer.withdraw(self._ticket)
        if is_back:
            self._end(SpoolError("the write was withdrawn"))
        return is_back

    def check(self) -> None:
        """Raise the error with which the write ended, if any."""
        if self._error is not None:  # a copy: other threads raise it too
            raise type(self._error)(str(self._error)) from self._error

    def _end(self, error: SpoolError | None) -> None:
        self._error = error
        self._ended(error)
        self._done.set()
        if self._then is not None:
            self._then()


class Writer:
    """Writes to one spool. The thread starts with the first message; if that fails, with a later one.

    ``opened`` is called when a file that was absent can be opened.
    """

    def __init__(self, spool: Spool, opened: Callable[[], object]) -> None:
        self._spool = spool
        self._opened = opened
        self._woken = Waiter()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._tidy_at = math.inf

    def submit(
        self, path: str, entries: Sequence[Entry], now: int, ended: Callable[[SpoolError | None], object]
    ) -> Ticket:
        """Write the messages of one send, all or none; ``ended`` is called in another thread, with the error or None.

        ``now`` is in milliseconds since the epoch. Raises SpoolFullError when there is no room for them.
        """
        ticket = self._spool.submit(path, entries, now, ended)
        if self._is_running():
            self._woken.wake()
        else:
            self._spool.write_submitted()
        return ticket

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a ticket back; return False if its messages may be on disk."""
        return self._spool.withdraw(ticket)

    def tidy(self) -> None:
        """Delete soon the messages that brokers have accepted."""
        if self._tidy_at == math.inf:
            self._tidy_at = time.monotonic() + TIDY
        if self._is_running():
            self._woken.wake()

    def stop(self) -> None:
        """End the thread."""
        self._is_closed = True
        self._woken.wake()

    def _is_running(self) -> bool:
        """Start the thread if needed; return whether it runs."""
        if self._thread is not None:
            return True
        with self._starting:
            if self._thread is None and not self._is_closed:
                thread = threading.Thread(target=self._run, name="sbpair-spool-writer", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system cannot create one now
                    _logger.warning("no thread to write the spool, so sends write themselves: %s", error)
                    return False
                self._thread = thread
        return self._thread is not None

    def start(self) -> None:
        """Prepare to write, in the thread; if the file is absent, wait for it there."""
        self._is_running()

    def _run(self) -> None:
        while self._spool.absence is not None and not self._is_closed:
            self._woken.wait(REOPEN)
            self._reopen()
        self._spool.prepare()
        while not self._is_closed:
            self._woken.wait(self._tidy_at - time.monotonic())
            self._spool.write_submitted()
            undeleted = self._spool.undeleted
            if not undeleted:
                self._tidy_at = math.inf
            elif undeleted >= MAX_UNTIDY or time.monotonic() >= self._tidy_at:
                self._delete()

    def _reopen(self) -> None:
        try:
            if not self._is_closed and self._spool.reopen():
                _logger.warning("the spool %s can be written again", self._spool.path)
                self._opened()
        except SpoolError as error:
            _logger.error("%s", error)

    def _delete(self) -> None:
        try:
            self._spool.delete_accepted()
        except SpoolError as error:  # this process does not send them again
            _logger.warning("cannot delete replayed messages from the spool: %s", error)
            self._tidy_at = time.monotonic() + PAUSE
        else:
            self._tidy_at = math.inf
