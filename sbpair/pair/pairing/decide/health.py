"""Health of a primary entity: the state machine of failover and recovery.

            failure, or share            interval elapsed, or share
  HEALTHY ---------------------> SUSPECT --------------------------> FAILED_OVER
     ^  <---------------------      |                                 |
     |     success, trouble over                                      |
     '------- ping accepted, trial passed, or marked healthy ---------'

Every attempt at the primary is counted (attempts.py). An entity also becomes suspect, and fails over after a whole
interval of trouble, when the share of failed attempts reaches ``failover_share``. A success ends the suspicion, except
when five or more attempts failed in the interval: then most of the last attempts must succeed.

After an outage without a success one accepted ping ends the failover. After a failover by share, or a relapse, two
accepted pings in a row begin a *trial*: the entity stays FAILED_OVER, and a growing part of the sends goes to the
primary. If one of these sends fails, the trial ends and pings start again; if none fails during ``return_over``, the
entity is healthy.

Messages sent after the recovery overtake those that still wait in a backlog.

An operator can move an entity from any state to FAILED_OVER (``fail_over``) or to HEALTHY (``mark_path_healthy``), and
hold it in FAILED_OVER, where it is not pinged until it is released.

A ping can succeed while sends fail, for example when one partition is down and pings reach another. An entity that
fails again within a minute of its recovery has *relapsed*: its first ping is delayed by one ping interval. The delay
doubles with each further relapse, up to five minutes.

The module performs no I/O and reads no clock: the caller passes the current time and asks when to call back.
classify.py decides which errors are failures. A busy service counts as unavailable only with a ``busy_limit``, once it
has been busy for that long without a success.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from .attempts import MIN_FAILURES, RecentAttempts
from .primary_breaker import PrimaryBreaker


class EntityState(Enum):
    """The state of one primary entity, as the senders of a pairing see it."""

    HEALTHY = "healthy"  # sends go to the primary
    SUSPECT = "suspect"  # sends still go to the primary, and the failover interval runs
    FAILED_OVER = "failed over"  # sends are parked, and pings test the primary


class Input(Enum):
    """The inputs of the state machine."""

    SUCCESS = "a send to the primary succeeded"
    FAILURE = "a send to the primary failed in a way that counts"  # see classify.py
    SHARE = "too large a share of the attempts at the primary failed"
    ELAPSED = "the failover interval passed"
    TROUBLE_OVER = "nearly all of the last attempts succeeded"
    PING_ACCEPTED = "a ping was accepted"
    TRIAL_PASSED = "all trials of the return succeeded"
    FORCED = "fail_over was called"
    HELD = "hold was called"
    MARKED_HEALTHY = "mark_path_healthy was called"


DEFAULT_RETURN_SECONDS = 30.0
DEFAULT_LONGEST_ATTEMPT = 4.0
FEW_FAILURES = MIN_FAILURES - 1  # after which a success ends the suspicion
FIRST_TRIAL_SHARE = 0.05  # of the sends, at the begin of a return
PINGS_BEFORE_TRIAL = 2
CALM = 60.0  # seconds after a recovery within which a failure is a relapse
MAX_RAISED = 64
MAX_HOLD_SECONDS = 300.0  # maximum delay in seconds of the first ping, unless the ping interval is longer

_H, _S, _F = EntityState.HEALTHY, EntityState.SUSPECT, EntityState.FAILED_OVER

TRANSITIONS: dict[tuple[EntityState, Input], EntityState] = {
    (_H, Input.FAILURE): _S,
    (_H, Input.SHARE): _S,
    (_S, Input.SUCCESS): _H,
    (_S, Input.TROUBLE_OVER): _H,
    (_S, Input.ELAPSED): _F,
    (_S, Input.SHARE): _F,
    (_F, Input.PING_ACCEPTED): _H,
    (_F, Input.TRIAL_PASSED): _H,
    (_H, Input.FORCED): _F,
    (_S, Input.FORCED): _F,
    (_H, Input.HELD): _F,
    (_S, Input.HELD): _F,
    (_S, Input.MARKED_HEALTHY): _H,
    (_F, Input.MARKED_HEALTHY): _H,
}
# Pairs not listed change nothing. Two absences are deliberate:
#   SUSPECT + FAILURE: a second failure does not restart the interval.
#   FAILED_OVER + SUCCESS: a send started before the failover may still succeed; only a ping or an operator ends it.


class Transition(NamedTuple):
    """A change of an entity's state."""

    before: EntityState
    after: EntityState
    cause: Input


class EntityCondition(NamedTuple):
    """The degraded parts of one entity.

    ``failed_share``: the share of attempts that failed within the interval, 0.0 if too few failed to judge.
    ``is_returning``: the entity is failed over, and a growing part of its sends tries the primary. ``keys_aside``: the
    number of session ids and partition keys that are set aside.
    """

    state: EntityState
    is_returning: bool
    failed_share: float
    keys_aside: int


class HealthPolicy(NamedTuple):
    """The policy by which the share of failed attempts is judged, and an entity returns; times in seconds.

    ``failover_share`` is above 0 and at most 1; with 1, only the interval counts. An attempt that is accepted only
    after ``slow_after`` counts as failed for the share. ``return_over`` is the length of a return by trial, 0 for none.
    With ``returns_always``, every failover ends by a trial, not only one by share or after a relapse.
    """

    failover_share: float = 0.5
    slow_after: float = 10.0
    return_over: float = DEFAULT_RETURN_SECONDS
    returns_always: bool = False


class EntityHealth:
    """The health of one primary entity, shared by all its senders.

    Times and intervals are seconds of a monotonic clock. ``jitter`` returns the delay of the first ping after a
    failover, and ``spread`` a factor for each ping interval. ``moved`` is called with each change of
    :meth:`next_timer`. A service that has been busy for ``busy_limit`` counts as unavailable; None for never.
    ``longest`` is the longest time that one attempt waits for its answer.
    """

    def __init__(
        self,
        failover_interval: float,
        ping_interval: float,
        jitter: Callable[[], float],
        busy_limit: float | None = None,
        policy: HealthPolicy | None = None,
        spread: Callable[[], float] = lambda: 1.0,
        longest: float = DEFAULT_LONGEST_ATTEMPT,
        moved: Callable[[float | None], None] = lambda _: None,
    ) -> None:
        self._moved = moved
        self.state = EntityState.HEALTHY
        self.is_calm = True
        """Whether a success would change nothing: the entity is healthy, not busy, and no failure of it or of a
        key is remembered.

        Read by every send.
        """
        self.has_failing_keys = False
        """Whether keys of its messages failed a moment ago: their sends need the flow. Set by the pair."""
        self.returning_since: float | None = None
        """When the trial return began; None without one."""
        self._policy = policy or HealthPolicy()
        self._spread = spread
        self._attempts = RecentAttempts(failover_interval)
        self.breaker = PrimaryBreaker(self._attempts, longest)
        self._busy = RecentAttempts(busy_limit or 0.0)
        self._busy_limit = busy_limit
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self._jitter = jitter
        self._due: float | None = None
        self._recovered_at = -math.inf  # by a ping
        self._suspected_at = 0.0
        self._unanswered_since: float | None = None  # the first failure since a success, while suspect
        self._relapses = 0  # consecutive
        self._is_held = False
        self._needs_trial = False
        self._pings_accepted = 0  # in a row
        self._raised: dict[tuple[str, ...], float] = {}  # ids of rejected messages, and since when

    def send_succeeded(self, now: float, took: float = 0.0) -> list[Transition]:
        """Record an attempt that the primary accepted after ``took`` seconds."""
        if self.is_calm and took < self._policy.slow_after:
            return []
        self.breaker.accepted(now - took, now)
        self._busy.succeeded(now)
        if took >= self._policy.slow_after:
            self._attempts.slow(now, int(took // self._policy.slow_after))
            self._unanswered_since, self.is_calm = None, False
            return self._judge_share(now)
        self._attempts.succeeded(now)
        self._unanswered_since = None
        transitions: list[Transition] = []
        if self.state is EntityState.SUSPECT and (
            self._by_interval or self._attempts.is_over(now, FEW_FAILURES)
        ):
            transitions = self._feed(Input.SUCCESS, now)
        self._update_calm(now)
        return transitions

    def is_slow(self, took: float) -> bool:
        """Whether an attempt of this many seconds counts as failed for the share."""
        return took >= self._policy.slow_after

    def failed_share(self, now: float) -> float:
        """Return the share of attempts that failed within the interval; 0.0 if too few failed to judge."""
        return self._attempts.failed_share(now)

    def attempt_failed(self, now: float) -> list[Transition]:
        """Record a failed attempt, which may be retried."""
        if self.state is EntityState.FAILED_OVER:
            return self._trial_failed(now)
        self._attempts.failed(now)
        self.is_calm = False
        if self.state is EntityState.SUSPECT and self._unanswered_since is None:
            self._unanswered_since = now
        return self._judge_share(now)

    def is_bad_message(self, ids: tuple[str, ...]) -> bool:
        """Whether these messages failed before, were raised to their caller, and other messages were accepted since."""
        raised_at = self._raised.get(ids)
        return raised_at is not None and self._attempts.accepted_at > raised_at

    def raised(self, ids: tuple[str, ...], now: float) -> None:
        """Record messages that the primary rejected, and that were stored nowhere else."""
        self._raised.setdefault(ids, now)
        if len(self._raised) > MAX_RAISED:
            del self._raised[next(iter(self._raised))]

    def send_failed(self, now: float) -> list[Transition]:
        """Record a send that failed because the primary is unavailable; its attempts were recorded before."""
        transitions = self._feed(Input.FAILURE, now)
        if self._failover_interval == 0:  # fail over at once, so that this message can be redirected
            transitions += self._feed(Input.ELAPSED, now)
        return transitions

    def busy_counts(self, now: float, pause: float = 0.0, *, is_first: bool = True) -> bool:
        """Record a *busy* response, which asks for a ``pause`` in seconds, to the first or a later attempt of a send.

        Returns whether it counts as a failure because the limit is reached.
        """
        self.breaker.busy(now, pause, is_first=is_first)
        self.is_calm = False
        if self._busy_limit is None:
            return False
        self._busy.failed(now)
        since = self._busy.failing_since
        if not self._by_interval and self._busy.is_bad(self._policy.failover_share, now):
            since = self._busy.bad_since
        return since is not None and now - since >= self._busy_limit

    def ping_accepted(self, now: float) -> list[Transition]:
        """Record a ping that the primary accepted; ignored while the entity is held or returning."""
        if self._is_held or self.state is not EntityState.FAILED_OVER or self.returning_since is not None:
            return []
        if not self._needs_trial:
            return self._feed(Input.PING_ACCEPTED, now)
        self._pings_accepted += 1
        if self._pings_accepted >= PINGS_BEFORE_TRIAL:
            self.returning_since = now
            self._timer = now + self._policy.return_over
        return []

    def ping_failed(self) -> None:
        """Record a ping that was not accepted."""
        self._pings_accepted = 0

    def takes_trial(self, draw: float, now: float) -> bool:
        """Whether a send goes to the primary as a trial; ``draw`` is a random number of the send from 0 to 1."""
        if self.returning_since is None or self.state is not EntityState.FAILED_OVER:
            return False
        progress = (now - self.returning_since) / self._policy.return_over
        return draw < FIRST_TRIAL_SHARE + (1 - FIRST_TRIAL_SHARE) * progress

    def fail_over(self, now: float, cause: Input = Input.FORCED) -> list[Transition]:
        """Fail over on request of an operator; pings end it. A return in progress ends, and pinging starts again."""
        self._forget_relapses()
        self._end_return(now)
        transitions = self._feed(cause, now)
        self._needs_trial = self._policy.returns_always and self._policy.return_over > 0
        return transitions

    def hold(self, now: float) -> list[Transition]:
        """Fail over, and stay failed over without pings until :meth:`release` or :meth:`mark_healthy`."""
        transitions = self.fail_over(now, Input.HELD)
        self.returning_since = None
        self._is_held = True
        self._timer = None  # pings are billed, and would change nothing
        return transitions

    def release(self, now: float) -> None:
        """End a hold: resume pinging."""
        if self._is_held:
            self._timer = now + self._jitter()
            self._is_held = False

    def mark_healthy(self, now: float) -> list[Transition]:
        """Return to HEALTHY on request of an operator; ends a hold."""
        self._forget_relapses()
        transitions = self._feed(Input.MARKED_HEALTHY, now)
        self._is_held = False
        return transitions

    def earliest_failover(self, now: float) -> float:
        """Return the earliest time at which this entity can be failed over; ``now`` if it already is."""
        if self.state is EntityState.FAILED_OVER:
            return now
        since = self._unanswered_since
        if not self._by_interval and self._attempts.bad_since is not None:
            since = self._attempts.bad_since if since is None else min(since, self._attempts.bad_since)
        return max(now, (now if since is None else since) + self._failover_interval)

    def next_timer(self) -> float | None:
        """Return when to call :meth:`handle_timer` next; None for never.

        Not None while the entity is SUSPECT, or FAILED_OVER and not held.
        """
        return self._timer

    def handle_timer(self, now: float) -> tuple[list[Transition], bool]:
        """Advance time to ``now``; return the state changes, and whether a ping is due."""
        if self._timer is None or now < self._timer:
            return [], False
        if self.state is EntityState.SUSPECT:
            return self._judge(now), False
        if self.returning_since is not None:
            return self._feed(Input.TRIAL_PASSED, now), False
        if self.state is EntityState.HEALTHY:  # its transition was interrupted
            self._timer = None
            return [], False
        self._timer = now + self._ping_interval * self._spread()
        return [], True

    @property
    def _timer(self) -> float | None:
        """Return the time of the next judgement or ping."""
        return self._due

    @_timer.setter
    def _timer(self, at: float | None) -> None:
        self._moved(at)
        self._due = at

    def ping_by(self, at: float) -> None:
        """Ping at this time if the next ping is later; does nothing while the entity is held or returning."""
        is_waiting = self.state is EntityState.FAILED_OVER and self.returning_since is None
        if is_waiting and self._timer is not None and at < self._timer:
            self._timer = at

    @property
    def _by_interval(self) -> bool:
        """Whether only an interval without any success causes failover, as in the articles on paired namespaces."""
        return self._policy.failover_share >= 1.0

    def _judge(self, now: float) -> list[Transition]:
        """Decide about a suspect entity when its timer fires."""
        since = self._unanswered_since
        if since is not None and now >= since + self._failover_interval:
            return self._feed(Input.ELAPSED, now)
        transitions = self._judge_share(now)
        if transitions:
            return transitions
        if since is None and self._attempts.is_over(now, FEW_FAILURES):
            return self._feed(Input.TROUBLE_OVER, now)
        due = self._attempts.next_judgement(now)
        self._timer = due if since is None else min(due, since + self._failover_interval)
        return []

    def _judge_share(self, now: float) -> list[Transition]:
        """Become suspect by the share of failed attempts, or fail over after a whole interval of trouble."""
        share = self._policy.failover_share
        if (
            self._by_interval
            or not self._attempts.is_bad(share, now)
            or self._attempts.is_over(now, FEW_FAILURES)
        ):
            return []
        if self.state is EntityState.HEALTHY:
            return self._feed(Input.SHARE, now)
        since = self._attempts.bad_since
        if self.state is EntityState.SUSPECT and since is not None and now >= since + self._failover_interval:
            return self._feed(Input.SHARE if self._attempts.has_success(now) else Input.ELAPSED, now)
        return []

    def _trial_failed(self, now: float) -> list[Transition]:
        """Record a failed trial: pings start again."""
        self._end_return(now)
        return []

    def _end_return(self, now: float) -> None:
        self._pings_accepted = 0
        if self.returning_since is not None:
            self._timer = now + self._ping_interval * self._spread()
            self.returning_since = None

    def _update_calm(self, now: float) -> None:
        is_clean = self._busy.failing_since is None and self.breaker.is_clean(now)
        is_clean &= self._by_interval or self._attempts.is_clean(now)
        self.is_calm = self.state is EntityState.HEALTHY and is_clean and not self.has_failing_keys

    def _feed(self, cause: Input, now: float) -> list[Transition]:
        before = self.state
        after = TRANSITIONS.get((before, cause), before)
        if after is before:
            return []
        # A signal handler may raise between any two lines: a timer is set before the state that needs it, and removed
        # after that state.
        if after is EntityState.HEALTHY:
            self.state = after
            self._enter_healthy(cause, now)
        else:
            _ENTER[after](self, cause, now)
            self.state = after
        return [Transition(before, after, cause)]

    def _enter_healthy(self, cause: Input, now: float) -> None:
        self._timer = self.returning_since = self._unanswered_since = None
        if cause in (Input.PING_ACCEPTED, Input.TRIAL_PASSED):
            self._recovered_at = now
        if cause is Input.MARKED_HEALTHY:  # otherwise earlier failures still count if the trouble returns
            self._attempts.forget()
        if cause is not Input.SUCCESS:
            self._busy.forget()
            self.breaker.reset()
        self._update_calm(now)

    def _enter_suspect(self, cause: Input, now: float) -> None:
        self.is_calm = False
        self._suspected_at = now
        was_accepted = cause is Input.SHARE and self._attempts.failing_since is None  # slowly
        # from the first attempt that failed, when every one since has failed too
        self._unanswered_since = None if was_accepted else self._attempts.failing_since or now
        self._timer = (self._unanswered_since or now) + self._failover_interval

    def _enter_failed_over(self, cause: Input, now: float) -> None:
        self.is_calm = self._is_held = False
        self._pings_accepted, self.returning_since = 0, None
        delay = self._first_ping_delay()
        self._needs_trial = self._policy.return_over > 0 and (
            self._policy.returns_always or cause is Input.SHARE or delay > 0
        )
        self._timer = now + delay + self._jitter()

    def _first_ping_delay(self) -> float:
        """Return the delay of the first ping: 0.0, or after a relapse a delay that doubles each time."""
        if self._suspected_at - self._recovered_at > CALM:
            self._relapses = 0
            return 0.0
        self._relapses += 1
        longest = max(MAX_HOLD_SECONDS, self._ping_interval)
        return min(self._ping_interval * 2.0 ** min(self._relapses - 1, 16), longest)

    def _forget_relapses(self) -> None:
        """Forget earlier relapses, because an operator has decided."""
        self._recovered_at, self._relapses = -math.inf, 0


_ENTER: dict[EntityState, Callable[[EntityHealth, Input, float], None]] = {
    EntityState.SUSPECT: EntityHealth._enter_suspect,
    EntityState.FAILED_OVER: EntityHealth._enter_failed_over,
}
