"""A processor for tests: it runs in its own thread, and records the messages that it handled and the events."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from sbpair.pair.processor.events import ProcessorEvent
from sbpair.pair.processor.message import ReceivedMessage
from sbpair.pair.processor.options import ProcessorOptions
from sbpair.pair.processor.status import ProcessorCounters

from .pair import NamespacePair

GLANCE = 0.005  # seconds between two readings of the counters
Handler = Callable[[ReceivedMessage], object]


class RunningProcessor:
    """A processor of ``path`` on a pair. A context manager: leaving it stops the processor.

    ``handler`` is a function or a coroutine function, called in the processor's thread; without one, every message is
    completed. Leaving raises the error that ended the processor, if any.
    """

    def __init__(
        self,
        pair: NamespacePair,
        path: str,
        handler: Handler | None = None,
        options: ProcessorOptions | None = None,
    ) -> None:
        self.messages: list[ReceivedMessage] = []
        """The messages whose handler returned, in that order."""
        self.events: list[ProcessorEvent] = []
        """The events of the processor, in order."""
        self._pair = pair
        self._path = path
        self._handler = handler
        self._options = options
        self._counters: Callable[[], ProcessorCounters] = ProcessorCounters
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._is_started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"processor of {path}", daemon=True)

    def __enter__(self) -> RunningProcessor:
        self._thread.start()
        self._is_started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    @property
    def counters(self) -> ProcessorCounters:
        """A copy of the processor's current counters."""
        return self._counters()

    def wait_completed(self, count: int, within: float = 30.0) -> list[ReceivedMessage]:
        """Wait until ``count`` messages are completed, ``within`` seconds at most, and return those handled.

        Raises AssertionError when they are not, or the error that ended the processor.
        """
        self.wait_until(lambda: self.counters.completed >= count, f"{count} completed messages", within)
        return list(self.messages)

    def wait_until(self, holds: Callable[[], bool], what: str, within: float = 30.0) -> None:
        """Wait for a condition, ``within`` seconds at most. Raises as :meth:`wait_completed`."""
        deadline = time.monotonic() + within
        while not holds():
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} within {within:g} s; {self.counters}; {self.events[-5:]}")
            time.sleep(GLANCE)

    def _run(self) -> None:
        try:
            asyncio.run(self._process())
        except BaseException as error:  # raised where the test waits
            self._failure = error
        finally:
            self._is_started.set()

    async def _process(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._pair.async_client() as client:
            processor = client.get_queue_processor(self._path, self._handle, options=self._options)
            processor.on_event(self.events.append)
            self._counters = lambda: processor.counters
            async with processor:
                self._is_started.set()
                await self._stop.wait()

    async def _handle(self, message: ReceivedMessage) -> None:
        outcome = None if self._handler is None else self._handler(message)
        if inspect.isawaitable(outcome):
            await outcome
        self.messages.append(message)
