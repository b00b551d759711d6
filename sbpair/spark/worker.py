"""What lives in one Python process of Spark: a loop in a thread, and what is open on it.

Tasks are blocking generators; workers are forked and used again for later tasks, until they have been idle
for a minute. So the loop and the connections belong to the process: made when first asked for, after the
fork, and found again by the next task. Every wait has an end: a task that is killed does not interrupt one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Future
from typing import TypeVar, cast

T = TypeVar("T")

_loops: dict[int, asyncio.AbstractEventLoop] = {}
_kept: dict[tuple[int, Hashable], object] = {}
_lock = threading.Lock()


def submit(work: Coroutine[object, object, T]) -> Future[T]:
    """Begin ``work`` on the loop of this process."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def call(work: Coroutine[object, object, T], timeout: float) -> T:
    """The result of ``work``, within ``timeout`` seconds. Raises TimeoutError, and what it raises."""
    return wait(submit(work), timeout)


def wait(future: Future[T], timeout: float) -> T:
    """The result of what was begun. Raises TimeoutError; the work is cancelled then."""
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise


def kept(key: Hashable, make: Callable[[], T]) -> T:
    """What is kept in this process under ``key``, made at first; ``make`` may not ask for another."""
    with _lock:
        place = (os.getpid(), key)
        if place not in _kept:
            _kept[place] = make()
        return cast(T, _kept[place])


def forget(key: Hashable) -> None:
    """Let it be made anew the next time."""
    with _lock:
        _kept.pop((os.getpid(), key), None)


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="sbpair-spark", daemon=True).start()
        return loop
