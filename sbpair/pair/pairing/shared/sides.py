"""The two sides of a client: how answers and closings change their state, and the events of these changes.

The decisions are those of :mod:`..decide.pair_state`; the runtimes probe a side that refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from sbpair.pair.ground.side import Side

from ..decide.pair import Result
from ..decide.pair_state import PairState, SideChange, SideState
from ..errors import PairFaultedError
from ..events import PairFaulted, PairingEvent, SideClosed, SideFaulted, SideRecovered
from ..outcome import Failure

_EVENT: dict[SideState, type[SideClosed | SideFaulted | SideRecovered]] = {
    SideState.OPEN: SideRecovered,
    SideState.CLOSED: SideClosed,
    SideState.REFUSED: SideFaulted,
}


class Sides:
    """The two sides of one client.

    ``exclusive`` is the context in which the state may be used, ``publish`` dispatches pending events, and
    ``secondary_answered`` is called with the current time when the secondary shows that it can be reached.
    """

    def __init__(
        self,
        endpoints: tuple[str, str],
        exclusive: Callable[[], AbstractContextManager[object]],
        publish: Callable[[], None],
        secondary_answered: Callable[[float], object],
        *,
        faults_on_refusal: bool,
    ) -> None:
        self.state = PairState(faults_on_refusal=faults_on_refusal)
        self.is_closed = False
        self.news: list[PairingEvent] = []
        self._endpoints = endpoints
        self._exclusive, self._publish = exclusive, publish
        self._secondary_answered = secondary_answered

    def closed_error(self) -> Exception:
        """The error that calls raise on a closed client or a faulted pair."""
        fault = self.state.fault
        if fault is None:
            return ValueError("the paired client is closed")
        return PairFaultedError(*self._endpoints, fault.role.value, str(fault))

    def check(self, role: Side) -> None:
        """Raise ValueError for a side that was closed on its own, PairFaultedError in a faulted pair."""
        if self.is_closed:
            raise self.closed_error()
        if self.state.state_of(role) is SideState.CLOSED:
            raise ValueError(f"the {role} side of the paired client is closed")

    def hear(self, backlog: int | None, result: Result) -> None:
        """Update the state of the side from the result of an attempt."""
        role = Side.PRIMARY if backlog is None else Side.SECONDARY
        classification = result.classification
        if classification is None:
            self._change(lambda now: self.state.answered(role, now))
        elif classification.is_of_namespace and classification.failure is Failure.CONFIGURATION:
            self._change(lambda now: self.state.refused(role, classification.why, now))

    def refused(self, role: Side, why: str) -> None:
        """Record that a side refuses another part of this process, the hosted syphon."""
        self._change(lambda now: self.state.refused(role, why, now))

    def accepted(self, role: Side) -> None:
        """Record that a side answered another part of this process, or accepts it again after a refusal."""
        self._change(lambda now: self.state.answered(role, now))

    def closed(self, role: Side) -> bool:
        """Record that this side was closed. Returns whether both are now, which ends the pair."""
        self._change(lambda now: self.state.closed(role, now))
        return self.state.is_over

    def tick(self, now: float) -> list[Side]:
        """Advance the two sides, under the lock. Returns the sides to probe now."""
        looks = self.state.handle_timer(now)
        fault = self.state.fault
        if fault is not None and not self.is_closed:
            self.is_closed = True  # from here on every call raises
            self.news.append(PairFaulted(now, "", fault.role.value, str(fault)))
        return looks

    def _change(self, change: Callable[[float], list[SideChange]]) -> None:
        now = time.monotonic()
        with self._exclusive():
            changes = change(now)
            if any(each.role is Side.SECONDARY and each.after is SideState.OPEN for each in changes):
                self._secondary_answered(now)
            self.news += [_EVENT[each.after](now, "", each.role.value, each.cause) for each in changes]
        if self.news:
            self._publish()
