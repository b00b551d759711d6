"""Work that is given up when it is told to stop, and pauses that end early."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def unless(stop: asyncio.Event, work: Coroutine[object, object, T]) -> T | None:
    """Return the result of ``work``; cancel it and return None when ``stop`` is set first."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


class Pauses:
    """The pauses between attempts; :meth:`wake` ends those under way."""

    def __init__(self) -> None:
        self._waking: set[asyncio.Future[None]] = set()

    async def sleep(self, seconds: float) -> None:
        """Pause for ``seconds``, or until the next :meth:`wake`."""
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waking.add(waking)
        try:
            await asyncio.wait([waking], timeout=seconds)
        finally:
            self._waking.discard(waking)

    def wake(self) -> None:
        """End all pauses."""
        for waking in self._waking:
            if not waking.done():
                waking.set_result(None)
