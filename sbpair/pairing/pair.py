"""The shared state of one pairing, and the flow of a send as a generator.

    send_flow          Attempt(primary) --accepted--> Stored
                          |  failed
                          |-- unavailable: Pause, retry, up to `retry_total` times
                          |-- still unavailable ------> health.py: failed over? ------.
                          |-- busy: Pause, retry (too long: as unavailable)           |
                          |-- full, if the options redirect it -----------------------|
                          '-- otherwise: Refused                                      v
                       Attempt(backlog i) --accepted--> Stored       (all failed: SpoolMessages, or Stranded)
                          |  failed: withdraw i (P-5); if it does not exist: CreateBacklog first
                          |  message refused: withdraw i if another backlog accepts the message (R-3)
                          '--> next i

The flow yields steps, is sent their results and returns the outcome. The blocking and the asyncio runtime drive the
same generator. Times are seconds of a monotonic clock, passed as arguments. The module uses no clock, thread, socket
or SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
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
from .ordered_sends import OrderedSends
from .outcome import Classification, Failure, Refused, Stored, Stranded
from .retry import NO_RETRIES, Retries, RetryPolicy
from .rotation import Choice, Rotation
from .steps import (
    Attempt,
    CaughtUp,
    CreateBacklog,
    Pause,
    Peek,
    Result,
    SendFlow,
    SendState,
    SpoolMessages,
    SpoolUse,
    Step,
    last_cause,
    may_be_stale,
)

if TYPE_CHECKING:
    from random import Random

__all__ = [
    "Attempt",
    "CaughtUp",
    "CreateBacklog",
    "Pair",
    "Pause",
    "Peek",
    "Result",
    "SendFlow",
    "SpoolMessages",
    "SpoolUse",
    "Step",
    "primary_flow",
]

BUSY_PAUSE = 10.0  # minimum seconds before a busy service is retried
MAX_RESERVE_SECONDS, RESERVE_SHARE = 5.0, 0.25  # seconds, and share of the timeout, reserved for the backlog
MIN_SHARE_SECONDS = 2.0  # seconds; with less time left, one backlog queue gets all of it
JITTER = 0.25  # seconds over which the first pings of many clients are spread


@dataclass(frozen=True, slots=True)
class _Declined:
    """A backlog queue refused the message itself; if another accepts it, the queue is at fault."""

    at: float
    backlog: int
    why: str
    refused: Refused


class Pair:
    """The shared state of one pairing: the health of each entity, the rotation, pings and events.

    Not thread-safe: callers that share it between threads must hold a lock.
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
        keeps_order: bool = False,
    ) -> None:
        self.rotation = Rotation(backlog_count, rng)
        self.ordered: OrderedSends | None = None
        self.pings_sent = 0
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self._redirects_suspects = redirects_suspects
        self._spills_on_quota = spills_on_quota
        self._busy_limit = busy_limit
        # With an interval of zero the first failure redirects the message, in place of a retry.
        self._retry = retry if failover_interval > 0 else NO_RETRIES
        self._rng = rng
        self._entities: dict[str, EntityHealth] = {}
        self._paths: dict[str, str] = {}
        self._pinging: set[str] = set()
        self._events: list[PairingEvent] = []
        if keeps_order:
            self.ordered = OrderedSends(backlog_count, retry, self._events)

    # -- entity state

    def state_of(self, path: str) -> EntityState:
        """The state of an entity, shared by all its senders (P-6)."""
        health = self._entities.get(path_key(path))
        return EntityState.HEALTHY if health is None else health.state

    def fail_over(self, path: str, now: float) -> None:
        """Fail the entity over on request of an operator; a ping ends it."""
        self._emit(path, self._health(path).fail_over(now), now)

    def hold(self, path: str, now: float) -> None:
        """Fail the entity over until it is released or marked healthy."""
        self._emit(path, self._health(path).hold(now), now)

    def release(self, path: str, now: float) -> None:
        """End the hold of an entity: pings can end its failover again."""
        self._health(path).release(now)

    def mark_healthy(self, path: str, now: float) -> None:
        """Return the entity to healthy on request of an operator."""
        self._emit(path, self._health(path).mark_healthy(now), now)

    # -- events, timers and pings

    @property
    def has_events(self) -> bool:
        """Whether :meth:`events` would return any."""
        return bool(self._events)

    @property
    def pending_events(self) -> int:
        """The number of events that :meth:`events` would return."""
        return len(self._events)

    def events_since(self, count: int) -> list[PairingEvent]:
        """The pending events but the first ``count``; they stay pending."""
        return self._events[count:]

    def events(self) -> list[PairingEvent]:
        """Return the events since the last call, in order."""
        pending = list(self._events)
        self._events.clear()
        return pending

    def next_timer(self) -> float | None:
        """When to call :meth:`handle_timer` next; None for never."""
        timers = [timer for health in self._entities.values() if (timer := health.next_timer()) is not None]
        return min(timers, default=None)

    def handle_timer(self, now: float) -> list[str]:
        """Advance time to ``now``; return the paths to ping (P-32).

        Call :meth:`ping_finished` or :meth:`ping_lost` once for each.
        """
        due: list[str] = []
        for key, health in self._entities.items():
            transitions, is_ping_due = health.handle_timer(now)
            self._emit(self._paths[key], transitions, now)
            if is_ping_due and key not in self._pinging:  # at most one ping per entity at a time
                self._pinging.add(key)
                due.append(self._paths[key])
        return due

    def ping_left(self, path: str, now: float, *, is_billed: bool = True) -> None:
        """Record that a ping is sent, which is billed whatever its result (P-34), or that a link is opened instead."""
        if not is_billed:
            self._events.append(LinkProbed(now, path))
            return
        self.pings_sent += 1
        self._events.append(PingSent(now, path, self.pings_sent))

    def ping_finished(self, path: str, refusal: Classification | None, now: float) -> None:
        """Record the result of a ping: accepted if ``refusal`` is None. After a refusal pinging continues."""
        self._pinging.discard(path_key(path))
        if refusal is None:
            self._emit(path, self._health(path).ping_accepted(now), now)
        elif self.state_of(path) is EntityState.FAILED_OVER:
            self._events.append(PingFailed(now, path, refusal.why))

    def opening_failed(self, path: str, classification: Classification, now: float) -> None:
        """Record that a link to the primary entity could not be opened after its send had given up (R-8)."""
        if classification.failure is Failure.UNAVAILABLE and not classification.is_own:
            self._emit(path, self._health(path).send_failed(now), now, classification.why)

    def ping_lost(self, path: str) -> None:
        """Forget a ping that ended without a result, so that the next one is sent when due."""
        self._pinging.discard(path_key(path))

    def pings_lost(self) -> None:
        """Forget the pings in progress, after a fork, so that they are sent again when due."""
        self._pinging.clear()

    def forked(self) -> None:
        """Reset, in a forked child, the state that applies to the parent only."""
        self.pings_lost()
        if self.ordered is not None:
            self.ordered.fence.forget()

    # -- sending

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
        session: str | None = None,
    ) -> SendFlow:
        """The flow of one message, or of one batch of ``count`` messages.

        ``first`` is the result of an attempt at the primary that was already made on the fast path. ``message_ids``
        is called only when an event needs the ids. ``session`` is the session whose order is kept (O-1): the caller
        runs one flow of a session at a time.
        """
        send = SendState(path, count, message_ids, choice, deadline, deadline - now, now, session)
        outcome = yield from self._send(send, now, first, spool)
        if not isinstance(outcome, Stored):
            why = type(send.causes[-1]).__name__ if send.causes else "no time was left"
            self._events.append(SendRaised(send.now, path, why, *send.next_report()[1:]))
        return outcome

    def _send(self, send: SendState, now: float, first: Result | None, spool: SpoolUse) -> SendFlow:
        if spool is SpoolUse.AT_ONCE and first is None:
            result = yield send.spool_step()
            if not isinstance(result.error, CaughtUp):
                return self._spooled(send, result)
            now = result.now
        health = self._health(send.path)
        is_fenced = False
        if first is None and self.ordered is not None and health.state is not EntityState.FAILED_OVER:
            now, is_fenced = yield from self.ordered.pass_fence(send, now)
        if first is not None or not (is_fenced or health.state is EntityState.FAILED_OVER):
            outcome = yield from self._try_primary(send, health, now, first)
            if isinstance(outcome, (Stored, Refused)):
                return outcome
            now = outcome
        parked = yield from self._try_backlogs(send, now)
        if isinstance(parked, Stranded) and spool is not SpoolUse.NEVER:
            return (yield from self._spool(send))
        return parked

    def _spool(self, send: SendState) -> SendFlow:
        result = yield send.spool_step()
        while isinstance(result.error, CaughtUp):  # no broker accepted this message, so it must be written
            result = yield send.spool_step()
        return self._spooled(send, result)

    def _spooled(self, send: SendState, result: Result) -> Stored | Stranded:
        if result.error is not None:
            if result.classification is not None and result.classification.is_ambiguous:
                send.is_ambiguous = True  # the write may still complete
            return Stranded(tuple(send.causes), result.error)
        self._events.append(MessageSpooled(result.now, send.path, *send.next_report()))
        return Stored(None, send.is_ambiguous, is_spooled=True)

    def _try_primary(
        self, send: SendState, health: EntityHealth, now: float, first: Result | None
    ) -> Generator[Step, Result, Stored | Refused | float]:
        """Try the primary. Returns the current time if the message must be parked."""
        is_fresh = has_waited = False
        retries = Retries(self._retry)
        while True:
            until = send.deadline if has_waited else self._primary_until(send, health, now)
            result = first or (yield Attempt(None, until, is_fresh))
            first, now, classification = None, result.now, result.classification
            if classification is None:
                self._emit(send.path, health.send_succeeded(now), now)
                return Stored(None, send.is_ambiguous)
            send.failed(result, classification)
            has_failed_over = health.state is EntityState.FAILED_OVER
            if classification.is_own:
                # no evidence about the primary; decide again by the entity's state
                has_waited = True
                if has_failed_over:
                    return now
                if now < send.deadline:
                    continue
                return Refused(last_cause(send), False, False, classification.failure)
            if may_be_stale(result, classification, send, now) and not is_fresh and not has_failed_over:
                is_fresh = True  # the death of an idle link is no evidence about the entity
                continue
            is_fresh = False
            failure = classification.failure
            if failure is Failure.BUSY and health.busy_counts(now):
                failure = Failure.UNAVAILABLE
            if failure is Failure.UNAVAILABLE:
                again = self._retry_at(retries, send, health, now)
                if again is not None:  # it counts as a failure only after the last retry
                    now = (yield Pause(again)).now
                    if health.state is EntityState.FAILED_OVER:
                        return now
                    continue
                self._emit(send.path, health.send_failed(now), now, classification.why)
            elif failure is Failure.BUSY:
                again = now + max(BUSY_PAUSE, classification.retry_after or 0.0)
                if again < self._primary_until(send, health, again):
                    # after the pause, time is left to send
                    now = (yield Pause(again)).now
                    if health.state is EntityState.FAILED_OVER:
                        return now
                    continue
            if self._is_redirected(failure, health):
                return now
            return Refused(last_cause(send), False, False, classification.failure)

    def _retry_at(self, retries: Retries, send: SendState, health: EntityHealth, now: float) -> float | None:
        if health.state is EntityState.FAILED_OVER:
            return None
        return retries.next_at(now, self._primary_until(send, health, now))

    def _is_redirected(self, failure: Failure, health: EntityHealth) -> bool:
        if health.state is EntityState.FAILED_OVER and failure in _REDIRECTED:
            return True
        # In both cases below the entity does not fail over: the next message is sent to the primary.
        if failure is Failure.UNAVAILABLE:
            return self._redirects_suspects
        return failure is Failure.FULL and self._spills_on_quota

    def fast_path(self, path: str, budget: float) -> tuple[EntityHealth, float]:
        """The health of the entity, and the time limit of a first attempt in seconds.

        While the health is calm, a flow would begin with an attempt at the primary, and its success would change
        nothing. The caller may therefore make that attempt itself, and start a flow only if it fails.
        """
        reserve = _reserve(budget) if self._redirects_suspects or self._failover_interval < budget else 0.0
        return self._health(path), budget - reserve

    def _primary_until(self, send: SendState, health: EntityHealth, now: float) -> float:
        """The time limit of an attempt at the primary: part of the budget is reserved for the backlog, if the
        entity can fail over before the deadline."""
        if not self._redirects_suspects and health.earliest_failover(now) >= send.deadline:
            return send.deadline
        return max(now, send.deadline - _reserve(send.budget))

    def _try_backlogs(self, send: SendState, now: float) -> SendFlow:
        if self.ordered is not None and send.session is not None:
            return (yield from self.ordered.park(send, send.session, now))
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
        if declined and len(declined) == len(tried):
            # all queues refused the message, so the message is the cause
            return declined[0].refused
        return Stranded(tuple(send.causes))

    def _withdraw_decliners(self, send: SendState, declined: list[_Declined]) -> None:
        """Withdraw the queues that refused a message which another one accepted (R-3)."""
        for each in declined:
            self._withdraw(send, each.backlog, each.at, each.why)

    def _withdraw(self, send: SendState, backlog: int, now: float, why: str) -> None:
        until = self.rotation.failed(backlog, now)  # P-5
        self._events.append(BacklogWithdrawn(now, send.path, backlog, until, why))

    def _try_backlog(
        self, send: SendState, backlog: int, now: float, is_last: bool
    ) -> Generator[Step, Result, Stored | Refused | _Declined | float]:
        """Try one backlog queue. Returns the current time if the queue failed."""
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
                report = send.next_report(result.accepted)
                self._events.append(MessageParked(now, send.path, backlog, *report))
                return Stored(backlog, send.is_ambiguous)
            if result.accepted:  # part of a batch was accepted before the failure
                report = send.next_report(result.accepted)
                self._events.append(MessageParked(now, send.path, backlog, *report))
            if may_be_stale(result, classification, send, now) and not is_fresh:
                send.doubt(classification)
                is_fresh = True
                continue
            if classification.is_missing and not is_created and now < send.deadline:
                send.doubt(classification)
                is_created = True
                created = yield CreateBacklog(backlog, _share(now, send.deadline, is_last))
                now = created.now
                if created.error is None:
                    continue
                send.causes.append(created.error)
                if created.classification is not None and created.classification.is_own:
                    return now  # no thread was free
            send.failed(result, classification)
            if classification.failure is Failure.CALLER:
                refused = Refused(last_cause(send), True, classification.is_too_large, classification.failure)
                return (
                    refused
                    if classification.is_local
                    else _Declined(now, backlog, classification.why, refused)
                )
            if classification.is_own:  # not the queue's fault; other sends may try it
                self.rotation.begun(backlog, now)
                return now
            if had_time:  # an attempt without time is no evidence about the queue
                self._withdraw(send, backlog, now, classification.why)
            return now

    # -- internals

    def _health(self, path: str) -> EntityHealth:
        # G-11: entities fail over independently.
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

    def _emit(self, path: str, transitions: list[Transition], now: float, why: str = "") -> None:
        for transition in transitions:
            event = _EVENT_OF[transition.after]
            self._events.append(event(now, path, why or transition.cause.value))


_EVENT_OF: dict[EntityState, type[EntitySuspected | EntityFailedOver | EntityRecovered]] = {
    EntityState.SUSPECT: EntitySuspected,
    EntityState.FAILED_OVER: EntityFailedOver,
    EntityState.HEALTHY: EntityRecovered,
}
_REDIRECTED = frozenset({Failure.UNAVAILABLE, Failure.BUSY})  # all others are raised even when failed over


def primary_flow(
    now: float, deadline: float, first: Result | None = None, retry: RetryPolicy = NO_RETRIES
) -> SendFlow:
    """The flow of an operation that only the primary can perform: it never parks, nor affects the entity's health.

    ``first`` is the result of an attempt that was already made.
    """
    is_fresh, retries = False, Retries(retry)
    send = SendState("", 0, tuple, Choice(), deadline, deadline - now, now)
    while True:
        result = first or (yield Attempt(None, deadline, is_fresh))
        first, classification = None, result.classification
        if classification is None:
            return Stored(None, send.is_ambiguous)
        send.failed(result, classification)
        if not is_fresh and may_be_stale(result, classification, send, result.now):
            is_fresh = True
            continue
        again = (
            None
            if classification.failure is not Failure.UNAVAILABLE
            else retries.next_at(result.now, deadline)
        )
        if again is None:
            return Refused(last_cause(send), False, classification.is_too_large, classification.failure)
        is_fresh = False
        yield Pause(again)


def _reserve(budget: float) -> float:
    return min(MAX_RESERVE_SECONDS, RESERVE_SHARE * budget)


def _share(now: float, deadline: float, is_last: bool) -> float:
    """The time limit of one backlog queue, which leaves time for the next if this one does not respond."""
    left = deadline - now
    return deadline if is_last or left <= MIN_SHARE_SECONDS else now + max(left / 2, MIN_SHARE_SECONDS)
