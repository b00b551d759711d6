"""What does an asyncio client run on?

The decisions are made in pair.py, the same as for the blocking client; here they are carried out over
azure.servicebus.aio. Everything happens in one event loop, the one in which the client is first used, so
there is no lock. One task lets the pair's timers run. What blocks (the disk of the spool, the
administration API) goes to a thread.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from azure.core.credentials import TokenCredential
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from . import fork, sdk
from .address import Side
from .aio_lanes import AsyncLane, AsyncLanes, Tasks
from .aio_threads import LoopCredential, Threads, call_in_loop
from .batch import Cargo
from .bond import Role, SideState
from .companion import async_companions
from .core import (
    ACCEPTED,
    CLOSING,
    LONGEST_LOOK,
    LONGEST_PING,
    Core,
    backlogs_event,
    closed,
    counted,
    logger,
    not_written_in_time,
    role_of,
    time_left,
)
from .envelope import Message
from .errors import PairFaultedError
from .events import PairingEvent
from .names import path_key
from .options import PairedNamespaceOptions
from .outcome import Phase
from .pair import Attempt, CreateBacklog, Landing, Pause, Result, SendFlow, Spool, Step
from .rotation import Choice
from .spooling import Spooling

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.servicebus import ServiceBusMessageBatch
    from azure.servicebus.aio import ServiceBusClient

MOST_WRITERS = 16  # threads at the spool at once; they are capped, and a write can be held back there


class AsyncRuntime(Core):
    """The state, links and tasks of one paired client of asyncio."""

    def __init__(
        self,
        primary: Side,
        secondary: Side,
        label: str,
        options: PairedNamespaceOptions,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            primary, secondary, label, options, lambda: secondary.administration(self._bridge), rng
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = threading.Event()  # threads look at it too
        self._closing = asyncio.Event()
        self._ending = asyncio.Lock()
        self._woken = asyncio.Event()
        self._tasks = Tasks()
        self._writing = asyncio.Semaphore(MOST_WRITERS)
        self._threads = Threads()
        self._lanes: dict[str, AsyncLanes] = {}
        self._clients: dict[tuple[str, int | None], ServiceBusClient] = {}
        self._spooling = self._opened_spool(label, self._send_again, self._tell)
        self._syphon, self._watch_of_others = async_companions(self)
        self._beginning: asyncio.Task[None] | None = None
        self.lock = threading.Lock()  # for the fork; nobody else takes it
        fork.watch_over(self)

    def bind(self) -> None:
        """Belong to the running loop from now on.

        Raises RuntimeError when that is another than before, or when none is running.
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
        if self._syphon is not None or self._watch_of_others is not None:
            self._beginning = self._tasks.start("sbpair-begin", self._begin())
        if self.creates_backlogs:
            self._tasks.start("sbpair-backlogs", self._create_backlogs())

    async def begin(self) -> None:
        """The client is in use: what its options ask for beside it begins; what could not is tried again
        at the next call. Raises OSError or ValueError, after all that can begin has begun.
        """
        self.bind()
        beginning = self._beginning
        if beginning is None:
            return
        if beginning.done() and not self.is_closed and (beginning.cancelled() or beginning.exception()):
            self._beginning = beginning = self._tasks.start("sbpair-begin", self._begin())
        await asyncio.shield(beginning)

    async def _begin(self) -> None:
        errors: list[Exception] = []
        for each in (self._watch_of_others, self._syphon):
            try:
                if each is not None:
                    await each.start()
            except (OSError, ValueError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def exclusive(self) -> AbstractContextManager[object]:
        """Nothing: only the loop's thread uses the state. Raises RuntimeError in any other."""
        if self._loop is not None:
            self.bind()
        return nullcontext()

    # -- sending

    async def send_straight(
        self, key: str, message: Message, started: float, seconds: float
    ) -> Result | None:
        """The first attempt at a healthy entity, over a link from the store; None when there is none."""
        self.bind()
        lanes = self._lanes.get(key)
        lane = None if lanes is None else await lanes.stored()
        if lanes is None or lane is None:
            return None
        failed: Exception | None = None
        try:
            await lane.run(lane.sender.send_messages(message, timeout=seconds), started + seconds)
        except Exception as error:
            failed = error
        except BaseException:
            lanes.drop(lane)
            raise
        if failed is not None:  # out here, what is being handled is the caller's
            if isinstance(failed, OperationTimeoutError):
                lane.has_overrun = True  # whoever timed it, it is not used again
            return self._failed(lanes, lane, failed, Phase.SENDING, sys.exception())
        lanes.give(lane)
        if not self.bond.is_whole:
            self._hear(None, ACCEPTED)
        return ACCEPTED

    async def drive(
        self, path: str, cargo: Cargo, choice: Choice, budget: float, first: Result | None, started: float
    ) -> Landing:
        """Carry out the flow of one send; what became of it."""
        self.bind()
        if first is not None:
            self._hear(None, first)
        return await self._carried_out(self._flow(path, cargo, choice, started, budget, first), path, cargo)

    async def _carried_out(self, flow: SendFlow, path: str, cargo: Cargo) -> Landing:
        result: Result | None = None
        while True:
            try:
                step = flow.send(result) if result is not None else next(flow)
            except StopIteration as landed:
                landing: Landing = landed.value
                return landing
            finally:
                if self.pair.has_news:
                    self.publish()
            result = await self._perform(step, path, cargo)

    def warm_backlog(self, path: str, choice: Choice) -> None:
        """While an entity is suspect, open the link its messages may need."""
        backlog = None if self.is_closed else self._backlog_to_warm(path, choice)
        if backlog is not None:
            lanes = self._backlog_lanes(backlog)
            self._tasks.start("sbpair-warm", lanes.warm(time.monotonic() + LONGEST_PING))

    def primary_lanes(self, path: str) -> AsyncLanes:
        """The lanes to a primary entity."""
        return self._lanes.get(path_key(path)) or self._made(path_key(path), self._primary, path)

    def publish(self) -> None:
        happened = self._happened()
        if self._spooling is not None:
            self._spooling.hear(happened)
        self._woken.set()
        self.hub.tell(happened)

    def sdk_client(self, side: Side, *, retry_total: int | None = 0) -> ServiceBusClient:
        """One SDK client for each side and purpose, made when first needed."""
        self._check_side(side.role)
        key = (side.role, retry_total)
        if key not in self._clients:
            self._clients[key] = side.asyncio_client(retry_total=retry_total)
        return self._clients[key]

    # -- closing

    def release_path(self, path: str) -> None:
        """No sender uses this entity any more."""
        lanes = self._lanes.pop(path_key(path), None)
        if lanes is not None:
            lanes.close()

    async def close(self) -> None:
        """End what is under way, close every link, stop every task and thread."""
        await self._end()
        if self._watch_of_others is not None and self._loop is not None:
            await self._watch_of_others.close()  # last: it is told all that happened before

    async def _end(self) -> None:
        async with self._ending:  # a fault and a close() at once: the second finds nothing left
            await self._end_all()

    async def _end_all(self) -> None:
        if self._loop is not None:
            self.bind()
        self.is_closed = True
        if self._beginning is not None:
            await asyncio.gather(self._beginning, return_exceptions=True)
        if self._syphon is not None:
            await self._syphon.close()
        if self._spooling is not None:
            self._spooling.stop()
        self._closed.set()
        self._closing.set()
        self._tasks.cancel()
        lanes, clients = list(self._lanes.values()), list(self._clients.values())
        self._lanes.clear()
        self._clients.clear()
        for each in lanes:
            each.close(now=True)
        await self._tasks.join(CLOSING)
        await self._threads.join(CLOSING)
        if self._spooling is not None:
            self._spooling.close()
        for client in clients:
            await client.close()

    async def close_side(self, role: Role) -> None:
        """Close the links to one namespace; the partner has five seconds to follow (P-50)."""
        self.bind()
        if self._side_closed(role):
            await self.close()
            return
        lanes = [self._lanes.pop(key) for key in list(self._lanes) if role_of(key) is role]
        clients = [self._clients.pop(key) for key in list(self._clients) if key[0] is role]
        for each in lanes:
            each.close()
        for client in clients:
            await client.close()

    async def round_trip_in_loop(self, seconds: float) -> None:
        """Open a link to where messages go: to the primary, or else the secondary. Raises as reach."""
        try:
            await self.reach(Role.PRIMARY, seconds / 2)
        except ServiceBusError:
            await self.reach(Role.SECONDARY, seconds / 2)

    async def reach(self, role: Role, seconds: float) -> None:
        """A round trip that sends nothing: open a link to an entity in use on this side, and close it.

        Raises what the SDK raises when none of them can be had.
        """
        self.bind()
        until = time.monotonic() + seconds
        lanes = [self._lanes[key] for key in list(self._lanes) if role_of(key) is role]
        if not lanes:
            lanes = [self._backlog_lanes(0)] if role is Role.SECONDARY else []
        raised: ServiceBusError = OperationTimeoutError(message=f"No entity of the {role} is in use.")
        for each in lanes:
            try:
                return await each.try_out(until)
            except ServiceBusError as error:
                raised = error
        raise raised

    def reopen_in_child(self) -> None:
        """After a fork, in the child: the spool is the parent's, and so is the loop."""
        for each in (self._syphon, self._watch_of_others):
            if each is not None:
                each.renew()
        if self._spooling is not None:
            self._spooling.disown()
            self._spooling = None

    # -- carrying out one step

    async def _perform(self, step: Step, path: str, cargo: Cargo) -> Result:
        match step:
            case Attempt():
                before = cargo.parked
                result = await self._attempt(step, path, cargo)
                self._hear(step.backlog, result)
                return counted(result, cargo.parked - before)
            case Pause(until):
                await self._pause(until)
                return Result(time.monotonic())
            case CreateBacklog(backlog, until):
                error = await self._created(backlog, until)
                return Result(time.monotonic(), error)
            case Spool(until):
                return await self._written(path, cargo, until)

    async def _written(self, path: str, cargo: Cargo, until: float) -> Result:
        """A disk that stalls does not hold the caller (G-18)."""
        try:
            async with asyncio.timeout(until - time.monotonic()), self._writing:
                written = await self._threads.run("sbpair-spool", lambda: self._write(path, cargo))
        except TimeoutError:
            return not_written_in_time()
        return Result(time.monotonic(), written)

    async def _attempt(self, step: Attempt, path: str, cargo: Cargo) -> Result:
        phase, lane, handled = Phase.OPENING, None, sys.exception()
        try:
            lanes = self.primary_lanes(path) if step.backlog is None else self._backlog_lanes(step.backlog)
        except (ValueError, PairFaultedError) as error:
            return closed(error)
        try:
            time_left(step.until)
            if step.backlog is not None:
                phase = Phase.SENDING  # a message that cannot be rewritten is the caller's fault
                cargo.rewrite(path)
            phase = Phase.OPENING
            lane = await lanes.take(step.until, is_fresh=step.is_fresh)
            phase = Phase.SENDING
            self._check_room(step, path, cargo, sdk.message_limit(lane.sender))
            await lane.run(_send(lane, step, cargo), step.until)
        except Exception as error:
            if isinstance(error, OperationTimeoutError) and lane is not None:
                lane.has_overrun = True  # whoever timed it, it is not used again
            return self._failed(lanes, lane, error, phase, handled)
        except BaseException:
            if lane is not None:
                lanes.drop(lane)
            raise
        lanes.give(lane)
        return Result(time.monotonic())

    def _learn_limit(self) -> None:
        self._tasks.start("sbpair-limit", self._learn_from(self._backlog_lanes(0)))

    async def _learn_from(self, lanes: AsyncLanes) -> None:
        try:
            lane = await lanes.take(time.monotonic() + LONGEST_PING)
        except Exception as error:  # then it is asked again later
            logger.debug("the limit of the backlog queues is unknown: %s", type(error).__name__)
            return
        if self.headroom is not None:
            self.headroom.linked(sdk.message_limit(lane.sender), is_backlog=True)
        lanes.give(lane)

    async def _pause(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                await self._closing.wait()
        except TimeoutError:
            return
        raise self.closed_error()

    async def _created(self, backlog: int, until: float) -> Exception | None:
        must_exist = self._must_exist(backlog)
        if must_exist is not None:
            return must_exist
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                await self._threads.run("sbpair-create", lambda: self._backlogs.ensure([backlog]))
        except TimeoutError:
            return OperationTimeoutError(message="The backlog queue was not created in time.")
        except Exception as error:
            return error
        return None

    def _backlog_lanes(self, backlog: int) -> AsyncLanes:
        key = f"/{backlog}"  # no entity path begins with a slash; P-15: one set of links for all entities
        return self._lanes.get(key) or self._made(key, self._secondary, self._backlogs.name(backlog))

    def _made(self, key: str, side: Side, entity: str) -> AsyncLanes:
        self._check_side(side.role)
        lanes = AsyncLanes(
            lambda: self.sdk_client(side, retry_total=self.retry_total).get_queue_sender(entity), self._tasks
        )
        self._lanes[key] = lanes
        return lanes

    # -- beside the callers

    async def _keep_time(self) -> None:
        while True:
            self._woken.clear()  # first: what happens during the turn is for the next
            try:
                timer = self._tick(time.monotonic())
            except Exception:  # the outermost loop of a task that must outlive one bad turn
                logger.exception("the timers of a paired client failed")
                timer = time.monotonic() + 1.0
            try:
                async with asyncio.timeout(None if timer is None else max(timer - time.monotonic(), 0.0)):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _tick(self, now: float) -> float | None:
        due = self.pair.handle_timer(now)
        looks = self._sides_tick(now)
        timers = [self._timer()]
        if self.bond.fault is not None:
            if not self._is_faulting:
                self._is_faulting = True
                self._tasks.start("sbpair-fault", self._fault())
            return None
        if self.pair.has_news:
            self.publish()
        for role in looks:
            self._tasks.start("sbpair-look", self._look(role))
        if self.bond.state_of(Role.PRIMARY) is not SideState.CLOSED:
            for path in due:
                self._tasks.start("sbpair-ping", self._ping(path))
        if self._spooling is not None:
            for path in self._spooling.due(now):
                self._tasks.start("sbpair-replay", self._replay(self._spooling, path))
            timers.append(self._spooling.next_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    async def _look(self, role: Role) -> None:
        """Whether a side that had refused us does so still."""
        try:
            await self.reach(role, LONGEST_LOOK)
        except (ServiceBusError, ValueError) as error:
            self._look_failed(role, error)
            return
        self._hear(None if role is Role.PRIMARY else 0, Result(time.monotonic()))

    async def _fault(self) -> None:
        """The pair is faulted: tell it, and end everything (P-50)."""
        self.publish()
        if self._syphon is not None:
            self._syphon.abort()
        await self._end()

    async def _ping(self, path: str) -> None:
        attempt, ping = self._ping_attempt(path)
        result = await self._attempt(attempt, path, ping)
        self._hear(None, result)
        self.pair.ping_finished(path, result.judgement, result.now)
        self.publish()

    async def _create_backlogs(self) -> None:
        try:
            created = await self._threads.run(
                "sbpair-backlogs", lambda: self._backlogs.ensure_in_background(self._closed)
            )
        except Exception as error:
            if not self.is_closed:
                self.hub.tell([backlogs_event(error)])
            return
        self.hub.tell([backlogs_event(created)])

    async def _replay(self, spooling: Spooling, path: str) -> None:
        try:
            await self._threads.run("sbpair-replay", lambda: spooling.replay(path))
        except OperationTimeoutError:  # there was no thread for it
            spooling.not_started(path)
        self._woken.set()

    # -- between the loop and its threads

    def _send_again(self, path: str, cargo: Cargo, choice: Choice) -> Landing:
        """For messages from the spool, in a thread: the send itself goes on in the loop."""
        if self._loop is None or self.is_closed:
            raise ValueError("the paired client is closed")
        flow = self._flow_again(path, cargo, choice)
        return asyncio.run_coroutine_threadsafe(self._carried_out(flow, path, cargo), self._loop).result()

    def _tell(self, happened: Sequence[PairingEvent]) -> None:
        """From a thread: callbacks run in the loop."""
        if self._loop is not None:
            call_in_loop(self._loop, self.hub.tell, happened)

    def _bridge(self, credential: AsyncTokenCredential) -> TokenCredential:
        if self._loop is None:
            raise ValueError("the paired client is not in use yet")
        return LoopCredential(credential, self._loop)


class _Batches:
    """Makes batches of the size that a link allows; asyncio's sender makes them only in a coroutine."""

    def __init__(self, kind: type[ServiceBusMessageBatch], limit: int) -> None:
        self._kind = kind
        self._limit = limit

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        return self._kind(max_size_in_bytes or self._limit)


async def _send(lane: AsyncLane, step: Attempt, cargo: Cargo) -> None:
    if step.backlog is None:
        answer: Any = cargo.hand_over(lane.sender, time_left(step.until))
        cargo.answer = await answer
        return
    sample = await lane.sender.create_message_batch()
    for piece in cargo.chunks(_Batches(type(sample), sample.max_size_in_bytes), step.backlog):
        await lane.sender.send_messages(piece, timeout=time_left(step.until))
