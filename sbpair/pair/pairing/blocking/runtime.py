"""Runtime of a blocking client: carries out the decisions of pair.py over the SDK.

One lock guards the pure state; it is never held during a send or a callback. Links open on first use, and again after a
fork: a child never uses its parent's connections.
"""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair.pair.envelope.names import path_key
from sbpair.pair.ground.fork import reopen_after_fork
from sbpair.pair.ground.interruptible import Flag
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
from ..options import PairedNamespaceOptions
from ..outcome import Outcome
from ..request import sdk
from ..request.classify import Phase, classify
from ..request.request import SendRequest, freeze
from ..shared import threads
from ..shared.address import SdkNamespace
from ..shared.background import Services
from ..shared.base_pool import openings_at_once, role_of, spare_links
from ..shared.base_runtime import ACCEPTED, BaseRuntime, logger, time_left, with_count
from ..shared.failures import closed_result, not_created_in_time, not_written, not_written_in_time
from ..shared.threads import Job, Watch, Workers
from ..shared.time_limits import (
    CLOSING,
    MAX_ENTRY_SECONDS,
    MAX_PING_SECONDS,
    MAX_PROBE_SECONDS,
    MOMENT,
    SPOOL_CLOSING,
)
from ..shared.turns import ThreadTurns
from ..shared.waiting import NO_LINK_YET, StillWaitingError
from .sender_pool import GRACE, PooledSender, SenderPool

if TYPE_CHECKING:
    from ..spool.replay import Spooling

TRIM_EVERY = 2.0  # seconds: each pool is looked at, and there may be thousands


class Runtime(BaseRuntime):
    """The state, links and threads of one paired client.

    ``services_of`` makes the client's background services; they start with the first sender.
    """

    def __init__(
        self,
        primary: SdkNamespace,
        secondary: SdkNamespace,
        label: str,
        options: PairedNamespaceOptions,
        rng: random.Random | None = None,
        *,
        services_of: Callable[[Runtime], Services] = lambda _: (None, None),
    ) -> None:
        super().__init__(primary, secondary, label, options, secondary.administration, rng)
        self.lock = threading.Lock()
        self.spool.open(
            label, self._send_again, self.dispatcher.emit, self._rng, self.headroom, self._timers_changed
        )
        self._syphon, self._observer = services_of(self)
        self._turns: dict[str, ThreadTurns] = {}
        self._start()
        reopen_after_fork(self)
        if self.spool.flow is not None:
            self._watch.wake()  # replay messages that an earlier client left
        if self.creates_backlogs:
            self._workers.start("sbpair-backlogs", self._create_backlogs)

    def _start(self) -> None:
        self._has_begun = False
        self._closed = Flag()
        self._making = threading.Lock()
        self._pools: dict[str, SenderPool] = {}
        self._clients: dict[tuple[str, int | None], ServiceBusClient] = {}
        self._workers, self._closers = Workers(), Workers()
        self._trimmed_at = -math.inf
        self._openers = {
            role: Workers(openings_at_once()) for role in Side
        }  # a side that hangs blocks its own workers only
        self._creating: dict[int, Job] = {}
        self._due = math.inf
        self._watch = Watch(self._tick)

    def begin(self) -> None:
        """Start the background services. One that fails to start is retried on the next call.

        Raises OSError or ValueError of the first failure, after trying to start every service.
        """
        if self._has_begun or self.sides.is_closed:
            return
        errors: list[Exception] = []
        for each in (self._observer, self._syphon):
            try:
                if each is not None:
                    each.start()
            except (OSError, ValueError) as error:
                errors.append(error)
        if errors:
            raise errors[0]
        self._has_begun = True

    def exclusive(self) -> threading.Lock:
        """Return the lock around the pure state."""
        return self.lock

    # -- sending

    def send_fast(
        self, key: str, message: AmqpAnnotatedMessage, started: float, seconds: float, patience: Patience
    ) -> Result | None:
        """Make the first attempt at a healthy entity over an idle link; None without an idle link."""
        pool = self._pools.get(key)
        if pool is None:
            return None
        patience.waiting[started] = None
        held: list[PooledSender] = []
        failed: Exception | None = None
        try:
            pooled = pool.try_acquire(held)
            if pooled is None:
                return None
            pooled.until = started + seconds + GRACE
            try:
                pooled.sender.send_messages(sdk.wrap(message), timeout=seconds)
            except Exception as error:
                failed = error
            if failed is not None:  # outside the except block, where sys.exception() is the caller's
                return self.failures.of_attempt(
                    pool, pooled, failed, Phase.SENDING, sys.exception(), freeze(message), started
                )
            pool.release(pooled)
        except BaseException:
            self.discard_held(pool, held)
            raise
        finally:
            patience.waiting.pop(started, None)
        if not self.sides.state.is_whole:
            self._hear(None, ACCEPTED)
        return self._acceptance(pooled.used_at - started, patience)

    def drive(
        self,
        path: str,
        request: SendRequest,
        choice: Choice,
        budget: float,
        first: Result | None,
        started: float,
    ) -> Outcome:
        """Carry out the flow of one send and return its outcome."""
        if not self._has_begun:
            self._begin_in_child()
        if first is not None:
            self._hear(None, first)
        return self._carry_out(self._flow(path, request, choice, started, budget, first), path, request)

    def _begin_in_child(self) -> None:
        """Start the services of a client opened before the fork; a failure must not fail the send."""
        try:
            self.begin()
        except (OSError, ValueError) as error:
            logger.warning("a background service cannot start in this process: %s", error)
            self._has_begun = True  # warn once, not on every send

    def _send_again(self, path: str, request: SendRequest, choice: Choice) -> Outcome:
        """Send messages from the spool, without writing them to it again."""
        current.want(current.SdkSpans.ATTEMPTS)
        return self._carry_out(self._flow_again(path, request, choice), path, request)

    def _carry_out(self, flow: SendFlow, path: str, request: SendRequest) -> Outcome:
        result: Result | None = None
        try:
            while True:
                try:
                    with self.lock:
                        step = flow.send(result) if result is not None else next(flow)
                except StopIteration as finished:
                    outcome: Outcome = finished.value
                    return outcome
                finally:
                    if self.pair.has_events:
                        self.publish()
                result = self._perform(step, path, request)
        except BaseException:  # interrupted; the traceback may keep the flow, whose attempt has ended
            with self.lock:
                flow.close()
            raise

    def warm_backlog(self, path: str, choice: Choice) -> None:
        """Open the backlog link that an entity may need, while it is suspect."""
        with self.lock:
            backlog = self._backlog_to_warm(path, choice)
        if backlog is not None and not self.sides.is_closed:
            self._backlog_pool(backlog).warm()

    def enter(self, path: str) -> None:
        """Open a link for a sender whose context was just entered, if possible. Raises nothing."""
        with self.lock:
            state = self.pair.state_of(path)
        if state is not EntityState.FAILED_OVER:
            budget = self.options.operation_timeout.total_seconds()
            self.primary_pool(path).warmed(time.monotonic() + min(budget, MAX_ENTRY_SECONDS))

    def turns_of(self, key: str) -> ThreadTurns:
        """Return the turns of an entity, shared by all its senders."""
        return self._turns.setdefault(key, ThreadTurns())

    def primary_pool(self, path: str) -> SenderPool:
        """Return the sender pool of a primary entity."""
        return self._pools.get(path_key(path)) or self._make_pool(path_key(path), self._primary, path)

    def publish(self) -> None:
        """Dispatch the pending events, then check the timers, which may have changed too."""
        with self.lock:
            happened = self._happened()
        if self.spool.flow is not None:
            self.spool.flow.notify(happened)
        self._recall_doubtful(happened)
        if self._is_timer_earlier(happened):
            self._watch.wake()
        self.dispatcher.deliver()

    def _timers_changed(self) -> None:
        self._watch.wake()

    def sdk_client(self, side: SdkNamespace, *, retry_total: int | None = 0) -> ServiceBusClient:
        """Return the SDK client for a side and retry setting, made on first use."""
        key = (side.role, retry_total)
        with self._making:
            self.sides.check(side.role)
            if key not in self._clients:
                self._clients[key] = side.client(retry_total=retry_total)
            return self._clients[key]

    # -- opening and closing

    def release_path(self, path: str) -> None:
        """Close the links of an entity whose last sender was closed."""
        with self._making:
            pool = self._pools.pop(path_key(path), None)
        if pool is not None:
            pool.close()

    def close(self) -> None:
        """End operations in progress, close all links and stop all threads."""
        if self.spool.flow is not None and not self.sides.is_closed:
            self.spool.flow.drain(CLOSING)
        self._end()
        if self._observer is not None:
            self._observer.close()  # last, so that it sees every event

    def _end(self) -> None:
        self.sides.is_closed = True
        if self._syphon is not None:
            self._syphon.close()
        if self.spool.flow is not None:
            self.spool.flow.stop()
        self._closed.set()
        self._watch.close()
        with self._making:
            pools = list(self._pools.values())
            self._pools.clear()
        for each in pools:
            each.recall()
            each.close(now=True)
        until = time.monotonic() + CLOSING
        for workers in (*self._openers.values(), self._workers, self._closers):
            workers.join(until - time.monotonic())
        spooling = self.spool.flow
        if spooling is not None and not threads.finish("sbpair-spool", spooling.close, SPOOL_CLOSING):
            spooling.left_open()
        for key, client in list(self._clients.items()):  # a close that is interrupted can be repeated
            client.close()  # last, since it closes any sender that is still open a second time
            self._clients.pop(key, None)

    def close_side(self, role: Side) -> None:
        """Close the links to one namespace; the other must be closed within five seconds."""
        if self.sides.closed(role):
            self.close()
            return
        with self._making:
            pools = [self._pools.pop(key) for key in list(self._pools) if role_of(key) is role]
            clients = [self._clients.pop(key) for key in list(self._clients) if key[0] is role]
        for each in pools:
            each.close()
        for client in clients:
            client.close()

    def round_trip(self, seconds: float) -> None:
        """Open a link to the primary, or else to the secondary. Raises as :meth:`reach` does."""
        try:
            self.reach(Side.PRIMARY, seconds / 2)
        except ServiceBusError:
            self.reach(Side.SECONDARY, seconds / 2)

    def reach(self, role: Side, seconds: float) -> None:
        """Make a round trip that sends nothing: open and close a link to an entity in use on this side.

        Raises the SDK's exception when no link opens.
        """
        until = time.monotonic() + seconds
        pools = [self._pools[key] for key in list(self._pools) if role_of(key) is role]
        if not pools:
            pools = [self._backlog_pool(0)] if role is Side.SECONDARY else []
        raised: ServiceBusError = OperationTimeoutError(message=f"No entity of the {role} is in use.")
        for each in pools:
            try:
                return each.try_out(until)
            except ServiceBusError as error:
                raised = error
        raise raised

    def reopen_in_child(self) -> None:
        """Reset after a fork, in the child: the threads are gone, and the connections belong to the parent."""
        self._watch.release()
        for each in (self._syphon, self._observer):
            if each is not None:
                each.reset_in_child()
        self.pair.forked()
        self._begin_order()
        for turns in self._turns.values():  # the senders keep them
            turns.renew()
        self.spool.leave()
        self.dispatcher.renew()
        self._start()
        if self.sides.is_closed:
            self._closed.set()

    # -- carrying out one step

    def _perform(self, step: Step, path: str, request: SendRequest) -> Result:
        match step:
            case Attempt():
                before = request.parked, request.parked_bytes
                result = self._attempt(self._limit(step), path, request)
                self._hear(step.backlog, result)
                return with_count(result, request, *before)
            case Pause(until):
                if self._closed.wait(max(until - time.monotonic(), 0.0)):
                    raise self.sides.closed_error()
                return Result(time.monotonic())
            case CreateBacklog(backlog, until):
                return self._creation_result(self._ensure_backlog(backlog, until))
            case SpoolMessages():
                return self._write_within(path, request, step)
            case Peek():
                return self._peek(step, request)

    def _attempt(self, step: Attempt, path: str, request: SendRequest) -> Result:
        try:
            pool = self.primary_pool(path) if step.backlog is None else self._backlog_pool(step.backlog)
        except (ValueError, PairFaultedError) as error:
            return closed_result(error)
        held: list[PooledSender] = []
        try:
            return self._attempt_in(pool, step, path, request, held)
        except BaseException:
            self.discard_held(pool, held)
            raise

    def _attempt_in(
        self, pool: SenderPool, step: Attempt, path: str, request: SendRequest, held: list[PooledSender]
    ) -> Result:
        phase, pooled, handled, began = Phase.OPENING, None, sys.exception(), time.monotonic()
        try:
            time_left(step.until)
            if step.backlog is not None:
                phase = Phase.ENCODING
                request.rewrite(path)
            phase = Phase.OPENING
            if step.is_over_idle and (pooled := pool.try_acquire(held)) is None:
                self._beside("sbpair-probe", lambda: self._open_for_next(pool, path, step))
                raise StillWaitingError(message=NO_LINK_YET)
            if step.waiting is not None:
                step.waiting.pause()
            pooled = pooled or pool.acquire(step.link_by, held, is_fresh=step.is_fresh)
            opening = max(pooled.opened_at - began, 0.0)
            if step.waiting is not None:
                step.waiting.resume(time.monotonic())
            until = step.answer_by(opening)
            pooled.until = until + GRACE
            phase = Phase.SENDING
            self._check_room(step, path, request, sdk.message_limit(pooled.sender))
            _send(pooled, step.backlog, until, request)
        except Exception as error:
            return self.failures.of_attempt(pool, pooled, error, phase, handled, request, began)
        pool.release(pooled)
        return Result(time.monotonic(), opening=opening)

    def _open_for_next(self, pool: SenderPool, path: str, step: Attempt) -> None:
        """Open the link that an attempt did not wait for; a failure has the same meaning as that of an attempt."""
        try:
            pool.release(pool.acquire(step.link_by))
        except StillWaitingError:
            return
        except Exception as error:
            if step.backlog is None:
                self.opening_failed(path, error)
            return
        self._opened_for_next(step)

    def _peek(self, step: Peek, request: SendRequest) -> Result:
        """Return the answer of an ordered backlog queue to a peek, over the link on which its messages are parked."""
        phase, pooled, handled, began = Phase.OPENING, None, sys.exception(), time.monotonic()
        try:
            pool = self._backlog_pool(step.backlog)
        except (ValueError, PairFaultedError) as error:
            return closed_result(error)
        held: list[PooledSender] = []
        try:
            try:
                pooled = pool.acquire(step.until, held)
                phase = Phase.SENDING
                is_empty = sdk.is_empty(pooled.sender, step.parked_id, time_left(step.until))
            except Exception as error:
                return self.failures.of_attempt(pool, pooled, error, phase, handled, request, began)
            pool.release(pooled)
        except BaseException:
            self.discard_held(pool, held)
            raise
        return Result(time.monotonic(), is_empty=is_empty)

    def discard_held(self, pool: SenderPool, held: list[PooledSender]) -> None:
        """Discard the senders that an interrupted call holds; if this is interrupted too, it is repeated."""
        try:
            self._discard_each(pool, held)
        except BaseException:
            self._discard_each(pool, held)
            raise

    def _discard_each(self, pool: SenderPool, held: list[PooledSender]) -> None:
        for pooled in list(held):
            self.failures.discard_cut(pool, pooled)
        held.clear()

    def _learn_limit(self) -> None:
        pool = self._backlog_pool(0)
        self._beside("sbpair-limit", lambda: self._learn_from(pool))

    def _learn_from(self, pool: SenderPool) -> None:
        try:
            pooled = pool.acquire(time.monotonic() + MAX_PING_SECONDS)
        except Exception as error:  # retried later
            logger.debug("the limit of the backlog queues is unknown: %s", type(error).__name__)
            return
        if self.headroom is not None:
            self.headroom.linked(sdk.message_limit(pooled.sender), is_backlog=True)
        pool.release(pooled)

    def _ensure_backlog(self, backlog: int, until: float) -> Exception | None:
        must_exist = self._must_exist(backlog)
        if must_exist is not None:
            return must_exist
        try:
            job = self._creation(backlog, until)
        except OperationTimeoutError as error:
            return error
        if not job.wait(until - time.monotonic()):
            return not_created_in_time()
        return job.error

    def _creation(self, backlog: int, until: float) -> Job:
        """Start the creation of a queue, shared by all sends that need it.

        Raises StillWaitingError when no thread is free.
        """
        while True:
            with self._making:  # not across a wait: every first send and close() need it
                job = self._creating.get(backlog)
                if job is not None and not job.is_over:
                    return job
                if self._workers.has_room_by(-math.inf):
                    create = partial(self._backlogs.ensure, [backlog])
                    self._creating[backlog] = job = self._workers.start("sbpair-create", create)
                    return job
            if not self._workers.has_room_by(until):
                raise StillWaitingError(message="earlier operations still hang")

    def _write_within(self, path: str, request: SendRequest, step: SpoolMessages) -> Result:
        """Write to the spool in the spool's own thread, so that a stalled disk does not block the caller."""
        try:
            for writing in self.spool.writes(path, request, step):
                if writing is None:
                    time_left(step.until)
                    self._closed.wait(MOMENT)
                elif not writing.wait(step.until - time.monotonic()):
                    return not_written_in_time(is_withdrawn=writing.withdraw())
        except Exception as error:
            return not_written(error)
        return Result(time.monotonic())

    def _backlog_pool(self, backlog: int) -> SenderPool:
        key = f"/{backlog}"  # no entity path begins with a slash; one link for all entities
        return self._pools.get(key) or self._make_pool(key, self._secondary, self._backlogs.name(backlog))

    def _make_pool(self, key: str, side: SdkNamespace, entity: str) -> SenderPool:
        with self._making:
            pool = self._pools.get(key)
            if pool is None:
                self.sides.check(side.role)
                pool = SenderPool(
                    lambda: self.sdk_client(side, retry_total=self.retry_total).get_queue_sender(
                        entity, **self._link_keywords(key)
                    ),
                    self._watch,
                    self._openers[side.role],
                    self._closers,
                    partial(self.opening_failed, entity) if side.role is Side.PRIMARY else None,
                    side.host_name,
                )
                self._pools[key] = pool
            return pool

    # -- timers and background tasks

    def _tick(self, now: float) -> float | None:
        self._due = math.inf  # until it is known; events that occur meanwhile wake the watch
        timer = self._run_timers(now)
        self._due = math.inf if timer is None else timer
        return timer

    def _run_timers(self, now: float) -> float | None:
        with self.lock:
            due = self.pair.handle_timer(now)
            looks = self.sides.tick(now)
            sizes = self._sizes_due(now)
            timer = self._timer()
        if self.sides.state.fault is not None:
            self._is_faulting = self._is_faulting or self._beside("sbpair-fault", self._fault)
            return None
        if self.pair.has_events:
            self._beside("sbpair-events", self.publish)  # on a worker: a callback may be slow
        if sizes:
            self._beside("sbpair-sizes", lambda: self._sized(self._backlogs.sizes(sizes)))
        if now >= self._trimmed_at + TRIM_EVERY:  # the watch wakes often while any link is open
            self._trimmed_at = now
            for key, pool in list(self._pools.items()):
                pool.trim(now, spare_links(key))
        timer = self._replay_tick(now, timer)
        for role in looks:
            self._beside("sbpair-look", lambda role=role: self._look(role))  # type: ignore[misc]
        if self.sides.state.state_of(Side.PRIMARY) is SideState.CLOSED:
            return timer  # the primary is closed: no pings
        for path in due:
            if not self._beside("sbpair-ping", lambda path=path: self._ping(path)):  # type: ignore[misc]
                self._ping_failed(path)
        return timer

    def _replay_tick(self, now: float, timer: float | None) -> float | None:
        spooling = self.spool.flow
        if spooling is None:
            return timer
        for path in spooling.due(now):
            if not self._beside("sbpair-replay", lambda path=path: self._replay(spooling, path)):  # type: ignore[misc]
                spooling.not_started(path)
        timers = [each for each in (timer, spooling.next_timer()) if each is not None]
        return min(timers, default=None)

    def _replay(self, spooling: Spooling, path: str) -> None:
        spooling.replay(path)
        self._watch.wake()

    def _look(self, role: Side) -> None:
        """Probe a side that refused this client."""
        try:
            self.reach(role, MAX_PROBE_SECONDS)
        except (ServiceBusError, ValueError) as error:
            self._look_failed(role, error)
        else:
            self._hear(None if role is Side.PRIMARY else 0, ACCEPTED)

    def _fault(self) -> None:
        """End a faulted pair: publish the fault, then close everything."""
        self.publish()
        if self._syphon is not None:
            self._syphon.abort()
        self._end()

    def _ping(self, path: str) -> None:
        result: Result | None = None
        try:
            with self.lock:
                attempt, ping = self._ping_attempt(path)
            if pool := self._pools.get(path_key(path)):
                pool.renew()
            result = self._attempt(attempt, path, ping)
            self._hear(None, result)
        finally:
            with self.lock:
                self._ping_ended(path, result)
        self.publish()

    def _ping_failed(self, path: str) -> None:
        error = StillWaitingError(message="Too many operations still hang.")
        with self.lock:
            self.pair.ping_finished(path, classify(error, Phase.OPENING), time.monotonic())

    def _create_backlogs(self) -> None:
        self._backlogs.make_in_background(
            self._closed, self._first_moment(), lambda event: self.dispatcher.emit([event])
        )

    def _beside(self, name: str, task: Callable[[], object]) -> bool:
        try:
            self._workers.start(name, task)
        except OperationTimeoutError as error:
            logger.warning("%s was left out: %s", name, error)
            return False
        return True


def _send(pooled: PooledSender, backlog: int | None, until: float, request: SendRequest) -> None:
    if backlog is None:
        request.answer = request.hand_over(pooled.sender, time_left(until))
        return
    for piece in request.chunks(pooled.sender, backlog):
        pooled.sender.send_messages(piece, timeout=time_left(until))
