"""Over which connection does a call go, and how does it end in time? The asyncio skin's answer.

As in lanes.py each call has an SDK sender for itself, a *lane*. The call runs as a task of its own; when it
is late, or whoever waits is cancelled, nobody waits for the SDK's cleaning up: the connection is dropped,
the task cancelled, and its end awaited in the background.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from .sdk import AsyncWire

_logger = logging.getLogger("sbpair")
T = TypeVar("T")

GRACE = 0.05  # seconds: a call that ends just in time is left alone
LONELY = 0.1  # seconds in which a call notices that its connection is gone
GOODBYE = 2.0  # seconds for telling the service, and for a cancelled call to end
CLOSED = "The paired client was closed while a call was under way."
MOST_LANES = 16  # to one entity; further calls wait for one, within their own deadline


class Tasks:
    """What runs beside the callers: named, logged when it fails, awaited when the client closes."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()
        self._ending: set[asyncio.Task[object]] = set()

    def start(self, name: str, task: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task beside the caller."""
        started = asyncio.get_running_loop().create_task(task, name=name)
        self._running.add(started)
        started.add_done_callback(self._ended)
        return started

    def let_end(self, name: str, task: Coroutine[Any, Any, T]) -> None:
        """Run a task that ends by itself before long, and is not cancelled: it cleans up."""
        self._ending.add(self.start(name, task))

    def cancel(self) -> None:
        """Ask all of them to end, but for those that are about to."""
        for task in self._running - self._ending - {asyncio.current_task()}:
            task.cancel()

    async def join(self, seconds: float) -> None:
        """Wait for what is running, so long at most; what such a task starts in turn counts too."""
        until = time.monotonic() + seconds
        while (running := self._running - {asyncio.current_task()}) and time.monotonic() < until:
            await asyncio.wait(running, timeout=max(until - time.monotonic(), 0.0))

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        self._ending.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _logger.warning("%s failed: %s: %s", task.get_name(), type(error).__name__, error)


class AsyncLane:
    """One SDK sender, and the call it is busy with."""

    __slots__ = ("_call", "has_overrun", "sender", "was_reused", "wire")

    def __init__(self, sender: ServiceBusSender) -> None:
        self.sender = sender
        self.wire = AsyncWire(sender)
        self.was_reused = False
        self.has_overrun = False
        self._call: asyncio.Task[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the SDK keeps the link for another send."""
        return self.wire.is_open()

    async def run(self, call: Coroutine[Any, Any, T], until: float) -> T:
        """Let the SDK do this until then.

        Raises what the SDK raises, OperationTimeoutError when it is late, ServiceBusConnectionError when
        the client was closed meanwhile: what was sent may have arrived. An answer that came is returned.
        """
        self._call = task = asyncio.get_running_loop().create_task(call)
        try:
            await asyncio.wait((task,), timeout=max(until + GRACE - time.monotonic(), 0.0))
        finally:
            if not task.done():
                self.abort()
        if not task.done():
            raise OperationTimeoutError(message="The call did not end by its deadline.")
        self._call = None
        if task.cancelled() or (self.has_overrun and task.exception() is not None):
            raise ServiceBusConnectionError(message=CLOSED)  # what ended it was our abort
        return task.result()

    def abort(self) -> None:
        """End the call under way, without a word to the peer.

        Without its connection it fails by itself, which is better than to cancel it: within a cancelled
        ``wait_for`` (of Python 3.11) the SDK's tasks fail unheard. One that waits for something else is
        cancelled a little later, and one that has not begun never does.
        """
        self.has_overrun = True
        self.wire.abort()
        call = self._call
        if call is None:
            return
        if inspect.getcoroutinestate(call.get_coro()) == inspect.CORO_CREATED:  # type: ignore[arg-type]
            call.cancel()
        else:
            asyncio.get_running_loop().call_later(LONELY, call.cancel)

    async def close(self) -> None:
        """Say goodbye to the service."""
        await self._end(self.sender.close())

    async def discard(self) -> None:
        """End it at once; the peer is not asked."""
        self.wire.abort()
        if self._call is not None:
            await asyncio.wait((self._call,), timeout=GOODBYE)
            if self._call.done() and not self._call.cancelled():
                self._call.exception()  # seen: whoever waited for it was told something else
        await self._end(self.sender.close())

    async def _end(self, goodbye: Coroutine[Any, Any, object]) -> None:
        try:
            async with asyncio.timeout(GOODBYE):
                await goodbye
        except Exception as error:  # the SDK tells the peer; whether that works does not matter here
            _logger.debug("closing a sender: %s", type(error).__name__)
        finally:
            await self.wire.release()


class AsyncLanes:
    """The lanes to one entity."""

    def __init__(self, make: Callable[[], ServiceBusSender], tasks: Tasks) -> None:
        self._make = make
        self._tasks = tasks
        self._is_closed = self._is_ended = self._is_warming = False
        self._stored: deque[AsyncLane] = deque()
        self._busy: set[AsyncLane] = set()
        self._free = asyncio.Semaphore(MOST_LANES)

    async def stored(self) -> AsyncLane | None:
        """A lane from the store, if there is one; nobody waits for it."""
        if not self._stored or self._free.locked():
            return None
        await self._free.acquire()  # at once
        return self._reused()

    async def take(self, until: float, *, is_fresh: bool = False) -> AsyncLane:
        """A lane for one call that must end by ``until``.

        Raises what the SDK raises, OperationTimeoutError when it took too long, ServiceBusError when the
        client was closed meanwhile.
        """
        if is_fresh:
            self._drop_stored()
        await self._turn(until)
        return self._reused() if self._stored else await self._opened(until)

    def give(self, lane: AsyncLane) -> None:
        """The call is over and the lane is good for another."""
        if lane.has_overrun or self._is_closed:
            self.drop(lane)
            return
        self._busy.discard(lane)
        self._stored.append(lane)
        self._free.release()

    def drop(self, lane: AsyncLane) -> None:
        """The call failed in a way that leaves the lane in doubt."""
        self._busy.discard(lane)
        self._free.release()
        self._tasks.let_end("sbpair-close", lane.discard())

    async def warm(self, until: float) -> None:
        """Open a lane now, so that the first call finds one; at most one at a time."""
        if self._stored or self._is_warming:
            return
        self._is_warming = True
        try:
            self.give(await self.take(until))
        except ServiceBusError as error:  # then the send that needs it will say so
            _logger.debug("a link could not be opened ahead of need: %s", type(error).__name__)
        finally:
            self._is_warming = False

    async def try_out(self, until: float) -> None:
        """Open a link that nobody uses, and close it: whether that works. Raises as :meth:`take`."""
        await self._turn(until)
        lane = await self._opened(until)
        self._busy.discard(lane)
        self._free.release()
        self._tasks.let_end("sbpair-close", lane.close())

    def close(self, *, now: bool = False) -> None:
        """Close what is in store and what comes back; ``now``: end what is under way as well."""
        self._is_closed, self._is_ended = True, now
        while self._stored:
            self._tasks.let_end("sbpair-close", self._stored.pop().close())
        for lane in list(self._busy) if now else ():
            lane.abort()

    def _reused(self) -> AsyncLane:
        lane = self._stored.pop()
        lane.was_reused = True
        self._busy.add(lane)
        return lane

    async def _turn(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                await self._free.acquire()
        except TimeoutError:
            raise OperationTimeoutError(message=f"All {MOST_LANES} links to the entity are busy.") from None
        if self._is_ended:
            self._free.release()  # so that the next who waits hears of it
            raise ServiceBusError(CLOSED)

    async def _opened(self, until: float) -> AsyncLane:
        lane: AsyncLane | None = None
        try:
            lane = AsyncLane(self._make())
            self._busy.add(lane)
            await lane.run(lane.sender.__aenter__(), until)
            if lane.has_overrun:  # open, but its connection was dropped in the same moment
                raise ServiceBusError(CLOSED)
        except BaseException:
            if lane is None:
                self._free.release()
            else:
                self.drop(lane)
            raise
        return lane

    def _drop_stored(self) -> None:
        while self._stored:
            self._tasks.let_end("sbpair-close", self._stored.pop().discard())
