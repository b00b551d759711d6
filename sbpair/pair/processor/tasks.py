"""Handlers as coroutine functions, called in a pool of tasks of the running loop.

    start() --> ready --> a worker: one handler, then the next that is ready
                  '-- while some are ready and all workers wait inside their handlers, more workers start

A task for each message would cost more than most handlers do. A worker ends when its handler was cancelled or has
changed context variables, so that every handler starts with the context of the processor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass

from .delivery import Delivery
from .message import ReceivedMessage
from .tracing import Span

SLICE = 0.005  # seconds for which a worker calls handlers before it yields to the loop
AsyncHandler = Callable[[ReceivedMessage], Awaitable[object]]
Finished = Callable[[Delivery, BaseException | None], None]


@dataclass(slots=True, eq=False)
class Worker:
    """A task that calls handlers."""

    invoker: TaskInvoker
    is_calling: bool = False
    """Whether a handler runs in it now."""


WORKER: ContextVar[Worker] = ContextVar("sbpair-handler")
"""The worker whose handler runs this code, or started the task that runs it."""


class TaskInvoker:
    """Calls a coroutine function; a lost lock cancels its task."""

    def __init__(self, handler: AsyncHandler, span: Span | None = None) -> None:
        """``span`` opens a tracing span around each call."""
        self._handler = handler if span is None else trace(handler, span)
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._ready: deque[tuple[Delivery, Finished]] = deque()
        self._is_beginning = False
        self._begun_at_once = 1

    def start(self, delivery: Delivery, finished: Finished) -> None:
        """Call the handler in a task; ``finished`` is called with the error it raised, or None."""
        self._ready.append((delivery, finished))
        if not self._is_beginning:
            self._is_beginning, self._begun_at_once = True, 1
            self._loop.call_soon(self._begin)

    def cancel(self, delivery: Delivery, why: Exception) -> None:
        """Cancel the handler; one that has not started is not called."""
        if delivery.task is not None:
            delivery.task.cancel(str(why))
            return
        for index, (each, finished) in enumerate(self._ready):
            if each is delivery:
                del self._ready[index]
                self._loop.call_soon(finished, delivery, asyncio.CancelledError(str(why)))
                return

    def is_called_from_handler(self) -> bool:
        """Whether the calling code belongs to a handler that still runs, in its own task or in one that it started."""
        worker = WORKER.get(None)
        return worker is not None and worker.invoker is self and worker.is_calling

    def _begin(self) -> None:
        """Start workers, twice as many in each turn of the loop, until no handler is ready."""
        for _ in range(min(self._begun_at_once, len(self._ready))):
            worker, context = Worker(self), self._context.copy()
            context.run(WORKER.set, worker)
            self._loop.create_task(self._work(worker), context=context)
        self._begun_at_once *= 2
        self._is_beginning = bool(self._ready)
        if self._is_beginning:
            self._loop.call_soon(self._begin)

    async def _work(self, worker: Worker) -> None:
        """Call the handlers that are ready."""
        ready, loop, task, context = self._ready, self._loop, asyncio.current_task(), copy_context()
        assert task is not None  # noqa: S101 - this is one
        began = loop.time()
        while ready:
            now = loop.time()
            if now - began > SLICE:
                await asyncio.sleep(0)
                began = now = loop.time()
                if not ready:
                    return
            delivery, finished = ready.popleft()
            delivery.task, delivery.started = task, now
            error: BaseException | None = None
            worker.is_calling = True
            try:
                await self._handler(delivery.message)
            except (Exception, asyncio.CancelledError) as raised:
                error = raised
            except BaseException as raised:
                finished(delivery, raised)
                raise
            finally:
                worker.is_calling = False
            delivery.task, delivery.seconds = None, loop.time() - now
            finished(delivery, error)
            if task.cancelling() or copy_context() != context:
                return


def trace(handler: AsyncHandler, span: Span) -> AsyncHandler:
    """Return a handler that opens ``span`` for each message and calls ``handler`` in it."""

    async def call(message: ReceivedMessage) -> None:
        with span(message):
            await handler(message)

    return call
