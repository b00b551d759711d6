"""What threads share, such that the exception of a signal at any point leaves nothing taken.

CPython runs the handler of a signal, which may raise, between two instructions of the main thread: after a call, too,
before its result has a name. So

* what is taken moves from one container to another in one instruction (:func:`moving`), and who takes it makes the
  container first, and leaves with it in any case;
* no lock is the context of a ``threading.Condition`` or inside an ``Event``: their methods are Python, and an exception
  in them leaves the lock taken for ever. ``with`` of a plain lock is safe.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def moving(pop: Callable[[], T], count: int = 1) -> Iterator[T]:
    """``count`` items that leave their container as they are read: ``to.extend(moving(come_from.pop))``.

    With a ``pop`` and an ``extend`` of C this is one instruction: no signal and no thread comes between. Raises what
    ``pop`` raises of an empty container; what was moved before has moved. No item may be None.
    """
    return islice(iter(pop, None), count)


class Waiter:
    """The wait of one thread. A wake-up before the wait counts."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> bool:
        """Wait for the next wake-up, at most so many seconds; return whether it came."""
        return self._lock.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def wake(self) -> None:
        """End the wait, or the next one."""
        try:
            self._lock.release()
        except RuntimeError:  # it is awake
            return


class Waiters(dict[Waiter, None]):
    """The threads that wait for one change, the longest first.

    A thread adds its waiter before it looks whether there is a need to wait, and pops it in any case.
    """

    __slots__ = ()

    def wake_first(self) -> None:
        """Wake the one that has waited longest."""
        for waiter in list(self)[:1]:
            waiter.wake()

    def wake_all(self) -> None:
        """Wake all."""
        for waiter in list(self):
            waiter.wake()


class Flag(threading.Event):
    """A ``threading.Event`` that is set once, without the lock of one."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters = Waiters()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake who waits."""
        self._is_set = True
        self._waiters.wake_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most so many seconds; return whether it is."""
        waiter, seconds = Waiter(), math.inf if timeout is None else timeout
        try:
            self._waiters[waiter] = None
            if not self._is_set:
                waiter.wait(seconds)
        finally:
            self._waiters.pop(waiter, None)
        return self._is_set
