"""Pool of asyncio SDK senders to one entity, with a deadline for every call.

Calls share senders, as they do with the SDK. The pool opens another sender when one is crowded; no call waits for that
while any sender is open. While links are lost repeatedly, each sender takes fewer calls, and several senders are opened
at once. Opening runs in its own task and continues after the call that started it.

A send over a shared link runs in its caller's task; any other call has a task of its own. If that call overruns its
deadline or its caller is cancelled, the pool does not wait for the SDK to clean up: the task is cancelled, the sender
takes no more calls, and its connection is dropped after its last call.
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
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbpair.pair.ground.own_copy import own_copy
from sbpair.pair.tracing import current

from ..decide.crowding import Crowding
from ..shared.address import HostName
from ..shared.base_pool import openings_at_once
from ..shared.waiting import (
    MAX_LATE_OPENINGS,
    MAX_OPENING_SECONDS,
    OVERDUE,
    SignsOfLife,
    StillWaitingError,
)
from .wire import AsyncWire

_logger = logging.getLogger("sbpair")
T = TypeVar("T")

GRACE = 0.05  # seconds after the deadline before a call is ended
LOOK = 0.2  # seconds between two checks of an opening
ABORT_GRACE = 0.1  # seconds within which a call fails on its own once its connection is gone
CLOSE_TIMEOUT = 2.0  # seconds for closing a link, and for a cancelled call to end
CLOSED = "The paired client was closed during a call."
MAX_SENDERS = 16  # per entity
IDLE = 60.0  # seconds after which unused senders, except the last, are closed


class Tasks:
    """Background tasks: named, logged when they fail, awaited when the client closes."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()
        self._ending: set[asyncio.Task[object]] = set()

    def start(self, name: str, task: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task in the background."""
        started = asyncio.get_running_loop().create_task(task, name=name, context=current.background())
        self._running.add(started)
        started.add_done_callback(self._ended)
        return started

    def let_end(self, name: str, task: Coroutine[Any, Any, T]) -> None:
        """Run a short cleanup task, which :meth:`cancel` lets continue."""
        self._ending.add(self.start(name, task))

    def cancel(self) -> None:
        """Cancel all tasks except those of :meth:`let_end`."""
        for task in self._running - self._ending - {asyncio.current_task()}:
            task.cancel()

    async def join(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the running tasks, and for any that they start."""
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
    """One SDK sender, and the calls in progress on it."""

    __slots__ = ("_calls", "calls", "has_overrun", "is_retired", "opened_at", "sender", "used_at", "wire")

    def __init__(self, sender: ServiceBusSender, *, is_plain: bool = False) -> None:
        self.sender = sender
        self.wire = AsyncWire(sender, is_plain=is_plain)
        self.opened_at = math.inf
        """When its link was open; a failure of a call that began later may mean that the link died while idle."""
        self.has_overrun = False
        """Whether the pool dropped its connection during a call."""
        self.is_retired = False
        self.calls = 0
        self.used_at = time.monotonic()
        """When a call last succeeded on it."""
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def is_open(self) -> bool:
        """Whether the SDK keeps the link for another send."""
        return self.wire.is_open()

    def deletion(self) -> MessagingEntityNotFoundError | None:
        """The error of the link if its entity was deleted; None otherwise."""
        return self.wire.deletion()

    @property
    def has_room(self) -> bool:
        """Whether the sender can take one more call."""
        return self.calls == 0 or self.wire.can_share

    async def run(self, call: Coroutine[Any, Any, T], until: float) -> T:
        """Run an SDK call that must end by ``until``.

        Raises the SDK's exceptions, OperationTimeoutError after the deadline, and ServiceBusConnectionError when the
        client was closed during the call; in both cases the messages may have been stored. A result that arrived
        before the close is returned.
        """
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        try:
            await asyncio.wait((task,), timeout=max(until + GRACE - time.monotonic(), 0.0))
        finally:
            if task.done():  # also where the caller was cancelled as the call failed
                self._ended(task)
            else:
                self._leave(task)
        if not task.done():
            raise OperationTimeoutError(message="The call did not end by its deadline.")
        if task.cancelled() or (self.has_overrun and task.exception() is not None):
            raise ServiceBusConnectionError(message=CLOSED)  # ended by abort()
        return task.result()

    async def send(self, call: Coroutine[Any, Any, T], until: float) -> T:
        """Send over a shared link in the caller's own task, which costs less than :meth:`run`. Raises as :meth:`run`.

        The call waits for the answer, and for a token when one is due. Cancelling ends either wait at once, unless the
        credential prevents it.
        """
        if not self.wire.is_shared:
            return await self.run(call, until)
        limit = self.wire.limits.within(until + GRACE - time.monotonic())
        try:
            with limit:
                return await call
        except Exception as error:
            if self.has_overrun:
                raise ServiceBusConnectionError(message=CLOSED) from error  # ended by abort()
            if limit.is_over:
                raise OperationTimeoutError(message="The call did not end by its deadline.") from error
            raise

    def abort(self) -> None:
        """Drop the connection, which ends the calls in progress.

        A call fails on its own without its connection. That is preferable to cancelling it, because exceptions of the
        SDK's tasks are lost in a cancelled ``wait_for`` (Python 3.11). Calls that wait for something else are
        cancelled after ABORT_GRACE, and calls that have not started at once.
        """
        self.has_overrun = True
        self.wire.abort()
        for call in self._calls:
            if inspect.getcoroutinestate(call.get_coro()) == inspect.CORO_CREATED:  # type: ignore[arg-type]
                call.cancel()
            else:
                asyncio.get_running_loop().call_later(ABORT_GRACE, call.cancel)
        self.wire.limits.shorten(ABORT_GRACE)

    def cut(self) -> None:
        """End the connection now, and with it every call in progress."""
        self.abort()

    async def close(self) -> None:
        """Close the link."""
        await self._end()

    async def discard(self) -> None:
        """Close at once, without waiting for the peer."""
        self.wire.abort()
        if self._calls:
            await asyncio.wait(self._calls, timeout=CLOSE_TIMEOUT)
        await self._end()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        """End a call that is late or whose caller was cancelled."""
        self.is_retired = True
        task.add_done_callback(self._ended)
        if self.calls <= 1:
            self.abort()
        else:  # the connection serves other calls
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller may have received another error

    async def _end(self) -> None:
        self.wire.let_close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.sender.close()
        except Exception as error:  # closing is best effort: the peer may be gone
            _logger.debug("closing a sender: %s", type(error).__name__)
        finally:
            await self.wire.release()


class _Opening:
    """A sender that is being opened."""

    def __init__(self) -> None:
        self.pooled: AsyncPooledSender | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_late = False
        """Whether a call gave up on it because the peer was silent: the next call opens another."""
        self.is_over = False
        self.has_begun = False
        self.began = time.monotonic()
        self.progress = SignsOfLife(self.began, self._sign)
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin the opening, when its turn has come: from now on the peer's time is measured."""
        self.has_begun, self.began = True, time.monotonic()

    def _sign(self) -> object:
        """Return a value that changes with each sign of life of the peer, and all the time while waiting for a turn."""
        if not self.has_begun:
            return time.monotonic()
        return None if self.pooled is None else self.pooled.wire.signs()

    def probe(self) -> None:
        """Check the progress of the opening every LOOK seconds until it is over."""
        self.progress.probe(time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(LOOK, self.probe)

    def end(self) -> None:
        """Mark the opening as over and stop checking."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()


async def _at_once() -> None:
    """The default of ``find``: no look-up is needed."""


class AsyncSenderPool:
    """The senders to one entity.

    ``find`` looks up the host before a link is opened. All pools of one namespace have the same ``name``, and share
    ``openings``, which limits how many links are opened at a time. ``failed`` is called with the error of an opening
    for which no call waited, ``opened`` with every sender that was opened. ``is_plain`` leaves the SDK's own behaviour
    unchanged.
    """

    def __init__(
        self,
        make: Callable[[], ServiceBusSender],
        tasks: Tasks,
        *,
        find: Callable[[], Awaitable[None]] = _at_once,
        failed: Callable[[Exception], None] | None = None,
        opened: Callable[[], object] = lambda: None,
        openings: asyncio.Semaphore | None = None,
        name: HostName | None = None,
        is_plain: bool = False,
    ) -> None:
        self._opened_one = opened
        self._turn = openings or asyncio.Semaphore(openings_at_once())
        self._name = name or HostName()
        self._make = make
        self._tasks = tasks
        self._find = find
        self._failed = failed
        self._is_plain = is_plain
        self._is_closed = self._is_ended = False
        self._senders: list[AsyncPooledSender] = []  # open to calls; the first ones are filled first
        self._leaving: set[AsyncPooledSender] = set()  # closed to calls, until their last one has ended
        self._doubted_at = -math.inf  # when a call last failed in a way that leaves its link in doubt
        self._crowding = Crowding()
        self._opening: _Opening | None = None  # the one for which calls wait
        self._beside: dict[_Opening, None] = {}  # others for which they wait, while calls keep apart
        self._outdated: set[_Opening] = set()  # continue, but their failures do not count
        self._waiters: dict[object, asyncio.Future[None]] = {}  # by call that waits or was woken, in order

    @property
    def links(self) -> int:
        """The number of open senders."""
        return len(self._senders) + len(self._leaving)

    @property
    def calls(self) -> int:
        """The number of calls in progress."""
        return sum(pooled.calls for pooled in (*self._senders, *self._leaving))

    def try_acquire(self) -> AsyncPooledSender | None:
        """Return an open sender with room for one more call, or None."""
        for pooled in self._senders:
            if pooled.calls < self._crowding.limit and pooled.has_room:
                pooled.calls += 1
                return pooled
        if self._senders:
            self._open_another()
        if self._crowding.is_reduced and len(self._senders) < MAX_SENDERS:
            return None  # while links are lost under others, a call waits for one of its own
        return self._share()

    def _share(self) -> AsyncPooledSender | None:
        """Return the sender with room that has the fewest calls, or None."""
        least = min(
            (each for each in self._senders if each.has_room), key=lambda each: each.calls, default=None
        )
        if least is not None:
            least.calls += 1
        return least

    async def acquire(self, until: float, *, is_fresh: bool = False) -> AsyncPooledSender:
        """Return a sender for one call that must end by ``until``.

        With ``is_fresh``, senders on which no call has succeeded since the last failure are not used. Raises the SDK's
        exceptions, OperationTimeoutError when the peer does not open the link, StillWaitingError when the link was not
        open in time for another reason or :meth:`recall` was called, and ServiceBusError when the client is closed.
        """
        if is_fresh:
            self._retire(self._doubted_at, spares_busy=self._crowding.is_reduced)
        call = object()
        try:
            while (pooled := self.try_acquire()) is None:
                if self._is_ended:
                    raise ServiceBusError(CLOSED)
                self._open_another()
                try:
                    await self._wait(until, call)
                except StillWaitingError:
                    raise
                except Exception:  # no link of its own can be opened
                    if self._is_ended or time.monotonic() >= until or (pooled := self._share()) is None:
                        raise
                    break
            return pooled
        finally:
            self._waiters.pop(call, None)

    def release(self, pooled: AsyncPooledSender) -> None:
        """Return a sender after a successful call."""
        pooled.used_at = time.monotonic()
        if self._crowding.is_reduced:
            self._crowding.succeeded(pooled.used_at)
        self._left(pooled, is_sound=True)

    def discard(self, pooled: AsyncPooledSender) -> None:
        """Retire a sender after a call that leaves its state in doubt; other calls on it may finish."""
        if pooled in self._senders:  # the first of those that share it
            self._doubted_at = time.monotonic()
            self._crowding.lost(pooled.opened_at, self._doubted_at)
        self.abandon(pooled)

    def abandon(self, pooled: AsyncPooledSender) -> None:
        """Retire a sender after a cancelled call, which does not count as a failure of its link."""
        pooled.is_retired = True
        self._left(pooled, is_sound=False)

    def warm(self) -> None:
        """Open a sender in the background, so that the first call finds one."""
        if not self._senders:
            self._open_another()

    async def warmed(self, until: float) -> None:
        """Wait until a sender is open, opening failed, or ``until``. Raises nothing."""
        self.warm()
        task = None if self._opening is None or self._senders else self._opening.task
        if task is not None:
            await asyncio.wait((task,), timeout=max(until - time.monotonic(), 0.0))

    async def try_out(self, until: float) -> None:
        """Open and close a separate link as a check. Raises the SDK's exceptions."""
        with self._name.opening():
            await self._find()
            pooled = AsyncPooledSender(self._make(), is_plain=self._is_plain)
            try:
                await pooled.run(pooled.sender.__aenter__(), until)
            except BaseException:
                self._tasks.let_end("sbpair-close", pooled.discard())
                raise
        self._tasks.let_end("sbpair-close", pooled.close())

    def recall(self) -> None:
        """End the wait of every call with StillWaitingError, so that its flow decides again."""
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(StillWaitingError(message="The entity failed over meanwhile."))

    def renew(self) -> None:
        """Give later calls only senders opened after this call, and open one for the calls that wait."""
        self._retire(time.monotonic())
        self._outdate(self._awaited_openings())
        if any(not waiter.done() for waiter in self._waiters.values()):
            self._open_another()

    def trim(self, now: float, keep: int = 1) -> float | None:
        """Close idle senders, all but ``keep``. Returns when to check again."""
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
        """Close idle senders now and the others when they are released; with ``now``, abort calls in progress too."""
        self._is_closed, self._is_ended = True, now
        self._close_idle()
        for opening in self._awaited_openings() if now or not self._waiters else ():
            if opening.task is not None:
                opening.task.cancel()
                opening.end()
        if now:
            self._wake(ServiceBusError(CLOSED))
            for pooled in (*self._senders, *self._leaving):
                pooled.abort()

    def _close_idle(self) -> None:
        for pooled in [pooled for pooled in self._senders if pooled.calls == 0]:
            self._senders.remove(pooled)
            self._tasks.let_end("sbpair-close", pooled.close())

    def _awaited_openings(self) -> list[_Opening]:
        """Return the openings for which calls wait."""
        return [*self._beside] if self._opening is None else [self._opening, *self._beside]

    def _outdate(self, openings: list[_Opening]) -> None:
        """Let later calls open links of their own instead of waiting for these openings.

        The first MAX_LATE_OPENINGS openings continue, since a slow peer may still answer them; others end.
        """
        for opening in openings:
            self._forget(opening)
            self._outdated.add(opening)
            if len(self._outdated) > MAX_LATE_OPENINGS and opening.task is not None:
                opening.task.cancel()

    def _open_another(self) -> None:
        """Open another sender, unless enough are being opened: one, or after repeated losses one per waiting call."""
        self._outdate([opening for opening in self._awaited_openings() if opening.is_late])
        wanted = 1
        if self._crowding.is_reduced:
            wanted += sum(not waiter.done() for waiter in self._waiters.values())
        under_way = len(self._awaited_openings())
        if under_way >= min(wanted, MAX_SENDERS - len(self._senders)) or (self._is_closed and self._senders):
            return
        if self._opening is not None:
            self._beside[self._opening] = None
        self._opening = opening = _Opening()
        opening.probe()
        opening.task = self._tasks.start("sbpair-open", self._open(opening))
        opening.task.add_done_callback(lambda task: self._opening_ended(opening, task))

    def _end_opening(self, opening: _Opening) -> bool:
        """End an opening; return whether calls waited for it."""
        opening.end()
        self._outdated.discard(opening)
        return self._forget(opening)

    def _forget(self, opening: _Opening) -> bool:
        """Let no call wait for an opening; return whether any did."""
        is_awaited = opening is self._opening or opening in self._beside
        self._beside.pop(opening, None)
        if self._opening is opening:
            self._opening = self._beside.popitem()[0] if self._beside else None
        return is_awaited

    async def _open(self, opening: _Opening) -> None:
        try:
            async with self._turn:
                if not self._waiters and time.monotonic() - opening.began > OVERDUE:
                    raise StillWaitingError(message="No call waits for the link any more.")
                opening.begin()
                with self._name.opening():
                    async with asyncio.timeout_at(asyncio.get_running_loop().time() + MAX_OPENING_SECONDS):
                        await self._find()
                    opening.pooled = pooled = AsyncPooledSender(self._make(), is_plain=self._is_plain)
                    await pooled.run(pooled.sender.__aenter__(), opening.began + MAX_OPENING_SECONDS)
            if pooled.has_overrun:  # opened, but its connection was dropped at the same time
                raise ServiceBusError(CLOSED)
        except BaseException as error:
            if opening.pooled is not None:
                self._tasks.let_end("sbpair-close", opening.pooled.discard())
            if isinstance(error, StillWaitingError):  # no thread was free: a retry at once would fail too
                await asyncio.sleep(ABORT_GRACE)
            if isinstance(error, TimeoutError):
                error = OperationTimeoutError(message="The name of the host was not found in time.")
            self._opening_failed(opening, error)
            if not isinstance(error, Exception):
                raise
            return
        self._opened(opening, pooled)

    def _opening_ended(self, opening: _Opening, task: asyncio.Task[None]) -> None:
        """Clean up after an opening that was cancelled before its first step or during its pause."""
        if task.cancelled():
            self._opening_failed(opening, asyncio.CancelledError())

    def _opened(self, opening: _Opening, pooled: AsyncPooledSender) -> None:
        self._end_opening(opening)
        pooled.used_at = pooled.opened_at = time.monotonic()
        if self._is_ended or (self._is_closed and not self._waiters):
            self._tasks.let_end("sbpair-close", pooled.close())
            return
        self._senders.append(pooled)
        self._wake()
        self._opened_one()

    def _opening_failed(self, opening: _Opening, error: BaseException) -> None:
        if not self._end_opening(opening):
            return
        if not isinstance(error, Exception):  # cancelled: the client is being closed
            self._wake(ServiceBusError(CLOSED))
        elif self._awaited_openings():  # the other calls have openings of their own
            self._wake_first(error)
        elif self._waiters:
            self._wake(error)
        elif self._failed is not None and not self._is_closed:
            self._failed(error)

    async def _wait(self, until: float, call: object) -> None:
        """Wait until a sender may have room; a call that waits again keeps its place in the queue.

        Raises as :meth:`acquire`.
        """
        loop = asyncio.get_running_loop()
        waiter = self._waiters[call] = loop.create_future()
        timer = loop.call_at(loop.time() + until - time.monotonic(), self._late, waiter, self._opening)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._wake_first()  # of those that still wait, for the room that this call was given
            if self._is_closed and len(self._waiters) == 1:
                self._close_idle()
            raise
        finally:
            timer.cancel()

    def _late(self, waiter: asyncio.Future[None], first: _Opening | None) -> None:
        """Fail a call whose time is over, with the error of the opening that it waited for first or waits for now."""
        if waiter.done():
            return
        opening = self._opening if first is None or first.is_over else first
        if opening is None:
            waiter.set_exception(StillWaitingError(message="All links to the entity are in use."))
            return
        late = opening.progress.late(time.monotonic())
        opening.is_late = opening.is_late or not isinstance(late, StillWaitingError)
        waiter.set_exception(late)

    def _wake(self, error: Exception | None = None) -> None:
        for waiter in self._waiters.values():
            _end_wait(waiter, error)

    def _wake_first(self, error: Exception | None = None) -> None:
        waiter = next((waiter for waiter in self._waiters.values() if not waiter.done()), None)
        if waiter is not None:
            _end_wait(waiter, error)

    def _left(self, pooled: AsyncPooledSender, *, is_sound: bool) -> None:
        pooled.calls -= 1
        is_left = self._is_closed and all(waiter.done() for waiter in self._waiters.values())
        if not (pooled.is_retired or pooled.has_overrun or is_left):
            if self._waiters:
                self._wake_first()
            return
        if pooled in self._senders:
            self._senders.remove(pooled)
            self._leaving.add(pooled)
        if pooled.calls == 0:
            self._leaving.discard(pooled)
            is_good = is_sound and not (pooled.is_retired or pooled.has_overrun)
            self._tasks.let_end("sbpair-close", pooled.close() if is_good else pooled.discard())

    def _retire(self, before: float, *, spares_busy: bool = False) -> None:
        """Retire the senders on which no call succeeded after ``before``; with ``spares_busy``, only the idle ones."""
        for pooled in [pooled for pooled in self._senders if pooled.used_at <= before]:
            if pooled.calls and spares_busy:
                continue
            self._senders.remove(pooled)
            pooled.is_retired = True
            if pooled.calls:
                self._leaving.add(pooled)
            else:
                self._tasks.let_end("sbpair-close", pooled.discard())


def _end_wait(waiter: asyncio.Future[None], error: Exception | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(own_copy(error))
