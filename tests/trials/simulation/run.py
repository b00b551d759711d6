"""One run: a seed determines a shape, a plan and a workload; everything happens in virtual time, then it is checked.

0 s ............ 120 s ............ 240 s ..................... + 400 s
messages and faults begin | faults end |  liveness: all must come home |  checkers
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

from azure.servicebus import ServiceBusMessage

from sbpair.broker.errors import BrokerError
from sbpair.pair.client.backoff import RANDOM
from sbpair.pair.envelope import aliases
from sbpair.pair.envelope.names import ordered_backlog_name
from sbpair.pair.envelope.park import park
from sbpair.pair.observation.record import event_name
from sbpair.pair.syphon.events import LandingBegan, LandingEnded, LandingRefused, SyphonEvent
from sbpair.syphon import Syphon, SyphonOptions

from .checkers import check
from .client import Client
from .dead_letters import find_expired, find_untransferred
from .entities import CLOCK, CLOSED, PICKY, SECRET, TINY
from .grey import BY_RULE, drawn_grey, drawn_half, drawn_trouble, token_service
from .history import History
from .instruments import watching
from .network import HOST
from .ordered import check_order, counted_batches, drawn_sequences, open_fence
from .payloads import drawn_message, encoded, stored
from .plan import (
    ENTITIES,
    PRIMARY,
    SECONDARY,
    TOPIC,
    WORKLOAD,
    Fault,
    Kind,
    Shape,
    drawn_crashes,
    drawn_detachments,
    drawn_disorder,
    drawn_entity,
    drawn_interruptions,
    drawn_landing,
    drawn_outage,
    drawn_plan,
    drawn_processing,
    drawn_shape,
    drawn_shortages,
)
from .processors import SIDES, ProcessorProcess
from .spool import Disk, PlayedSpool
from .virtual_loop import EPOCH, StuckError, VirtualLoop, one_time
from .world import World, arm

LIVENESS = 400.0  # seconds after the last fault by which everything must be home
LONG_LIVES = (900, 3600, 86_400 * 30)  # seconds
SHORT_LIVES = (20, 60, 900)
DURABLE = 0.25  # of the worlds have brokers with a disk
SPOOLING = 0.25  # have senders with a spool
ORDERED = 0.3  # keep the order of sessions
LANDING = 0.4  # have syphons that may land on the secondary
PROCESSING = 0.4  # have processors as consumers
DETACHING = 0.5  # have brokers that end single links
GREY = 0.5  # have sides that are only half down
TROUBLED = 0.2  # have an entity that is in trouble again and again, or that loses a small share
LOOK = 5.0  # seconds between two looks of the consumers
CONNECTION_STRING = (
    "Endpoint=sb://{};SharedAccessKeyName=Root;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed."""

    seed: int
    shape: Shape
    plan: list[Fault]
    history: History

    @property
    def digest(self) -> str:
        """The same for two runs exactly when all that was noted is the same."""
        text = "\n".join(map(str, self.history.entries))
        return hashlib.sha256(text.encode()).hexdigest()


def run(seed: int, keep: Sequence[int] | None = None, *, has_fence: bool = True) -> Outcome:
    """Play a seed; ``keep``: only the faults of these positions in its plan.

    Without the fence, ordered sessions go to the primary as soon as it is healthy: the check of their order must fail.
    """
    rng = Random(seed)
    shape = drawn_shape(rng)
    backlogs = [f"{PRIMARY}/x-servicebus-transfer/{index}" for index in range(shape.backlogs)]
    plan = drawn_plan(rng, shape, backlogs)
    disk = Random(f"disk {seed}")  # its own: worlds in memory stay what they were
    if disk.random() < DURABLE:
        shape = replace(shape, is_durable=True)
        plan = sorted((*plan, *drawn_crashes(disk, plan)), key=lambda fault: fault.at)
    spool = Random(f"spool of {seed}")
    if spool.random() < SPOOLING:
        shape = replace(shape, has_spool=True)
        plan = sorted((*plan, *drawn_shortages(spool, shape)), key=lambda fault: fault.at)
    order = Random(f"order of {seed}")
    if order.random() < ORDERED:
        shape = replace(shape, keeps_order=True, syphons=max(shape.syphons, order.choice((1, 2, 2))))
        names = [ordered_backlog_name(PRIMARY, index) for index in range(shape.backlogs)]
        plan = sorted((*plan, *drawn_disorder(order, shape, names)), key=lambda fault: fault.at)
    landing = Random(f"landing of {seed}")
    if landing.random() < LANDING:
        shape = drawn_landing(landing, shape)
        plan = sorted((*plan, *drawn_outage(landing, shape)), key=lambda fault: fault.at)
    processing = Random(f"processors of {seed}")
    if processing.random() < PROCESSING:
        shape = drawn_processing(processing, shape)
        plan = sorted((*plan, *drawn_interruptions(processing, shape)), key=lambda fault: fault.at)
    links = Random(f"links of {seed}")
    if links.random() < DETACHING:
        plan = sorted((*plan, *drawn_detachments(links, shape, plan)), key=lambda fault: fault.at)
    grey = Random(f"grey of {seed}")
    if grey.random() < GREY:
        shape = drawn_grey(grey, shape)
        plan = sorted((*plan, *drawn_half(grey, shape, tuple(backlogs), plan)), key=lambda fault: fault.at)
    trouble = Random(f"trouble of {seed}")
    if trouble.random() < TROUBLED:
        shape, more = drawn_trouble(trouble, shape)
        plan = sorted((*plan, *more), key=lambda fault: fault.at)
    if keep is not None:
        plan = [plan[index] for index in keep]
    history = History()
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _, said: history.wrong(f"unheard: {_told(said)}"))
    asyncio.set_event_loop(loop)
    fence = nullcontext() if has_fence else open_fence()
    with one_time(loop), _seeded(rng.getrandbits(32)), _quiet(), fence, counted_batches(history):
        try:
            loop.run_until_complete(Run(loop, rng, shape, plan, history, spool, order, processing).play())
            find_left(loop, history)
        except StuckError as stuck:
            history.wrong(f"stuck: {stuck}")
        finally:
            _close(loop)
            find_left(loop, history)
            loop.close()
    return Outcome(seed, shape, plan, history)


def find_left(loop: asyncio.AbstractEventLoop, history: History) -> None:
    """No program leaves a task behind when it ends."""
    for name in sorted(task.get_coro().__qualname__ for task in asyncio.all_tasks(loop)):
        history.wrong(f"left behind: {name}")


def _told(said: dict[str, object]) -> str:
    """An error that no task of the programs under test waited for: what it was, without addresses."""
    error = said.get("exception")
    return str(said.get("message")) if error is None else f"{type(error).__name__}: {error}"


class Run:
    """One run while it lasts."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: Random,
        shape: Shape,
        plan: list[Fault],
        history: History,
        spool: Random,
        order: Random,
        processing: Random,
    ) -> None:
        self._spool = spool
        self._processing = processing
        self._processors: dict[str, ProcessorProcess] = {}
        self._deaths: list[asyncio.Future[None]] = []
        is_ordered = shape.keeps_order
        self.sequences = drawn_sequences(order, shape.clients, WORKLOAD) if is_ordered else []
        self._disks: dict[str, Disk] = {}  # of the senders: what one leaves, the next of its name finds
        self.loop, self.rng, self.shape, self.plan, self.history = loop, rng, shape, plan, history
        self.expected_dead: dict[str, str] = {}
        self.clients: dict[str, Client] = {}
        self.syphons: dict[str, tuple[Syphon, asyncio.Task[None]]] = {}
        self._births: dict[str, asyncio.TimerHandle] = {}  # of processes that died
        self._is_over = False  # no process is born any more

    async def play(self) -> None:
        self.world = world = World(self.loop, self.rng, self.shape, self.plan, self.history)
        world.crash, world.is_busy = self._crash, self._is_busy
        world.is_duplicate = lambda host, *copy: self._processors[host].has_handled(*copy)
        with closing(world), watching(world), token_service(world):
            arm(world, self.plan)
            for index in range(self.shape.clients):
                self._start_client(f"client-{index}")
            for index in range(self.shape.syphons):
                self._start_syphon(f"syphon-{index}")
            for index in range(self.shape.processors):
                self._start_processor(f"processor-{index}")
            self._arm_workload()
            consumer = asyncio.ensure_future(self._consume())
            await asyncio.sleep(max(WORKLOAD + 10, *(fault.at + fault.span for fault in self.plan), 0.0))
            await self._come_home(self.loop.time() + LIVENESS)
            self.world.spare_brokers()
            self._consume_all()
            find_expired(self.world)
            find_untransferred(self.world)
            consumer.cancel()
            self._end_births()
            await asyncio.gather(*(process.stop() for process in self._processors.values()))
            await asyncio.gather(*self._deaths)  # some while others stopped
            self._end()
            await asyncio.gather(*(task for _, task in self.syphons.values()), return_exceptions=True)
        check(self.history, self.expected_dead)
        check_order(self.history, self.sequences, world.sessions)

    # -- processes

    def _start_client(self, name: str) -> None:
        spool, rng = None, Random(self.rng.getrandbits(32))
        if self.shape.has_spool:
            spool = PlayedSpool(self.world, name, self._disks.setdefault(name, Disk()), self._spool)
        client = self.clients[name] = Client(self.world, name, rng, spool)
        for sequence in self.sequences:
            if sequence.client == name and not sequence.is_over:
                if sequence.name in self.history.attempted:
                    self.history.unanswered[sequence.name] += 1  # the one before died with it
                    self.history.reached["ordered sender died in a session"] += 1
                client.spawn(sequence.send(client.stores))

    def _start_syphon(self, name: str) -> None:
        options = SyphonOptions(
            backlog_queue_count=self.shape.backlogs,
            allowed_destinations=(*ENTITIES, TINY, CLOSED, PICKY, "nowhere"),
            ordering="session" if self.shape.keeps_order else "none",
            land="primary" if self.shape.land_after is None else "either",
            land_after=timedelta(seconds=self.shape.land_after or 0.0),
        )
        ends = (CONNECTION_STRING.format(side) for side in (PRIMARY, SECONDARY))
        syphon = Syphon.from_connection_strings(*ends, options=options)
        HOST.set(name)
        syphon.on_event(self._on_event)
        task = asyncio.ensure_future(syphon.run(asyncio.Event()))
        HOST.set("")
        task.add_done_callback(lambda task: self._syphon_ended(name, task))
        self.syphons[name] = syphon, task

    def _start_processor(self, name: str) -> None:
        ends = {role: CONNECTION_STRING.format(side) for role, side in SIDES.items()}
        self._processors[name] = ProcessorProcess(self.world, name, ends, self._processing)

    def _on_event(self, event: SyphonEvent) -> None:
        if isinstance(event, LandingBegan | LandingEnded | LandingRefused):
            self.history.reached[event_name(type(event)).replace("_", " ")] += 1

    def _syphon_ended(self, name: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.history.wrong(f"{name} ended by itself: {task.exception()!r}")

    def _is_busy(self, name: str) -> bool:
        if name in self.clients:
            return self.clients[name].in_flight > 0
        if name in self._processors:
            return self._processors[name].is_busy
        return self.syphons[name][0].counters.pending > 0

    def _crash(self, fault: Fault) -> None:
        """Die, between any two steps of what is under way."""
        if fault.kind is Kind.SENDER_CRASH:
            self.clients[fault.target].crash()
            self._start_client(fault.target)
        elif fault.target in self._processors:
            self._crash_processor(fault)
        else:
            self._crash_syphon(fault)

    def _crash_processor(self, fault: Fault) -> None:
        process = self._processors[fault.target]
        if process.is_dead:
            return
        self.history.note(self.loop.time(), fault.target, "crash")
        if process.is_busy:
            self.history.reached["processor crashed with messages in hands"] += 1
        self.world.disturb(fault.target, 0.0)
        self._deaths.append(process.kill())
        self._bear_another(fault, self._start_processor)

    def _crash_syphon(self, fault: Fault) -> None:
        syphon, task = self.syphons[fault.target]
        if task.cancelling() or task.done():  # it is dead, and the next of its name not yet born
            return
        self.history.note(self.loop.time(), fault.target, "crash", "", f"{syphon.counters.pending} in hands")
        if syphon.counters.pending:
            self.history.reached["syphon crashed with messages in hands"] += 1
        self._count(syphon)
        self.world.disturb(fault.target, 0.0)
        for pipe in self.world.network.pipes(fault.target):
            pipe.cut()
        task.cancel()
        self._bear_another(fault, self._start_syphon)

    def _bear_another(self, fault: Fault, start: Callable[[str], None]) -> None:
        """Let another process of that name begin a while after one died, unless the run is over."""
        if not self._is_over:
            later = min(fault.span, 20.0)
            self._births[fault.target] = self.loop.call_later(later, start, fault.target)

    def _count(self, syphon: Syphon) -> None:
        self.history.reached["lock lost"] += syphon.counters.lock_lost
        self.history.reached["forwarded"] += syphon.counters.forwarded
        self.history.reached["landed"] += syphon.counters.landed

    def _end_births(self) -> None:
        self._is_over = True
        for birth in self._births.values():
            birth.cancel()

    def _end(self) -> None:
        for client in self.clients.values():
            client.crash()
        for pipe in self.world.network.pipes():
            pipe.cut()
        for syphon, task in self.syphons.values():
            self._count(syphon)
            task.cancel()

    # -- workload

    def _arm_workload(self) -> None:
        rng = self.rng
        for index in range(self.shape.messages):
            at, path = self._moment(), drawn_entity(rng, self.shape)
            spans = SHORT_LIVES if self.shape.has_deadlines else LONG_LIVES
            message = drawn_message(rng, f"m{index}", path, at, spans)
            name, retries = f"client-{rng.randrange(self.shape.clients)}", rng.choice((0, 0, 1, 3))
            self.loop.call_at(at, self._send, name, path, message, retries)
        self._arm_burst(Random(f"burst of {rng.getrandbits(32)}"))
        for index in range(self.shape.poison):
            self.loop.call_at(rng.uniform(0, 60), self._poison, f"poison-{index}", rng.choice(POISON))

    def _arm_burst(self, rng: Random) -> None:
        """Many messages for the hot entity, so that a share of them is one (H-1)."""
        halves = [fault for fault in self.plan if fault.kind in BY_RULE | {Kind.NO_TOKEN, Kind.DOWN}]
        began = rng.choice([fault.at for fault in halves if fault.at < WORKLOAD] or [rng.uniform(0, 60)])
        span = rng.uniform(5, 60)
        for index in range(self.shape.burst):
            at = began + rng.uniform(0, span)
            message = drawn_message(rng, f"g{index}", self.shape.hot, at, LONG_LIVES)
            name = f"client-{rng.randrange(self.shape.clients)}"
            self.loop.call_at(at, self._send, name, self.shape.hot, message, rng.choice((0, 0, 1)))

    def _moment(self) -> float:
        """When a message is sent: mostly soon after something went wrong."""
        began = [fault.at for fault in self.plan if fault.at < WORKLOAD]
        if began and self.rng.random() < 0.6:
            return self.rng.choice(began) + self.rng.uniform(0, 10)
        return self.rng.uniform(0, WORKLOAD)

    def _send(self, name: str, path: str, message: ServiceBusMessage, retries: int) -> None:
        client = self.clients[name]
        client.spawn(client.send(path, message, retries))

    def _poison(self, name: str, kind: tuple[str, str]) -> None:
        """Somebody who may send to a backlog puts there what can never be forwarded (F-73, F-74)."""
        how, reason = kind
        message = stored(_poison_payload(name, how))
        if how == "unreadable":
            message.bare = message.bare.replace(b"x-ms-path", b"x-ms-path"[:-1] + b"\xff")[:-1]
        try:
            queue = self.world.namespace(SECONDARY).queue(self.world.backlogs[0])
            queue.enqueue_all([message], CLOCK.now())
        except BrokerError:  # deleted, or a partition of it is down
            self.loop.call_later(10.0, self._poison, name, kind)
            return
        self.history.attempted.add(name)
        self.expected_dead[name] = reason
        if not self.world.is_kept(SECONDARY):
            self.loop.call_later(10.0, self._poison, name, kind)
            return
        self.history.acknowledged.add(name)
        self.world.servers[SECONDARY].end_turn()

    # -- the end

    async def _consume(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            for side in (PRIMARY, SECONDARY):
                if not self.world.is_cut(side):
                    self._consume_side(side)

    def _consume_all(self) -> None:
        for side in (PRIMARY, SECONDARY):
            self._consume_side(side)

    def _consume_side(self, side: str) -> None:
        for path in self.world.unread(side):
            if path == TOPIC or path in self.world.processed:
                continue  # its subscriptions are read, or processors read it
            queue, now = self.world.namespace(side).queue(path), CLOCK.now()
            try:
                if queue.sessions is None:
                    while (message := queue.receive_and_delete(now)) is not None:
                        self.world.taken(side, path, message)
                    continue
                while (session := queue.sessions.accept(None, now)) is not None:
                    while (message := queue.receive_and_delete(now, session)) is not None:
                        self.world.taken(side, path, message)
                    queue.sessions.release(session, now)
            except BrokerError:
                continue  # disabled, or with a partition down: later
        self.world.is_kept(side)

    async def _come_home(self, until: float) -> None:
        """Liveness: without faults, in bounded time, every message and every entity comes home."""
        while (
            self.world.waiting()
            or not all(client.is_home() for client in self.clients.values())
            or not all(sequence.is_over for sequence in self.sequences)
        ):
            if self.loop.time() > until:
                self.history.wrong(f"liveness: {self._not_home()} after {LIVENESS:g} s without a fault")
                return
            await asyncio.sleep(LOOK)

    def _not_home(self) -> str:
        away = [name for name, client in self.clients.items() if not client.is_home()]
        states = {name: syphon.status for name, (syphon, _) in self.syphons.items()}
        return f"{self.world.waiting()} messages and {away} are not home, syphons are {states}"


POISON = (
    ("unreadable", "UnreadableMessage"),
    ("no path", "MissingPath"),
    ("reserved path", "InvalidPath"),
    ("secret path", "PathNotAllowed"),
    ("wrong alias", "InvalidAlias"),
    ("late", "TTLExpiredException"),
    ("unknown path", "DestinationNotFound"),
    ("disabled path", "DestinationDisabled"),
    ("too large", "MessageSizeExceeded"),
    ("without session", "DestinationRefused"),
)
_PATHS = {
    "reserved path": "orders/$DeadLetterQueue",
    "secret path": SECRET,
    "unknown path": "nowhere",
    "disabled path": CLOSED,
    "too large": TINY,
    "without session": PICKY,
}


def _poison_payload(name: str, how: str) -> bytes:
    body = b"x" * 2000 if how == "too large" else b"poison"
    message = ServiceBusMessage(body, message_id=name)
    if how == "no path":
        return encoded(message)
    deadline = int(EPOCH * 1000) - 1 if how == "late" else None
    parked = park(message, _PATHS.get(how, "orders"), deadline)
    if how == "wrong alias":
        parked.application_properties[aliases.TIME_TO_LIVE] = "soon"  # type: ignore[index]
    return encoded(parked)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The jitter of the syphon and of its retries comes from the package's generator."""
    before = RANDOM.getstate()
    RANDOM.seed(seed)
    try:
        yield
    finally:
        RANDOM.setstate(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """What the programs log in a run is in its history."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _close(loop: VirtualLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
    try:
        loop.run_until_complete(asyncio.sleep(30.0))  # sessions are released in peace
    except StuckError:
        pass
    asyncio.set_event_loop(None)
