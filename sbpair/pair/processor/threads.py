"""Handlers as functions, called in a bounded pool of threads.

loop --SimpleQueue--> threads --deque, one wake-up for many--> loop
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

from .delivery import Delivery
from .message import ReceivedMessage
from .tracing import Span

logger = logging.getLogger("sbpair.processor")

THREAD_AGAIN = 1.0  # seconds after a thread could not start

Handler = Callable[[ReceivedMessage], object]
Finished = Callable[[Delivery, BaseException | None], None]


class ThreadInvoker:
    """Calls a function in daemon threads, one for each handler that runs at the same time.

    A running function cannot be interrupted. When the lock is lost, ``message.auto_renew_error`` is set.
    """

    def __init__(self, handler: Handler, span: Span | None = None) -> None:
        """``span`` opens a tracing span around each call."""
        self._handler = handler if span is None else trace(handler, span)
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[Delivery | None] = SimpleQueue()
        self._ended: deque[tuple[Delivery, BaseException | None]] = deque()
        self._is_woken = False
        self._running = 0
        self._threads = 0
        self._adding: asyncio.TimerHandle | None = None
        self._finished: Finished | None = None
        self._handlers: set[int] = set()  # the threads in which a handler runs

    def start(self, delivery: Delivery, finished: Finished) -> None:
        """Call the handler in a thread; ``finished`` is called in the loop with the error it raised, or None.

        While no thread can be started, the call waits until one can, or until another call ends.
        """
        self._finished = finished
        self._running += 1
        self._calls.put(delivery)
        if self._adding is None:
            self._add_threads()

    def is_called_from_handler(self) -> bool:
        """Whether the calling thread runs a handler."""
        return threading.get_ident() in self._handlers

    def _add_threads(self) -> None:
        """Start the threads that are missing; if the system allows no more threads, try again in a moment."""
        self._adding = None
        while self._threads < self._running:
            thread = threading.Thread(target=self._work, name=f"sbpair-handler-{self._threads}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                logger.warning("handlers wait for a thread (%d): %s", self._running - self._threads, error)
                self._adding = self._loop.call_later(THREAD_AGAIN, self._add_threads)
                return
            self._threads += 1

    def cancel(self, delivery: Delivery, why: Exception) -> None:
        """Set ``auto_renew_error`` on the message of the handler."""
        delivery.message.auto_renew_error = why

    def close(self) -> None:
        """Let the threads end, each after its current call. Calls that wait for a thread never begin."""
        if self._adding is not None:
            self._adding.cancel()
        with suppress(Empty):
            while True:
                self._calls.get_nowait()  # its message is given back
        for _ in range(self._threads):
            self._calls.put(None)
        self._threads = 0

    def _work(self) -> None:
        handler, calls, ended = self._handler, self._calls, self._ended
        while (delivery := calls.get()) is not None:
            error: BaseException | None = None
            delivery.started = monotonic()
            self._handlers.add(threading.get_ident())
            try:
                handler(delivery.message)
            except BaseException as raised:
                error = raised
            self._handlers.discard(threading.get_ident())
            delivery.seconds = monotonic() - delivery.started
            ended.append((delivery, error))
            if not self._is_woken:
                self._is_woken = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop has closed: the processor stopped without this call
                    return

    def _collect(self) -> None:
        """Report the calls that have ended."""
        self._is_woken = False  # before the deque is read: a call that ends later wakes the loop again
        ended, finished = self._ended, self._finished
        assert finished is not None  # noqa: S101  (a call was started)
        while ended:
            delivery, error = ended.popleft()
            self._running -= 1
            finished(delivery, error)


def trace(handler: Handler, span: Span) -> Handler:
    """Return a handler that opens ``span`` for each message and calls ``handler`` in it."""

    def call(message: ReceivedMessage) -> None:
        with span(message):
            handler(message)

    return call
