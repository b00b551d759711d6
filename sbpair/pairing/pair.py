"""What do the senders of one pairing share, and where does a message go next?

    send_flow          Attempt(primary) --accepted--> Rested
                          |  failed
                          |-- counts as unavailable --> health.py; failed over now? --.
                          |-- busy: Pause, then again (or, for too long: unavailable) |
                          |-- full, where the options spill it -----------------------|
                          '-- else: Refused                                           v
                       Attempt(backlog i) --accepted--> Rested       (all failed: Spool, or Stranded)
                          |  failed: i leaves the rotation (P-5); no such queue: CreateBacklog
                          '--> the next i

A send is written once, as a generator: it yields what to do, is sent what came of it, and returns what
became of the message. The blocking and the asyncio skin drive the same one. Time is an argument, in
seconds of a monotonic clock; there is no clock, thread, socket or SDK in here. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from .events import (
    BacklogReturned,
    BacklogWithdrawn,
    EntityFailedOver,
    EntityRecovered,
    EntitySuspected,
    LinkProbed,
    MessageParked,
    MessageSpooled,
    PairingEvent,
    PingFailed,
    PingSent,
    SendRaised,
)
from .failure import Failure, Judgement
from .health import EntityHealth, EntityState, Transition
from .names import path_key
from .rotation import Choice, Rotation

if TYPE_CHECKING:
    from random import Random

BUSY_PAUSE = 10.0  # seconds, at least, before a busy service is asked again
LONGEST_RESERVE, RESERVE_SHARE = 5.0, 0.25  # what is kept for the backlog
LEAST_SHARE = 2.0  # seconds: below this, one backlog gets all the time there is left
SPOOL_GRACE = 1.0  # seconds
JITTER = 0.25  # seconds: the first pings of many clients do not leave in one instant


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send now: to the primary entity when ``backlog`` is None, else to that backlog queue.

    ``is_fresh`` asks for a connection of its own: the one in store has just failed.
    """

    backlog: int | None
    until: float
    is_fresh: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing until then: the service asked for it."""

    until: float


@dataclass(frozen=True, slots=True)
class CreateBacklog:
    """Create this backlog queue, by ``until``; the result has an error when that did not work."""

    backlog: int
    until: float


@dataclass(frozen=True, slots=True)
class Spool:
    """Write what no broker has accepted to the disk, by ``until``; the result has an error when that did
    not work.
    """

    until: float


class CaughtUp(Exception):
    """Not written: the older messages in the spool have been accepted meanwhile."""


class SpoolUse(Enum):
    """What the spool is for in one send."""

    NEVER = "there is none, or the message comes from it"
    LAST_RESORT = "for what no backlog takes"
    AT_ONCE = "older messages of the entity wait there: behind them"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a step.

    ``was_reused``: the attempt went over a connection that had been idle. ``accepted``: so many messages
    were accepted in it, also if it failed then; 0 for all or none.
    """

    now: float
    error: Exception | None = None
    judgement: Judgement | None = None
    was_reused: bool = False
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Rested:
    """Accepted by a broker (G-3), by the primary when ``backlog`` is None; or written to the spool."""

    backlog: int | None
    is_ambiguous: bool
    is_spooled: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """This error belongs to the caller. ``is_parked``: it came from a backlog."""

    error: Exception
    is_parked: bool
    is_too_large: bool
    failure: Failure


@dataclass(frozen=True, slots=True)
class Stranded:
    """Nobody took the message; every cause, the primary's first (G-19), and why not the spool."""

    causes: tuple[Exception, ...]
    spool_error: Exception | None = None


Step = Attempt | Pause | CreateBacklog | Spool
Landing = Rested | Refused | Stranded
SendFlow = Generator[Step, Result, Landing]


@dataclass(slots=True)
class _Send:
    """One message on its way."""

    path: str
    count: int
    message_ids: Callable[[], tuple[str, ...]]  # asked for when something is told of them
    choice: Choice
    deadline: float
    budget: float
    now: float
    causes: list[Exception] = field(default_factory=list)
    is_ambiguous: bool = False
    told: int = 0  # of how many messages an event has said where they rest

    def spool_step(self) -> Spool:
        """The backlogs may have used up the budget: a disk gets a second all the same (G-18)."""
        return Spool(max(self.deadline, self.now + SPOOL_GRACE))

    def resting(self, accepted: int = 0) -> tuple[int, tuple[str, ...], bool]:
        """What an event says of the next messages that rest somewhere: so many, 0 for all that are left."""
        ids, start = self.message_ids(), self.told
        self.told = start + accepted if accepted else self.count
        return self.told - start, ids[start : self.told], self.is_ambiguous

    def failed(self, result: Result, judgement: Judgement) -> None:
        self.now = result.now
        if result.error is not None:
            self.causes.append(result.error)
        self.is_ambiguous = self.is_ambiguous or judgement.is_ambiguous


class Pair:
    """The shared state of one pairing: health of every entity, the rotation, pings and events.

    Not thread-safe: whoever shares it between threads holds a lock while calling.
    """

    def __init__(
        self,
        *,
        failover_interval: float,
        ping_interval: float,
        backlog_count: int,
        rng: Random,
        redirects_suspects: bool = False,
        spills_on_quota: bool = False,
        busy_limit: float | None = None,
    ) -> None:
        self.rotation = Rotation(backlog_count, rng)
        self.pings_sent = 0
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self._redirects_suspects = redirects_suspects
        self._spills_on_quota = spills_on_quota
        self._busy_limit = busy_limit
        self._rng = rng
        self._entities: dict[str, EntityHealth] = {}
        self._paths: dict[str, str] = {}
        self._pinging: set[str] = set()
        self._events: list[PairingEvent] = []

    # -- the state of an entity

    def state_of(self, path: str) -> EntityState:
        """The state all senders of this entity share (P-6)."""
        health = self._entities.get(path_key(path))
        return EntityState.HEALTHY if health is None else health.state

    def fail_over(self, path: str, now: float) -> None:
        """Park from now on, by hand."""
        self._tell(path, self._health(path).fail_over(now), now)

    def hold(self, path: str, now: float) -> None:
        """Park from now on, by hand, until it is released or marked healthy."""
        self._tell(path, self._health(path).hold(now), now)

    def release(self, path: str, now: float) -> None:
        """Let pings bring a held entity home again."""
        self._health(path).release(now)

    def mark_healthy(self, path: str, now: float) -> None:
        """Send to the primary from now on, by hand."""
        self._tell(path, self._health(path).mark_healthy(now), now)

    # -- the four verbs

    @property
    def has_news(self) -> bool:
        """Whether :meth:`events` would return any."""
        return bool(self._events)

    def events(self) -> list[PairingEvent]:
        """What happened since the last call, in order."""
        told, self._events = self._events, []
        return told

    def next_timer(self) -> float | None:
        """When :meth:`handle_timer` wants to be called; None for never."""
        timers = [timer for health in self._entities.values() if (timer := health.next_timer()) is not None]
        return min(timers, default=None)

    def handle_timer(self, now: float) -> list[str]:
        """Let time pass; the paths to ping now (P-32). Each ping ends in :meth:`ping_finished`."""
        due: list[str] = []
        for key, health in self._entities.items():
            passed, is_ping_due = health.handle_timer(now)
            self._tell(self._paths[key], passed, now)
            if is_ping_due and key not in self._pinging:  # one ping task per entity
                self._pinging.add(key)
                due.append(self._paths[key])
        return due

    def ping_left(self, path: str, now: float, *, is_billed: bool = True) -> None:
        """A ping is being sent: it is billed whatever becomes of it (P-34). A link that is opened is not."""
        if not is_billed:
            self._events.append(LinkProbed(now, path))
            return
        self.pings_sent += 1
        self._events.append(PingSent(now, path, self.pings_sent))

    def ping_finished(self, path: str, refusal: Judgement | None, now: float) -> None:
        """A ping was accepted, or refused for this reason; after a refusal pings go on."""
        self._pinging.discard(path_key(path))
        if refusal is None:
            self._tell(path, self._health(path).ping_accepted(now), now)
        elif self.state_of(path) is EntityState.FAILED_OVER:
            self._events.append(PingFailed(now, path, refusal.why))

    def pings_lost(self) -> None:
        """Whoever was pinging is gone: the pings that are due go out again."""
        self._pinging.clear()

    # -- a send

    def send_flow(
        self,
        path: str,
        count: int,
        choice: Choice,
        *,
        now: float,
        deadline: float,
        first: Result | None = None,
        spool: SpoolUse = SpoolUse.NEVER,
        message_ids: Callable[[], tuple[str, ...]] = tuple,
    ) -> SendFlow:
        """The way of one message, or one batch of ``count``, to a place where it rests.

        ``first`` is what came of an attempt at the primary that was made already, on the straight road
        of a healthy entity. ``message_ids`` is asked when an event tells of the messages.
        """
        send = _Send(path, count, message_ids, choice, deadline, deadline - now, now)
        landing = yield from self._way(send, now, first, spool)
        if not isinstance(landing, Rested):
            why = type(send.causes[-1]).__name__ if send.causes else "no time was left"
            self._events.append(SendRaised(send.now, path, why, *send.resting()[1:]))
        return landing

    def _way(self, send: _Send, now: float, first: Result | None, spool: SpoolUse) -> SendFlow:
        if spool is SpoolUse.AT_ONCE and first is None:
            result = yield send.spool_step()
            if not isinstance(result.error, CaughtUp):
                return self._spooled(send, result)
            now = result.now
        health = self._health(send.path)
        if first is not None or health.state is not EntityState.FAILED_OVER:
            landing = yield from self._try_primary(send, health, now, first)
            if isinstance(landing, (Rested, Refused)):
                return landing
            now = landing
        parked = yield from self._try_backlogs(send, now)
        if isinstance(parked, Stranded) and spool is not SpoolUse.NEVER:
            return (yield from self._spool(send))
        return parked

    def _spool(self, send: _Send) -> SendFlow:
        result = yield send.spool_step()
        while isinstance(result.error, CaughtUp):  # nobody took this one: it has to be written
            result = yield send.spool_step()
        return self._spooled(send, result)

    def _spooled(self, send: _Send, result: Result) -> Rested | Stranded:
        if result.error is not None:
            if result.judgement is not None and result.judgement.is_ambiguous:  # it may be written yet
                send.is_ambiguous = True
            return Stranded(tuple(send.causes), result.error)
        self._events.append(MessageSpooled(result.now, send.path, *send.resting()))
        return Rested(None, send.is_ambiguous, is_spooled=True)

    def _try_primary(
        self, send: _Send, health: EntityHealth, now: float, first: Result | None
    ) -> Generator[Step, Result, Rested | Refused | float]:
        """The instant of failover when the message must be parked."""
        is_fresh = False
        while True:
            result = first or (yield Attempt(None, self._primary_until(send, health, now), is_fresh))
            first, now, judgement = None, result.now, result.judgement
            if judgement is None:
                self._tell(send.path, health.send_succeeded(now), now)
                return Rested(None, send.is_ambiguous)
            send.failed(result, judgement)
            has_failed_over = health.state is EntityState.FAILED_OVER
            if _may_be_stale(result, judgement, send, now) and not is_fresh and not has_failed_over:
                is_fresh = True  # an idle link had died: that says nothing about the entity
                continue
            is_fresh = False
            failure = judgement.failure
            if failure is Failure.BUSY and health.busy_counts(now):
                failure = Failure.UNAVAILABLE
            if failure is Failure.UNAVAILABLE:
                self._tell(send.path, health.send_failed(now), now, judgement.why)
            elif failure is Failure.BUSY:
                again = now + max(BUSY_PAUSE, judgement.retry_after or 0.0)
                if again < self._primary_until(send, health, again):  # else no time would be left to send
                    now = (yield Pause(again)).now
                    if health.state is EntityState.FAILED_OVER:
                        return now
                    continue
            if self._is_redirected(failure, health):
                return now
            return Refused(_last(send), False, False, judgement.failure)

    def _is_redirected(self, failure: Failure, health: EntityHealth) -> bool:
        if health.state is EntityState.FAILED_OVER and failure in _REDIRECTED:
            return True
        # In both of these the next message tries the primary again: no failover is declared.
        if failure is Failure.UNAVAILABLE:
            return self._redirects_suspects
        return failure is Failure.FULL and self._spills_on_quota

    def straight(self, path: str, budget: float) -> tuple[EntityHealth, float]:
        """For the straight road: the health to look at, and how long a first attempt may take.

        While that health is calm, the first step of a flow is an attempt at the primary, and its
        success changes nothing; so the flow need not be asked before something else happens.
        """
        kept = _reserve(budget) if self._redirects_suspects or self._failover_interval < budget else 0.0
        return self._health(path), budget - kept

    def _primary_until(self, send: _Send, health: EntityHealth, now: float) -> float:
        """Part of the budget is kept for the backlog, if the message can need one in time."""
        if not self._redirects_suspects and health.earliest_failover(now) >= send.deadline:
            return send.deadline
        return max(now, send.deadline - _reserve(send.budget))

    def _try_backlogs(self, send: _Send, now: float) -> SendFlow:
        tried: frozenset[int] = frozenset()
        while now < send.deadline or not tried:
            backlog = self.rotation.pick(send.choice, now, tried)
            if backlog is None:
                break
            tried |= {backlog}
            is_last = len(tried) == len(self.rotation)
            landing = yield from self._try_backlog(send, backlog, now, is_last)
            if isinstance(landing, (Rested, Refused)):
                return landing
            now = landing
        return Stranded(tuple(send.causes))

    def _try_backlog(
        self, send: _Send, backlog: int, now: float, is_last: bool
    ) -> Generator[Step, Result, Rested | Refused | float]:
        """The instant at which this backlog has failed, when it has."""
        is_fresh = is_created = False
        while True:
            result = yield Attempt(backlog, _share(now, send.deadline, is_last), is_fresh)
            now, judgement = result.now, result.judgement
            if judgement is None:
                if self.rotation.succeeded(backlog):
                    self._events.append(BacklogReturned(now, send.path, backlog))
                self._events.append(MessageParked(now, send.path, backlog, *send.resting(result.accepted)))
                return Rested(backlog, send.is_ambiguous)
            if result.accepted:  # of a batch that is split; the rest goes on
                self._events.append(MessageParked(now, send.path, backlog, *send.resting(result.accepted)))
            if _may_be_stale(result, judgement, send, now) and not is_fresh:
                send.is_ambiguous = send.is_ambiguous or judgement.is_ambiguous
                is_fresh = True
                continue
            if judgement.is_missing and not is_created and now < send.deadline:
                is_created = True
                created = yield CreateBacklog(backlog, _share(now, send.deadline, is_last))
                now = created.now
                if created.error is None:
                    continue
                send.causes.append(created.error)
            send.failed(result, judgement)
            if judgement.failure is Failure.CALLER:
                return Refused(_last(send), True, judgement.is_too_large, judgement.failure)
            until = self.rotation.failed(backlog, now)  # P-5
            self._events.append(BacklogWithdrawn(now, send.path, backlog, until, judgement.why))
            return now

    # -- within

    def _health(self, path: str) -> EntityHealth:
        # G-11: one for each entity; what befalls one does not concern another.
        key = path_key(path)
        health = self._entities.get(key)
        if health is None:
            health = EntityHealth(
                self._failover_interval, self._ping_interval, self._first_ping_delay, self._busy_limit
            )
            self._entities[key] = health
            self._paths[key] = path
        return health

    def _first_ping_delay(self) -> float:
        return self._rng.uniform(0.0, JITTER)

    def _tell(self, path: str, passed: list[Transition], now: float, why: str = "") -> None:
        for transition in passed:
            event = _EVENT_OF[transition.after]
            self._events.append(event(now, path, why or transition.cause.value))


_EVENT_OF: dict[EntityState, type[EntitySuspected | EntityFailedOver | EntityRecovered]] = {
    EntityState.SUSPECT: EntitySuspected,
    EntityState.FAILED_OVER: EntityFailedOver,
    EntityState.HEALTHY: EntityRecovered,
}
_REDIRECTED = frozenset({Failure.UNAVAILABLE, Failure.BUSY})  # others are raised, failed over or not


def primary_flow(now: float, deadline: float, first: Result | None = None) -> SendFlow:
    """For what the primary alone can do: no detour, and nothing is concluded about the entity.

    ``first`` is what came of an attempt that was made already.
    """
    is_fresh = False
    send = _Send("", 0, tuple, Choice(), deadline, deadline - now, now)
    while True:
        result = first or (yield Attempt(None, deadline, is_fresh))
        first, judgement = None, result.judgement
        if judgement is None:
            return Rested(None, is_ambiguous=False)
        send.failed(result, judgement)
        if is_fresh or not _may_be_stale(result, judgement, send, result.now):
            return Refused(_last(send), False, judgement.is_too_large, judgement.failure)
        is_fresh = True


def _reserve(budget: float) -> float:
    return min(LONGEST_RESERVE, RESERVE_SHARE * budget)


def _may_be_stale(result: Result, judgement: Judgement, send: _Send, now: float) -> bool:
    return judgement.is_link_in_doubt and result.was_reused and now < send.deadline


def _share(now: float, deadline: float, is_last: bool) -> float:
    """How long one backlog may take, so that a silent one leaves time for the next."""
    left = deadline - now
    return deadline if is_last or left <= LEAST_SHARE else now + max(left / 2, LEAST_SHARE)


def _last(send: _Send) -> Exception:
    return send.causes[-1] if send.causes else RuntimeError("an attempt failed without an error")
