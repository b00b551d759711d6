"""The two complete namespaces of one run: entities, protocol, connections, and the faults of the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from sbpair.broker.entities.change_log import ChangeLog
from sbpair.broker.entities.descriptions import SubscriptionDescription, TopicDescription
from sbpair.broker.entities.namespace import Namespace
from sbpair.broker.entities.partition import Health
from sbpair.broker.entities.queue_partition import QueuePartition
from sbpair.broker.entities.stored_message import LockToken, StoredMessage
from sbpair.broker.errors import BrokerError
from sbpair.broker.faults import Effect, FaultRule, Operation, RejectWith
from sbpair.broker.server.namespace_server import NamespaceServer
from sbpair.broker.server.wire import AmqpWire
from sbpair.pair.envelope.names import backlog_queue_name, ordered_backlog_name

from .durable import DurableServer, When, crash_image
from .entities import (
    AUDIT,
    BACKLOG,
    CLOCK,
    CLOSED,
    ENTITIES,
    PICKY,
    READ_FROM,
    TINY,
    held,
    readable,
)
from .grey import BY_RULE, ShortAccess, WatchedFaults, begin_half
from .history import History, Hop
from .links import detach_any
from .network import Network
from .payloads import fingerprint
from .plan import BY_STEPS, HEALED, PRIMARY, SECONDARY, TOPIC, Fault, Kind, Shape
from .virtual_loop import EPOCH, VirtualLoop

PING = b"application/vnd.ms-servicebus-ping"  # P-30
REROUTING = 15.0  # seconds that a broker may keep a send until it knows another partition
GRACE = 1.0  # seconds: what a stall held back is through by then
REJECTED = {
    Kind.BUSY: RejectWith("com.microsoft:server-busy"),
    Kind.FULL: RejectWith("amqp:resource-limit-exceeded"),
    Kind.BROKEN: RejectWith("amqp:internal-error"),
}


class Ordered(dict[Any, None]):
    """A set that is walked in the order in which it was filled, so that a seed replays exactly."""

    def add(self, item: object) -> None:
        self[item] = None

    def update(self, items: Iterable[object]) -> None:  # type: ignore[override]
        for item in items:
            self[item] = None

    def union(self, other: Iterable[object]) -> Iterator[object]:
        return iter({**self, **dict.fromkeys(other)})


class World:
    """What there is beside the programs under test."""

    def __init__(
        self, loop: VirtualLoop, rng: Random, shape: Shape, plan: list[Fault], history: History
    ) -> None:
        self.loop, self.rng, self.shape, self.history = loop, rng, shape, history
        self.plan = plan
        self.crash: Callable[[Fault], None]  # what kills a process, and brings another
        self.is_busy: Callable[[str], bool]  # whether a process has a message in hands
        self.backlogs = [backlog_queue_name(PRIMARY, index) for index in range(shape.backlogs)]
        self.ordered = [
            ordered_backlog_name(PRIMARY, index)
            for index in range(shape.backlogs if shape.keeps_order else 0)
        ]
        self.backlogs += self.ordered
        self.sessions: dict[
            str, list[str]
        ] = {}  # by session, the ids in the order in which a consumer had them
        self._stalls: dict[tuple[str, str], float] = {}  # until when, by process and side
        self.processed = [each for path in shape.processed for each in readable(path)]
        self.is_duplicate: Callable[[str, str, str], bool]  # whether a processor has handled it before
        self._written: dict[tuple[str, str], None] = {}  # side and entity that may hold something, in order
        self.references: dict[str, tuple[object, ...]] = {}  # what a receiver must see, by message id
        self._left = {id(fault): fault.count for fault in plan if fault.kind is Kind.ACK_LOST}
        self._disk = TemporaryDirectory() if shape.is_durable else None
        self._starts = count()
        self._downtime: dict[str, float] = {}  # by side, how long its broker is to be dead
        self._gone_until: dict[str, float] = {}  # by side, until when its broker is dead
        self.servers = {name: self._server(name) for name in (PRIMARY, SECONDARY)}
        self.network = Network(
            loop,
            rng,
            lambda side: AmqpWire(self.servers[side]),
            self.is_cut,
            self.stalled_until,
            self.stepped,
        )
        loop.network = self.network
        self._steps: dict[str, list[tuple[int, Callable[[], None]]]] = {}  # what is left until what happens
        for path, description in ENTITIES.items():
            self.namespace(PRIMARY).create_queue(path, description, CLOCK.now())
            if path in shape.twins or (shape.twins and path in (TINY, CLOSED, PICKY)):
                self.namespace(SECONDARY).create_queue(path, description, CLOCK.now())
        self._create_topic(PRIMARY)
        if TOPIC in shape.twins:
            self._create_topic(SECONDARY)
        for backlog in self.backlogs:
            self.create_backlog(backlog)
        for side in self.servers:
            self._keep(side)

    def _create_topic(self, side: str) -> None:
        namespace, now = self.namespace(side), CLOCK.now()
        namespace.create_topic(TOPIC, TopicDescription(), now)
        for path in READ_FROM[TOPIC][1:]:
            subscription = SubscriptionDescription(
                dead_lettering_on_message_expiration=True, max_delivery_count=2**31 - 1
            )
            namespace.create_subscription(TOPIC, path.rpartition("/")[2], subscription, now)

    def _server(self, name: str, dead: DurableServer | None = None) -> NamespaceServer:
        """A broker; it goes on where that dead one stood, on disk."""

        def token() -> LockToken:
            return LockToken(self.rng.randbytes(16))

        change_log = None if self._disk is None else ChangeLog()
        namespace = Namespace(name, created_at=CLOCK.now(), new_token=token, change_log=change_log)
        namespace._context.ready = Ordered()  # type: ignore[assignment]
        server = (
            NamespaceServer(namespace, ShortAccess(), CLOCK, name, 0, _no_tls) if self._disk is None else None
        )
        if self._disk is not None:
            path = Path(self._disk.name, f"{name}-{next(self._starts)}.sqlite")
            if dead is not None:
                crash_image(dead.store.path, path)
            server = DurableServer(namespace, CLOCK, path, _no_tls, ShortAccess(), self._died)
        assert server is not None
        server.frontend._joined = Ordered()  # type: ignore[assignment]
        server.frontend._pending = Ordered()  # type: ignore[assignment]
        server.frontend.faults = WatchedFaults(self, name)
        return server

    # -- what there is

    @property
    def now(self) -> float:
        return self.loop.time()

    def namespace(self, side: str) -> Namespace:
        return self.servers[side].frontend.namespace

    def create_backlog(self, path: str) -> None:
        description = replace(
            BACKLOG,
            enable_partitioning=self.shape.backlogs_are_partitioned,
            requires_session=path in self.ordered,
        )
        self.namespace(SECONDARY).create_queue(path, description, CLOCK.now())

    def waiting(self) -> int:
        """Messages that are not home: in a backlog, locked or not, or scheduled or unread at the primary."""
        namespace = self.namespace(SECONDARY)
        return sum(held(queue) for queue in namespace.queues() if queue.path in self.backlogs) + sum(
            held(self.namespace(side).queue(path)) for side in self.servers for path in self.unread(side)
        )

    def unread(self, side: str) -> list[str]:
        """The entities of a side that hold something for a consumer, now or later."""
        queue = self.namespace(side).queue
        for place in list(self._written):
            if place[0] == side and not any(held(queue(each)) for each in readable(place[1])):
                del self._written[place]
        return [each for its_side, path in self._written if its_side == side for each in readable(path)]

    def _side_of(self, queue: QueuePartition) -> str:
        secondary = self.namespace(SECONDARY)
        return SECONDARY if queue._ready is secondary._context.ready else PRIMARY

    # -- what is wrong

    def is_active(self, kind: Kind, target: str) -> Fault | None:
        now = self.now
        return next(
            (f for f in self.plan if f.kind is kind and f.target == target and f.is_active(now)), None
        )

    def stalled_until(self, host: str, side: str) -> float:
        silent = self.is_active(Kind.SILENT, side)
        until = 0.0 if silent is None else silent.at + silent.span
        return max(until, self._stalls.get((host, side), 0.0))

    def effect(self, side: str, entity: str) -> Effect | None:
        """What a fault of the broker does to a send now."""
        server = self.servers[side]
        return server.frontend.apply_fault(Operation.SEND, entity, server.read_clocks())

    def is_ack_lost(self, side: str) -> bool:
        """Whether the answer to what was stored just now never comes; it counts."""
        fault = self.is_active(Kind.ACK_LOST, side)
        if fault is None or not self._left[id(fault)]:
            return False
        self._left[id(fault)] -= 1
        return True

    def begin(self, fault: Fault) -> None:
        """The moment has come: what a fault does beyond being active."""
        self.history.note(self.now, "plan", fault.kind.name, "", str(fault))
        match fault.kind:
            case Kind.DOWN:
                self._disturb_all(fault.target, 0.0)
                self._cut(self.network.pipes(side=fault.target))
            case Kind.CUT:
                host, side = fault.target.split()
                self.disturb(host, 0.0)
                self._cut(self.network.pipes(host, side))
            case Kind.DETACH:
                host, side = fault.target.split()
                self.disturb(host, 0.0)
                detach_any(self, host, side, Random(str(fault)))
            case Kind.SILENT:
                self._disturb_all(fault.target, fault.span)
                self._stall(self.network.pipes(side=fault.target), fault.at + fault.span)
            case Kind.STALL:
                self.disturb(fault.target, fault.span)
                source = self._source_of(fault.target)
                self._stalls[fault.target, source] = until = self.now + fault.span
                self._stall(self.network.pipes(fault.target, source), until)
            case Kind.BUSY | Kind.FULL | Kind.BROKEN:
                self._reject(fault)
            case Kind.PARTITION:
                self._disturb_processors(fault.span)
                self._partition(fault, Health.DOWN)
            case Kind.MISSING:
                self._delete(fault.target)
            case Kind.DISABLED:
                self._disturb_processors(fault.span)
                self._status(fault.target, "Disabled")
            case kind if kind in BY_RULE:
                begin_half(self, fault)
            case Kind.NO_TOKEN:
                self.disturb(fault.target.split()[0], fault.span)
            case Kind.CRASH | Kind.SENDER_CRASH:
                self.crash(fault)
            case Kind.BROKER_CRASH:
                self._doom(fault)

    def end(self, fault: Fault) -> None:
        """It is over."""
        match fault.kind:
            case Kind.PARTITION:
                self._partition(fault, Health.UP)
            case Kind.DISABLED:
                self._status(fault.target, None)

    # -- brokers that die

    def is_cut(self, side: str) -> bool:
        """Nobody gets a connection there."""
        return self.is_active(Kind.DOWN, side) is not None or self._gone_until.get(side, 0.0) > self.now

    def _doom(self, fault: Fault) -> None:
        server = self.servers[fault.target]
        if isinstance(server, DurableServer):
            left, when = divmod(fault.count, len(When))
            server.store.doom = left, When(when)
            self._downtime[fault.target] = fault.span
            self.loop.call_at(HEALED, self.spare_brokers)

    def spare_brokers(self) -> None:
        """Have no broker die from now on."""
        for server in self._durable():
            server.store.doom = None

    def _died(self, server: DurableServer, when: When) -> None:
        """The broker of a side died in a commit; another starts from its disk, and is there after a while."""
        side = server.frontend.namespace.name
        self.history.note(self.now, side, "died", "", when.name)
        is_lost = when is not When.AFTER
        self.history.reached[
            "broker crashed " + ("with unsynced writes" if is_lost else "before it answered")
        ] += 1
        self._disturb_all(side, 0.0)
        self._gone_until[side] = self.now + self._downtime[side]
        for pipe in self.network.pipes(side=side):
            pipe.forsake()
        self.servers[side] = self._server(side, server)
        server.die()
        paths = (*ENTITIES, TOPIC) if side == PRIMARY else self.shape.twins
        self._written.update(dict.fromkeys((side, path) for path in paths))
        self.history.reached["came back from disk"] += 1
        self.servers[side].end_turn()

    def _durable(self) -> list[DurableServer]:
        return [server for server in self.servers.values() if isinstance(server, DurableServer)]

    def _keep(self, side: str) -> None:
        server = self.servers[side]
        if isinstance(server, DurableServer):
            server.keep()

    def is_kept(self, side: str) -> bool:
        """Commit the changes of this side, if it is on disk; return whether its broker is still the same."""
        server = self.servers[side]
        if isinstance(server, DurableServer):
            server.commit()
        return self.servers[side] is server

    def answer(self, side: str, reply: Callable[[bool], None]) -> None:
        """Have a broker reply once it may; ``reply`` gets whether the broker died before."""
        server = self.servers[side]
        if isinstance(server, DurableServer):
            server.answer(reply)
        else:
            reply(False)

    def when_lost(self, side: str, undo: Callable[[], None]) -> None:
        """If what was done there just now is lost with its broker, it never was."""
        server = self.servers[side]
        if isinstance(server, DurableServer):
            server.store.when_lost.append(undo)

    def taken(self, side: str, path: str, message: StoredMessage) -> None:
        """A consumer takes it: it has it when that is on disk."""
        server = self.servers[side]
        if isinstance(server, DurableServer):
            server.store.when_kept.append(partial(self.delivered, path, message))
        else:
            self.delivered(path, message)

    def close(self) -> None:
        """Give back what the brokers had of the disk."""
        for server in self._durable():
            server.die()
        if self._disk is not None:
            self._disk.cleanup()

    def disturb(self, host: str, span: float) -> None:
        """From now on for so long, what this process does can be unsure."""
        self.history.disturbed[host].append((self.now, self.now + span + GRACE))

    def _disturb_all(self, side: str, span: float) -> None:
        for index in range(self.shape.syphons):
            self.disturb(f"syphon-{index}", span)
        self._disturb_processors(span)

    def _disturb_processors(self, span: float) -> None:
        for index in range(self.shape.processors):
            self.disturb(f"processor-{index}", span)

    def _cut(self, pipes: Iterable[Any]) -> None:
        for pipe in pipes:
            pipe.cut()

    def _stall(self, pipes: Iterable[Any], until: float) -> None:
        for pipe in pipes:
            pipe.stalled_until = max(pipe.stalled_until, until)

    def _reject(self, fault: Fault) -> None:
        side = SECONDARY if fault.target in self.backlogs else PRIMARY
        try:
            rule = FaultRule(REJECTED[fault.kind], fault.target, lasting=fault.span)
            self.servers[side].frontend.set_fault(rule, self.now)
        except BrokerError:
            self.history.note(self.now, "plan", "no such entity", "", fault.target)

    def _partition(self, fault: Fault, health: Health) -> None:
        side = SECONDARY if fault.target in self.backlogs else PRIMARY
        try:
            self.namespace(side).set_health(
                fault.target, fault.count, health, known_from=CLOCK.now() + 15_000
            )
        except BrokerError:  # not a partitioned one in this run, or deleted
            return
        self.servers[side].end_turn()

    def _delete(self, path: str) -> None:
        namespace = self.namespace(SECONDARY)
        found = [queue for queue in namespace.queues() if queue.path == path]
        if (
            found and found[0].counts(CLOCK.now()).total == 0
        ):  # else its messages would be the operator's loss
            try:
                namespace.delete_queue(path, CLOCK.now())
            except BrokerError:  # F-52: not while a partition of it is down
                return
            self.history.reached["backlog missing"] += 1
            self._keep(SECONDARY)
            self.servers[SECONDARY].end_turn()

    def _status(self, path: str, status: str | None) -> None:
        self.namespace(PRIMARY).impose_status(path, status, CLOCK.now())
        self._keep(PRIMARY)
        self.servers[PRIMARY].end_turn()

    # -- what the entities do (see instruments)

    def stored(self, queue: QueuePartition, message: StoredMessage) -> None:
        name, host = str(message.message_id), self.network.actor
        path, side = queue.path, self._side_of(queue)
        self.history.note(self.now, host, "stored", name, f"{path} of {side}")
        if path in ENTITIES or path == TOPIC:
            self._written[side, path] = None
        if path in self.backlogs:
            self._check_parked(path, message)
        elif host.startswith("syphon") and not message.is_ping:
            asked = self.network.acting_since
            hop = Hop(host, name, self.now if asked is None else asked)
            if side == SECONDARY:
                hop.landed_at = self.now
            self.history.hops.append(hop)
            self.when_lost(side, lambda: self.history.hops.remove(hop))
            self._check_left(side, name, message)
            if self.is_ack_lost(side):
                self.disturb(host, 0.0)
                self.loop.call_soon(self._cut, self.network.pipes(host, side))
                what = "syphon's ack lost" if side == PRIMARY else "ack of a landing lost"
                self.history.reached[what] += 1

    def _check_left(self, side: str, name: str, message: StoredMessage) -> None:
        """G-15: what is restored lives for what is left until its deadline, and while it was on its way."""
        if name not in self.history.deadlines or message.time_to_live is None:
            return
        earliest, latest = self.history.deadlines[name]
        on_its_way = sum(f.span for f in self.plan if self._delays(f, side))
        start = max(self.now, (message.scheduled_for or 0) / 1000 - EPOCH)
        lives = message.time_to_live / 1000
        if not earliest - 1 < start + lives < latest + 1 + REROUTING + on_its_way:
            self.history.wrong(f"G-15: {name} lives until {start + lives}, not {latest}")

    def _delays(self, fault: Fault, side: str) -> bool:
        """Whether a fault lets what the acting process sends to a side arrive late."""
        if fault.kind is Kind.STALL:
            return fault.target == self.network.actor and side == self._source_of(fault.target)
        return fault.kind is Kind.SILENT and fault.target == side

    def _source_of(self, host: str) -> str:
        """The side that a stall cuts a process off from."""
        return SECONDARY if host.startswith("syphon") else PRIMARY

    def later(self) -> AbstractContextManager[None]:
        """What is put off now is done for the same host, as asked for now."""
        return self.network.acting(self.network.actor, self.now)

    def _check_parked(self, path: str, message: StoredMessage) -> None:
        """P-20: nothing on a parked message may make its broker act on it."""
        shown = {
            "a session id": None if path in self.ordered else message.session_id,
            "a time to live": message.time_to_live,
            "a schedule": message.scheduled_for,
            "a partition key": message.partition_key,
        }
        for what, value in shown.items():
            if value is not None:
                self.history.wrong(f"P-20: {message.message_id} lies in {path} with {what}: {value!r}")

    def completed(self, queue: QueuePartition, message: StoredMessage) -> None:
        host, path, message_id = self.network.actor, queue.path, str(message.message_id)
        if path in self.processed:
            self._consumed(queue, message)
        if path not in self.backlogs:
            return
        self.history.note(self.now, host, "completed", message_id, path)
        hop = self.history.open_hop(host, message_id)
        if hop is not None:
            hop.until = self.now
            if hop.is_atomic:
                self.history.reached["landed in a transaction"] += 1
            self.when_lost(SECONDARY, partial(setattr, hop, "until", None))
            return
        self.history.wrong(f"G-20: {host} completed {message_id}, which no destination has from it")

    def not_completed(self, queue: QueuePartition, message: StoredMessage) -> None:
        """Its partition is down: what was forwarded comes again once it is up."""
        hop = self.history.open_hop(self.network.actor, str(message.message_id))
        if queue.path in self.backlogs and hop is not None:
            hop.is_kept = True
            self.history.reached["forwarded, and its partition down"] += 1

    def _consumed(self, queue: QueuePartition, message: StoredMessage) -> None:
        """A processor completed it: its handler has returned, or it is a copy of a message that had one."""
        host, path, side = self.network.actor, queue.path, self._side_of(queue)
        name = str(message.message_id)
        self.history.note(self.now, host, "completed", name, f"{path} of {side}")
        handled = self.history.last_handled(host, path, name)
        if handled is not None:
            handled.is_completed = True
            self.when_lost(side, partial(setattr, handled, "is_completed", False))
        elif self.is_duplicate(host, path, name):
            self.history.reached["duplicate completed without its handler"] += 1
        else:
            self.history.wrong(f"C-11: {host} completed {name} in {path}, and no handler of it returned")
        self.taken(side, path, message)
        if self.is_ack_lost(side):
            self.disturb(host, 0.0)
            self.loop.call_soon(self._cut, self.network.pipes(host, side))
            self.history.reached["processor's ack lost"] += 1

    def set_aside(self, path: str, message_id: str, reason: str) -> None:
        if path in self.backlogs:
            self.history.note(self.now, self.network.actor, "dead-lettered", message_id, reason)
            if reason not in self.history.dead[message_id]:
                self.when_lost(SECONDARY, partial(self.history.dead[message_id].discard, reason))
            self.history.dead[message_id].add(reason)
            if reason == "TTLExpiredException" and message_id in self.history.deadlines:
                self.history.reached["expired in a backlog"] += 1
            earliest, _ = self.history.deadlines.get(message_id, (0.0, 0.0))
            if reason == "TTLExpiredException" and self.now < earliest:
                self.history.wrong(f"G-15: {message_id} was set aside before its deadline")
            self.history.reached[f"dead letter {reason}"] += 1

    def locked(self, path: str, message: StoredMessage) -> None:
        if path not in self.backlogs:
            return
        self.history.note(self.now, self.network.actor, "locked", str(message.message_id), path)
        if message.delivery_count:
            self.history.reached["locked again"] += 1

    def delivered(self, path: str, message: StoredMessage) -> None:
        """A consumer has it."""
        name = str(message.message_id)
        self.history.note(self.now, "consumer", "delivered", name, path)
        if message.session_id is not None and path not in self.processed:  # there, handlers note the order
            self.sessions.setdefault(message.session_id, []).append(name)
        (self.history.audited if path == AUDIT else self.history.delivered)[name] += 1
        if path == AUDIT:
            self.history.reached["delivered twice by a topic, to two"] += 1
        if PING in message.bare:
            self.history.wrong(f"P-31: a ping was delivered from {path}")
            return
        seen = fingerprint(message, has_deadline=self.shape.has_deadlines)
        if name in self.references and seen != self.references[name]:
            self.history.wrong(f"G-22: {name} from {path} is {seen}, not {self.references[name]}")

    def stepped(self, host: str) -> None:
        """Something reached that process, or a broker from it: what waits for this many steps is done."""
        waiting = self._steps.pop(host, None) if self.is_busy(host) else None
        if waiting:
            self._steps[host] = [(left - 1, do) for left, do in waiting if left > 1]
            for _, do in (each for each in waiting if each[0] <= 1):
                do()

    def after_steps(self, host: str, count: int, do: Callable[[], None]) -> None:
        """Call ``do`` once the process has made ``count`` steps, unless the faults have ended by then."""
        if count == 0:
            do()
        else:
            timely = lambda: do() if self.now < HEALED else None  # noqa: E731
            self._steps.setdefault(host, []).append((count, timely))


def _no_tls() -> Any:
    raise RuntimeError("nobody speaks TLS in memory")


def arm(world: World, faults: Iterable[Fault]) -> None:
    """Have each fault begin and end at its time."""
    loop = asyncio.get_running_loop()
    for fault in faults:
        if fault.kind not in BY_STEPS:
            loop.call_at(fault.at, world.begin, fault)
            loop.call_at(fault.at + fault.span, world.end, fault)
        else:
            begin, host = partial(world.begin, fault), fault.target.split()[0]
            loop.call_at(fault.at, world.after_steps, host, fault.count, begin)
