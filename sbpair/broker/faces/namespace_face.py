"""Who waits for what in a namespace, and who is handed the next message?

One file asks, one answers: entities leave word that something is there; here the receivers with credit stand
in line, queue by queue, and are served in turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Protocol

from ...amqp.errors import RESOURCE_DELETED
from ...amqp.performatives import Condition
from ..access import Verifier
from ..entities.credits import OF_A_MESSAGE
from ..entities.entity import Entity
from ..entities.kinds import AnySubscription, AnyTopic
from ..entities.message_session import SessionLock
from ..entities.namespace import Namespace
from ..errors import BrokerError, EntityNotFound, SessionLockLost, StoreFull
from ..faults import ActiveFault, Effect, Ending, FaultEngine, FaultRule, Operation, Refusal
from .address import parse_address
from .moment import Moment
from .rejections import Rejections
from .wording import condition_of, tracked


class Disk(Protocol):
    """What messages are kept on."""

    def has_room(self) -> bool:
        """Whether more may be taken."""


class Waiting(Hashable, Protocol):
    """Who stands in line for messages: a link with credit, or a request that waits."""

    queue: Entity

    @property
    def line(self) -> Entity | SessionLock:
        """Where it stands."""

    @property
    def has_cache(self) -> bool:
        """It may find a message where another receiver of the queue does not (Q-18)."""

    @property
    def is_hungry(self) -> bool:
        """It takes a message now."""

    def deliver(self, moment: Moment) -> bool:
        """Take one message; False when there is none."""

    def deliver_run(self, moment: Moment) -> bool:
        """Take as many as it may, since nobody else is in line; False when there is none."""

    def refused(self, error: BrokerError, moment: Moment) -> None:
        """There is nothing to be had for it, and why."""

    def stir(self) -> None:
        """Have said what there is to say."""


class SessionHolder(Waiting, Protocol):
    """Who has the lock of a session: a link."""

    @property
    def connection(self) -> Hashable:
        """Whose link it is: on the same connection the session may be managed."""

    def lapsed(self, moment: Moment) -> None:
        """The lock has run out."""


class SessionSeeker(Hashable, Protocol):
    """Who wants the next available session: a link whose attach is not answered yet."""

    queue: Entity

    def offered(self, moment: Moment) -> bool:
        """Something may be available: True when a session was had. Raises EntityDisabled."""

    def refused(self, error: BrokerError, moment: Moment) -> None:
        """There is nothing to be had for it, and why."""

    def stir(self) -> None:
        """Have said what there is to say."""


class Tenant(Hashable, Protocol):
    """Who is to be told when an entity goes."""

    def deleted(self, path: str, condition: Condition) -> None:
        """The entity was deleted."""


class NamespaceFace:
    """A namespace as its connections share it."""

    def __init__(self, namespace: Namespace, verifier: Verifier, disk: Disk | None = None) -> None:
        self.namespace = namespace
        self._disk = disk
        self.verifier = verifier
        self.faults = FaultEngine()
        self.rejections = Rejections()
        self._lines: dict[Entity | SessionLock, OrderedDict[Waiting, None]] = {}
        self._waits: dict[Entity, OrderedDict[SessionSeeker, None]] = {}  # for the next available session
        self._holders: dict[SessionLock, SessionHolder] = {}
        self._look: set[Entity | SessionLock] = set()  # a receiver joined the line
        self._tenants: dict[Entity, set[Tenant]] = {}
        self._stirred: set[Hashable] = set()  # connections

    def check_room(self) -> None:
        """Raises StoreFull where messages are kept on a disk that is full."""
        if self._disk is not None and not self._disk.has_room():
            raise StoreFull

    def tracker(self, path: str) -> str:
        """How error texts name an entity; what is not there counts as a queue."""
        return f"{self.namespace.name}:{self._kind(path)}:{path}"

    def _kind(self, path: str) -> str:
        try:
            entity = self.namespace.queue(parse_address(path).path)
        except EntityNotFound:
            return "Queue"
        if isinstance(entity, AnyTopic):
            return "Topic"
        return "Subscription" if isinstance(entity, AnySubscription) else "Queue"

    def refusal(self, error: BrokerError, path: str, now: int) -> Condition:
        """The AMQP error that tells a client of ``error`` on ``path``; it is noted for who looks."""
        self.rejections.note(now, path, error.condition, str(error))
        return condition_of(error, self.tracker(path), now)

    @property
    def is_each_weighed(self) -> bool:
        """A fault may strike any message, the credits end at any (3.9): none goes as one of a run."""
        return bool(self.faults) or self.namespace.credits.per_second is not None

    # -- faults

    def set_fault(self, rule: FaultRule, now: float) -> ActiveFault:
        """Set a rule; ``now`` is connection time. Raises EntityNotFound for one that names no entity."""
        if rule.entity is not None and "*" not in rule.entity:
            self.namespace.queue(parse_address(rule.entity).path)
        return self.faults.add(rule, now)

    def strike(self, operation: Operation, path: str, moment: Moment) -> Effect | None:
        """The effect that strikes an operation on the entity of this path now."""
        effect = self.faults.strike(operation, path, moment.idle) if self.faults else None
        if isinstance(effect, Refusal | Ending):
            self.rejections.note(moment.entity, path, effect.condition, effect.description)
        return effect

    # -- the line of receivers

    def is_waiting(self, receiver: Waiting) -> bool:
        """Whether the receiver stands in the line."""
        return receiver in self._lines.get(receiver.line, ())

    def wait(self, receiver: Waiting, moment: Moment) -> None:
        """Put a receiver that has credit in the line of its queue, or of its session."""
        line = self._lines.setdefault(receiver.line, OrderedDict())
        if receiver not in line:
            line[receiver] = None
            receiver.queue.listen(moment.entity)
        self._look.add(receiver.line)

    def leave(self, receiver: Waiting, moment: Moment) -> None:
        """Take a receiver out of the line; nothing happens when it does not stand there."""
        line = self._lines.get(receiver.line)
        if line is not None and receiver in line:
            del line[receiver]
            receiver.queue.stop_listening(moment.entity)
            if not line:
                del self._lines[receiver.line]

    # -- sessions

    def wait_for_session(self, wait: SessionSeeker, moment: Moment) -> None:
        """Put an attach in the line of those who want the next available session."""
        self._waits.setdefault(wait.queue, OrderedDict())[wait] = None
        wait.queue.listen(moment.entity)

    def leave_wait(self, wait: SessionSeeker, moment: Moment) -> None:
        """Take it out again; nothing happens when it does not stand there."""
        waits = self._waits.get(wait.queue)
        if waits is not None and wait in waits:
            del waits[wait]
            wait.queue.stop_listening(moment.entity)
            if not waits:
                del self._waits[wait.queue]

    def hold(self, lock: SessionLock, holder: SessionHolder) -> None:
        """Know who has the lock of a session, to tell them when it runs out."""
        self._holders[lock] = holder

    def let_go(self, lock: SessionLock) -> None:
        """They have it no longer."""
        self._holders.pop(lock, None)

    def session_lock(self, connection: Hashable, queue: Entity, session_id: str) -> SessionLock:
        """The lock of a session that a link of ``connection`` holds. Raises SessionLockLost."""
        lock = None if queue.sessions is None else queue.sessions.lock_of(session_id)
        holder = None if lock is None else self._holders.get(lock)
        if lock is None or holder is None or holder.connection is not connection:
            raise SessionLockLost
        return lock

    def _lapsed(self, lock: SessionLock, moment: Moment) -> None:
        receiver = self._holders.pop(lock, None)
        if receiver is not None:
            self.leave(receiver, moment)
            receiver.lapsed(moment)
            receiver.stir()

    def _grant_sessions(self, queue: Entity, moment: Moment) -> None:
        while queue in self._waits:
            wait = next(iter(self._waits[queue]))
            try:
                if not wait.offered(moment):
                    return
            except BrokerError as error:
                self.leave_wait(wait, moment)
                wait.refused(error, moment)
            wait.stir()

    # -- delivering

    def deliver(self, moment: Moment) -> None:
        """Hand out what there is to those who wait, and detach the links of what was deleted."""
        while looks := self._to_look_at(moment):
            for what in looks:
                if isinstance(what, SessionLock):
                    if what.is_lost:
                        self._lapsed(what, moment)
                elif not self.namespace.holds(what):
                    self._detach_all(what, moment)
                else:
                    self._grant_sessions(what, moment)
                line = self._lines.get(what)
                if line is not None:
                    self._serve(line, moment)

    def _to_look_at(self, moment: Moment) -> list[Entity | SessionLock]:
        self.namespace.forward(moment.entity)
        looks = self.namespace.take_ready()
        if self._look:
            looks = list(self._look.union(looks))
            self._look.clear()
        return looks

    def _serve(self, line: OrderedDict[Waiting, None], moment: Moment) -> None:
        unserved = 0  # in turn, that found nothing where the next may
        while len(line) > unserved:
            receiver = next(iter(line))
            try:
                if not receiver.is_hungry:
                    self.leave(receiver, moment)
                    continue
                is_alone = len(line) == 1
                if not (receiver.deliver_run(moment) if is_alone else receiver.deliver(moment)):
                    if not receiver.has_cache:
                        return
                    unserved += 1
                    line.move_to_end(receiver)
                    continue
                unserved = 0
                self.namespace.credits.charge(OF_A_MESSAGE, moment.entity)
            except BrokerError as error:
                self.leave(receiver, moment)
                receiver.refused(error, moment)
            receiver.stir()
            line = self._lines.get(receiver.line, line)
            if receiver in line:
                line.move_to_end(receiver)

    # -- nodes and connections

    def tenants_of(self, queue: Entity) -> Collection[Tenant]:
        """Who is at an entity now: the nodes of its links, and requests that wait there."""
        return self._tenants.get(queue, ())

    def settle_at(self, queue: Entity, tenant: Tenant) -> None:
        """Know who is to be told when the entity goes."""
        self._tenants.setdefault(queue, set()).add(tenant)

    def move_out(self, queue: Entity, tenant: Tenant) -> None:
        """It need not be told any more."""
        if (tenants := self._tenants.get(queue)) is not None:
            tenants.discard(tenant)
            if not tenants:
                del self._tenants[queue]

    def stir(self, connection: Hashable) -> None:
        """The connection has something to send."""
        self._stirred.add(connection)

    def take_stirred(self) -> list[Hashable]:
        """The connections that got something to send since this was last asked."""
        if not self._stirred:
            return []
        stirred = list(self._stirred)
        self._stirred.clear()
        return stirred

    def _detach_all(self, queue: Entity, moment: Moment) -> None:
        self._lines.pop(queue, None)
        self._waits.pop(queue, None)
        text = tracked(
            f"The messaging entity '{queue.path}' was deleted.", self.tracker(queue.path), moment.entity
        )
        for tenant in self._tenants.pop(queue, set()):
            tenant.deleted(queue.path, Condition(RESOURCE_DELETED, text))
