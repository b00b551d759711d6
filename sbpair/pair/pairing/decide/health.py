"""Health of a primary entity: the state machine of failover and recovery.

            failure, or share            interval elapsed, or share
  HEALTHY ---------------------> SUSPECT --------------------------> FAILED_OVER
     ^  <---------------------      |                                 |
     |     success, trouble over                                      |
     '------- ping accepted, trial passed, or marked healthy ---------'

Every attempt at the primary is counted (attempts.py). An entity also becomes suspect, and fails over after a whole
interval of trouble, when the share of failed attempts reaches ``failover_share``. A success ends the
suspicion unless five or more attempts failed in the interval; then most of the last attempts must succeed.

After an outage without a success one accepted ping ends the failover. After a failover by share, or a relapse,
two accepted pings in a row begin a *trial*: the entity stays FAILED_OVER, and a growing part of the sends goes to the
primary. A failed trial ends it; after ``return_over`` without one the entity is healthy.

Messages sent after the recovery overtake those that still wait in a backlog.

An operator can move an entity from any state to FAILED_OVER (``fail_over``) or to HEALTHY (``mark_path_healthy``),
and hold it in FAILED_OVER, where it is not pinged until it is released.

A ping can succeed while sends fail, for example when one partition is down and pings reach another. An
entity that fails again within a minute of its recovery has *relapsed*: its first ping is delayed by one ping
interval, and by twice the previous delay after each further relapse, up to five minutes.

The module performs no I/O and reads no clock: the caller passes the current time and asks when to call back.
classify.py decides which errors are failures. A busy service counts as unavailable only with a ``busy_limit``, once
it has been busy for that long without a success.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .attempts import RecentAttempts
from .primary_breaker import PrimaryBreaker


class EntityState(Enum):
    """How the senders of a pairing see one primary entity."""

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
BYTES_PER_SECOND = 64 * 1024  # a slow but sound connection; a larger message may take longer by so much
FIRST_TRIAL_SHARE = 0.05  # of the sends, at the begin of a return
PINGS_BEFORE_TRIAL = 2
CALM = 60.0  # seconds after a recovery within which a failure is a relapse
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


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of an entity's state."""

    before: EntityState
    after: EntityState
    cause: Input


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """How the share of failed attempts is judged, and how an entity returns; times in seconds.

    ``failover_share`` from above 0 to 1, where 1 judges by the interval alone. ``slow_after`` is the time after which
    an accepted attempt counts as failed for the share. ``return_over`` is the length of a return by trial, 0 for
    none; ``returns_always`` has every failover end by one, not only those by share and relapses.
    """

    failover_share: float = 0.5
    slow_after: float = 10.0
    return_over: float = DEFAULT_RETURN_SECONDS
    returns_always: bool = False


def without_transfer(took: float, size: int) -> float:
    """The seconds of an attempt less those that ``size`` bytes may take on a slow connection."""
    return max(0.0, took - transfer_seconds(size))


def transfer_seconds(size: int) -> float:
    """The seconds that this many bytes may take on a slow connection."""
    return size / BYTES_PER_SECOND


class EntityHealth:
    """The health of one primary entity, shared by all its senders.

    Times and intervals are seconds of a monotonic clock. ``jitter`` returns the delay of the first ping after a
    failover, and ``spread`` the factor of each ping interval. ``busy_limit`` is the time after which a busy
    service counts as unavailable, None for never. ``longest`` is the longest patience with one attempt.
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
    ) -> None:
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
        self._timer: float | None = None  # the next judgement, or the next ping
        self._recovered_at = -math.inf  # by a ping
        self._suspected_at = 0.0
        self._unanswered_since: float | None = None  # the first failure since a success, while suspect
        self._relapses = 0  # consecutive
        self._is_held = False
        self._needs_trial = False
        self._pings_accepted = 0  # in a row

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
        if self.state is EntityState.SUSPECT and (self._by_interval or self._attempts.is_over(now)):
            transitions = self._feed(Input.SUCCESS, now)
        self._update_calm(now)
        return transitions

    def is_slow(self, took: float) -> bool:
        """Whether an attempt of this many seconds counts as failed for the share."""
        return took >= self._policy.slow_after

    def failed_share(self, now: float) -> float:
        """The share of the attempts that failed within the interval, 0.0 unless enough did to judge."""
        return self._attempts.failed_share(now)

    def attempt_failed(self, now: float) -> list[Transition]:
        """Record a failed attempt, which may be tried again."""
        if self.state is EntityState.FAILED_OVER:
            return self._trial_failed(now)
        self._attempts.failed(now)
        self.is_calm = False
        if self.state is EntityState.SUSPECT and self._unanswered_since is None:
            self._unanswered_since = now
        return self._judge_share(now)

    def send_failed(self, now: float) -> list[Transition]:
        """Record a send that failed because the primary is unavailable; its attempts were recorded before."""
        transitions = self._feed(Input.FAILURE, now)
        if self._failover_interval == 0:  # fail over at once, so that this message can be redirected
            transitions += self._feed(Input.ELAPSED, now)
        return transitions

    def busy_counts(self, now: float, pause: float = 0.0, *, is_first: bool = True) -> bool:
        """Record a busy response, at the first attempt of a send or later, which asks for a pause in seconds.

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
        """Whether a send goes to the primary as a trial; ``draw`` is its number from 0 to 1."""
        if self.returning_since is None or self.state is not EntityState.FAILED_OVER:
            return False
        progress = (now - self.returning_since) / self._policy.return_over
        return draw < FIRST_TRIAL_SHARE + (1 - FIRST_TRIAL_SHARE) * progress

    def fail_over(self, now: float, cause: Input = Input.FORCED) -> list[Transition]:
        """Fail over on request of an operator; pings end it."""
        self._forget_relapses()
        transitions = self._feed(cause, now)
        self._needs_trial = self._policy.returns_always and self._policy.return_over > 0
        return transitions

    def hold(self, now: float) -> list[Transition]:
        """Fail over, and stay failed over without pings until :meth:`release` or :meth:`mark_healthy`."""
        self._is_held = True
        transitions = self.fail_over(now, Input.HELD)
        self.returning_since = None
        self._timer = None  # pings are billed, and would change nothing
        return transitions

    def release(self, now: float) -> None:
        """End a hold: resume pinging."""
        if self._is_held:
            self._is_held = False
            self._timer = now + self._jitter()

    def mark_healthy(self, now: float) -> list[Transition]:
        """Return to HEALTHY on request of an operator; ends a hold."""
        self._is_held = False
        self._forget_relapses()
        return self._feed(Input.MARKED_HEALTHY, now)

    def earliest_failover(self, now: float) -> float:
        """The earliest time at which this entity can be failed over; ``now`` if it is."""
        if self.state is EntityState.FAILED_OVER:
            return now
        since = self._unanswered_since
        if not self._by_interval and self._attempts.bad_since is not None:
            since = self._attempts.bad_since if since is None else min(since, self._attempts.bad_since)
        return max(now, (now if since is None else since) + self._failover_interval)

    def next_timer(self) -> float | None:
        """When to call :meth:`handle_timer` next; None for never.

        Set while the entity is SUSPECT, or FAILED_OVER and not held.
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
        self._timer = now + self._ping_interval * self._spread()
        return [], True

    @property
    def _by_interval(self) -> bool:
        """Whether the articles hold to the letter: only an interval without a success fails over."""
        return self._policy.failover_share >= 1.0

    def _judge(self, now: float) -> list[Transition]:
        """What the timer decides about a suspect."""
        since = self._unanswered_since
        if since is not None and now >= since + self._failover_interval:
            return self._feed(Input.ELAPSED, now)
        transitions = self._judge_share(now)
        if transitions:
            return transitions
        if since is None and self._attempts.is_over(now):
            return self._feed(Input.TROUBLE_OVER, now)
        due = self._attempts.next_judgement(now)
        self._timer = due if since is None else min(due, since + self._failover_interval)
        return []

    def _judge_share(self, now: float) -> list[Transition]:
        """Suspect, or after a whole interval of trouble fail over, by the share of failed attempts."""
        share = self._policy.failover_share
        if self._by_interval or not self._attempts.is_bad(share, now) or self._attempts.is_over(now):
            return []
        if self.state is EntityState.HEALTHY:
            return self._feed(Input.SHARE, now)
        since = self._attempts.bad_since
        if self.state is EntityState.SUSPECT and since is not None and now >= since + self._failover_interval:
            return self._feed(Input.SHARE if self._attempts.has_success(now) else Input.ELAPSED, now)
        return []

    def _trial_failed(self, now: float) -> list[Transition]:
        """A trial failed: pings begin anew."""
        self._pings_accepted = 0
        if self.returning_since is not None:
            self.returning_since = None
            self._timer = now + self._ping_interval * self._spread()
        return []

    def _update_calm(self, now: float) -> None:
        is_clean = self._busy.failing_since is None and self.breaker.is_clean(now)
        is_clean &= self._by_interval or self._attempts.is_clean(now)
        self.is_calm = self.state is EntityState.HEALTHY and is_clean and not self.has_failing_keys

    def _feed(self, cause: Input, now: float) -> list[Transition]:
        before = self.state
        after = TRANSITIONS.get((before, cause), before)
        if after is before:
            return []
        self.state = after
        _ENTER[after](self, cause, now)
        return [Transition(before, after, cause)]

    def _enter_healthy(self, cause: Input, now: float) -> None:
        self._timer = self.returning_since = self._unanswered_since = None
        if cause in (Input.PING_ACCEPTED, Input.TRIAL_PASSED):
            self._recovered_at = now
        if cause is Input.MARKED_HEALTHY:  # otherwise trouble that comes again does not start from nothing
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
        self.is_calm = False
        self._pings_accepted, self.returning_since = 0, None
        delay = self._first_ping_delay()
        self._needs_trial = self._policy.return_over > 0 and (
            self._policy.returns_always or cause is Input.SHARE or delay > 0
        )
        self._timer = now + delay + self._jitter()

    def _first_ping_delay(self) -> float:
        """0.0, or after a relapse a delay that doubles each time."""
        if self._suspected_at - self._recovered_at > CALM:
            self._relapses = 0
            return 0.0
        self._relapses += 1
        longest = max(MAX_HOLD_SECONDS, self._ping_interval)
        return min(self._ping_interval * 2.0 ** min(self._relapses - 1, 16), longest)

    def _forget_relapses(self) -> None:
        """An operator's decision overrides the history."""
        self._recovered_at, self._relapses = -math.inf, 0


_ENTER: dict[EntityState, Callable[[EntityHealth, Input, float], None]] = {
    EntityState.HEALTHY: EntityHealth._enter_healthy,
    EntityState.SUSPECT: EntityHealth._enter_suspect,
    EntityState.FAILED_OVER: EntityHealth._enter_failed_over,
}
