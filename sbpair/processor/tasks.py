"""Handlers as coroutines: a task of the running loop for each message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .delivery import Delivery
from .message import ReceivedMessage

AsyncHandler = Callable[[ReceivedMessage], Awaitable[object]]


class TaskInvoker:
    """Calls a coroutine function; a lost lock cancels its task."""

    def __init__(self, handler: AsyncHandler) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()

    def start(self, delivery: Delivery, finished: Callable[[Delivery, BaseException | None], None]) -> None:
        """Call the handler in a task; ``finished`` is called with what it raised, or None."""
        delivery.task = self._loop.create_task(self._call(delivery, finished))

    def cancel(self, delivery: Delivery, why: Exception) -> None:
        """Cancel the handler."""
        if delivery.task is not None:
            delivery.task.cancel(str(why))

    async def _call(
        self, delivery: Delivery, finished: Callable[[Delivery, BaseException | None], None]
    ) -> None:
        error: BaseException | None = None
        delivery.started = self._loop.time()
        try:
            await self._handler(delivery.message)
        except (Exception, asyncio.CancelledError) as raised:
            error = raised
        except BaseException as raised:
            finished(delivery, raised)
            raise
        delivery.seconds = self._loop.time() - delivery.started
        finished(delivery, error)
