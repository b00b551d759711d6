"""What does a blocking client run on?

The decisions are made in pair.py; here they are carried out over the SDK. One lock stands around the pure
state; it is never held while anything is sent or any callback runs. Links are opened when they are first
needed, and again after a fork: a child never speaks on its parent's connections.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable

from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from . import fork, sdk
from .address import Side
from .batch import Cargo
from .bond import Role, SideState
from .companion import companions
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
from .errors import PairFaultedError, SpoolError
from .lanes import GRACE, Lane, Lanes
from .names import path_key
from .options import PairedNamespaceOptions
from .outcome import Phase, judge
from .pair import Attempt, CreateBacklog, Landing, Pause, Result, SendFlow, Spool, Step
from .rotation import Choice
from .spooling import Spooling
from .work import Watch, Workers


class Runtime(Core):
    """The state, links and threads of one paired client."""

    def __init__(
        self,
        primary: Side,
        secondary: Side,
        label: str,
        options: PairedNamespaceOptions,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(primary, secondary, label, options, secondary.administration, rng)
        self.lock = threading.Lock()
        self._spooling = self._opened_spool(label, self._send_again, self.hub.tell)
        self._syphon, self._watch_of_others = companions(self)
        self._start()
        fork.watch_over(self)
        if self._spooling is not None:
            self._watch.wake()  # what a client before us left there
        if self.creates_backlogs:
            self._workers.start("sbpair-backlogs", self._create_backlogs)

    def _start(self) -> None:
        self._has_begun = False
        self._closed = threading.Event()
        self._making = threading.Lock()
        self._lanes: dict[str, Lanes] = {}
        self._clients: dict[tuple[str, int | None], ServiceBusClient] = {}
        self._workers = Workers()
        self._watch = Watch(self._tick)

    def begin(self) -> None:
        """The client is in use: what its options ask for beside it begins; what could not is tried again
        at the next call. Raises OSError or ValueError, after all that can begin has begun.
        """
        if self._has_begun or self.is_closed:
            return
        errors: list[Exception] = []
        for each in (self._watch_of_others, self._syphon):
            try:
                if each is not None:
                    each.start()
            except (OSError, ValueError) as error:
                errors.append(error)
        if errors:
            raise errors[0]
        self._has_begun = True

    def exclusive(self) -> threading.Lock:
        """The lock around the pure state."""
        return self.lock

    # -- sending

    def send_straight(self, key: str, message: Message, started: float, seconds: float) -> Result | None:
        """The first attempt at a healthy entity, over a link from the store; None when there is none."""
        lanes = self._lanes.get(key)
        lane = None if lanes is None else lanes.stored()
        if lanes is None or lane is None:
            return None
        lane.until = started + seconds + GRACE
        failed: Exception | None = None
        try:
            lane.sender.send_messages(message, timeout=seconds)
        except Exception as error:
            failed = error
        except BaseException:
            lanes.drop(lane)
            raise
        if failed is not None:  # out here, what is being handled is the caller's
            return self._failed(lanes, lane, failed, Phase.SENDING, sys.exception())
        lanes.give(lane)
        if not self.bond.is_whole:
            self._hear(None, ACCEPTED)
        return ACCEPTED

    def drive(
        self, path: str, cargo: Cargo, choice: Choice, budget: float, first: Result | None, started: float
    ) -> Landing:
        """Carry out the flow of one send; what became of it."""
        if not self._has_begun:
            self._begin_in_child()
        if first is not None:
            self._hear(None, first)
        return self._carried_out(self._flow(path, cargo, choice, started, budget, first), path, cargo)

    def _begin_in_child(self) -> None:
        """A client that its parent had opened: what cannot begin here is no fault of this send."""
        try:
            self.begin()
        except (OSError, ValueError) as error:
            logger.warning("not all that was asked for can begin in this process: %s", error)
            self._has_begun = True  # said once, not at every send

    def _send_again(self, path: str, cargo: Cargo, choice: Choice) -> Landing:
        """For messages from the spool: the same way, but not back into it."""
        return self._carried_out(self._flow_again(path, cargo, choice), path, cargo)

    def _carried_out(self, flow: SendFlow, path: str, cargo: Cargo) -> Landing:
        result: Result | None = None
        while True:
            try:
                with self.lock:
                    step = flow.send(result) if result is not None else next(flow)
            except StopIteration as landed:
                landing: Landing = landed.value
                return landing
            finally:
                if self.pair.has_news:
                    self.publish()
            result = self._perform(step, path, cargo)

    def warm_backlog(self, path: str, choice: Choice) -> None:
        """While an entity is suspect, open the link its messages may need."""
        with self.lock:
            backlog = self._backlog_to_warm(path, choice)
        if backlog is not None and not self.is_closed:
            lanes = self._backlog_lanes(backlog)
            self._beside("sbpair-warm", lambda: lanes.warm(LONGEST_PING))

    def primary_lanes(self, path: str) -> Lanes:
        """The lanes to a primary entity."""
        return self._lanes.get(path_key(path)) or self._made(path_key(path), self._primary, path)

    def publish(self) -> None:
        """Tell what happened; the timers may have changed with it."""
        with self.lock:
            happened = self._happened()
        if self._spooling is not None:
            self._spooling.hear(happened)
        self._watch.wake()
        self.hub.tell(happened)

    def sdk_client(self, side: Side, *, retry_total: int | None = 0) -> ServiceBusClient:
        """One SDK client for each side and purpose, made when first needed."""
        key = (side.role, retry_total)
        with self._making:
            self._check_side(side.role)
            if key not in self._clients:
                self._clients[key] = side.client(retry_total=retry_total)
            return self._clients[key]

    # -- opening and closing

    def release_path(self, path: str) -> None:
        """No sender uses this entity any more."""
        with self._making:
            lanes = self._lanes.pop(path_key(path), None)
        if lanes is not None:
            lanes.close()

    def close(self) -> None:
        """End what is under way, close every link, stop every thread."""
        self._end()
        if self._watch_of_others is not None:
            self._watch_of_others.close()  # last: it is told all that happened before

    def _end(self) -> None:
        self.is_closed = True
        if self._syphon is not None:
            self._syphon.close()
        if self._spooling is not None:
            self._spooling.stop()
        self._closed.set()
        self._watch.close()
        with self._making:
            lanes, clients = list(self._lanes.values()), list(self._clients.values())
            self._lanes.clear()
            self._clients.clear()
        for each in lanes:
            each.close()
        self._workers.join(CLOSING)
        if self._spooling is not None:
            self._spooling.close()
        for client in clients:
            client.close()  # last: it closes every sender again that it finds open

    def close_side(self, role: Role) -> None:
        """Close the links to one namespace; the partner has five seconds to follow (P-50)."""
        if self._side_closed(role):
            self.close()
            return
        with self._making:
            lanes = [self._lanes.pop(key) for key in list(self._lanes) if role_of(key) is role]
            clients = [self._clients.pop(key) for key in list(self._clients) if key[0] is role]
        for each in lanes:
            each.close()
        for client in clients:
            client.close()

    def round_trip(self, seconds: float) -> None:
        """Open a link to where messages go: to the primary, or else the secondary. Raises as reach."""
        try:
            self.reach(Role.PRIMARY, seconds / 2)
        except ServiceBusError:
            self.reach(Role.SECONDARY, seconds / 2)

    def reach(self, role: Role, seconds: float) -> None:
        """A round trip that sends nothing: open a link to an entity in use on this side, and close it.

        Raises what the SDK raises when none of them can be had.
        """
        until = time.monotonic() + seconds
        lanes = [self._lanes[key] for key in list(self._lanes) if role_of(key) is role]
        if not lanes:
            lanes = [self._backlog_lanes(0)] if role is Role.SECONDARY else []
        raised: ServiceBusError = OperationTimeoutError(message=f"No entity of the {role} is in use.")
        for each in lanes:
            try:
                return each.try_out(until)
            except ServiceBusError as error:
                raised = error
        raise raised

    def reopen_in_child(self) -> None:
        """After a fork, in the child: the threads are gone and the connections are the parent's."""
        self._watch.release()
        for each in (self._syphon, self._watch_of_others):
            if each is not None:
                each.renew()
        self.pair.pings_lost()
        if self._spooling is not None:
            self._spooling.disown()
            self._spooling = None
        self.hub.renew()
        self._start()
        if self.is_closed:
            self._closed.set()

    # -- carrying out one step

    def _perform(self, step: Step, path: str, cargo: Cargo) -> Result:
        match step:
            case Attempt():
                before = cargo.parked
                result = self._attempt(step, path, cargo)
                self._hear(step.backlog, result)
                return counted(result, cargo.parked - before)
            case Pause(until):
                if self._closed.wait(max(until - time.monotonic(), 0.0)):
                    raise self.closed_error()
                return Result(time.monotonic())
            case CreateBacklog(backlog, until):
                return Result(time.monotonic(), self._created(backlog, until))
            case Spool(until):
                return self._written(path, cargo, until)

    def _attempt(self, step: Attempt, path: str, cargo: Cargo) -> Result:
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
            lane = lanes.take(step.until, is_fresh=step.is_fresh)
            phase = Phase.SENDING
            self._check_room(step, path, cargo, sdk.message_limit(lane.sender))
            _send(lane, step, cargo)
        except Exception as error:
            return self._failed(lanes, lane, error, phase, handled)
        except BaseException:
            if lane is not None:
                lanes.drop(lane)
            raise
        lanes.give(lane)
        return Result(time.monotonic())

    def _learn_limit(self) -> None:
        lanes = self._backlog_lanes(0)
        self._beside("sbpair-limit", lambda: self._learn_from(lanes))

    def _learn_from(self, lanes: Lanes) -> None:
        try:
            lane = lanes.take(time.monotonic() + LONGEST_PING)
        except Exception as error:  # then it is asked again later
            logger.debug("the limit of the backlog queues is unknown: %s", type(error).__name__)
            return
        if self.headroom is not None:
            self.headroom.linked(sdk.message_limit(lane.sender), is_backlog=True)
        lanes.give(lane)

    def _created(self, backlog: int, until: float) -> Exception | None:
        must_exist = self._must_exist(backlog)
        if must_exist is not None:
            return must_exist
        try:
            job = self._workers.start("sbpair-create", lambda: self._backlogs.ensure([backlog]), until=until)
        except OperationTimeoutError as error:
            return error
        if not job.wait(until - time.monotonic()):
            return OperationTimeoutError(message="The backlog queue was not created in time.")
        return job.error

    def _written(self, path: str, cargo: Cargo, until: float) -> Result:
        """On a thread of its own: a disk that stalls does not hold the caller (G-18)."""
        written: list[Exception | None] = []
        try:
            job = self._workers.start(
                "sbpair-spool", lambda: written.append(self._write(path, cargo)), until=until
            )
        except OperationTimeoutError as error:
            return Result(time.monotonic(), SpoolError(f"the spool cannot be written: {error}"))
        if not job.wait(until - time.monotonic()):
            return not_written_in_time()
        return Result(time.monotonic(), written[0])

    def _backlog_lanes(self, backlog: int) -> Lanes:
        key = f"/{backlog}"  # no entity path begins with a slash; P-15: one link for all entities
        return self._lanes.get(key) or self._made(key, self._secondary, self._backlogs.name(backlog))

    def _made(self, key: str, side: Side, entity: str) -> Lanes:
        with self._making:
            lanes = self._lanes.get(key)
            if lanes is None:
                self._check_side(side.role)
                lanes = Lanes(
                    lambda: self.sdk_client(side, retry_total=self.retry_total).get_queue_sender(entity),
                    self._watch,
                    self._workers,
                )
                self._lanes[key] = lanes
            return lanes

    # -- beside the caller's thread

    def _tick(self, now: float) -> float | None:
        with self.lock:
            due = self.pair.handle_timer(now)
            looks = self._sides_tick(now)
            timer = self._timer()
        if self.bond.fault is not None:
            self._is_faulting = self._is_faulting or self._beside("sbpair-fault", self._fault)
            return None
        if self.pair.has_news:
            self._beside("sbpair-events", self.publish)  # a callback may take its time
        timer = self._replay_tick(now, timer)
        for role in looks:
            self._beside("sbpair-look", lambda role=role: self._look(role))  # type: ignore[misc]
        if self.bond.state_of(Role.PRIMARY) is SideState.CLOSED:
            return timer  # nobody is left to ping
        for path in due:
            if not self._beside("sbpair-ping", lambda path=path: self._ping(path)):  # type: ignore[misc]
                self._ping_failed(path)
        return timer

    def _replay_tick(self, now: float, timer: float | None) -> float | None:
        spooling = self._spooling
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

    def _look(self, role: Role) -> None:
        """Whether a side that had refused us does so still."""
        try:
            self.reach(role, LONGEST_LOOK)
        except (ServiceBusError, ValueError) as error:
            self._look_failed(role, error)
            return
        self._hear(None if role is Role.PRIMARY else 0, ACCEPTED)

    def _fault(self) -> None:
        """The pair is faulted: tell it, and end everything (P-50)."""
        self.publish()
        if self._syphon is not None:
            self._syphon.abort()
        self._end()

    def _ping(self, path: str) -> None:
        with self.lock:
            attempt, ping = self._ping_attempt(path)
        result = self._attempt(attempt, path, ping)
        self._hear(None, result)
        with self.lock:
            self.pair.ping_finished(path, result.judgement, result.now)
        self.publish()

    def _ping_failed(self, path: str) -> None:
        error = OperationTimeoutError(message="Too many operations still hang.")
        with self.lock:
            self.pair.ping_finished(path, judge(error, Phase.OPENING), time.monotonic())

    def _create_backlogs(self) -> None:
        try:
            created = self._backlogs.ensure_in_background(self._closed)
        except Exception as error:
            if not self._closed.is_set():
                self.hub.tell([backlogs_event(error)])
            return
        self.hub.tell([backlogs_event(created)])

    def _beside(self, name: str, task: Callable[[], object]) -> bool:
        try:
            self._workers.start(name, task)
        except OperationTimeoutError as error:
            logger.warning("%s was left out: %s", name, error)
            return False
        return True


def _send(lane: Lane, step: Attempt, cargo: Cargo) -> None:
    if step.backlog is None:
        cargo.answer = cargo.hand_over(lane.sender, time_left(step.until))
        return
    for piece in cargo.chunks(lane.sender, step.backlog):
        lane.sender.send_messages(piece, timeout=time_left(step.until))
