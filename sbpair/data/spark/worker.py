"""State shared by the tasks of one Python worker process of Spark: an event loop in a thread, and connections.

Tasks are blocking generators. Spark forks workers and reuses each until it has been idle for a minute, so the loop
and the connections belong to the process: they are created at first use, after the fork, and reused by later tasks.
Every wait has a timeout, because killing a task does not interrupt a wait. A journal, in contrast, belongs to its
task: Spark ends workers without notice, so a journal of the worker would never be closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar, cast

from sbpair.pair.envelope.names import namespace_label

if TYPE_CHECKING:
    from sbpair.pair.observation.journal import Journal
    from sbpair.pair.observation.record import WriterRole
    from sbpair.pair.observation.sinks import EventSource

    from .format_options import FormatOptions, PairReference

T = TypeVar("T")
ASKED_EVERY = 0.1  # seconds between two attempts to lock a file
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_kept: dict[tuple[int, Hashable], object] = {}
_lock = threading.Lock()


def submit(work: Coroutine[object, object, T]) -> Future[T]:
    """Start ``work`` on the event loop of this process."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def call(work: Coroutine[object, object, T], timeout: float) -> T:
    """The result of ``work``. Raises its exception, or TimeoutError after ``timeout`` seconds."""
    return wait(submit(work), timeout)


def wait(future: Future[T], timeout: float) -> T:
    """The result of ``future``. Raises TimeoutError after ``timeout`` seconds, and cancels the work."""
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise


def keep(key: Hashable, make: Callable[[], T]) -> T:
    """The object stored in this process under ``key``, created by ``make`` at first use.

    ``make`` must not call :func:`kept`, which holds a lock.
    """
    with _lock:
        place = (os.getpid(), key)
        if place not in _kept:
            _kept[place] = make()
        return cast(T, _kept[place])


def consumes_alone(what: str, patience: float) -> bool:
    """Whether this process is the only one of its driver that consumes ``what``; if so, it stays so until it ends.

    Waits ``patience`` seconds for another one that is ending. Always true outside of Spark, and on systems without
    ``fcntl``.
    """
    key, until = ("consumes", what), time.monotonic() + patience
    while not keep(key, lambda: _locks(what)):
        forget(key)
        if time.monotonic() >= until:
            return False
        time.sleep(ASKED_EVERY)
    return True


def _locks(what: str) -> bool:
    """Lock a file until this process ends; return False if another process has locked it.

    The driver removes the file at its end.
    """
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    if not os.path.isdir(directory):
        return True
    try:
        import fcntl  # late: other systems have none
    except ImportError:
        return True
    name = f"sbpair-{hashlib.sha256(what.encode()).hexdigest()[:32]}.lock"
    descriptor = os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


def forget(key: Hashable) -> None:
    """Drop the object under ``key``; the next :func:`kept` creates another."""
    with _lock:
        _kept.pop((os.getpid(), key), None)


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="sbpair-spark", daemon=True).start()
        return loop


def directory_of(given: FormatOptions) -> str | None:
    """The option ``journal``. Raises ValueError for a relative path."""
    journal = given.text("journal")
    if journal is not None and not os.path.isabs(journal):
        raise given.wrong("journal must be an absolute path: tasks run in directories of their own")
    return journal


def open_journal(
    stack: ExitStack, directory: str, role: WriterRole, pair: PairReference, source: EventSource
) -> Journal:
    """Open a journal that records the events of ``source``; ``stack`` closes it."""
    from sbpair.pair.observation.journal import Journal
    from sbpair.pair.observation.record import PairLabels  # imported here because readers do not need it
    from sbpair.pair.observation.sinks import attach

    primary = pair.primary_namespace_name or pair.primary.label
    labels = PairLabels(namespace_label(primary), pair.secondary.label)
    journal = stack.enter_context(Journal(directory, role=role, pair=labels))
    stack.callback(attach(source, journal))
    return journal
