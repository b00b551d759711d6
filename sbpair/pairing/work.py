"""What runs beside the caller's thread?

One watching thread for each client (:class:`Watch`): it ends calls that overran (G-18) and lets the
pair's timers run. And short-lived workers (:class:`Workers`) for what can hang in a way that nobody can
end from outside: a name lookup, a token, a TLS handshake. They are counted and capped.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from azure.servicebus.exceptions import OperationTimeoutError

_logger = logging.getLogger("sbpair")

MOST_WORKERS = 64
POLL = 0.25  # seconds between two looks at the calls under way


class Job(threading.Thread):
    """One task on a thread of its own. Whoever stops waiting for it says what to clean up after it."""

    def __init__(self, name: str, task: Callable[[], object], finished: Callable[[Job], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.error: Exception | None = None
        self._task = task
        self._finished = finished
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._afterwards: Callable[[], object] | None = None

    def wait(self, seconds: float) -> bool:
        """Whether the task ended in time."""
        return self._done.wait(max(seconds, 0.0))

    def abandon(self, afterwards: Callable[[], object]) -> bool:
        """Nobody waits now; ``afterwards`` runs when the task ends; False if it has, and it never does."""
        with self._lock:
            if not self._done.is_set():
                self._afterwards = afterwards
                return True
        return False

    def run(self) -> None:
        try:
            self._task()
        except Exception as error:  # handed to the waiter; a job no one waits for logs its own
            self.error = error
        finally:
            with self._lock:
                self._done.set()
            try:
                if self._afterwards is not None:
                    self._afterwards()
            finally:
                self._finished(self)


class Workers:
    """The jobs of one client."""

    def __init__(self, most: int = MOST_WORKERS) -> None:
        self._most = most
        self._free = threading.Condition()
        self._running: set[Job] = set()

    def start(self, name: str, task: Callable[[], object], *, until: float = -math.inf) -> Job:
        """Run a task, once there is room for it: many at once need not mean that any of them hangs.

        Raises OperationTimeoutError when there is none by ``until``, or no thread can be had.
        """
        job = Job(name, task, self._forget)
        with self._free:
            if not self._free.wait_for(self._has_room, max(until - time.monotonic(), 0.0)):
                raise OperationTimeoutError(message=f"{self._most} earlier operations still hang")
            self._running.add(job)
        try:
            job.start()
        except RuntimeError as error:  # the system has no thread to give
            self._forget(job)
            raise OperationTimeoutError(message=f"no thread for {name}: {error}", error=error) from error
        return job

    def join(self, seconds: float) -> None:
        """Wait for what is running, so long at most."""
        until = time.monotonic() + seconds
        with self._free:
            running = list(self._running)
        for job in running:
            if job is not threading.current_thread() and job.wait(until - time.monotonic()):
                job.join(max(until - time.monotonic(), 0.0))  # it may be just being started: waited for first

    def _has_room(self) -> bool:
        return len(self._running) < self._most

    def _forget(self, job: Job) -> None:
        with self._free:
            self._running.discard(job)
            self._free.notify()


class Watched(Protocol):
    """A call under way. ``until``: when it must be ended; infinite while nothing is under way."""

    until: float

    def overrun(self) -> None: ...

    def release(self) -> None: ...


class Watch:
    """The one lasting thread of a client. It starts when there is something to watch.

    ``tick(now)`` lets the timers run and says when it wants to be called next.
    """

    def __init__(self, tick: Callable[[float], float | None]) -> None:
        self._tick = tick
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._woken = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, call: Watched) -> None:
        """Watch this call. Raises ValueError when closed: nobody would end it."""
        with self._lock:
            if self._is_closed:
                raise ValueError("the paired client is closed")
            self._watched.add(call)
        self.wake()

    def remove(self, call: Watched) -> None:
        with self._lock:
            self._watched.discard(call)

    def wake(self) -> None:
        """Look at the timers again: something changed."""
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="sbpair-watch", daemon=True)
                self._thread.start()
        self._woken.set()

    def release(self) -> None:
        """After a fork, in the child: let go of the parent's connections, stored or under way."""
        for call in list(self._watched):
            call.release()

    def close(self) -> None:
        """End every call under way, stop the thread and wait for it."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._woken.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            is_closed = self._is_closed  # read first: what is added before it is set is ended below
            wait = self._end_overrun(now, math.inf if is_closed else now)
            if is_closed and wait == math.inf:
                return
            if not is_closed:
                wait = min(wait, self._timers(now))
            self._woken.wait(None if wait == math.inf else max(wait, 0.0))
            self._woken.clear()

    def _end_overrun(self, now: float, due: float) -> float:
        """End the calls that were to end by ``due``; how long the next may still take."""
        with self._lock:
            under_way = [call for call in self._watched if call.until != math.inf]
            wait = POLL if self._watched and due != math.inf else math.inf
        for call in under_way:
            if call.until <= due:
                call.overrun()
            wait = min(wait, max(call.until - now, 0.0), POLL)
        return wait

    def _timers(self, now: float) -> float:
        try:
            due = self._tick(now)
        except Exception:  # the outermost loop of a daemon: it must outlive one bad turn
            _logger.exception("the timers of a paired client failed")
            return 1.0
        return math.inf if due is None else due - time.monotonic()
