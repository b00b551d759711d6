"""Threads of a client: workers, and the watch.

Each client has one permanent thread (:class:`Watch`), which ends calls that overrun their deadline and runs the
pair's timers. Short-lived workers (:class:`Workers`) run operations that can hang and cannot be interrupted: name
lookups, token requests, TLS handshakes. Their number is limited.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sbpair.pair.ground.interruptible import Flag, Waiter, Waiters
from sbpair.pair.tracing import current

from .waiting import StillWaitingError

_logger = logging.getLogger("sbpair")

MAX_WORKERS = 64
POLL = 0.25  # seconds between two checks of the calls in progress


class Job:
    """One task in its own thread. A caller that stops waiting hands the cleanup over with :meth:`abandon`.

    If a signal interrupts :meth:`start`, a thread may or may not exist: the call can be repeated, and the task runs
    once.
    """

    def __init__(self, name: str, task: Callable[[], object], finished: Callable[[Job], None]) -> None:
        self.name = name
        self.error: Exception | None = None
        self.has_begun = False
        self._tasks = [task]  # empty once a thread has begun it
        self._thread: threading.Thread | None = None
        self._finished = finished
        self._done = Flag()
        self._lock = threading.Lock()
        self._afterwards: Callable[[], object] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self._done.is_set()

    def start(self) -> None:
        """Begin. Raises RuntimeError when the system cannot create a thread."""
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the task; return whether it ended in time."""
        return self._done.wait(seconds)

    def join(self, until: float) -> None:
        """Wait for the thread until ``until``, unless it is the current one."""
        if self._thread is threading.current_thread() or not self.wait(until - time.monotonic()):
            return
        if self._thread is not None:  # it cannot be joined before it has started, hence the wait
            self._thread.join(max(until - time.monotonic(), 0.0))

    def abandon(self, afterwards: Callable[[], object]) -> bool:
        """Stop waiting: ``afterwards`` runs when the task ends. Returns False, and drops it, if the task has ended."""
        with self._lock:
            if not self._done.is_set():
                self._afterwards = afterwards
                return True
        return False

    def withdraw(self) -> bool:
        """Take the task back; return False if a thread has begun it."""
        try:
            self._tasks.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Run the task, in its thread."""
        try:
            task = self._tasks.pop()
        except IndexError:  # another thread, whose start was interrupted
            self._finished(self)
            return
        self.has_begun = True
        current.want(current.SdkSpans.NONE)
        try:
            task()
        except Exception as error:  # kept for the waiter
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

    def __init__(self, most: int = MAX_WORKERS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting = Waiters()
        self._running: set[Job] = set()
        self._queued: deque[Job] = deque()

    def start(self, name: str, task: Callable[[], object], *, until: float = -math.inf) -> Job:
        """Run a task as soon as a worker is free.

        Raises StillWaitingError when none is free by ``until``, or the system cannot create a thread.
        """
        job = Job(name, task, self.forget)
        try:
            while not self._is_added(job):
                if not self.has_room_by(until):
                    raise StillWaitingError(message=f"{self._most} earlier operations still hang")
            job.start()
        except RuntimeError as error:  # the system cannot create a thread
            self.forget(job)
            raise StillWaitingError(message=f"no thread for {name}: {error}", error=error) from error
        except BaseException:
            if job.withdraw():  # no thread has begun it
                self.forget(job)
            raise
        return job

    def has_room_by(self, until: float) -> bool:
        """Wait up to ``until`` for a free worker, which another caller may take first; return whether there is one."""
        waiter = Waiter()
        try:
            self._waiting[waiter] = None
            while not self._has_room():
                if not waiter.wait(until - time.monotonic()):
                    return self._has_room()
            return True
        finally:
            self._waiting.pop(waiter, None)

    def _is_added(self, job: Job) -> bool:
        with self._lock:
            if self._has_room():
                self._running.add(job)
                return True
        return False

    def queue(self, name: str, task: Callable[[], object]) -> Job:
        """Run a task when a worker and a thread are available; :meth:`push` tries again."""
        job = Job(name, task, self.forget)
        self.enqueue(job)
        return job

    def enqueue(self, job: Job) -> None:
        """Queue a job that exists already, as :meth:`queue`."""
        with self._lock:
            self._queued.append(job)
        self.push()

    def push(self) -> None:
        """Start queued tasks while workers are free."""
        while True:
            job: Job | None = None
            try:
                with self._lock:
                    if not self._queued or not self._has_room():
                        return
                    job = self._queued[0]
                    self._running.add(job)
                    self._queued.popleft()
                job.start()
            except BaseException as error:
                if job is not None:
                    self._put_back(job)
                if job is None or not isinstance(error, RuntimeError):
                    raise
                # the system cannot create a thread now
                _logger.warning("no thread for %s, retrying later: %s", job.name, error)
                return

    def _put_back(self, job: Job) -> None:
        with self._lock:
            self._running.discard(job)
            if job not in self._queued:
                self._queued.appendleft(job)

    def withdraw(self, job: Job) -> bool:
        """Take a queued task back; return False if it has been started."""
        with self._lock:
            if job not in self._queued:
                return False
            self._queued.remove(job)
        return job.withdraw()  # its start may have been interrupted, and a thread have begun it

    def join(self, seconds: float) -> None:
        """Wait up to ``seconds`` for queued and running tasks."""
        until = time.monotonic() + seconds
        self.push()
        with self._lock:
            running = [*self._running, *self._queued]
        for job in running:
            job.join(until)

    def _has_room(self) -> bool:
        return len(self._running) < self._most

    def forget(self, job: Job) -> None:
        """Free the worker of a job that has ended."""
        with self._lock:
            self._running.discard(job)
        self._waiting.wake_all()
        self.push()


def finish(name: str, task: Callable[[], object], seconds: float) -> bool:
    """Run a last task in a thread of its own, and wait up to ``seconds``; return whether it has ended.

    If the system cannot create a thread, the task runs in the current one. Raises its exception if it has ended.
    """
    try:
        job = Workers().start(name, task)
    except StillWaitingError:
        task()
        return True
    if not job.wait(seconds):
        return False
    if job.error is not None:
        raise job.error
    return True


class Watched(Protocol):
    """A connection on which calls are watched; ``until`` is the deadline of its call, infinite without one."""

    until: float

    def overrun(self) -> None: ...

    def release(self) -> None: ...


class Watch:
    """The permanent thread of a client, started on first use.

    ``tick(now)`` runs the timers and returns when to call it next.
    """

    def __init__(self, tick: Callable[[float], float | None]) -> None:
        self._tick = tick
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._woken = Waiter()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, call: Watched) -> None:
        """Watch this call. Raises ValueError once closed."""
        with self._lock:
            if self._is_closed:
                raise ValueError("the paired client is closed")
            self._watched.add(call)
        self.wake()

    def remove(self, call: Watched) -> None:
        with self._lock:
            self._watched.discard(call)

    def wake(self) -> None:
        """Check the timers again, after a change."""
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._begin()
        self._woken.wake()

    def _begin(self) -> None:
        """Start the thread; if the system cannot create one, the next call retries."""
        self._thread = threading.Thread(target=self._run, name="sbpair-watch", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            _logger.warning("no thread to watch calls and timers, retrying at the next call: %s", error)
        except BaseException:  # a thread may exist: it ends when it finds another in its place
            self._thread = None
            raise

    def release(self) -> None:
        """After a fork, in the child: release the parent's connections without sending anything."""
        for call in list(self._watched):
            call.release()

    def close(self) -> None:
        """End all calls in progress, stop the thread and wait for it."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._woken.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            now = time.monotonic()
            is_closed = self._is_closed  # read first, so that calls added before it was set are ended below
            wait = self._end_overrun(now, math.inf if is_closed else now)
            if is_closed and wait == math.inf:
                return
            if not is_closed:
                wait = min(wait, self._timers(now))
            self._woken.wait(wait)

    def _end_overrun(self, now: float, due: float) -> float:
        """End the calls due by ``due``. Returns the seconds until the next check."""
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
        except Exception:  # the thread must survive a failing timer
            _logger.exception("the timers of a paired client failed")
            return 1.0
        return math.inf if due is None else due - time.monotonic()
