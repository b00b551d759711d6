"""State shared by the tasks of one Python worker process of Spark: an event loop in a thread, and connections.

Tasks are blocking generators. Spark forks workers and reuses each until it has been idle for a minute, so the loop
and the connections belong to the process: they are created at first use, after the fork, and reused by later tasks.
Every wait has a timeout, because killing a task does not interrupt a wait. A journal, in contrast, belongs to its
task: Spark ends workers without notice, so a journal of the worker would never be closed.
"""

from __future__ import annotations

import asyncio
import os
import threading
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
