"""Shared state of one pairing, and the flow of a send as a generator.

    send_flow          Attempt(primary) --accepted--> Stored
                          |  failed
                          |-- unavailable: Pause, then again, up to `retry_total` times
                          |-- unavailable still ------> health.py; failed over now? --.
                          |-- busy: Pause, then again (or, for too long: unavailable) |
                          |-- full, where the options spill it -----------------------|
                          '-- else: Refused                                           v
                       Attempt(backlog i) --accepted--> Stored       (all failed: Spool, or Stranded)
                          |  failed: i leaves the rotation (P-5); no such queue: CreateBacklog
                          |  refused for what the message is: so does i, if another accepts it (R-3)
                          '--> the next i

The flow yields steps, receives their results, and returns the outcome. The blocking and the asyncio runtime
drive the same generator. Times are seconds of a monotonic clock, passed as arguments. Pure: no clock, thread,
socket or SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from sbpair.envelope.names import path_key

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
from .health import EntityHealth, EntityState, Transition
from .outcome import Classification, Failure, Outcome, Refused, Stored, Stranded
from .retry import NO_RETRIES, Retries, RetryPolicy
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
    """Wait until then: a retry is due, or the service asked for the pause."""

    until: float


@dataclass(frozen=True, slots=True)
class CreateBacklog:
    """Create this backlog queue, by ``until``; on failure the result has an error."""

    backlog: int
    until: float


@dataclass(frozen=True, slots=True)
class Spool:
    """Write what no broker has accepted to the spool, by ``until``; on failure the result has an error."""

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
    """The result of a step.

    ``was_reused``: the attempt used a connection that had been idle. ``accepted``: how many messages were
    accepted before it failed; 0 for all or none.
    """

    now: float
    error: Exception | None = None
    classification: Classification | None = None
    was_reused: bool = False
    accepted: int = 0


Step = Attempt | Pause | CreateBacklog | Spool
SendFlow = Generator[Step, Result, Outcome]


@dataclass(frozen=True, slots=True)
class _Declined:
    """A backlog queue refused the message for its content; the others decide whose fault that is."""

    at: float
    backlog: int
    why: str
    refused: Refused


@dataclass(slots=True)
class _Send:
    """One message on its way."""

    path: str
    count: int
    message_ids: Callable[[], tuple[str, ...]]  # called only when an event needs them
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

    def failed(self, result: Result, classification: Classification) -> None:
        self.now = result.now
        if result.error is not None:
            self.causes.append(result.error)
        self.is_ambiguous = self.is_ambiguous or classification.is_ambiguous


class Pair:
    """The shared state of one pairing: health of every entity, the rotation, pings and events.

    Not thread-safe: callers that share it between threads hold a lock.
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
        retry: RetryPolicy = NO_RETRIES,
    ) -> None:
        self.rotation = Rotation(backlog_count, rng)
        self.pings_sent = 0
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self._redirects_suspects = redirects_suspects
        self._spills_on_quota = spills_on_quota
        self._busy_limit = busy_limit
        # With an interval of zero the first failure redirects: the backlog is the other try.
        self._retry = retry if failover_interval > 0 else NO_RETRIES
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

    def ping_finished(self, path: str, refusal: Classification | None, now: float) -> None:
        """A ping was accepted, or refused for this reason; after a refusal pings go on."""
        self._pinging.discard(path_key(path))
        if refusal is None:
            self._tell(path, self._health(path).ping_accepted(now), now)
        elif self.state_of(path) is EntityState.FAILED_OVER:
            self._events.append(PingFailed(now, path, refusal.why))

    def opening_failed(self, path: str, classification: Classification, now: float) -> None:
        """A link to the primary entity could not be opened, and no send waits any more to say so (R-8)."""
        if classification.failure is Failure.UNAVAILABLE and not classification.is_own:
            self._tell(path, self._health(path).send_failed(now), now, classification.why)

    def pings_lost(self) -> None:
        """Forget the pings under way, after a fork: those that are due are sent again."""
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

        ``first`` is what came of an attempt at the primary that was made already, on the fast path
        of a healthy entity. ``message_ids`` is asked when an event tells of the messages.
        """
        send = _Send(path, count, message_ids, choice, deadline, deadline - now, now)
        outcome = yield from self._way(send, now, first, spool)
        if not isinstance(outcome, Stored):
            why = type(send.causes[-1]).__name__ if send.causes else "no time was left"
            self._events.append(SendRaised(send.now, path, why, *send.resting()[1:]))
        return outcome

    def _way(self, send: _Send, now: float, first: Result | None, spool: SpoolUse) -> SendFlow:
        if spool is SpoolUse.AT_ONCE and first is None:
            result = yield send.spool_step()
            if not isinstance(result.error, CaughtUp):
                return self._spooled(send, result)
            now = result.now
        health = self._health(send.path)
        if first is not None or health.state is not EntityState.FAILED_OVER:
            outcome = yield from self._try_primary(send, health, now, first)
            if isinstance(outcome, (Stored, Refused)):
                return outcome
            now = outcome
        parked = yield from self._try_backlogs(send, now)
        if isinstance(parked, Stranded) and spool is not SpoolUse.NEVER:
            return (yield from self._spool(send))
        return parked

    def _spool(self, send: _Send) -> SendFlow:
        result = yield send.spool_step()
        while isinstance(result.error, CaughtUp):  # nobody took this one: it has to be written
            result = yield send.spool_step()
        return self._spooled(send, result)

    def _spooled(self, send: _Send, result: Result) -> Stored | Stranded:
        if result.error is not None:
            if (
                result.classification is not None and result.classification.is_ambiguous
            ):  # it may be written yet
                send.is_ambiguous = True
            return Stranded(tuple(send.causes), result.error)
        self._events.append(MessageSpooled(result.now, send.path, *send.resting()))
        return Stored(None, send.is_ambiguous, is_spooled=True)

    def _try_primary(
        self, send: _Send, health: EntityHealth, now: float, first: Result | None
    ) -> Generator[Step, Result, Stored | Refused | float]:
        """The instant of failover when the message must be parked."""
        is_fresh = has_waited = False
        retries = Retries(self._retry)
        while True:
            until = send.deadline if has_waited else self._primary_until(send, health, now)
            result = first or (yield Attempt(None, until, is_fresh))
            first, now, classification = None, result.now, result.classification
            if classification is None:
                self._tell(send.path, health.send_succeeded(now), now)
                return Stored(None, send.is_ambiguous)
            send.failed(result, classification)
            has_failed_over = health.state is EntityState.FAILED_OVER
            if classification.is_own:  # no evidence; it looks again where the message goes
                has_waited = True
                if has_failed_over:
                    return now
                if now < send.deadline:
                    continue
                return Refused(_last(send), False, False, classification.failure)
            if _may_be_stale(result, classification, send, now) and not is_fresh and not has_failed_over:
                is_fresh = True  # an idle link had died: that says nothing about the entity
                continue
            is_fresh = False
            failure = classification.failure
            if failure is Failure.BUSY and health.busy_counts(now):
                failure = Failure.UNAVAILABLE
            if failure is Failure.UNAVAILABLE:
                again = self._retry_at(retries, send, health, now)
                if again is not None:  # it counts as a failure only when it still stands after these
                    now = (yield Pause(again)).now
                    if health.state is EntityState.FAILED_OVER:
                        return now
                    continue
                self._tell(send.path, health.send_failed(now), now, classification.why)
            elif failure is Failure.BUSY:
                again = now + max(BUSY_PAUSE, classification.retry_after or 0.0)
                if again < self._primary_until(send, health, again):  # else no time would be left to send
                    now = (yield Pause(again)).now
                    if health.state is EntityState.FAILED_OVER:
                        return now
                    continue
            if self._is_redirected(failure, health):
                return now
            return Refused(_last(send), False, False, classification.failure)

    def _retry_at(self, retries: Retries, send: _Send, health: EntityHealth, now: float) -> float | None:
        if health.state is EntityState.FAILED_OVER:
            return None
        return retries.next_at(now, self._primary_until(send, health, now))

    def _is_redirected(self, failure: Failure, health: EntityHealth) -> bool:
        if health.state is EntityState.FAILED_OVER and failure in _REDIRECTED:
            return True
        # In both of these the next message tries the primary again: no failover is declared.
        if failure is Failure.UNAVAILABLE:
            return self._redirects_suspects
        return failure is Failure.FULL and self._spills_on_quota

    def fast_path(self, path: str, budget: float) -> tuple[EntityHealth, float]:
        """For the fast path: the health to check, and how many seconds a first attempt may take.

        While that health is calm, the first step of a flow is an attempt at the primary, and its
        success changes nothing; so the flow need not be asked before something else happens.
        """
        kept = _reserve(budget) if self._redirects_suspects or self._failover_interval < budget else 0.0
        return self._health(path), budget - kept

    def _primary_until(self, send: _Send, health: EntityHealth, now: float) -> float:
        """Part of the budget is reserved for the backlog, if the entity can fail over in time."""
        if not self._redirects_suspects and health.earliest_failover(now) >= send.deadline:
            return send.deadline
        return max(now, send.deadline - _reserve(send.budget))

    def _try_backlogs(self, send: _Send, now: float) -> SendFlow:
        tried: frozenset[int] = frozenset()
        declined: list[_Declined] = []
        while now < send.deadline or not tried:
            backlog = self.rotation.pick(send.choice, now, tried)
            if backlog is None:
                break
            tried |= {backlog}
            is_last = len(tried) == len(self.rotation)
            outcome = yield from self._try_backlog(send, backlog, now, is_last)
            if isinstance(outcome, _Declined):
                declined.append(outcome)
                now = outcome.at
                continue
            if isinstance(outcome, (Stored, Refused)):
                if isinstance(outcome, Stored):
                    self._withdraw_decliners(send, declined)
                return outcome
            now = outcome
        if declined and len(declined) == len(tried):  # all refused it, so the message is at fault
            return declined[0].refused
        return Stranded(tuple(send.causes))

    def _withdraw_decliners(self, send: _Send, declined: list[_Declined]) -> None:
        """What another backlog accepts, these should have: whatever is wrong, it is wrong with them (R-3)."""
        for each in declined:
            self._withdraw(send, each.backlog, each.at, each.why)

    def _withdraw(self, send: _Send, backlog: int, now: float, why: str) -> None:
        until = self.rotation.failed(backlog, now)  # P-5
        self._events.append(BacklogWithdrawn(now, send.path, backlog, until, why))

    def _try_backlog(
        self, send: _Send, backlog: int, now: float, is_last: bool
    ) -> Generator[Step, Result, Stored | Refused | _Declined | float]:
        """The instant at which this backlog has failed, when it has."""
        is_fresh = is_created = False
        had_time = now < send.deadline
        while True:
            until = _share(now, send.deadline, is_last)
            self.rotation.begun(backlog, until)
            result = yield Attempt(backlog, until, is_fresh)
            now, classification = result.now, result.classification
            if classification is None:
                if self.rotation.succeeded(backlog, now):
                    self._events.append(BacklogReturned(now, send.path, backlog))
                self._events.append(MessageParked(now, send.path, backlog, *send.resting(result.accepted)))
                return Stored(backlog, send.is_ambiguous)
            if result.accepted:  # of a batch that is split; the rest goes on
                self._events.append(MessageParked(now, send.path, backlog, *send.resting(result.accepted)))
            if _may_be_stale(result, classification, send, now) and not is_fresh:
                send.is_ambiguous = send.is_ambiguous or classification.is_ambiguous
                is_fresh = True
                continue
            if classification.is_missing and not is_created and now < send.deadline:
                is_created = True
                created = yield CreateBacklog(backlog, _share(now, send.deadline, is_last))
                now = created.now
                if created.error is None:
                    continue
                send.causes.append(created.error)
                if (
                    created.classification is not None and created.classification.is_own
                ):  # there was no thread
                    return now
            send.failed(result, classification)
            if classification.failure is Failure.CALLER:
                refused = Refused(_last(send), True, classification.is_too_large, classification.failure)
                return (
                    refused
                    if classification.is_local
                    else _Declined(now, backlog, classification.why, refused)
                )
            if classification.is_own:  # the queue is not to blame, and others may try it
                self.rotation.begun(backlog, now)
                return now
            if had_time:  # an attempt that was given no time says nothing of the queue
                self._withdraw(send, backlog, now, classification.why)
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


def primary_flow(
    now: float, deadline: float, first: Result | None = None, retry: RetryPolicy = NO_RETRIES
) -> SendFlow:
    """For what the primary alone can do: no detour, and nothing is concluded about the entity.

    ``first`` is what came of an attempt that was made already.
    """
    is_fresh, retries = False, Retries(retry)
    send = _Send("", 0, tuple, Choice(), deadline, deadline - now, now)
    while True:
        result = first or (yield Attempt(None, deadline, is_fresh))
        first, classification = None, result.classification
        if classification is None:
            return Stored(None, send.is_ambiguous)
        send.failed(result, classification)
        if not is_fresh and _may_be_stale(result, classification, send, result.now):
            is_fresh = True
            continue
        again = (
            None
            if classification.failure is not Failure.UNAVAILABLE
            else retries.next_at(result.now, deadline)
        )
        if again is None:
            return Refused(_last(send), False, classification.is_too_large, classification.failure)
        is_fresh = False
        yield Pause(again)


def _reserve(budget: float) -> float:
    return min(LONGEST_RESERVE, RESERVE_SHARE * budget)


def _may_be_stale(result: Result, classification: Classification, send: _Send, now: float) -> bool:
    return classification.is_link_in_doubt and result.was_reused and now < send.deadline


def _share(now: float, deadline: float, is_last: bool) -> float:
    """How long one backlog may take, so that a silent one leaves time for the next."""
    left = deadline - now
    return deadline if is_last or left <= LEAST_SHARE else now + max(left / 2, LEAST_SHARE)


def _last(send: _Send) -> Exception:
    return send.causes[-1] if send.causes else RuntimeError("an attempt failed without an error")
