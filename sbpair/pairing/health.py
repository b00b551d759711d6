"""Health of a primary entity: the state machine of failover and recovery.

            failure                interval elapsed
  HEALTHY -----------> SUSPECT ----------------------> FAILED_OVER
     ^  <-----------      |                                 |
     |     success                                          |
     '--------- ping accepted, or marked healthy -----------'

Messages sent after the recovery overtake those that still wait in a backlog (G-8).

An operator can move an entity from any state to FAILED_OVER (``fail_over``) or to HEALTHY (``mark_path_healthy``),
and hold it in FAILED_OVER, where it is not pinged until it is released.

A ping can succeed while sends fail, for example when one partition is down and pings reach another (F-51). An
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


class EntityState(Enum):
    """How the senders of a pairing see one primary entity (P-6)."""

    HEALTHY = "healthy"  # P-2: sends go to the primary
    SUSPECT = "suspect"  # P-3: sends still go to the primary, and the failover interval runs
    FAILED_OVER = "failed over"  # P-4: sends are parked, and pings test the primary


class Input(Enum):
    """The inputs of the state machine."""

    SUCCESS = "a send to the primary succeeded"
    FAILURE = "a send to the primary failed in a way that counts"  # see classify.py
    ELAPSED = "the failover interval passed"
    PING_ACCEPTED = "a ping was accepted"
    FORCED = "fail_over was called"
    MARKED_HEALTHY = "mark_path_healthy was called"


CALM = 60.0  # seconds after a recovery within which a failure is a relapse
MAX_HOLD_SECONDS = 300.0  # maximum delay in seconds of the first ping, unless the ping interval is longer

_H, _S, _F = EntityState.HEALTHY, EntityState.SUSPECT, EntityState.FAILED_OVER

TRANSITIONS: dict[tuple[EntityState, Input], EntityState] = {
    (_H, Input.FAILURE): _S,  # P-3
    (_S, Input.SUCCESS): _H,  # P-3
    (_S, Input.ELAPSED): _F,  # P-4
    (_F, Input.PING_ACCEPTED): _H,  # P-6, P-33
    (_H, Input.FORCED): _F,
    (_S, Input.FORCED): _F,
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


class EntityHealth:
    """The health of one primary entity, shared by all its senders (P-6).

    Times and intervals are seconds of a monotonic clock. ``jitter`` returns the delay of the first ping after a
    failover. ``busy_limit`` is the time after which a busy service counts as unavailable, None for never.
    """

    def __init__(
        self,
        failover_interval: float,
        ping_interval: float,
        jitter: Callable[[], float],
        busy_limit: float | None = None,
    ) -> None:
        self.state = EntityState.HEALTHY
        self.is_calm = True
        """Whether a success would change nothing: the entity is healthy and not busy. Read by every send."""
        self._busy_limit = busy_limit
        self._busy_since: float | None = None  # the first busy response since the last success
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self._jitter = jitter
        self._timer: float | None = None  # the end of the failover interval, or the next ping
        self._recovered_at = -math.inf  # by a ping
        self._suspected_at = 0.0
        self._relapses = 0  # consecutive
        self._is_held = False

    def send_succeeded(self, now: float) -> list[Transition]:
        """Record a send that the primary accepted."""
        if self.is_calm:
            return []
        transitions = self._feed(Input.SUCCESS, now)
        self._busy_since = None
        self.is_calm = self.state is EntityState.HEALTHY
        return transitions

    def send_failed(self, now: float) -> list[Transition]:
        """Record a send that failed because the primary is unavailable."""
        transitions = self._feed(Input.FAILURE, now)
        if self._failover_interval == 0:  # fail over at once, so that this message can be redirected
            transitions += self._feed(Input.ELAPSED, now)
        return transitions

    def busy_counts(self, now: float) -> bool:
        """Record a busy response; return whether it counts as a failure because the limit is reached (F-40)."""
        if self._busy_limit is None:
            return False
        if self._busy_since is None:
            self._busy_since = now
            self.is_calm = False
        return now - self._busy_since >= self._busy_limit

    def ping_accepted(self, now: float) -> list[Transition]:
        """Record a ping that the primary accepted; ignored while the entity is held."""
        return [] if self._is_held else self._feed(Input.PING_ACCEPTED, now)

    def fail_over(self, now: float) -> list[Transition]:
        """Fail over on request of an operator; pings end it."""
        self._forget_relapses()
        return self._feed(Input.FORCED, now)

    def hold(self, now: float) -> list[Transition]:
        """Fail over, and stay failed over without pings until :meth:`release` or :meth:`mark_healthy`."""
        self._is_held = True
        transitions = self.fail_over(now)
        self._timer = None  # pings are billed (P-34), and would change nothing
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
        if self._timer is not None:
            return self._timer
        return now + self._failover_interval

    def next_timer(self) -> float | None:
        """When to call :meth:`handle_timer` next; None for never.

        Set while the entity is SUSPECT (G-12), or FAILED_OVER and not held (G-13).
        """
        return self._timer

    def handle_timer(self, now: float) -> tuple[list[Transition], bool]:
        """Advance time to ``now``; return the state changes, and whether a ping is due."""
        if self._timer is None or now < self._timer:
            return [], False
        if self.state is EntityState.SUSPECT:
            return self._feed(Input.ELAPSED, now), False
        self._timer = now + self._ping_interval  # P-32
        return [], True

    def _feed(self, cause: Input, now: float) -> list[Transition]:
        before = self.state
        after = TRANSITIONS.get((before, cause), before)
        if after is before:
            return []
        self.state = after
        self.is_calm = after is EntityState.HEALTHY
        if after is EntityState.HEALTHY:
            self._timer = self._busy_since = None
            self._recovered_at = now if cause is Input.PING_ACCEPTED else self._recovered_at
        elif after is EntityState.SUSPECT:
            self._timer, self._suspected_at = now + self._failover_interval, now
        else:
            self._timer = now + self._first_ping_delay() + self._jitter()
        return [Transition(before, after, cause)]

    def _first_ping_delay(self) -> float:
        """0.0, or after a relapse a delay that doubles each time (F-51)."""
        if self._suspected_at - self._recovered_at > CALM:
            self._relapses = 0
            return 0.0
        self._relapses += 1
        longest = max(MAX_HOLD_SECONDS, self._ping_interval)
        return min(self._ping_interval * 2.0 ** min(self._relapses - 1, 16), longest)

    def _forget_relapses(self) -> None:
        """An operator's decision overrides the history."""
        self._recovered_at, self._relapses = -math.inf, 0
