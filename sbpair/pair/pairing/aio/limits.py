"""Time limits of many short asyncio calls, checked by one coarse timer.

``asyncio.timeout`` makes a timer for each call, which costs a send more than the rest of this package. A
:class:`CallLimit` is checked every TICK seconds instead, so it ends its call up to TICK seconds late.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

TICK = 0.1  # seconds between two checks


class CallLimits:
    """The limits of the calls on one link, all in one event loop."""

    def __init__(self) -> None:
        self._active: set[CallLimit] = set()
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> CallLimit:
        """Return a context whose body is cancelled after ``seconds`` and then raises TimeoutError."""
        return CallLimit(self, asyncio.get_running_loop().time() + seconds)

    def shorten(self, seconds: float) -> None:
        """Limit the remaining time of calls in progress to ``seconds``."""
        until = asyncio.get_running_loop().time() + seconds
        for limit in self._active:
            limit.until = min(limit.until, until)

    def add(self, limit: CallLimit) -> None:
        self._active.add(limit)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK, self._check)

    def remove(self, limit: CallLimit) -> None:
        self._active.discard(limit)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK, self._check) if self._active else None
        now = loop.time()
        for limit in self._active:
            if now >= limit.until:
                limit.end()


class CallLimit:
    """The limit of one call, in the task that makes it. Nests like ``asyncio.timeout``."""

    __slots__ = ("_cancelling", "_limits", "_task", "is_over", "until")

    def __init__(self, limits: CallLimits, until: float) -> None:
        self.until = until
        self.is_over = False
        self._limits = limits
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def __enter__(self) -> Self:
        self._task = task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task")
        self._cancelling = task.cancelling()
        self._limits.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits.remove(self)
        task, self._task = self._task, None
        if task is None:
            return
        cancelling = task.uncancel() if self.is_over else task.cancelling()
        if cancelling > self._cancelling:  # by others
            if kind is None:  # the body swallowed the cancellation, as wait_for of Python 3.11 may
                raise asyncio.CancelledError
        elif self.is_over and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """Cancel the body, once."""
        if not self.is_over and self._task is not None:
            self.is_over = True
            self._task.cancel()
