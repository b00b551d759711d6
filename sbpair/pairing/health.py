"""Health of a primary entity: when it fails over and when it comes home.

            failure                interval elapsed
  HEALTHY -----------> SUSPECT ----------------------> FAILED_OVER
     ^  <-----------      |                                 |
     |     success                                          |
     '--------- ping accepted, or marked healthy -----------'

What is sent once it is home overtakes what still waits in a backlog (G-8).

By hand, ``fail_over`` leads from any state to FAILED_OVER and ``mark_path_healthy`` from any to HEALTHY.
A hand can also hold an entity in FAILED_OVER: then it is not pinged, until it is released.

A ping can succeed where sends fail: one partition is down, and pings go elsewhere (F-51). So an entity that
fails again within a minute of coming home has *relapsed*. The first ping after a relapse is not sent at once
but after a ping interval, after twice that at the next one, and so on up to five minutes.

Pure: the caller reports what happened and when, and asks when to call back. classify.py decides which errors
are failures. A busy service counts as one only where a limit is set, after being busy for that long without a
success.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class EntityState(Enum):
    """How the senders of a pairing see one primary entity (P-6)."""

    HEALTHY = "healthy"  # P-2: sends go to the primary, as if we were not here
    SUSPECT = "suspect"  # P-3: they still do, and the interval is running
    FAILED_OVER = "failed over"  # P-4: they go to a backlog; pings seek the primary


class Input(Enum):
    """What can happen to an entity."""

    SUCCESS = "a send to the primary succeeded"
    FAILURE = "a send to the primary failed in a way that counts"  # see classify.py
    ELAPSED = "the failover interval passed"
    PING_ACCEPTED = "a ping was accepted"
    FAILED_BY_HAND = "fail_over was called"
    MARKED_HEALTHY = "mark_path_healthy was called"


CALM = 60.0  # seconds at home after which a failure is no relapse
LONGEST_HOLD = 300.0  # seconds: the most that a first ping is put off, if the ping interval is not longer

_H, _S, _F = EntityState.HEALTHY, EntityState.SUSPECT, EntityState.FAILED_OVER

TRANSITIONS: dict[tuple[EntityState, Input], EntityState] = {
    (_H, Input.FAILURE): _S,  # P-3
    (_S, Input.SUCCESS): _H,  # P-3
    (_S, Input.ELAPSED): _F,  # P-4
    (_F, Input.PING_ACCEPTED): _H,  # P-6, P-33
    (_H, Input.FAILED_BY_HAND): _F,
    (_S, Input.FAILED_BY_HAND): _F,
    (_S, Input.MARKED_HEALTHY): _H,
    (_F, Input.MARKED_HEALTHY): _H,
}
# A pair that is not listed changes nothing. Two of the absences are decisions:
#   SUSPECT + FAILURE: a second failure does not restart the interval.
#   FAILED_OVER + SUCCESS: a send that was under way may still land after the failover; only a ping
#   (or a hand) brings the entity home.


@dataclass(frozen=True, slots=True)
class Transition:
    """An entity went from one state to another, because of this."""

    before: EntityState
    after: EntityState
    cause: Input


class EntityHealth:
    """The health of one primary entity, shared by all its senders (P-6).

    Intervals and instants are seconds of a monotonic clock; ``jitter`` says how long after a failover
    the first ping waits.
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
        """Whether a success would change nothing: healthy, and not busy. Every send looks at it."""
        self._busy_limit = busy_limit
        self._busy_since: float | None = None  # the first such answer that no success has followed
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self._jitter = jitter
        self._timer: float | None = None  # one per state: the interval's end, or the next ping
        self._home_since = -math.inf  # when a ping last brought it home
        self._failing_since = 0.0  # when it was last suspected
        self._relapses = 0  # in a row
        self._is_held = False

    def send_succeeded(self, now: float) -> list[Transition]:
        if self.is_calm:
            return []
        passed = self._feed(Input.SUCCESS, now)
        self._busy_since = None
        self.is_calm = self.state is EntityState.HEALTHY
        return passed

    def send_failed(self, now: float) -> list[Transition]:
        passed = self._feed(Input.FAILURE, now)
        if self._failover_interval == 0:  # fail over now, so that this very message can be redirected
            passed += self._feed(Input.ELAPSED, now)
        return passed

    def busy_counts(self, now: float) -> bool:
        """The service said that it is busy; whether it has done so for long enough to be a failure (F-40)."""
        if self._busy_limit is None:
            return False
        if self._busy_since is None:
            self._busy_since = now
            self.is_calm = False
        return now - self._busy_since >= self._busy_limit

    def ping_accepted(self, now: float) -> list[Transition]:
        return [] if self._is_held else self._feed(Input.PING_ACCEPTED, now)

    def fail_over(self, now: float) -> list[Transition]:
        self._forget_relapses()
        return self._feed(Input.FAILED_BY_HAND, now)

    def hold(self, now: float) -> list[Transition]:
        """Fail over, and stay so whatever a ping would say."""
        self._is_held = True
        passed = self.fail_over(now)
        self._timer = None  # nothing to find out: no pings, which are billed (P-34)
        return passed

    def release(self, now: float) -> None:
        """Let pings decide again."""
        if self._is_held:
            self._is_held = False
            self._timer = now + self._jitter()

    def mark_healthy(self, now: float) -> list[Transition]:
        self._is_held = False
        self._forget_relapses()
        return self._feed(Input.MARKED_HEALTHY, now)

    def earliest_failover(self, now: float) -> float:
        """The soonest instant at which this entity can have failed over; ``now`` when it has."""
        if self.state is EntityState.FAILED_OVER:
            return now
        if self._timer is not None:
            return self._timer
        return now + self._failover_interval

    def next_timer(self) -> float | None:
        """When :meth:`handle_timer` wants to be called; None for never.

        It is set while the entity is SUSPECT (G-12) or FAILED_OVER (G-13), and only then.
        """
        return self._timer

    def handle_timer(self, now: float) -> tuple[list[Transition], bool]:
        """Let time pass up to ``now``; what changed, and whether a ping is due."""
        if self._timer is None or now < self._timer:
            return [], False
        if self.state is EntityState.SUSPECT:
            return self._feed(Input.ELAPSED, now), False
        self._timer = now + self._ping_interval  # P-32
        return [], True

    def _feed(self, what: Input, now: float) -> list[Transition]:
        before = self.state
        after = TRANSITIONS.get((before, what), before)
        if after is before:
            return []
        self.state = after
        self.is_calm = after is EntityState.HEALTHY
        if after is EntityState.HEALTHY:
            self._timer = self._busy_since = None
            self._home_since = now if what is Input.PING_ACCEPTED else self._home_since
        elif after is EntityState.SUSPECT:
            self._timer, self._failing_since = now + self._failover_interval, now
        else:
            self._timer = now + self._first_ping_delay() + self._jitter()
        return [Transition(before, after, what)]

    def _first_ping_delay(self) -> float:
        """0.0 as a rule; after a relapse, a ping that succeeds need not mean that sends will (F-51)."""
        if self._failing_since - self._home_since > CALM:
            self._relapses = 0
            return 0.0
        self._relapses += 1
        longest = max(LONGEST_HOLD, self._ping_interval)
        return min(self._ping_interval * 2.0 ** min(self._relapses - 1, 16), longest)

    def _forget_relapses(self) -> None:
        """An operator's decision overrides the history."""
        self._home_since, self._relapses = -math.inf, 0
