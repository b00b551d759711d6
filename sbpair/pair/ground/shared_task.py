"""An asyncio task that several callers wait for, each of whom may be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def share(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin ``work`` as a task. asyncio never logs its error as "never retrieved", even if nobody waits for it."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve)
    return task


async def result_of(task: asyncio.Task[T]) -> T:
    """Wait for a task and return its result, or raise its error; a caller that is cancelled leaves it running.

    Unlike ``asyncio.shield``, which from Python 3.14 on reports an error that comes after a caller was cancelled.
    """
    if not task.done():
        await asyncio.wait([task])
    return task.result()


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
