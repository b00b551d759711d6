"""A sending process: the unmodified pair and its flows, over a simulated SDK.

The pair decides; this module drives its generator as both runtimes do: attempt, pause, create, and pings beside it.
The fate of an attempt is drawn from the seed and the plan, and ends in the SDK's own exceptions,
which the table of classify.py classifies.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from math import inf
from random import Random

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbpair.broker.errors import BrokerError, EntityAlreadyExistsError, ReroutingError
from sbpair.broker.faults import Delay, EndingEffect, Lose, RefusingEffect, Withhold
from sbpair.pair.envelope import copies, park
from sbpair.pair.envelope.ordering import Numbering, OrderStamp
from sbpair.pair.pairing import events
from sbpair.pair.pairing.decide.attempts import MIN_FAILURES, MIN_SPAN
from sbpair.pair.pairing.decide.health import EntityState, HealthPolicy
from sbpair.pair.pairing.decide.pair import (
    Attempt,
    CreateBacklog,
    Pair,
    Pause,
    Peek,
    Result,
    SendFlow,
    SpoolMessages,
    SpoolUse,
    Step,
)
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.outcome import Failure, Outcome, Stored, Stranded
from sbpair.pair.pairing.request.classify import Phase, classify
from sbpair.pair.pairing.shared.turns import TaskTurns

from .answers import LATER, LOST, STORED, Answer, CredentialUnavailableError, OpeningError, sdk_error
from .entities import CLOCK
from .network import LONGEST, SHORTEST
from .payloads import encoded, fingerprint, stored
from .plan import PRIMARY, SECONDARY, Kind
from .spool import PlayedSpool
from .virtual_loop import EPOCH
from .world import World

TIMEOUT = 60.0  # seconds: operation_timeout
ATTEMPT_TIMEOUT = 10.0  # seconds: the default of that option
LATE = 0.5  # seconds after its time at which a send has returned at the latest (G-18)
PING = "application/vnd.ms-servicebus-ping"


class Client:
    """One sending process, until it crashes."""

    def __init__(self, world: World, name: str, rng: Random, spool: PlayedSpool | None = None) -> None:
        shape = world.shape
        self.name, self.world, self.rng = name, world, rng
        self.pair = Pair(
            failover_interval=shape.failover_interval,
            ping_interval=shape.ping_interval,
            backlog_count=shape.backlogs,
            rng=rng,
            redirects_suspects=shape.redirects_suspects,
            spills_on_quota=shape.spills_on_quota,
            busy_limit=shape.busy_limit,
            retry=RetryPolicy(),
            keeps_order=shape.keeps_order,
            policy=HealthPolicy(slow_after=shape.slow_after),
        )
        self._turns: dict[str, TaskTurns] = {}
        self._numbering = Numbering(f"{rng.getrandbits(64):016x}" if shape.keeps_order else "0", CLOCK.now())
        self.tasks: set[asyncio.Task[object]] = set()
        self.in_flight = 0
        self._choices: dict[str, Choice] = {}
        self._warm: set[str] = set()  # paths with a link that was used before
        self._timer: asyncio.TimerHandle | None = None
        self._pinging: set[str] = set()
        self._attempts: defaultdict[str, deque[tuple[float, bool]]] = defaultdict(lambda: deque(maxlen=1000))
        self._failing: dict[str, float] = {}  # since when every answer of the primary was a failure
        self._is_dead = False
        self._spool = spool
        if spool is not None:
            self._publish()

    @property
    def _may_park(self) -> bool:
        """Whether a send that the primary does not answer is parked, and so does not wait for long."""
        return self.world.shape.redirects_suspects and not self.world.shape.keeps_order

    # -- what an application does

    def spawn(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)  # type: ignore[arg-type]
        task.add_done_callback(self._ended)  # type: ignore[arg-type]

    def _ended(self, task: asyncio.Task[object]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.world.history.wrong(f"{self.name} failed: {task.exception()!r}")

    async def stores(self, path: str, message: ServiceBusMessage) -> bool:
        """Send a message of an ordered session once; whether it was stored."""
        await self.send(path, message, 0)
        return str(message.message_id) in self.world.history.acknowledged

    async def send(self, path: str, message: ServiceBusMessage, retries: int) -> None:
        """Send a message, and again where it was refused: the application keeps the object, and so its id."""
        world, history = self.world, self.world.history
        name = str(message.message_id)
        history.attempted.add(name)
        payload = encoded(copies.prepare(message))
        world.references[name] = fingerprint(stored(payload), has_deadline=world.shape.has_deadlines)
        for _ in range(1 + retries):
            deadline = self._fixed_deadline(message)
            history.note(world.now, self.name, "attempt", name, path)
            self.in_flight += 1
            began = world.now
            try:
                outcome = await self._sent(path, message, payload, deadline)
            finally:
                self.in_flight -= 1
            if world.now > began + TIMEOUT + LATE:
                history.wrong(f"G-18: a send of {name} by {self.name} took {world.now - began:g} s")
            if isinstance(outcome, Stored):
                where = "primary" if outcome.backlog is None else f"backlog {outcome.backlog}"
                where = "spool" if outcome.is_spooled else where
                history.acknowledged.add(name)
                history.note(world.now, self.name, "ack", name, where)
                return
            if isinstance(outcome, Stranded):
                history.reached["all backlogs down"] += 1
            history.note(world.now, self.name, "refused", name, type(outcome).__name__)
            await asyncio.sleep(self.rng.uniform(1, 20))

    def _fixed_deadline(self, message: ServiceBusMessage) -> int | None:
        """When it is of no use any more, with that policy (G-15)."""
        if not self.world.shape.has_deadlines:
            return None
        deadline = park.deadline_of(message, CLOCK.now())
        if deadline is not None:
            known, name, at = self.world.history.deadlines, str(message.message_id), deadline / 1000 - EPOCH
            known[name] = known.get(name, (at, at))[0], at
        return deadline

    def crash(self) -> None:
        """Die: nothing that was begun is heard of again."""
        self._is_dead = True
        if self.in_flight:
            self.world.history.reached["sender crashed in a send"] += 1
        if self._spool is not None and self._spool.waiting():
            self.world.history.reached["sender crashed with messages in its spool"] += 1
        for task in self.tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # -- what the skins do

    async def _sent(
        self, path: str, message: ServiceBusMessage, payload: bytes, deadline: int | None
    ) -> Outcome:
        session = copies.session_of(message) if self.pair.ordered is not None else None
        until = self.world.now + TIMEOUT
        if session is None:
            return await self._sent_now(path, message, payload, deadline, None, until)
        turns = self._turns.setdefault(path, TaskTurns())
        if not turns.take(session) and not await turns.wait(session, TIMEOUT):
            return Stranded(())
        try:
            return await self._sent_now(path, message, payload, deadline, session, until)
        finally:
            turns.leave(session)

    async def _sent_now(
        self,
        path: str,
        message: ServiceBusMessage,
        payload: bytes,
        deadline: int | None,
        session: str | None,
        until: float,
    ) -> Outcome:
        started = self.world.now
        health, budget = self.pair.fast_path(path, until - started)
        patience = health.breaker.patience
        if self.pair.redirects_suspects:
            budget = min(budget, patience.seconds)
        first = None
        spool = self._spool_use(path)
        is_open = session is None or self.pair.ordered is None or self.pair.ordered.fence.is_open
        if health.is_calm and spool is not SpoolUse.AT_ONCE and is_open:  # the fast path of a healthy entity
            first = await self._attempt(Attempt(None, started + budget), path, lambda: payload)
            is_slow = health.is_slow(self.world.now - started)
            if first.classification is None:
                patience.answered(self.world.now - started, self.world.now)
            if first.classification is None and health.is_calm and not is_slow:
                return Stored(None, is_ambiguous=False)
        choice = self._choices.setdefault(path, Choice())
        flow = self.pair.send_flow(
            path,
            1,
            choice,
            now=started,
            deadline=until,
            first=first,
            spool=spool,
            message_ids=lambda: (),
            session=session,
            key=lambda: message.session_id or message.partition_key,
        )
        return await self._driven(flow, path, message, payload, deadline)

    def _order_of(self, path: str, message: copies.Message) -> tuple[str, OrderStamp] | None:
        session = copies.session_of(message)
        if self.pair.ordered is None or session is None:
            return None
        return self.pair.ordered.place(path, session).parked_id, self._numbering.next()

    def _spool_use(self, path: str) -> SpoolUse:
        if self._spool is None:
            return SpoolUse.NEVER
        return SpoolUse.AT_ONCE if self._spool.waiting(path) else SpoolUse.LAST_RESORT

    async def _sent_again(
        self, path: str, message: copies.Message, deadline: int | None, choice: Choice
    ) -> Outcome:
        """Out of the spool, and not back into it."""
        now = self.world.now
        session = copies.session_of(message) if self.pair.ordered is not None else None
        flow = self.pair.send_flow(
            path,
            1,
            choice,
            now=now,
            deadline=now + TIMEOUT,
            spool=SpoolUse.FROM_IT,
            message_ids=lambda: (),
            session=session,
        )
        return await self._driven(flow, path, message, encoded(message), deadline)

    async def _driven(
        self, flow: SendFlow, path: str, message: copies.Message, payload: bytes, deadline: int | None
    ) -> Outcome:
        order = self._order_of(path, message)
        try:
            step = next(flow)
            result: Result | None = None
            while True:
                self._publish()
                if isinstance(step, Pause):
                    self._paused(result)
                result = await self._perform(step, path, message, payload, deadline, order)
                step = flow.send(result)
        except StopIteration as end:
            self._publish()
            outcome: Outcome = end.value
            return outcome

    def _paused(self, result: Result | None) -> None:
        """A send waits after this result."""
        classification = None if result is None else result.classification
        is_busy = classification is not None and classification.failure is Failure.BUSY
        self.world.history.reached["busy" if is_busy else "retried"] += 1
        if is_busy and classification is not None and classification.retry_after is not None:
            self.world.history.reached["waited as long as the hint said"] += 1

    async def _perform(
        self,
        step: Step,
        path: str,
        message: copies.Message,
        payload: bytes,
        deadline: int | None,
        order: tuple[str, OrderStamp] | None,
    ) -> Result:
        match step:
            case Attempt(backlog=None):
                return await self._attempt(step, path, lambda: payload)
            case Attempt():
                return await self._attempt(
                    step, path, lambda: encoded(park.park(message, path, deadline, order))
                )
            case Peek():
                return await self._peeked(step)
            case Pause(until=until):
                await asyncio.sleep(max(until - self.world.now, 0))
                return Result(self.world.now)
            case CreateBacklog(backlog=backlog):
                return Result(self.world.now, await self._created(self.world.backlogs[backlog]))
            case SpoolMessages() if self._spool is not None:
                return await self._spool.write(path, message, deadline)
        raise TypeError(f"no spool in this run: {step}")

    async def _attempt(self, step: Attempt, path: str, payload: Callable[[], bytes]) -> Result:
        is_primary = step.backlog is None
        side, entity = (PRIMARY, path) if is_primary else (SECONDARY, self.world.backlogs[step.backlog or 0])
        was_reused = entity in self._warm and not step.is_fresh
        phase, began = Phase.SENDING, self.world.now
        error: Exception | None = None
        try:
            await self.exchange(side, entity, payload(), step.until)
            self._warm.add(entity)
        except OpeningError as opening:
            phase, error = Phase.OPENING, opening.reason
        except ServiceBusError as refused:
            error = refused
        if error is not None:
            self._warm.discard(entity)
        classification = None if error is None else classify(error, phase)
        if is_primary:
            took = self.world.now - began
            self._answered(path, classification.failure if classification else None, took)
            if self._may_park and took > ATTEMPT_TIMEOUT + LATE:
                self.world.history.wrong(f"H-56: {self.name} waited {took:g} s for one answer of {path}")
        return Result(self.world.now, error, classification, was_reused)

    async def _peeked(self, step: Peek) -> Result:
        """Ask an ordered backlog what it holds; the answer is as old as its way back."""
        world = self.world
        answer: asyncio.Future[ServiceBusError | bool] = world.loop.create_future()
        if not self._is_cut(SECONDARY):
            world.loop.call_later(self._latency(), self._peek_arrives, step, answer)
        try:
            async with asyncio.timeout(max(step.until - world.now, 0.001)):
                found = (
                    ServiceBusConnectionError(message="refused") if self._is_cut(SECONDARY) else await answer
                )
        except TimeoutError:
            found = OperationTimeoutError(message="The peek was not answered in time.")
        if isinstance(found, ServiceBusError):
            world.history.reached["fence not proved"] += 1
            return Result(world.now, found, classify(found))
        world.history.reached["fence seen empty" if found else "fence held"] += 1
        return Result(world.now, is_empty=found)

    def _peek_arrives(self, step: Peek, answer: asyncio.Future[ServiceBusError | bool]) -> None:
        world, until = self.world, self.world.stalled_until(self.name, SECONDARY)
        if until > world.now:
            world.loop.call_at(until, self._peek_arrives, step, answer)
            return
        found: ServiceBusError | bool
        try:
            queue = world.namespace(SECONDARY).queue(world.backlogs[step.backlog])
            found = not queue.peek(1, 1, CLOCK.now(), step.parked_id)
        except BrokerError as error:
            found = sdk_error(error.condition)
        world.loop.call_later(self._latency(), lambda: answer.done() or answer.set_result(found))

    async def _created(self, backlog: str) -> Exception | None:
        await asyncio.sleep(self._latency())
        if self._is_cut(SECONDARY):
            return ServiceBusConnectionError(message="refused")
        try:
            self.world.create_backlog(backlog)
        except EntityAlreadyExistsError:
            return None
        except BrokerError as error:
            return sdk_error(error.condition)
        if not self.world.is_kept(SECONDARY):
            return ServiceBusConnectionError(message="the connection was reset")
        self.world.history.reached["backlog created"] += 1
        return None

    # -- the wire

    async def exchange(self, side: str, entity: str, payload: bytes, until: float) -> None:
        """One message and its answer. Raises what the SDK would; whether it was stored is noted."""
        world, name = self.world, str(stored(payload).message_id)
        answer: asyncio.Future[Answer] = world.loop.create_future()
        if world.is_active(Kind.NO_TOKEN, f"{self.name} {side}") and self._needs_token(entity):
            world.history.reached["client without a token"] += 1
            raise OpeningError(CredentialUnavailableError("the token service is away"))
        if self._is_cut(side):
            await asyncio.sleep(self._latency())
            raise OpeningError(ServiceBusConnectionError(message=f"{side} refuses connections"))
        world.loop.call_later(self._latency(), self._arrive, side, entity, payload, answer)
        try:
            async with asyncio.timeout(max(until - world.now, 0.001)):
                said = await answer
        except TimeoutError:
            raise OperationTimeoutError(message="The send did not end by its deadline.") from None
        finally:
            if not answer.done() or answer.cancelled():
                answer.cancel()
        if said is LOST:
            raise ServiceBusConnectionError(message="the connection was reset")
        if said.condition is not None:
            raise sdk_error(said.condition, said.text)
        world.history.unanswered[name] -= 1  # it got the answer

    def _needs_token(self, entity: str) -> bool:
        """Whether no link to the entity is open, or the token of one that is has expired."""
        return entity not in self._warm or self.rng.random() < 0.3

    def _arrive(self, side: str, entity: str, payload: bytes, answer: asyncio.Future[Answer]) -> None:
        world = self.world
        world.stepped(self.name)
        until = world.stalled_until(self.name, side)
        if until > world.now:
            if self.rng.random() < 0.5:  # else the connection dies meanwhile, and the message with it
                world.loop.call_at(until, self._arrive, side, entity, payload, answer)
            return
        is_reset = not stored(payload).is_ping and world.is_ack_lost(side)
        if self._is_cut(side) or (is_reset and self.rng.random() < 0.5):  # before it got there
            said = LOST
        else:
            said = self._store(side, entity, payload)
        if said is LATER:
            world.loop.call_later(1.0, self._arrive, side, entity, payload, answer)
            return
        if said.condition is None and is_reset:
            said = LOST
            world.history.reached["sender's ack lost"] += 1

        def reply(is_gone: bool) -> None:
            late = self._latency() + (0.0 if is_gone else said.after)
            if late < inf:
                world.loop.call_later(late, self._answer, side, answer, LOST if is_gone else said)

        world.answer(side, reply)

    def _answer(self, side: str, answer: asyncio.Future[Answer], said: Answer) -> None:
        until = self.world.stalled_until(self.name, side)
        if until > self.world.now:
            self.world.loop.call_at(until, self._answer, side, answer, said)
            return
        self.world.stepped(self.name)
        if not answer.done():
            is_down = self.world.is_active(Kind.DOWN, side) is not None  # a death lets pass what was written
            answer.set_result(LOST if is_down else said)

    def _store(self, side: str, entity: str, payload: bytes) -> Answer:
        """Store it, or not; LATER while it is re-routed."""
        world, server, message = self.world, self.world.servers[side], stored(payload)
        try:
            queue = server.frontend.namespace.queue(entity)
            with world.network.acting(self.name):
                effect = world.effect(side, queue.path)
                if isinstance(effect, RefusingEffect):
                    return Answer(effect.condition, effect.description)
                if isinstance(effect, Lose):
                    return Answer(after=inf)
                queue.enqueue_all([message], CLOCK.now())
        except ReroutingError:
            world.history.reached["re-routed"] += 1
            return LATER
        except BrokerError as error:
            return Answer(error.condition)
        if not message.is_ping:
            unanswered, name = world.history.unanswered, str(message.message_id)
            unanswered[name] += 1
            world.when_lost(side, lambda: unanswered.subtract((name,)))
        server.end_turn()
        match effect:
            case Delay(seconds):
                return Answer(after=seconds)
            case Withhold():
                return Answer(after=inf)
            case EndingEffect():
                return LOST
        return STORED

    def _is_cut(self, side: str) -> bool:
        return self.world.is_cut(side)

    def _latency(self) -> float:
        return self.rng.uniform(SHORTEST, LONGEST)

    # -- time, pings, events

    def _publish(self) -> None:
        """Check what the pair tells, and see when it wants to be called."""
        if self._is_dead:
            return
        for event in self.pair.events():
            self._told(event)
        if self._timer is not None:
            self._timer.cancel()
        timers = [self.pair.next_timer(), None if self._spool is None else self._spool.next_timer()]
        at = min((each for each in timers if each is not None), default=None)
        self._timer = None if at is None else self.world.loop.call_at(at, self._tick)

    def _tick(self) -> None:
        for path in self.pair.handle_timer(self.world.now):
            self.spawn(self._ping(path))
        for path in self._spool.due(self.world.now) if self._spool is not None else ():
            self.spawn(self._replay(path))
        self._publish()

    async def _replay(self, path: str) -> None:
        assert self._spool is not None
        self.in_flight += 1
        try:
            await self._spool.replay(path, self._sent_again)
        finally:
            self.in_flight -= 1
        self._publish()

    async def _ping(self, path: str) -> None:
        world = self.world
        if path in self._pinging:
            world.history.wrong(f"P-32: {self.name} pings {path} twice at once")
        self._pinging.add(path)
        self.pair.ping_left(path, world.now)
        world.history.note(world.now, self.name, "ping", "", path)
        message = ServiceBusMessage(
            b"", content_type=PING, message_id="ping", session_id=f"p{self.rng.randrange(10**9)}"
        )
        result = await self._attempt_ping(path, encoded(message))
        self._pinging.discard(path)
        self.pair.ping_finished(path, result.classification, world.now)
        self._publish()

    async def _attempt_ping(self, path: str, payload: bytes) -> Result:
        try:
            await self.exchange(PRIMARY, path, payload, self.world.now + 30.0)
        except OpeningError as opening:
            return Result(self.world.now, opening.reason, classify(opening.reason, Phase.OPENING))
        except ServiceBusError as error:
            return Result(self.world.now, error, classify(error))
        return Result(self.world.now)

    def _answered(self, path: str, failure: Failure | None, took: float) -> None:
        """What the primary said of one attempt, after so many seconds: for the check of the interval."""
        slow_after = self.world.shape.slow_after
        is_slow = failure is None and took >= slow_after  # H-4
        has_failed = failure in (Failure.UNAVAILABLE, Failure.BUSY) or is_slow
        if has_failed or failure is None:  # a full queue, or a missing right, says nothing of its health
            times = int(took // slow_after) if is_slow else 1
            self._attempts[path].extend([(self.world.now, has_failed)] * times)
        if failure is None:
            self._failing.pop(path, None)
        elif failure in (Failure.UNAVAILABLE, Failure.BUSY):
            self._failing.setdefault(path, self.world.now)

    def _mostly_failed(self, event: events.PairingEvent) -> bool:
        """Whether half of at least five attempts failed in the interval, in trouble as old as the interval (H-1)."""
        begin = event.at - self.world.shape.failover_interval
        attempts = self._attempts[event.path]
        recent = [failed for at, failed in attempts if at >= min(begin, event.at - MIN_SPAN)]
        is_old = any(failed and at <= begin + 1e-6 for at, failed in attempts)
        return is_old and sum(recent) >= MIN_FAILURES - 1 and sum(recent) >= 0.45 * len(recent)

    def _told(self, event: events.PairingEvent) -> None:
        history = self.world.history
        history.note(event.at, self.name, type(event).__name__, "", event.path)
        if self._spool is not None:
            self._spool.hear(event)
        match event:
            case events.EntityFailedOver():
                history.reached["failover"] += 1
                since = self._failing.get(event.path)
                was_failing = (
                    since is not None and event.at - since >= self.world.shape.failover_interval - 1e-6
                )
                history.reached["failover by share"] += not was_failing
                if not (was_failing or self._mostly_failed(event)):
                    history.wrong(
                        f"G-12: {self.name} failed {event.path} over at {event.at}, failing since {since}"
                    )
            case events.EntityRecovered():
                history.reached["failback"] += self.pair.pings_sent > 0
            case events.EntityReturning():
                history.reached["returned by trial"] += 1
            case events.ReturnAborted():
                history.reached["trial failed"] += 1
            case events.PrimarySlow():
                history.reached["primary was slow"] += 1
            case events.KeySetAside():
                history.reached["key set aside"] += 1
            case events.BacklogWithdrawn():
                history.reached["eviction"] += 1

    def is_home(self) -> bool:
        """Nothing is under way, and every entity is trusted again."""
        states = (self.pair.state_of(path) for path in self._choices)
        is_idle = not self.in_flight and (self._spool is None or not self._spool.waiting())
        return is_idle and all(state is not EntityState.FAILED_OVER for state in states)
