"""An asyncio task that several callers wait for, each of whom may be cancelled."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def share(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start ``work`` as a task. asyncio never logs its error as "never retrieved", even if nobody awaits it."""
    import asyncio  # late: a blocking client does without

    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve)
    return task


async def result_of(task: asyncio.Task[T]) -> T:
    """Wait for a task; return its result or raise its error. If the caller is cancelled, the task runs on.

    Unlike ``asyncio.shield``, it never logs an error of the task that occurs after the cancellation.
    """
    import asyncio

    if not task.done():
        await asyncio.wait([task])
    return task.result()


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
