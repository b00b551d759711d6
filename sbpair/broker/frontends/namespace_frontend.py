"""The state that the connections of a namespace share, mainly the lines of waiting receivers.

Entities report that messages are available. Receivers with credit wait in line, one line for each entity or session,
and are served in turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Protocol

from sbpair.pair.amqp.errors import RESOURCE_DELETED
from sbpair.pair.amqp.performatives import Condition

from ..access import Verifier
from ..clock import ClockReading
from ..entities.namespace import Namespace
from ..entities.queue import Queue
from ..entities.queue_context import SLICE
from ..entities.quotas import MESSAGE_COST
from ..entities.sessions import SessionLock
from ..entities.topic import Subscription, Topic
from ..errors import (
    BrokerError,
    EntityNotFoundError,
    SessionLostError,
    StoreFullError,
)
from ..faults import ActiveFault, Effect, EndingEffect, FaultEngine, FaultRule, Operation, RefusingEffect
from .address import parse_address
from .amqp.numbers import SERVICE, WireNumbers
from .refusals import Rejections, attach_refusal, condition_of, tracked


class DiskRoom(Protocol):
    """Tells whether the disk of a namespace has room."""

    def has_room(self) -> bool:
        """Whether more messages fit."""


class Waiting(Hashable, Protocol):
    """A receiver in line for messages: a link with credit, or a waiting HTTP request."""

    queue: Queue

    @property
    def line(self) -> Queue | SessionLock:
        """The entity or session on whose messages it waits."""

    @property
    def has_cache(self) -> bool:
        """Whether the receiver may find a message where another receiver of the queue does not."""

    @property
    def is_hungry(self) -> bool:
        """Whether the receiver can take a message now."""

    def deliver(self, now: ClockReading) -> bool:
        """Take one message; return False when there is none."""

    def deliver_run(self, limit: int, now: ClockReading) -> int:
        """Take up to ``limit`` messages, when no other receiver is in the line; return the number taken."""

    def passed_over(self) -> None:
        """Called when the receiver was removed from the queue of waiting ones because it accepts no message now."""

    def refused(self, error: BrokerError, now: ClockReading) -> None:
        """Called when it can receive nothing, with the reason."""

    def stir(self) -> None:
        """Cause pending answers to be sent."""


class SessionHolder(Waiting, Protocol):
    """A link that holds the lock of a session."""

    @property
    def connection(self) -> Hashable:
        """The connection of the link; sessions can be managed from this connection only."""

    def lapsed(self, now: ClockReading) -> None:
        """Called when the lock has expired."""


class SessionSeeker(Hashable, Protocol):
    """A link that waits for the next available session; its attach is not answered yet."""

    queue: Queue

    def offered(self, now: ClockReading) -> bool:
        """Take the next session if one is available; return whether one was taken. Raises EntityDisabledError."""

    def refused(self, error: BrokerError, now: ClockReading) -> None:
        """Called when it can receive nothing, with the reason."""

    def stir(self) -> None:
        """Cause pending answers to be sent."""


class Tenant(Hashable, Protocol):
    """A user of an entity, notified when the entity is updated or deleted."""

    def updated(self, now: ClockReading) -> None:
        """Called when an update has changed the entity's description."""

    def deleted(self, path: str, condition: Condition) -> None:
        """Called when the entity has been deleted."""


class NamespaceFrontend:
    """A namespace with the state that its connections share."""

    def __init__(
        self,
        namespace: Namespace,
        verifier: Verifier,
        disk: DiskRoom | None = None,
        numbers: WireNumbers = SERVICE,
    ) -> None:
        self.namespace = namespace
        self.numbers = numbers
        self._disk = disk
        self.verifier = verifier
        self.faults = FaultEngine()
        self.rejections = Rejections()
        self._lines: dict[Queue | SessionLock, OrderedDict[Waiting, None]] = {}
        self._waits: dict[Queue, OrderedDict[SessionSeeker, None]] = {}  # for the next available session
        self._holders: dict[SessionLock, SessionHolder] = {}
        self._joined: set[Queue | SessionLock] = set()  # a receiver joined the line
        self._tenants: dict[Queue, set[Tenant]] = {}
        self._pending: set[Hashable] = set()  # connections

    def check_room(self) -> None:
        """Raise StoreFullError if the disk of the namespace is full."""
        if self._disk is not None and not self._disk.has_room():
            raise StoreFullError

    @property
    def host(self) -> str:
        """The host of the namespace in error texts."""
        return f"{self.namespace.name}.servicebus.windows.net"

    def tracker(self, path: str) -> str:
        """Return the name of an entity for error texts; a missing entity is named like a queue."""
        return f"{self.namespace.name}:{self._kind(path)}:{path}"

    def _kind(self, path: str) -> str:
        try:
            entity = self.namespace.queue(parse_address(path).path)
        except EntityNotFoundError:
            return "Queue"
        if isinstance(entity, Topic):
            return "Topic"
        return "Subscription" if isinstance(entity, Subscription) else "Queue"

    def refusal(self, error: BrokerError, path: str, now: int) -> Condition:
        """Record a refusal on ``path`` and return the AMQP error that reports it."""
        self.rejections.note(now, path, error.condition, str(error))
        return condition_of(error, self.host, self.tracker(path), now)

    def attach_refusal(self, error: BrokerError, path: str, now: int) -> Condition:
        """Record a refused attach on ``path`` and return the AMQP error that reports it."""
        self.rejections.note(now, path, error.condition, str(error))
        return attach_refusal(error, self.host, self.tracker(path), now)

    def needs_single_messages(self, operation: Operation, path: str) -> bool:
        """Whether messages must be processed one by one: a fault may apply to one of them, or credits may run out."""
        faults = self.faults
        return (
            faults.are_any and faults.may_apply(operation, path)
        ) or self.namespace.credits.per_second is not None

    # -- faults

    def set_fault(self, rule: FaultRule, now: float) -> ActiveFault:
        """Set a rule; ``now`` is connection time.

        Raises EntityNotFoundError when the rule names a missing entity.
        """
        if rule.entity is not None and "*" not in rule.entity:
            self.namespace.queue(parse_address(rule.entity).path)
        return self.faults.add(rule, now)

    def apply_fault(self, operation: Operation, path: str, now: ClockReading) -> Effect | None:
        """Return the effect of the fault that applies to an operation on the entity at ``path``, or None."""
        effect = self.faults.apply(operation, path, now.idle) if self.faults.are_any else None
        if isinstance(effect, RefusingEffect | EndingEffect):
            self.rejections.note(now.entity, path, effect.condition, effect.description)
        return effect

    # -- the line of receivers

    def is_waiting(self, receiver: Waiting) -> bool:
        """Whether the receiver is in line."""
        return receiver in self._lines.get(receiver.line, ())

    def wait(self, receiver: Waiting, now: ClockReading) -> None:
        """Put a receiver that has credit into the line of its queue or session."""
        line = self._lines.setdefault(receiver.line, OrderedDict())
        if receiver not in line:
            line[receiver] = None
            receiver.queue.listen(now.entity)
        self._joined.add(receiver.line)

    def leave(self, receiver: Waiting, now: ClockReading) -> None:
        """Take a receiver out of the line; does nothing when it is not there."""
        line = self._lines.get(receiver.line)
        if line is not None and receiver in line:
            del line[receiver]
            receiver.queue.stop_listening(now.entity)
            if not line:
                del self._lines[receiver.line]

    # -- sessions

    def wait_for_session(self, wait: SessionSeeker, now: ClockReading) -> None:
        """Put an attach into the line for the next available session."""
        self._waits.setdefault(wait.queue, OrderedDict())[wait] = None
        wait.queue.listen(now.entity)

    def leave_wait(self, wait: SessionSeeker, now: ClockReading) -> None:
        """Take the attach out of that line; does nothing when it is not there."""
        waits = self._waits.get(wait.queue)
        if waits is not None and wait in waits:
            del waits[wait]
            wait.queue.stop_listening(now.entity)
            if not waits:
                del self._waits[wait.queue]

    def hold(self, lock: SessionLock, holder: SessionHolder) -> None:
        """Register the holder of a session's lock, which is notified when the lock expires."""
        self._holders[lock] = holder

    def let_go(self, lock: SessionLock) -> None:
        """Unregister the holder of a session's lock."""
        self._holders.pop(lock, None)

    def session_lock(self, connection: Hashable, queue: Queue, session_id: str) -> SessionLock:
        """Return the lock of a session that a link of ``connection`` holds. Raises SessionLostError."""
        lock = None if queue.sessions is None else queue.sessions.lock_of(session_id)
        holder = None if lock is None else self._holders.get(lock)
        if lock is None or holder is None or holder.connection is not connection:
            raise SessionLostError
        return lock

    def _lapsed(self, lock: SessionLock, now: ClockReading) -> None:
        receiver = self._holders.pop(lock, None)
        if receiver is not None:
            self.leave(receiver, now)
            receiver.lapsed(now)
            receiver.stir()

    def _grant_sessions(self, queue: Queue, now: ClockReading) -> None:
        while queue in self._waits:
            wait = next(iter(self._waits[queue]))
            try:
                if not wait.offered(now):
                    return
            except BrokerError as error:
                self.leave_wait(wait, now)
                wait.refused(error, now)
            wait.stir()

    # -- delivery

    def deliver(self, now: ClockReading) -> bool:
        """Hand available messages to waiting receivers, and detach the links of deleted entities.

        Processes one slice of work. Returns True if there is more: call again in the next turn of the loop.
        """
        until = self.namespace.work_done + SLICE
        for entity in self.namespace.take_updated():
            self._tell_updated(entity, now)
        while sources := self._sources_to_serve(now):
            for source in sources:
                if isinstance(source, SessionLock):
                    if source.is_lost:
                        self._lapsed(source, now)
                elif not self.namespace.holds(source):
                    self._detach_all(source, now)
                else:
                    self._grant_sessions(source, now)
                line = self._lines.get(source)
                if line is not None and self._serve(line, until, now):
                    self._joined.add(source)
            if self.namespace.work_done >= until:
                return True
        return False

    def _sources_to_serve(self, now: ClockReading) -> list[Queue | SessionLock]:
        self.namespace.forward(now.entity, SLICE)
        sources = self.namespace.take_ready()
        if self._joined:
            sources = list(self._joined.union(sources))
            self._joined.clear()
        return sources

    def _serve(self, line: OrderedDict[Waiting, None], until: int, now: ClockReading) -> bool:
        """Serve a line in turn; return True if the slice was used up before all receivers were served."""
        namespace = self.namespace
        unserved = 0  # consecutive receivers that found nothing, where the next may find something
        while len(line) > unserved:
            if (left := until - namespace.work_done) <= 0:
                return True
            receiver = next(iter(line))
            try:
                if not receiver.is_hungry:
                    self.leave(receiver, now)
                    receiver.passed_over()
                    continue
                is_alone = len(line) == 1
                served = receiver.deliver_run(left, now) if is_alone else int(receiver.deliver(now))
                namespace.worked(served)
                if not served:
                    if not receiver.has_cache:
                        return False
                    unserved += 1
                    line.move_to_end(receiver)
                    continue
                unserved = 0
                namespace.credits.charge(MESSAGE_COST, now.entity)
            except BrokerError as error:
                self.leave(receiver, now)
                receiver.refused(error, now)
            receiver.stir()
            line = self._lines.get(receiver.line, line)
            if receiver in line:
                line.move_to_end(receiver)
        return False

    # -- nodes and connections

    def tenants_of(self, queue: Queue) -> Collection[Tenant]:
        """Return the current users of an entity: the nodes of its links, and waiting requests."""
        return self._tenants.get(queue, ())

    def add_tenant(self, queue: Queue, tenant: Tenant) -> None:
        """Register a user of the entity."""
        self._tenants.setdefault(queue, set()).add(tenant)

    def remove_tenant(self, queue: Queue, tenant: Tenant) -> None:
        """Remove a user of the entity."""
        if (tenants := self._tenants.get(queue)) is not None:
            tenants.discard(tenant)
            if not tenants:
                del self._tenants[queue]

    def stir(self, connection: Hashable) -> None:
        """Record that a connection has pending answers."""
        self._pending.add(connection)

    def take_pending(self) -> list[Hashable]:
        """Return the connections that have pending answers, and clear the record."""
        if not self._pending:
            return []
        pending = list(self._pending)
        self._pending.clear()
        return pending

    def _tell_updated(self, entity: Queue, now: ClockReading) -> None:
        for tenant in list(self._tenants.get(entity, ())):
            tenant.updated(now)

    def _detach_all(self, queue: Queue, now: ClockReading) -> None:
        self._lines.pop(queue, None)
        self._waits.pop(queue, None)
        text = tracked(
            f"The messaging entity '{queue.path}' was deleted.", self.tracker(queue.path), now.entity
        )
        for tenant in self._tenants.pop(queue, set()):
            tenant.deleted(queue.path, Condition(RESOURCE_DELETED, text))
