"""Locks and flags that an exception from a signal handler cannot leave held.

CPython runs a signal handler, which may raise, between any two instructions of the main thread: even after a call has
returned and before its result is assigned. Therefore

* items move from one container to another in one instruction (:func:`moving`); the thread that takes
  them creates the target container first, and puts back in any case what is left in it;
* no lock is used through a ``threading.Condition`` or an ``Event``: their methods are written in
  Python, and an exception inside them leaves the lock held forever. ``with`` on a plain lock is safe.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from itertools import repeat, starmap
from typing import TypeVar

T = TypeVar("T")


def moving(pop: Callable[[], T], count: int = 1) -> Iterator[T]:
    """Yield ``count`` items as they are popped from their container: ``to.extend(moving(come_from.pop))``.

    If ``pop`` and ``extend`` are implemented in C, this is one instruction: no signal and no other thread can come
    between. When the container is empty, raises what ``pop`` raises; items moved before that stay moved.
    """
    return starmap(pop, repeat((), count))


class Waiter:
    """The wait of one thread. A wake-up before the wait counts."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, at most this many seconds; return whether there was one."""
        return self._lock.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def wake(self) -> None:
        """End the wait, or the next one."""
        try:
            self._lock.release()
        except RuntimeError:  # it is awake
            return


class Waiters(dict[Waiter, None]):
    """The threads that wait for the same change, ordered by waiting time, longest first.

    A thread adds its waiter before it checks whether it must wait, and removes it in any case.
    """

    __slots__ = ()

    def wake_first(self) -> None:
        """Wake the waiter that has waited the longest."""
        for waiter in list(self)[:1]:
            waiter.wake()

    def wake_all(self) -> None:
        """Wake all waiters."""
        for waiter in list(self):
            waiter.wake()


class Flag(threading.Event):
    """A ``threading.Event`` that is set once and never cleared, without the lock inside it."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters = Waiters()

    def is_set(self) -> bool:
        """Whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Set the flag, and wake the waiting threads."""
        self._is_set = True
        self._waiters.wake_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, at most ``timeout`` seconds; return whether it is set."""
        waiter, seconds = Waiter(), math.inf if timeout is None else timeout
        try:
            self._waiters[waiter] = None
            if not self._is_set:
                waiter.wait(seconds)
        finally:
            self._waiters.pop(waiter, None)
        return self._is_set
