"""The shared state of one pairing, and the flow of a send as a generator.

    send_flow          Attempt(primary) --accepted--> Stored
                          |  unavailable, or not answered in time ---------------------------.
                          |-- busy: Pause, and once more; soon parked                        |
                          |-- full, if the options park it ----------------------------------|
                          |-- otherwise: Refused                                             |
    half open, silent  (another send asks: primary_breaker.py) ------------------------------|
    failed over        (health.py) ----------------------------------------------------------|
                                                                                             v
                       backlogs.py, ordered_sends.py ----------> Stored
                          '-- all failed: SpoolMessages; or Pause, and the primary again; or Stranded

With ``suspect_policy="raise"``, a send that fails before the entity has failed over is retried, and its last error
raised.

The flow yields steps, is sent their results and returns the outcome. The blocking and the asyncio runtime drive the
same generator. Times are seconds of a monotonic clock, passed as arguments. The module uses no clock, thread, socket or
SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from sbpair.pair.envelope.names import path_key

from ..events import (
    EntityFailedOver,
    EntityRecovered,
    EntityReturning,
    EntitySuspected,
    KeySetAside,
    LinkProbed,
    MessageSpooled,
    PairingEvent,
    PingFailed,
    PingSent,
    PrimarySlow,
    ReturnAborted,
    SendRaised,
)
from ..outcome import Classification, Failure, ParkReason, Refused, Stored, Stranded
from .backlogs import BacklogSends, BacklogSize, Room, Rotation, SideBreaker, is_filling
from .due import Pings, Timers
from .failing_keys import FailingKeys
from .health import (
    DEFAULT_LONGEST_ATTEMPT,
    EntityCondition,
    EntityHealth,
    EntityState,
    HealthPolicy,
    Transition,
)
from .patience import MIN_PATIENCE, Patience, Waiting, transfer_seconds, without_transfer
from .retry import NO_RETRIES, RetryPolicy, busy_pause
from .steps import (
    Attempt,
    CaughtUpError,
    Choice,
    CreateBacklog,
    Pause,
    Peek,
    Result,
    Retries,
    SendFlow,
    SendState,
    SpoolMessages,
    SpoolUse,
    Step,
    last_cause,
    may_be_stale,
    reserve,
)

if TYPE_CHECKING:
    from random import Random

    from .ordered_sends import OrderedSends

__all__ = [
    "Attempt",
    "CaughtUpError",
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

MAX_FIRST_PING_DELAY = 5.0  # seconds over which the first pings of many clients are spread
PING_SPREAD = 0.1  # of the ping interval, in both directions
SPOOL_PATIENCE = 2.0  # seconds for an attempt at a failed-over primary with a message of the spool
SHORTAGE_PAUSE = 1.0  # seconds until the next attempt, when this machine lacks a descriptor


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
        policy: HealthPolicy | None = None,
        attempt_timeout: float = DEFAULT_LONGEST_ATTEMPT,
        max_first_ping_delay: float = MAX_FIRST_PING_DELAY,
    ) -> None:
        self._policy = policy or HealthPolicy()
        self._attempt_timeout = attempt_timeout
        # if attempts are raised, a retry makes a copy: so an attempt waits until it counts as slow
        self._longest_raised = max(attempt_timeout, self._policy.slow_after)
        self._max_first_ping_delay = min(max_first_ping_delay, ping_interval)
        self._keys: dict[str, FailingKeys] = {}
        self.ordered: OrderedSends | None = None
        self.pings_sent = 0
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self.redirects_suspects = redirects_suspects
        self._spills_on_quota = spills_on_quota
        self._busy_limit = busy_limit
        # With an interval of zero the first failure redirects the message, in place of a retry.
        self._retry = retry if failover_interval > 0 else NO_RETRIES
        self._rng = rng
        self._entities: dict[str, EntityHealth] = {}
        self._paths: dict[str, str] = {}
        self._timers = Timers()
        self._ailing: set[str] = set()  # suspect or failed over
        self._pings = Pings(ping_interval * (1.0 - PING_SPREAD))  # a ping that is due early is not delayed
        self._events: list[PairingEvent] = []
        self.rotation = Rotation(backlog_count, rng)
        self.room = Room(rng)
        secondary = SideBreaker(rng)
        self._backlogs = BacklogSends(
            self.rotation, rng, self._events, self.room, secondary, Patience(attempt_timeout)
        )
        if keeps_order:
            from .ordered_sends import OrderedSends  # late: most clients keep no order

            self.ordered = OrderedSends(backlog_count, retry, rng, self._events, self.room, secondary)

    # -- entity state

    def state_of(self, path: str) -> EntityState:
        """Return the state of an entity, shared by all its senders."""
        health = self._entities.get(path_key(path))
        return EntityState.HEALTHY if health is None else health.state

    def parks_at_once(self, path: str, now: float) -> bool:
        """Whether sends that wait for a link to the entity should be parked instead. May be called in any thread."""
        health = self._health(path)
        is_half_open = self.redirects_suspects and health.breaker.is_half_open(now)
        return is_half_open or health.state is EntityState.FAILED_OVER

    def fail_over(self, path: str, now: float) -> None:
        """Fail the entity over on request of an operator; a ping ends it. A return by trial in progress ends."""
        health = self._health(path)
        was_returning = health.returning_since is not None
        self._emit(path, health.fail_over(now), now)
        self._tell_return_ended(path, was_returning, "fail_over was called", now)

    def hold(self, path: str, now: float) -> None:
        """Fail the entity over until it is released or marked healthy."""
        health = self._health(path)
        was_returning = health.returning_since is not None
        self._emit(path, health.hold(now), now)
        self._tell_return_ended(path, was_returning, "hold was called", now)

    def release(self, path: str, now: float) -> None:
        """End the hold of an entity: pings can end its failover again."""
        self._health(path).release(now)

    def mark_healthy(self, path: str, now: float) -> None:
        """Return the entity to healthy on request of an operator."""
        self._emit(path, self._health(path).mark_healthy(now), now)

    def conditions(self, now: float) -> dict[str, EntityCondition]:
        """Return the degraded parts of each entity, by path. May be called in any thread."""
        return {
            self._paths[key]: EntityCondition(
                health.state,
                health.state is EntityState.FAILED_OVER and health.returning_since is not None,
                health.failed_share(now),
                0 if (keys := self._keys.get(key)) is None else keys.count_aside(now),
            )
            for key, health in list(self._entities.items())
        }

    def is_secondary_silent(self, now: float) -> bool:
        """Whether the secondary failed as a whole within the last minute, so that it is tried only once a second."""
        return self._backlogs.secondary.was_silent(now)

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
        """Return the pending events except the first ``count``; they stay pending."""
        return self._events[count:]

    def events(self) -> list[PairingEvent]:
        """Return the events since the last call, in order."""
        return self.pass_to(list.clear)

    def pass_to(self, take: Callable[[list[PairingEvent]], None]) -> list[PairingEvent]:
        """Return the events since the last call, as :meth:`events`, but let ``take`` empty the pending list."""
        pending = list(self._events)
        take(self._events)
        return pending

    def next_timer(self) -> float | None:
        """Return when to call :meth:`handle_timer` next; None for never."""
        return 0.0 if self._pings.is_ready else self._timers.next()

    def handle_timer(self, now: float) -> list[str]:
        """Advance time to ``now``; return the paths to ping.

        Call :meth:`ping_finished` or :meth:`ping_lost` once for each.
        """
        for key in self._timers.due(now):
            health = self._entities[key]
            transitions, is_ping_due = health.handle_timer(now)
            self._emit(self._paths[key], transitions, now)
            if is_ping_due:
                self._pings.due(key, now)
            self._timers.set(key, health.next_timer())
        return [self._paths[key] for key in self._pings.take(now) if self._is_pinged(key)]

    def _is_pinged(self, key: str) -> bool:
        """Whether an entity whose ping is due is still failed over."""
        if self._entities[key].state is EntityState.FAILED_OVER:
            return True
        self._pings.lost(key)
        return False

    def ping_left(self, path: str, now: float, *, is_billed: bool = True) -> None:
        """Record that a ping is sent, which is billed whatever its result, or that a link is opened instead."""
        if not is_billed:
            self._events.append(LinkProbed(now, path))
            return
        self.pings_sent += 1
        self._events.append(PingSent(now, path, self.pings_sent))

    def ping_finished(self, path: str, refusal: Classification | None, now: float) -> None:
        """Record the result of a ping: accepted if ``refusal`` is None. After a refusal pinging continues."""
        health = self._health(path)
        if refusal is not None and refusal.is_own:  # it was not sent
            self._pings.lost(path_key(path))
        else:
            is_lost = refusal is not None and refusal.is_of_side and refusal.failure is Failure.UNAVAILABLE
            self._ping_soon(self._pings.finished(path_key(path), is_answered=not is_lost), now)
        if refusal is None:
            self._ping_accepted(path, health, now)
            return
        health.ping_failed()
        if self.state_of(path) is EntityState.FAILED_OVER:
            self._events.append(PingFailed(now, path, refusal.why))

    def _ping_soon(self, keys: Sequence[str], now: float) -> None:
        """Ping entities that were due while the namespace was out of reach."""
        for key in keys:
            self._entities[key].ping_by(now + self._first_ping_delay())

    def _ping_accepted(self, path: str, health: EntityHealth, now: float) -> None:
        was_returning = health.returning_since is not None
        self._emit(path, health.ping_accepted(now), now)
        if health.returning_since is not None and not was_returning:
            self._events.append(EntityReturning(now, path))

    def opening_failed(self, path: str, classification: Classification, now: float) -> None:
        """Record that a link to the primary entity could not be opened after its send had given up."""
        if classification.failure is Failure.UNAVAILABLE and not classification.is_own:
            health = self._health(path)
            was_returning = health.returning_since is not None
            self._emit(path, [*health.attempt_failed(now), *health.send_failed(now)], now, classification.why)
            self._tell_return_ended(path, was_returning, classification.why, now)

    def secondary_answered(self, now: float) -> None:
        """Record that a probe found the secondary available: from now on sends try it."""
        self._backlogs.secondary.succeeded(now)

    def sized(self, found: Mapping[int, BacklogSize] | None, now: float) -> None:
        """Record the sizes of backlog queues as the service counts them; None when the key may not read them."""
        if found is None:
            self.room.refused()
        else:
            self._events += [is_filling(each, now) for each in self.room.measure(found)]

    def ping_lost(self, path: str) -> None:
        """Forget a ping that ended without a result, so that the next one is sent when due."""
        self._pings.lost(path_key(path))

    def pings_lost(self) -> None:
        """Forget the pings in progress, after a fork, so that they are sent again when due."""
        self._pings.all_lost()

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
        checksums: Callable[[], tuple[int, ...]] = tuple,
        session: str | None = None,
        key: Callable[[], str | None] = lambda: None,
        size: Callable[[], int] = lambda: 0,
    ) -> SendFlow:
        """Return the flow of one message, or of one batch of ``count`` messages.

        ``first`` is the result of an attempt at the primary that was already made on the fast path. ``message_ids`` and
        ``checksums``, those of the bodies, are called only when an event needs them. ``session`` is the session whose
        order is kept; the caller runs only one flow of a session at a time. ``key`` returns the session id or partition
        key that pins the messages to one partition, None for several or none; ``size`` returns their size in bytes.
        """
        send = SendState(
            path,
            count,
            message_ids,
            checksums,
            choice,
            deadline,
            deadline - now,
            now,
            session,
            key,
            size,
            spool is not SpoolUse.NEVER,
            spool not in (SpoolUse.NEVER, SpoolUse.FROM_IT),
        )
        outcome = yield from self._send(send, now, first, spool)
        if not isinstance(outcome, Stored) and spool is not SpoolUse.FROM_IT:
            if send.is_rejected:
                self._health(path).raised(message_ids(), send.now)
            self._events.append(SendRaised(send.now, path, outcome.cause, *send.next_report()[1:]))
        return outcome

    def _send(self, send: SendState, now: float, first: Result | None, spool: SpoolUse) -> SendFlow:
        no_room: Exception | None = None
        if spool is SpoolUse.AT_ONCE and first is None:
            result = yield send.spool_step(is_first=True)
            if not isinstance(result.error, CaughtUpError):
                return self._spool_result(send, result)
            now, no_room = result.now, _cause_of(result.error)
        health = self._health(send.path)
        is_fenced, may_try = False, first is not None or self._may_try(send, health, now)
        if first is None and self.ordered is not None and may_try:
            now, is_fenced = yield from self.ordered.pass_fence(send, now)
            may_try = not is_fenced and self._may_try(send, health, now)
        if may_try and first is None and (aside := self._set_aside(send, now)) is not None:
            send.causes.append(aside)
            if not self.redirects_suspects:
                return Refused(aside, False, False, Failure.UNAVAILABLE)
            may_try, send.reason = False, ParkReason.NOT_ASKED
        retries, is_last_resort = Retries(self._retry, self._rng), False
        while True:
            if may_try:
                if first is None and health.state is EntityState.FAILED_OVER:
                    outcome = yield from self._try_return(send, health, now)
                elif self.redirects_suspects:
                    outcome = yield from self._try_once(send, health, now, first, is_last_resort)
                else:
                    outcome = yield from self._try_until_raised(send, health, now, first)
                if isinstance(outcome, (Stored, Refused)):
                    return outcome
                first, now = None, outcome
            parked = yield from self._park(send, now)
            if not isinstance(parked, Stranded):
                return parked
            if spool is SpoolUse.FROM_IT:
                return (yield from self._ask_primary(send, health, parked, now))
            if no_room is not None:
                return Stranded(parked.causes, no_room)
            if spool is not SpoolUse.NEVER:
                return self._spool_result(send, (yield send.spool_step()))
            again = self._asks_again(send, health, retries) if may_try else None
            if again is None:
                return parked
            now, is_last_resort = (yield Pause(again)).now, True
            may_try = self._may_try(send, health, now)
            if not may_try:
                send.reason = ParkReason.FAILED_OVER

    def _asks_again(self, send: SendState, health: EntityHealth, retries: Retries) -> float | None:
        """Return when to retry the primary for a message that no backlog queue accepted; None for never."""
        if not self.redirects_suspects or health.state is EntityState.FAILED_OVER:
            return None
        if send.busy_until > send.now:
            return send.busy_until if send.busy_until < send.deadline else None
        return retries.next_at(send.now, send.deadline, send.deadline - reserve(send.budget))

    def _may_try(self, send: SendState, health: EntityHealth, now: float) -> bool:
        """Whether a send tries the primary: always unless failed over, then only as a trial of its return."""
        if health.state is not EntityState.FAILED_OVER:
            return True
        if health.returning_since is None:
            return False
        session = send.session
        draw = self._rng.random() if session is None else crc32(session.encode("utf-8", "replace")) / 2**32
        return health.takes_trial(draw, now)

    def _set_aside(self, send: SendState, now: float) -> Exception | None:
        """Return the error with which the key of this send failed, while the key is set aside."""
        keys = self._keys.get(path_key(send.path))
        return keys.set_aside(send.key(), now) if keys else None

    def _park(self, send: SendState, now: float) -> SendFlow:
        if self.ordered is not None and send.session is not None:
            return (yield from self.ordered.park(send, send.session, now))
        return (yield from self._backlogs.park(send, now))

    def _ask_primary(self, send: SendState, health: EntityHealth, parked: Stranded, now: float) -> SendFlow:
        """Try the primary with a spooled message that no backlog queue accepts, unless it was tried or is held.

        A failed-over entity is tried as by a ping, any other regardless of its breaker.
        """
        now, is_away = max(now, send.now), health.state is EntityState.FAILED_OVER
        may_ask = health.next_timer() is not None if is_away else send.reason is ParkReason.NOT_ASKED
        if now >= send.deadline or not may_ask or self._is_fenced(send):
            return parked
        if is_away:
            return (yield from self._ask_as_ping(send, health, now))
        outcome = yield from self._try_once(send, health, now, None, is_last_resort=True)
        return outcome if isinstance(outcome, (Stored, Refused)) else Stranded(tuple(send.causes))

    def _is_fenced(self, send: SendState) -> bool:
        """Whether older messages of the send's session may still be parked."""
        if self.ordered is None or send.session is None:
            return False
        return not self.ordered.fence.lets_pass(self.ordered.place(send.path, send.session))

    def _ask_as_ping(self, send: SendState, health: EntityHealth, now: float) -> SendFlow:
        patience = SPOOL_PATIENCE + transfer_seconds(send.size())
        result = yield Attempt(None, min(send.deadline, now + patience), is_fresh=True)
        classification = result.classification
        if classification is None:
            self._ping_accepted(send.path, health, result.now)
            return Stored(None, send.is_ambiguous)
        send.failed(result, classification)
        if classification.failure is Failure.CALLER and not classification.is_local:
            return Refused(last_cause(send), False, classification.is_too_large, classification.failure)
        health.ping_failed()
        self._end_return(send, health, classification.why, result.now)
        return Stranded(tuple(send.causes))

    def _spool_result(self, send: SendState, result: Result) -> Stored | Stranded:
        if result.error is not None:
            if result.classification is not None and result.classification.is_ambiguous:
                send.is_ambiguous = True  # the write may still complete
            return Stranded(tuple(send.causes), result.error)
        self._events.append(MessageSpooled(result.now, send.path, *send.next_report()))
        return Stored(None, send.is_ambiguous, is_spooled=True)

    def _try_once(
        self, send: SendState, health: EntityHealth, now: float, first: Result | None, is_last_resort: bool
    ) -> Generator[Step, Result, Stored | Refused | float]:
        """Try the primary when other messages can be parked: one attempt, and another after *busy*.

        Returns the current time if the message must be parked. With ``is_last_resort``, no backlog queue accepted the
        message, so the breaker is not consulted.
        """
        breaker, is_fresh, busy = health.breaker, False, 0
        while True:
            if first is None and not is_last_resort and not breaker.may_ask(now):
                send.reason = ParkReason.NOT_ASKED
                return now
            is_probe = first is None and not is_last_resort and breaker.is_half_open(now)
            attempt = self._attempt(
                send, health, now, is_fresh=is_fresh, is_over_idle=is_probe, is_last=is_last_resort
            )
            if is_probe:
                breaker.asked(attempt.link_by)
            began, result = now, first or (yield from _waiting(breaker.patience, attempt, now))
            until = attempt.until if first is None else began + MIN_PATIENCE
            first, now, classification = None, result.now, result.classification
            if classification is None:
                self._accepted(send, health, now, now - began, result.opening)
                return Stored(None, send.is_ambiguous)
            send.failed(result, classification)
            is_unanswered = now >= until and not classification.is_own
            if classification.is_own:  # no evidence about the primary
                if is_probe:
                    breaker.failed(began, now, is_unanswered=False, is_probe=True)
                send.reason = ParkReason.NOT_ASKED
                return now
            if not is_unanswered:
                breaker.patience.heard(now)
            may_repeat = not (is_unanswered or is_fresh or is_probe)
            if may_repeat and may_be_stale(result, classification, send, now):
                if health.state is EntityState.FAILED_OVER:
                    return now
                is_fresh = True  # the death of an idle link is no evidence about the entity
                continue
            is_fresh, failure = False, classification.failure
            pause = busy_pause(self._rng, busy, classification.retry_after)
            if failure is Failure.BUSY and health.busy_counts(now, pause, is_first=busy == 0):
                failure = Failure.UNAVAILABLE
            send.reason = _REASON.get(failure, ParkReason.REJECTED)
            if failure is Failure.UNAVAILABLE:
                if self._is_bad_message(send, health, classification):
                    return Refused(last_cause(send), False, False, failure)
                if is_unanswered:
                    send.reason = ParkReason.UNANSWERED
                breaker.failed(began, now, is_unanswered=is_unanswered, is_probe=is_probe)
                self._attempt_failed(send, health, classification.why, now)
                self._emit(send.path, health.send_failed(now), now, classification.why)
                return now
            if failure is not Failure.BUSY:
                if self._is_redirected(failure, health):
                    return now
                return Refused(last_cause(send), False, False, failure)
            send.busy_until = now + pause
            breaker.patience.answered(now - began, now)
            is_aside = self._key_failed(send, health, classification.why, now)
            if is_probe or is_aside or is_last_resort or send.busy_until > send.busy_limit:
                return now
            busy += 1
            now = (yield Pause(send.busy_until)).now
            if health.state is EntityState.FAILED_OVER:
                return now

    def _try_until_raised(
        self, send: SendState, health: EntityHealth, now: float, first: Result | None
    ) -> Generator[Step, Result, Stored | Refused | float]:
        """Try the primary as the articles on paired namespaces require: retry within the interval, then raise.

        Returns the current time if the entity fails over meanwhile, and the message must be parked.
        """
        is_fresh = has_waited = False
        retries, busy, began = Retries(self._retry, self._rng), 0, now
        while True:
            attempt = self._attempt(send, health, now, is_fresh=is_fresh, is_last=has_waited)
            result = first or (yield attempt)
            began = now if first is None else began
            first, now, classification = None, result.now, result.classification
            if classification is None:
                self._accepted(send, health, now, now - began, result.opening)
                return Stored(None, send.is_ambiguous)
            send.failed(result, classification)
            has_failed_over = health.state is EntityState.FAILED_OVER
            if classification.is_own:
                # no evidence about the primary; decide again by the entity's state
                has_waited = True
                if has_failed_over:
                    return now
                if now < send.deadline:
                    if classification.is_shortage:  # it failed at once
                        now = (yield Pause(min(now + SHORTAGE_PAUSE, send.deadline))).now
                    continue
                return Refused(last_cause(send), False, False, classification.failure)
            if may_be_stale(result, classification, send, now) and not is_fresh and not has_failed_over:
                is_fresh = True  # the death of an idle link is no evidence about the entity
                continue
            is_fresh = False
            failure = classification.failure
            pause = busy_pause(self._rng, busy, classification.retry_after)
            if failure is Failure.BUSY and health.busy_counts(now, pause, is_first=busy == 0):
                failure = Failure.UNAVAILABLE
            again = None
            if failure is Failure.UNAVAILABLE:
                if self._is_bad_message(send, health, classification):
                    return Refused(last_cause(send), False, False, failure)
                self._attempt_failed(send, health, classification.why, now)
                again = self._retry_at(retries, send, health, now)
                if again is None:  # it counts as a failure of the send only after the last retry
                    self._emit(send.path, health.send_failed(now), now, classification.why)
            elif failure is Failure.BUSY:
                self._key_failed(send, health, classification.why, now)
                again = now + pause if now + pause < self._primary_until(send, health, now + pause) else None
                busy += 1
            if again is not None:
                now = (yield Pause(again)).now
                if health.state is EntityState.FAILED_OVER:
                    return now
                has_waited |= now >= self._primary_until(send, health, now)
                continue
            if self._is_redirected(failure, health):
                return now
            return Refused(last_cause(send), False, False, classification.failure)

    def _try_return(
        self, send: SendState, health: EntityHealth, now: float
    ) -> Generator[Step, Result, Stored | Refused | float]:
        """Try the primary as a trial of its return: one attempt, and another if only its idle link was dead.

        Returns the current time if the message must be parked.
        """
        is_fresh = False
        while True:
            result = yield self._attempt(send, health, now, is_fresh=is_fresh)
            began, now, classification = now, result.now, result.classification
            if classification is None:
                self._accepted(send, health, now, now - began, result.opening)
                return Stored(None, send.is_ambiguous)
            send.failed(result, classification)
            if is_fresh or classification.is_own or not may_be_stale(result, classification, send, now):
                break
            is_fresh = True
        failure = classification.failure
        if classification.is_own:
            return now
        if failure is Failure.CALLER:
            return Refused(last_cause(send), False, False, failure)
        if self._is_bad_message(send, health, classification):
            return Refused(last_cause(send), False, False, failure)
        if failure is Failure.UNAVAILABLE or (failure is Failure.BUSY and health.busy_counts(now)):
            self._attempt_failed(send, health, classification.why, now)
        else:  # for any reason: the other messages are parked too
            self._end_return(send, health, classification.why, now)
        return now

    def _accepted(
        self, send: SendState, health: EntityHealth, now: float, took: float, opening: float
    ) -> None:
        """Record that the primary accepted the message ``took`` seconds after the attempt began.

        ``opening`` seconds of them were spent on opening a link.
        """
        health.breaker.patience.answered(without_transfer(took - opening, send.size()), now)
        if self._pings.is_out_of_reach:
            self._ping_soon(self._pings.answered(), now)
        keys = self._keys.get(path_key(send.path))
        if keys is not None:
            keys.succeeded(send.key(), now, is_first=not send.has_failed)
            health.has_failing_keys = len(keys) > 0
        counted = without_transfer(took, send.size()) if health.is_slow(took) else took
        self._emit(send.path, health.send_succeeded(now, counted), now)
        if health.is_slow(counted):
            self._events.append(PrimarySlow(now, send.path, took))

    def _attempt_failed(self, send: SendState, health: EntityHealth, why: str, now: float) -> None:
        """Record a failed attempt at the primary, for the entity and for the key of the message."""
        if health.state is EntityState.FAILED_OVER:
            self._end_return(send, health, why, now)
            return
        self._emit(send.path, health.attempt_failed(now), now, why)
        self._key_failed(send, health, why, now)

    def _is_bad_message(self, send: SendState, health: EntityHealth, classification: Classification) -> bool:
        """Whether the primary fails this message repeatedly but accepts others, which says nothing about the entity."""
        if not classification.is_of_message:
            return False
        send.is_rejected = True
        ids = send.message_ids()
        return all(ids) and health.is_bad_message(ids)

    def _key_failed(self, send: SendState, health: EntityHealth, why: str, now: float) -> bool:
        """Record a failure of the message's key, including *busy*; return whether the key is set aside."""
        key, keys = send.key(), self._keys.setdefault(path_key(send.path), FailingKeys())
        is_first, send.has_failed = not send.has_failed, True
        is_new = keys.failed(key, last_cause(send), now, is_first=is_first)
        if key is None:
            return False
        health.has_failing_keys, health.is_calm = True, False
        if is_new:
            self._events.append(KeySetAside(now, send.path, key, why))
        return keys.is_aside(key, now)

    def _end_return(self, send: SendState, health: EntityHealth, why: str, now: float) -> None:
        """Record that a trial failed: end the return, if one is in progress."""
        if health.returning_since is not None:
            health.attempt_failed(now)
            self._tell_return_ended(send.path, True, why, now)

    def _tell_return_ended(self, path: str, was_returning: bool, why: str, now: float) -> None:
        if was_returning and self._health(path).returning_since is None:
            self._events.append(ReturnAborted(now, path, why))

    def _attempt(
        self,
        send: SendState,
        health: EntityHealth,
        now: float,
        *,
        is_fresh: bool,
        is_over_idle: bool = False,
        is_last: bool = False,
    ) -> Attempt:
        """Return an attempt at the primary; with ``is_last``, no time is reserved for a backlog queue."""
        until = send.deadline if is_last else self._primary_until(send, health, now)
        transfer = transfer_seconds(send.size())
        if not self.redirects_suspects and health.state is not EntityState.FAILED_OVER:
            return Attempt(None, min(until, now + self._longest_raised + transfer), is_fresh)
        answered = min(until, now + health.breaker.seconds() + transfer)
        return Attempt(None, answered, is_fresh, min(until, now + self._attempt_timeout), is_over_idle)

    def _retry_at(self, retries: Retries, send: SendState, health: EntityHealth, now: float) -> float | None:
        if health.state is EntityState.FAILED_OVER:
            return None
        # otherwise it raises: use the time for a retry, or for the backlog if the entity fails over meanwhile
        return retries.next_at(now, send.deadline, send.deadline - reserve(send.budget))

    def _is_redirected(self, failure: Failure, health: EntityHealth) -> bool:
        if health.state is EntityState.FAILED_OVER and failure in _REDIRECTED:
            return True
        # In both cases below the entity does not fail over: the next message is sent to the primary.
        if failure is Failure.UNAVAILABLE:
            return self.redirects_suspects
        return failure is Failure.FULL and self._spills_on_quota

    def fast_path(self, path: str, budget: float) -> tuple[EntityHealth, float]:
        """Return the health of the entity, and the time limit of a first attempt in seconds.

        While the health is calm, a flow would begin with an attempt at the primary, and its success would change
        nothing. The caller may therefore make that attempt itself, and start a flow only if it fails.
        """
        is_kept = self.redirects_suspects or self._failover_interval < budget
        seconds = budget - (reserve(budget) if is_kept else 0.0)
        return self._health(path), seconds if self.redirects_suspects else min(seconds, self._longest_raised)

    def _primary_until(self, send: SendState, health: EntityHealth, now: float) -> float:
        """Return the time limit of an attempt at the primary; it reserves time for the backlog if needed."""
        if not self.redirects_suspects and health.earliest_failover(now) >= send.deadline:
            return send.deadline
        return max(now, send.deadline - reserve(send.budget))

    # -- internals

    def _health(self, path: str) -> EntityHealth:
        # entities fail over independently.
        key = path_key(path)
        health = self._entities.get(key)
        if health is None:
            health = EntityHealth(
                self._failover_interval,
                self._ping_interval,
                self._first_ping_delay,
                self._busy_limit,
                self._policy,
                self._ping_spread,
                self._attempt_timeout,
                partial(self._timers.set, key),
            )
            self._paths[key] = path
            self._entities[key] = health
        return health

    def _first_ping_delay(self) -> float:
        return self._rng.uniform(0.0, self._max_first_ping_delay)

    def _ping_spread(self) -> float:
        return self._rng.uniform(1.0 - PING_SPREAD, 1.0 + PING_SPREAD)

    def _emit(self, path: str, transitions: list[Transition], now: float, why: str = "") -> None:
        for transition in transitions:
            event, key = _EVENT_OF[transition.after], path_key(path)
            if transition.after is not EntityState.HEALTHY:
                self._ailing.add(key)
            elif key in self._ailing:
                self._ailing.discard(key)
                if not self._ailing:
                    self.room.outage_ended()
            if (transition.before, transition.after) == (EntityState.SUSPECT, EntityState.HEALTHY):
                why = why or f"{transition.cause.value}, before it had failed over"
            self._events.append(event(now, path, why or transition.cause.value))


_EVENT_OF: dict[EntityState, type[EntitySuspected | EntityFailedOver | EntityRecovered]] = {
    EntityState.SUSPECT: EntitySuspected,
    EntityState.FAILED_OVER: EntityFailedOver,
    EntityState.HEALTHY: EntityRecovered,
}
_REASON = {Failure.BUSY: ParkReason.BUSY}
_REDIRECTED = frozenset({Failure.UNAVAILABLE, Failure.BUSY})  # all others are raised even when failed over


def _cause_of(error: BaseException) -> Exception | None:
    return error.__cause__ if isinstance(error.__cause__, Exception) else None


def _waiting(patience: Patience, attempt: Attempt, now: float) -> Generator[Step, Result, Result]:
    """Make an attempt that counts as waiting for its answer, but not while the message is transferred."""
    waiting = Waiting(patience, max(now, attempt.until - patience.seconds))
    try:
        return (yield attempt._replace(waiting=waiting))
    finally:
        waiting.pause()


def primary_flow(
    now: float, deadline: float, rng: Random, first: Result | None = None, retry: RetryPolicy = NO_RETRIES
) -> SendFlow:
    """Return the flow of an operation that only the primary offers: it never parks, nor affects the entity's health.

    ``first`` is the result of an attempt that was already made.
    """
    is_fresh, retries = False, Retries(retry, rng)
    send = SendState("", 0, tuple, tuple, Choice(), deadline, deadline - now, now)
    while True:
        result = first or (yield Attempt(None, deadline, is_fresh))
        first, classification = None, result.classification
        if classification is None:
            return Stored(None, send.is_ambiguous)
        send.failed(result, classification)
        if not is_fresh and may_be_stale(result, classification, send, result.now):
            is_fresh = True
            continue
        may_retry = classification.failure is Failure.UNAVAILABLE
        again = retries.next_at(result.now, deadline) if may_retry else None
        if again is None:
            return Refused(last_cause(send), False, classification.is_too_large, classification.failure)
        is_fresh = False
        yield Pause(again)
