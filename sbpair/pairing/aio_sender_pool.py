"""Pool of asyncio SDK senders to one entity, with a deadline for every call.

Calls share senders, as they do with the SDK (R-5). The pool opens another when one is crowded; no call waits
for that while any sender is open. Opening runs in its own task and outlives the call that started it (R-8).

Each call is its own task. When it is late or its caller is cancelled, nobody waits for the SDK to clean up:
the task is cancelled, the sender takes no more calls, and its connection is dropped after its last call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from .sdk import AsyncWire
from .waiting import LONGEST_OPENING, Progress, StillWaiting, own_copy

_logger = logging.getLogger("sbpair")
T = TypeVar("T")

GRACE = 0.05  # seconds: a call that ends just in time is left alone
LOOK = 0.2  # seconds between two checks of an opening
LONELY = 0.1  # seconds in which a call notices that its connection is gone
GOODBYE = 2.0  # seconds for telling the service, and for a cancelled call to end
CLOSED = "The paired client was closed while a call was under way."
MOST_SENDERS = 16  # to one entity
CROWD = 100  # calls on one pooled, above which another is opened
IDLE = 60.0  # seconds after which a sender that nobody uses is closed, but for the last


class Tasks:
    """Background tasks: named, logged when they fail, awaited when the client closes."""

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


class AsyncPooledSender:
    """One SDK sender, and the calls that are under way on it."""

    __slots__ = ("_calls", "calls", "has_overrun", "is_retired", "sender", "used_at", "was_reused", "wire")

    def __init__(self, sender: ServiceBusSender, *, is_plain: bool = False) -> None:
        self.sender = sender
        self.wire = AsyncWire(sender, is_plain=is_plain)
        self.was_reused = False
        """Whether a call has ended well on it: then a failure may mean that it had died since."""
        self.has_overrun = False
        """Whether its connection was dropped under a call, by us."""
        self.is_retired = False
        self.calls = 0
        self.used_at = time.monotonic()
        """When it last proved to work."""
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def is_open(self) -> bool:
        """Whether the SDK keeps the link for another send."""
        return self.wire.is_open()

    @property
    def has_room(self) -> bool:
        """Whether one more call can go over it."""
        return self.calls == 0 or self.wire.can_share

    async def run(self, call: Coroutine[Any, Any, T], until: float) -> T:
        """Run an SDK call that must end by ``until``.

        Raises what the SDK raises, OperationTimeoutError when it is late, ServiceBusConnectionError when
        the client was closed meanwhile: what was sent may have arrived. An answer that came is returned.
        """
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        try:
            await asyncio.wait((task,), timeout=max(until + GRACE - time.monotonic(), 0.0))
        finally:
            if not task.done():
                self._leave(task)
        if not task.done():
            raise OperationTimeoutError(message="The call did not end by its deadline.")
        self._calls.discard(task)
        if task.cancelled() or (self.has_overrun and task.exception() is not None):
            raise ServiceBusConnectionError(message=CLOSED)  # what ended it was our abort
        return task.result()

    def abort(self) -> None:
        """End the calls under way, without a word to the peer.

        Without its connection a call fails by itself, which is better than to cancel it: within a cancelled
        ``wait_for`` (of Python 3.11) the SDK's tasks fail unheard. One that waits for something else is
        cancelled a little later, and one that has not begun never does.
        """
        self.has_overrun = True
        self.wire.abort()
        for call in self._calls:
            if inspect.getcoroutinestate(call.get_coro()) == inspect.CORO_CREATED:  # type: ignore[arg-type]
                call.cancel()
            else:
                asyncio.get_running_loop().call_later(LONELY, call.cancel)

    async def close(self) -> None:
        """Close the link."""
        await self._end()

    async def discard(self) -> None:
        """Close at once, without waiting for the peer."""
        self.wire.abort()
        if self._calls:
            await asyncio.wait(self._calls, timeout=GOODBYE)
        await self._end()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        """The call is late, or nobody waits for it any more."""
        self.is_retired = True
        task.add_done_callback(self._unheard)
        if len(self._calls) == 1:
            self.abort()
        else:  # the others go on
            task.cancel()

    def _unheard(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # seen: whoever waited for it was told something else

    async def _end(self) -> None:
        self.wire.let_close()
        try:
            async with asyncio.timeout(GOODBYE):
                await self.sender.close()
        except Exception as error:  # the SDK tells the peer; whether that works does not matter here
            _logger.debug("closing a sender: %s", type(error).__name__)
        finally:
            await self.wire.release()


class _Opening:
    """A sender that is being opened."""

    def __init__(self) -> None:
        self.pooled: AsyncPooledSender | None = None
        self.task: asyncio.Task[None] | None = None
        self.began = time.monotonic()
        self.progress = Progress(
            self.began, lambda: None if self.pooled is None else self.pooled.wire.signs()
        )
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Look how far it is, now and then, until it is over."""
        self.progress.look(time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(LOOK, self.look)

    def is_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


async def _at_once() -> None:
    """The name of the host is known."""


class AsyncSenderPool:
    """The senders to one entity.

    ``find`` looks up the host beforehand. ``failed`` is told of an opening that failed while no call waited
    for it, ``opened`` of every pooled that is open. ``is_plain``: the SDK does as it always does.
    """

    def __init__(
        self,
        make: Callable[[], ServiceBusSender],
        tasks: Tasks,
        *,
        find: Callable[[], Awaitable[None]] = _at_once,
        failed: Callable[[Exception], None] | None = None,
        opened: Callable[[], object] = lambda: None,
        is_plain: bool = False,
    ) -> None:
        self._opened_one = opened
        self._make = make
        self._tasks = tasks
        self._find = find
        self._failed = failed
        self._is_plain = is_plain
        self._is_closed = self._is_ended = False
        self._senders: list[AsyncPooledSender] = []  # those that take calls; the first ones are filled first
        self._leaving: set[AsyncPooledSender] = (
            set()
        )  # those that take no more, until their last call has ended
        self._doubted_at = -math.inf  # when a call last failed in a way that leaves its link in doubt
        self._opening: _Opening | None = None
        self._waiters: dict[asyncio.Future[None], None] = {}  # calls that wait, the first one first

    @property
    def links(self) -> int:
        """How many are open."""
        return len(self._senders) + len(self._leaving)

    @property
    def calls(self) -> int:
        """How many calls are under way on them."""
        return sum(pooled.calls for pooled in (*self._senders, *self._leaving))

    def try_acquire(self) -> AsyncPooledSender | None:
        """An open sender with room for one more call, if there is one."""
        least: AsyncPooledSender | None = None
        for pooled in self._senders:
            if pooled.calls < CROWD and pooled.has_room:
                pooled.calls += 1
                return pooled
            if pooled.has_room and (least is None or pooled.calls < least.calls):
                least = pooled
        if self._senders:
            self._open_another()
        if least is not None:
            least.calls += 1
        return least

    async def acquire(self, until: float, *, is_fresh: bool = False) -> AsyncPooledSender:
        """A sender for one call that must end by ``until``.

        Raises what the SDK raises, OperationTimeoutError when no link opens, StillWaiting when none did in
        this time or :meth:`recall` was called, ServiceBusError when the client was closed meanwhile.
        """
        if is_fresh:
            self._retire(self._doubted_at)
        while (pooled := self.try_acquire()) is None:
            if self._is_ended:
                raise ServiceBusError(CLOSED)
            self._open_another()
            await self._wait(until)
        return pooled

    def release(self, pooled: AsyncPooledSender) -> None:
        """Return a sender after a successful call."""
        pooled.was_reused = True
        pooled.used_at = time.monotonic()
        self._left(pooled, is_sound=True)

    def discard(self, pooled: AsyncPooledSender) -> None:
        """Retire a sender after a call that leaves it in doubt; other calls on it may finish."""
        if pooled in self._senders:  # the first of those that share it
            self._doubted_at = time.monotonic()
        pooled.is_retired = True
        self._left(pooled, is_sound=False)

    def warm(self) -> None:
        """Open a sender in the background, so that the first call finds one."""
        if not self._senders:
            self._open_another()

    async def warmed(self, until: float) -> None:
        """Wait until a sender is open, or cannot be, or it is ``until``. Raises nothing."""
        self.warm()
        task = None if self._opening is None or self._senders else self._opening.task
        if task is not None:
            await asyncio.wait((task,), timeout=max(until - time.monotonic(), 0.0))

    async def try_out(self, until: float) -> None:
        """Open and close a link that no call uses, as a check. Raises what the SDK raises."""
        await self._find()
        pooled = AsyncPooledSender(self._make(), is_plain=self._is_plain)
        try:
            await pooled.run(pooled.sender.__aenter__(), until)
        except BaseException:
            self._tasks.let_end("sbpair-close", pooled.discard())
            raise
        self._tasks.let_end("sbpair-close", pooled.close())

    def recall(self) -> None:
        """End the wait of every call with StillWaiting, so that its flow decides again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(StillWaiting(message="The entity failed over meanwhile."))

    def renew(self) -> None:
        """The next call gets a sender that is opened from now on."""
        self._retire(time.monotonic())
        self._opening = None  # it goes on, and nobody waits for it

    def trim(self, now: float, keep: int = 1) -> float | None:
        """Close idle senders, all but ``keep``. Returns when to check again (R-13)."""
        idle = sorted(
            (pooled for pooled in self._senders if pooled.calls == 0), key=lambda pooled: pooled.used_at
        )
        spare = idle[: max(len(self._senders) - keep, 0)]
        for pooled in spare:
            if now >= pooled.used_at + IDLE:
                self._senders.remove(pooled)
                self._tasks.let_end("sbpair-close", pooled.close())
        if len(self._senders) <= keep:
            return None
        return max(min(pooled.used_at for pooled in self._senders), now - IDLE + LOOK) + IDLE

    def close(self, *, now: bool = False) -> None:
        """Close what is idle and what comes back; ``now``: end what is under way as well."""
        self._is_closed, self._is_ended = True, now
        for pooled in [pooled for pooled in self._senders if pooled.calls == 0]:
            self._senders.remove(pooled)
            self._tasks.let_end("sbpair-close", pooled.close())
        opening = self._opening
        if opening is not None and opening.task is not None and (now or not self._waiters):
            opening.task.cancel()
            opening.is_over()
        if now:
            self._wake(ServiceBusError(CLOSED))
            for pooled in (*self._senders, *self._leaving):
                pooled.abort()

    def _open_another(self) -> None:
        if (
            self._opening is not None
            or (self._is_closed and self._senders)
            or len(self._senders) >= MOST_SENDERS
        ):
            return
        self._opening = opening = _Opening()
        opening.look()
        opening.task = self._tasks.start("sbpair-open", self._open(opening))

    async def _open(self, opening: _Opening) -> None:
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + LONGEST_OPENING):
                await self._find()
            opening.pooled = pooled = AsyncPooledSender(self._make(), is_plain=self._is_plain)
            await pooled.run(pooled.sender.__aenter__(), opening.began + LONGEST_OPENING)
            if pooled.has_overrun:  # open, but its connection was dropped in the same moment
                raise ServiceBusError(CLOSED)
        except BaseException as error:
            if opening.pooled is not None:
                self._tasks.let_end("sbpair-close", opening.pooled.discard())
            if isinstance(error, StillWaiting):  # for a thread: those who wait shall not ask in vain at once
                await asyncio.sleep(LONELY)
            if isinstance(error, TimeoutError):
                error = OperationTimeoutError(message="The name of the host was not found in time.")
            self._opening_failed(opening, error)
            if not isinstance(error, Exception):
                raise
            return
        self._opened(opening, pooled)

    def _opened(self, opening: _Opening, pooled: AsyncPooledSender) -> None:
        opening.is_over()
        if self._opening is opening:
            self._opening = None
        pooled.used_at = time.monotonic()
        if self._is_ended or (self._is_closed and not self._waiters):
            self._tasks.let_end("sbpair-close", pooled.close())
            return
        self._senders.append(pooled)
        self._wake()
        self._opened_one()

    def _opening_failed(self, opening: _Opening, error: BaseException) -> None:
        opening.is_over()
        if self._opening is not opening:  # nobody waits for this one any more
            return
        self._opening = None
        if not isinstance(error, Exception):  # cancelled: the client is being closed
            self._wake(ServiceBusError(CLOSED))
        elif self._waiters:
            self._wake(error)
        elif self._failed is not None and not self._is_closed:
            self._failed(error)

    async def _wait(self, until: float) -> None:
        """Until there may be a sender with room. Raises as :meth:`acquire`."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = None
        timer = loop.call_at(loop.time() + until - time.monotonic(), self._late, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            del self._waiters[waiter]

    def _late(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            opening = self._opening
            late = StillWaiting(message="All links to the entity are in use.")
            waiter.set_exception(late if opening is None else opening.progress.late(time.monotonic()))

    def _wake(self, error: Exception | None = None) -> None:
        for waiter in self._waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(own_copy(error))

    def _left(self, pooled: AsyncPooledSender, *, is_sound: bool) -> None:
        pooled.calls -= 1
        if not (pooled.is_retired or pooled.has_overrun or self._is_closed):
            waiter = next((waiter for waiter in self._waiters if not waiter.done()), None)
            if waiter is not None:
                waiter.set_result(None)
            return
        if pooled in self._senders:
            self._senders.remove(pooled)
            self._leaving.add(pooled)
        if pooled.calls == 0:
            self._leaving.discard(pooled)
            is_good = is_sound and not (pooled.is_retired or pooled.has_overrun)
            self._tasks.let_end("sbpair-close", pooled.close() if is_good else pooled.discard())

    def _retire(self, before: float) -> None:
        """No further call goes over a sender that has not proved to work since then."""
        for pooled in [pooled for pooled in self._senders if pooled.used_at <= before]:
            self._senders.remove(pooled)
            pooled.is_retired = True
            if pooled.calls:
                self._leaving.add(pooled)
            else:
                self._tasks.let_end("sbpair-close", pooled.discard())
