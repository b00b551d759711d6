"""Runtime of an asyncio client: carries out the decisions of pair.py over azure.servicebus.aio.

Everything runs in one event loop, the one in which the client is first used, so there is no lock. One task runs the
pair's timers. Blocking work (the disk of the spool, the administration API) runs on threads.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from azure.core.credentials import TokenCredential
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair.pair.envelope.names import path_key
from sbpair.pair.ground.fork import reopen_after_fork
from sbpair.pair.ground.side import Side
from sbpair.pair.tracing import current

from ..decide.health import EntityState
from ..decide.pair import (
    Attempt,
    CreateBacklog,
    Pause,
    Peek,
    Result,
    SendFlow,
    SpoolMessages,
    Step,
)
from ..decide.pair_state import SideState
from ..decide.patience import Patience
from ..decide.steps import Choice
from ..errors import PairFaultedError
from ..events import PairingEvent
from ..options import PairedNamespaceOptions
from ..outcome import Outcome
from ..request import sdk
from ..request.classify import Phase
from ..request.headroom import SMALLEST_LIMIT
from ..request.request import LinkBatches, SendRequest, freeze
from ..shared.address import SdkNamespace
from ..shared.background import AsyncServices
from ..shared.backlog import backlogs_event
from ..shared.base_pool import openings_at_once, role_of, spare_links
from ..shared.base_runtime import ACCEPTED, BaseRuntime, logger, time_left, with_count
from ..shared.failures import closed_result, not_created_in_time, not_written, not_written_in_time
from ..shared.time_limits import (
    CLOSING,
    MAX_ENTRY_SECONDS,
    MAX_PING_SECONDS,
    MAX_PROBE_SECONDS,
    MOMENT,
    SPOOL_CLOSING,
)
from ..shared.turns import TaskTurns
from ..shared.waiting import NO_LINK_YET, StillWaitingError
from .sender_pool import AsyncPooledSender, AsyncSenderPool, Tasks
from .threads import Lookups, LoopCredential, Threads, call_in_loop, finish

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.servicebus.aio import ServiceBusClient

    from ..spool.replay import Spooling
    from ..spool.writer import Writing


class AsyncRuntime(BaseRuntime):
    """The state, links and tasks of one asyncio paired client.

    ``services_of`` makes the client's background services; they start when the client is first used.
    """

    def __init__(
        self,
        primary: SdkNamespace,
        secondary: SdkNamespace,
        label: str,
        options: PairedNamespaceOptions,
        rng: random.Random | None = None,
        *,
        services_of: Callable[[AsyncRuntime], AsyncServices] = lambda _: (None, None),
    ) -> None:
        super().__init__(
            primary, secondary, label, options, lambda: secondary.administration(self.bridge), rng
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = threading.Event()  # read by threads too
        self._closing = asyncio.Event()
        self._ending = asyncio.Lock()
        self._woken = asyncio.Event()
        self._tasks = Tasks()
        self._threads = Threads()
        self._lookups = {side.role: Lookups(side.hosts()) for side in (primary, secondary)}
        self._creating: dict[int, asyncio.Task[Exception | None]] = {}
        self._pools: dict[str, AsyncSenderPool] = {}
        self._with_spare: set[str] = set()  # keys of pools that may have more links than they keep idle
        self._openings = {role: asyncio.Semaphore(openings_at_once()) for role in Side}
        self._turns: dict[str, TaskTurns] = {}
        self._clients: dict[tuple[str, int | None], ServiceBusClient] = {}
        self.spool.open(
            label,
            self._send_again,
            self._emit,
            self._rng,
            self.headroom,
            self._timers_changed,
            is_read_later=True,
        )
        self._syphon, self._observer = services_of(self)
        self._beginning: asyncio.Task[None] | None = None
        self.lock = threading.Lock()  # for the fork handler only
        reopen_after_fork(self)

    def bind(self) -> None:
        """Bind the client to the running loop.

        Raises RuntimeError when the client is bound to another loop, or when none is running.
        """
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            raise RuntimeError(
                "this paired client belongs to another event loop; make one client for each loop"
            )
        self._loop = loop
        self._tasks.start("sbpair-timers", self._keep_time())
        if self._syphon is not None or self._observer is not None:
            self._beginning = self._tasks.start("sbpair-begin", self._begin())
        if self.creates_backlogs:
            self._tasks.start("sbpair-backlogs", self._create_backlogs())

    async def begin(self) -> None:
        """Start the background services. One that fails to start is retried on the next call.

        Raises OSError or ValueError of the first failure, after trying to start every service.
        """
        self.bind()
        beginning = self._beginning
        if beginning is None:
            return
        if beginning.done() and not self.sides.is_closed and (beginning.cancelled() or beginning.exception()):
            self._beginning = beginning = self._tasks.start("sbpair-begin", self._begin())
        await asyncio.shield(beginning)

    async def _begin(self) -> None:
        errors: list[Exception] = []
        for each in (self._observer, self._syphon):
            try:
                if each is not None:
                    await each.start()
            except (OSError, ValueError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def exclusive(self) -> AbstractContextManager[object]:
        """Return a context without a lock, because only the loop's thread uses the state.

        Raises RuntimeError in any other thread.
        """
        if self._loop is not None:
            self.bind()
        return nullcontext()

    # -- sending

    async def send_fast(
        self, key: str, message: AmqpAnnotatedMessage, started: float, seconds: float, patience: Patience
    ) -> Result | None:
        """Make the first attempt at a healthy entity over an idle link; None without an idle link."""
        self.bind()
        pool = self._pools.get(key)
        pooled = None if pool is None else pool.try_acquire()
        if pool is None or pooled is None:
            return None
        failed: Exception | None = None
        patience.waiting[started] = None
        try:
            call = pooled.sender.send_messages(sdk.wrap(message), timeout=seconds)
            await pooled.send(call, started + seconds)
        except Exception as error:
            failed = error
        except BaseException:
            self.failures.discard_cut(pool, pooled)
            raise
        finally:
            patience.waiting.pop(started, None)
        if failed is not None:  # outside the except block, where sys.exception() is the caller's
            return self.failures.of_attempt(
                pool, pooled, failed, Phase.SENDING, sys.exception(), freeze(message), started
            )
        pool.release(pooled)
        if not self.sides.state.is_whole:
            self._hear(None, ACCEPTED)
        return self._acceptance(pooled.used_at - started, patience)

    async def drive(
        self,
        path: str,
        request: SendRequest,
        choice: Choice,
        budget: float,
        first: Result | None,
        started: float,
    ) -> Outcome:
        """Carry out the flow of one send and return its outcome."""
        self.bind()
        if first is not None:
            self._hear(None, first)
        return await self._carry_out(self._flow(path, request, choice, started, budget, first), path, request)

    async def _carry_out(self, flow: SendFlow, path: str, request: SendRequest) -> Outcome:
        result: Result | None = None
        while True:
            try:
                step = flow.send(result) if result is not None else next(flow)
            except StopIteration as landed:
                return cast("Outcome", landed.value)
            finally:
                if self.pair.has_events:
                    self.publish()
            try:
                result = await self._perform(step, path, request)
            except BaseException:  # cancelled; the traceback may keep the flow, whose attempt has ended
                flow.close()
                raise

    def warm_backlog(self, path: str, choice: Choice) -> None:
        """Open the backlog link that an entity may need, while it is suspect."""
        backlog = None if self.sides.is_closed else self._backlog_to_warm(path, choice)
        if backlog is not None:
            self._backlog_pool(backlog).warm()

    async def enter(self, path: str) -> None:
        """Open a link for a sender whose context was just entered, if possible. Raises nothing."""
        self.bind()
        if self.pair.state_of(path) is not EntityState.FAILED_OVER:
            budget = self.options.operation_timeout.total_seconds()
            await self.primary_pool(path).warmed(time.monotonic() + min(budget, MAX_ENTRY_SECONDS))

    def turns_of(self, key: str) -> TaskTurns:
        """Return the turns of an entity, shared by all its senders."""
        return self._turns.setdefault(key, TaskTurns())

    def primary_pool(self, path: str) -> AsyncSenderPool:
        """Return the sender pool of a primary entity."""
        return self._pools.get(path_key(path)) or self._make_pool(path_key(path), self._primary, path)

    def publish(self) -> None:
        happened = self._happened()
        if self.spool.flow is not None:
            self.spool.flow.notify(happened)
        self._recall_doubtful(happened)
        if self._is_timer_earlier(happened):
            self._woken.set()
        self.dispatcher.deliver()

    def _timers_changed(self) -> None:
        if self._loop is not None:
            call_in_loop(self._loop, self._woken.set)

    def sdk_client(self, side: SdkNamespace, *, retry_total: int | None = 0) -> ServiceBusClient:
        """Return the SDK client for a side and retry setting, made on first use."""
        self.sides.check(side.role)
        key = (side.role, retry_total)
        if key not in self._clients:
            self._clients[key] = side.asyncio_client(retry_total=retry_total)
        return self._clients[key]

    # -- closing

    def release_path(self, path: str) -> None:
        """Close the links of an entity whose last sender was closed."""
        pool = self._pools.pop(path_key(path), None)
        if pool is not None:
            pool.close()

    async def close(self) -> None:
        """End operations in progress, close all links and stop all tasks and threads."""
        spooling = self.spool.flow
        if spooling is not None and self._loop is not None and not self.sides.is_closed:
            self.bind()
            await finish("sbpair-drain", lambda: spooling.drain(CLOSING), CLOSING)
        await self._end()
        if self._observer is not None and self._loop is not None:
            await self._observer.close()  # last, so that it sees every event

    async def _end(self) -> None:
        async with self._ending:  # a fault and a close() may coincide
            await self._end_all()

    async def _end_all(self) -> None:
        if self._loop is not None:
            self.bind()
        self.sides.is_closed = True
        if self._beginning is not None:
            await asyncio.gather(self._beginning, return_exceptions=True)
        if self._syphon is not None:
            await self._syphon.close()
        if self.spool.flow is not None:
            self.spool.flow.stop()
        self._closed.set()
        self._closing.set()
        self._tasks.cancel()
        while self._pools:
            self._pools.popitem()[1].close(now=True)
        for lookups in self._lookups.values():
            lookups.close()
        await self._tasks.join(CLOSING)
        await self._threads.join(CLOSING)
        spooling = self.spool.flow
        if spooling is not None and not await finish("sbpair-spool", spooling.close, SPOOL_CLOSING):
            spooling.left_open()
        for key, client in list(self._clients.items()):  # a close that is cancelled can be repeated
            await client.close()
            self._clients.pop(key, None)

    async def close_side(self, role: Side) -> None:
        """Close the links to one namespace; the other must be closed within five seconds."""
        self.bind()
        if self.sides.closed(role):
            await self.close()
            return
        pools = [self._pools.pop(key) for key in list(self._pools) if role_of(key) is role]
        clients = [self._clients.pop(key) for key in list(self._clients) if key[0] is role]
        for each in pools:
            each.close()
        for client in clients:
            await client.close()

    async def round_trip_in_loop(self, seconds: float) -> None:
        """Open a link to the primary, or else to the secondary. Raises as :meth:`reach` does."""
        try:
            await self.reach(Side.PRIMARY, seconds / 2)
        except ServiceBusError:
            await self.reach(Side.SECONDARY, seconds / 2)

    async def reach(self, role: Side, seconds: float) -> None:
        """Make a round trip that sends nothing: open and close a link to an entity in use on this side.

        Raises the SDK's exception when no link opens.
        """
        self.bind()
        until = time.monotonic() + seconds
        pools = [self._pools[key] for key in list(self._pools) if role_of(key) is role]
        if not pools:
            pools = [self._backlog_pool(0)] if role is Side.SECONDARY else []
        raised: ServiceBusError = OperationTimeoutError(message=f"No entity of the {role} is in use.")
        for each in pools:
            try:
                return await each.try_out(until)
            except ServiceBusError as error:
                raised = error
        raise raised

    def reopen_in_child(self) -> None:
        """Reset after a fork, in the child: the spool and the loop belong to the parent."""
        for each in (self._syphon, self._observer):
            if each is not None:
                each.reset_in_child()
        self.pair.forked()
        self._begin_order()
        self.spool.leave()

    # -- carrying out one step

    async def _perform(self, step: Step, path: str, request: SendRequest) -> Result:
        match step:
            case Attempt():
                before = request.parked, request.parked_bytes
                result = await self._attempt(self._limit(step), path, request)
                self._hear(step.backlog, result)
                return with_count(result, request, *before)
            case Pause(until):
                await self._pause(until)
                return Result(time.monotonic())
            case CreateBacklog(backlog, until):
                return self._creation_result(await self._ensure_backlog(backlog, until))
            case SpoolMessages():
                return await self._write_within(path, request, step)
            case Peek():
                return await self._peek(step, request)

    async def _write_within(self, path: str, request: SendRequest, step: SpoolMessages) -> Result:
        """Write to the spool in the spool's own thread, so that a stalled disk does not block the loop."""
        try:
            for writing in self.spool.writes(path, request, step):
                if writing is None:
                    time_left(step.until)
                    await asyncio.sleep(MOMENT)
                elif not await _ended(writing, step.until):
                    return not_written_in_time(is_withdrawn=writing.withdraw())
        except Exception as error:
            return not_written(error)
        return Result(time.monotonic())

    async def _attempt(self, step: Attempt, path: str, request: SendRequest) -> Result:
        phase, pooled, handled, began = Phase.OPENING, None, sys.exception(), time.monotonic()
        try:
            pool = self.primary_pool(path) if step.backlog is None else self._backlog_pool(step.backlog)
        except (ValueError, PairFaultedError) as error:
            return closed_result(error)
        try:
            time_left(step.until)
            if step.backlog is not None:
                phase = Phase.ENCODING
                request.rewrite(path)
            phase = Phase.OPENING
            if step.is_over_idle and (pooled := pool.try_acquire()) is None:
                self._tasks.start("sbpair-probe", self._open_for_next(pool, path, step))
                raise StillWaitingError(message=NO_LINK_YET)
            if step.waiting is not None:
                step.waiting.pause()
            pooled = pooled or await pool.acquire(step.link_by, is_fresh=step.is_fresh)
            opening = max(pooled.opened_at - began, 0.0)
            if step.waiting is not None:
                step.waiting.resume(time.monotonic())
            until = step.answer_by(opening)
            phase = Phase.SENDING
            self._check_room(step, path, request, sdk.message_limit(pooled.sender))
            run = pooled.run if step.backlog is None else pooled.send  # parking only sends, which costs less
            await run(_send(pooled, step.backlog, until, request), until)
        except Exception as error:
            return self.failures.of_attempt(pool, pooled, error, phase, handled, request, began)
        except BaseException:
            if pooled is not None:
                self.failures.discard_cut(pool, pooled)
            raise
        pool.release(pooled)
        return Result(time.monotonic(), opening=opening)

    async def _open_for_next(self, pool: AsyncSenderPool, path: str, step: Attempt) -> None:
        """Open the link that an attempt did not wait for; a failure has the same meaning as that of an attempt."""
        try:
            pool.release(await pool.acquire(step.link_by))
        except StillWaitingError:
            return
        except Exception as error:
            if step.backlog is None:
                self.opening_failed(path, error)
            return
        self._opened_for_next(step)

    async def _peek(self, step: Peek, request: SendRequest) -> Result:
        """Return the answer of an ordered backlog queue to a peek, over the link on which its messages are parked."""
        phase, pooled, handled, began = Phase.OPENING, None, sys.exception(), time.monotonic()
        try:
            pool = self._backlog_pool(step.backlog)
        except (ValueError, PairFaultedError) as error:
            return closed_result(error)
        try:
            pooled = await pool.acquire(step.until)
            phase = Phase.SENDING
            asked = sdk.is_empty_async(pooled.sender, step.parked_id, time_left(step.until))
            is_empty = await pooled.run(asked, step.until)
        except Exception as error:
            return self.failures.of_attempt(pool, pooled, error, phase, handled, request, began)
        except BaseException:
            if pooled is not None:
                pool.abandon(pooled)
            raise
        pool.release(pooled)
        return Result(time.monotonic(), is_empty=is_empty)

    def _learn_limit(self) -> None:
        self._tasks.start("sbpair-limit", self._learn_from(self._backlog_pool(0)))

    async def _learn_from(self, pool: AsyncSenderPool) -> None:
        try:
            pooled = await pool.acquire(time.monotonic() + MAX_PING_SECONDS)
        except Exception as error:  # retried later
            logger.debug("the limit of the backlog queues is unknown: %s", type(error).__name__)
            return
        if self.headroom is not None:
            self.headroom.linked(sdk.message_limit(pooled.sender), is_backlog=True)
        pool.release(pooled)

    async def _pause(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                await self._closing.wait()
        except TimeoutError:
            return
        raise self.sides.closed_error()

    async def _ensure_backlog(self, backlog: int, until: float) -> Exception | None:
        must_exist = self._must_exist(backlog)
        if must_exist is not None:
            return must_exist
        creating = self._creation(backlog)
        await asyncio.wait((creating,), timeout=max(until - time.monotonic(), 0.0))
        if creating.cancelled():  # by close(), not by the caller
            raise self.sides.closed_error()
        return creating.result() if creating.done() else not_created_in_time()

    def _creation(self, backlog: int) -> asyncio.Task[Exception | None]:
        """Start the creation of a queue, shared by all sends that need it."""
        creating = self._creating.get(backlog)
        if creating is None or creating.done():
            creating = self._creating[backlog] = self._tasks.start("sbpair-create", self._create(backlog))
        return creating

    async def _create(self, backlog: int) -> Exception | None:
        try:
            await self._threads.run("sbpair-create", lambda: self._backlogs.ensure([backlog]))
        except Exception as error:
            return error
        return None

    def _backlog_pool(self, backlog: int) -> AsyncSenderPool:
        key = f"/{backlog}"  # no entity path begins with a slash; one set of links for all entities
        return self._pools.get(key) or self._make_pool(key, self._secondary, self._backlogs.name(backlog))

    def _make_pool(self, key: str, side: SdkNamespace, entity: str) -> AsyncSenderPool:
        self.sides.check(side.role)
        is_primary = side.role is Side.PRIMARY
        pool = AsyncSenderPool(
            lambda: self.sdk_client(side, retry_total=self.retry_total).get_queue_sender(
                entity, **self._link_keywords(key)
            ),
            self._tasks,
            find=self._lookups[side.role].find,
            name=side.host_name,
            failed=(lambda error: self.opening_failed(entity, error)) if is_primary else None,
            is_plain=self.is_disabled,
            opened=partial(self._opened_in, key),
            openings=self._openings[side.role],
        )
        self._pools[key] = pool
        return pool

    # -- timers and background tasks

    async def _keep_time(self) -> None:
        while True:
            self._woken.clear()  # cleared first, so that an event during this turn wakes the next
            self._due = math.inf
            try:
                timer = self._tick(time.monotonic())
            except Exception:  # the outermost loop of a task that must outlive one bad turn
                logger.exception("the timers of a paired client failed")
                timer = time.monotonic() + 1.0
            self._due = math.inf if timer is None else timer
            with suppress(TimeoutError):
                async with asyncio.timeout(None if timer is None else max(timer - time.monotonic(), 0.0)):
                    await self._woken.wait()

    def _tick(self, now: float) -> float | None:
        due = self.pair.handle_timer(now)
        looks = self.sides.tick(now)
        if sizes := self._sizes_due(now):
            self._tasks.start("sbpair-sizes", self._size(sizes))
        timers = [self._timer(), *self._trim(now)]
        if self.sides.state.fault is not None:
            if not self._is_faulting:
                self._is_faulting = True
                self._tasks.start("sbpair-fault", self._fault())
            return None
        if self.pair.has_events:
            self.publish()
        for role in looks:
            self._tasks.start("sbpair-look", self._look(role))
        if self.sides.state.state_of(Side.PRIMARY) is not SideState.CLOSED:
            for path in due:
                self._tasks.start("sbpair-ping", self._ping(path))
        if self.spool.flow is not None:
            for path in self.spool.flow.due(now):
                self._tasks.start("sbpair-replay", self._replay(self.spool.flow, path))
            timers.append(self.spool.flow.next_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def _trim(self, now: float) -> list[float]:
        """Close idle links of the pools that may have too many; return when to check again, for each pool."""
        timers = []
        for key in list(self._with_spare):
            pool = self._pools.get(key)
            at = None if pool is None else pool.trim(now, spare_links(key))
            if at is None:
                self._with_spare.discard(key)
            else:
                timers.append(at)
        return timers

    def _opened_in(self, key: str) -> None:
        self._with_spare.add(key)
        self._woken.set()

    async def _look(self, role: Side) -> None:
        """Probe a side that refused this client."""
        try:
            await self.reach(role, MAX_PROBE_SECONDS)
        except (ServiceBusError, ValueError) as error:
            self._look_failed(role, error)
        else:
            self._hear(None if role is Side.PRIMARY else 0, Result(time.monotonic()))

    async def _fault(self) -> None:
        """End a faulted pair: publish the fault, then close everything."""
        self.publish()
        if self._syphon is not None:
            self._syphon.abort()
        await self._end()

    async def _ping(self, path: str) -> None:
        result: Result | None = None
        try:
            attempt, ping = self._ping_attempt(path)
            if pool := self._pools.get(path_key(path)):
                pool.renew()
            result = await self._attempt(attempt, path, ping)
            self._hear(None, result)
        finally:
            self._ping_ended(path, result)
        self.publish()

    async def _create_backlogs(self) -> None:
        delay, loop = self._first_moment(), asyncio.get_running_loop()

        def tell(event: PairingEvent) -> None:
            call_in_loop(loop, self.dispatcher.emit, [event])

        try:
            await self._threads.run(
                "sbpair-backlogs", lambda: self._backlogs.make_in_background(self._closed, delay, tell)
            )
        except OperationTimeoutError as error:  # no thread was free
            self.dispatcher.emit([backlogs_event(error, time.monotonic())])

    async def _size(self, backlogs: Sequence[int]) -> None:
        with suppress(OperationTimeoutError):  # no thread was free: the next time will do
            self._sized(await self._threads.run("sbpair-sizes", lambda: self._backlogs.sizes(backlogs)))

    async def _replay(self, spooling: Spooling, path: str) -> None:
        try:
            await self._threads.run("sbpair-replay", lambda: spooling.replay(path))
        except OperationTimeoutError:  # no thread was free
            spooling.not_started(path)
        self._woken.set()

    # -- between the loop and its threads

    def _send_again(self, path: str, request: SendRequest, choice: Choice) -> Outcome:
        """Send messages from the spool; called on a thread, while the send itself runs in the loop."""
        current.want(current.SdkSpans.ATTEMPTS)  # the loop's task copies the context of this thread
        if self._loop is None or self.sides.is_closed:
            raise ValueError("the paired client is closed")
        flow = self._flow_again(path, request, choice)
        return asyncio.run_coroutine_threadsafe(self._carry_out(flow, path, request), self._loop).result()

    def _emit(self, happened: Sequence[PairingEvent]) -> None:
        """Dispatch events from a thread; the callbacks run in the loop."""
        if self._loop is not None:
            call_in_loop(self._loop, self.dispatcher.emit, happened)

    def bridge(self, credential: AsyncTokenCredential) -> TokenCredential:
        if self._loop is None:
            raise ValueError("the paired client is not in use yet")
        return LoopCredential(credential, self._loop)


async def _ended(writing: Writing, until: float) -> bool:
    """Whether a write to the spool ended by ``until``."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    writing.then(lambda: call_in_loop(loop, end))
    await asyncio.wait((ended,), timeout=until - time.monotonic())
    return ended.done()


async def _send(pooled: AsyncPooledSender, backlog: int | None, until: float, request: SendRequest) -> None:
    if backlog is None:
        answer: Any = request.hand_over(pooled.sender, time_left(until))
        request.answer = await answer
        return
    batches = LinkBatches(ServiceBusMessageBatch, sdk.message_limit(pooled.sender) or SMALLEST_LIMIT)
    for piece in request.chunks(batches, backlog):
        await pooled.sender.send_messages(piece, timeout=time_left(until))
