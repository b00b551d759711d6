"""State of the two sides of a pair: open, closed or refused, and the fault that ends the pair.

                 close()
    OPEN ----------------------> CLOSED -----other side not closed within 5 s-----> the pair is faulted
     | ^                            '--------other side closed in time------------> the pair is over
     | |
     | | an operation is accepted
     '-'-----------------------> REFUSED ---only with ``faults_on_refusal``, 5 s--> the pair is faulted
       the namespace refuses the credential or certificate as a whole

A refusal by one side does not affect the other: the pair continues, the refused side is probed after 1 s,
2 s, 4 s ... up to a minute, and the first accepted operation ends the refusal. With ``faults_on_refusal`` a
refusal counts like a close(): if it lasts five seconds, it faults the pair. A fault is permanent.

Used by the client and the syphon. Performs no I/O and reads no clock.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sbpair.pair.ground.side import Side

GRACE = 5.0  # seconds within which the other side must be closed too
LOOK = 1.0  # seconds until a refused side is first probed; doubles with each probe
MAX_PROBE_INTERVAL_SECONDS = 60.0  # maximum seconds between two probes


class SideState(Enum):
    """The state of one side."""

    OPEN = "open"
    CLOSED = "closed"
    REFUSED = "refused"


class SideChange(NamedTuple):
    """A change of a side's state, and its cause."""

    role: Side
    after: SideState
    cause: str


class PairFault(NamedTuple):
    """The fault of a pair: ``role`` ended first, and its partner was not closed within GRACE."""

    role: Side
    state: SideState
    cause: str

    def __str__(self) -> str:
        return (
            f"the {self.role} was {self.state.value} ({self.cause}); the {self.role.partner} did not follow"
        )


class _Side:
    __slots__ = ("cause", "look_at", "looks", "since", "state")

    def __init__(self, state: SideState = SideState.OPEN, cause: str = "", since: float = 0.0) -> None:
        self.state, self.cause, self.since = state, cause, since
        self.look_at = 0.0
        self.looks = 0


class PairState:
    """The two sides of a pair. Times are seconds of a monotonic clock."""

    def __init__(self, *, faults_on_refusal: bool = False) -> None:
        self._sides = {role: _Side() for role in Side}
        self._ends = {SideState.CLOSED, SideState.REFUSED} if faults_on_refusal else {SideState.CLOSED}
        self.fault: PairFault | None = None
        self.is_whole = True
        """Whether both sides are open, so that :meth:`answered` would change nothing."""

    def state_of(self, role: Side) -> SideState:
        """Return the state of one side; if the pair was faulted, a side that was open is closed."""
        state = self._sides[role].state
        return SideState.CLOSED if self._fell_with_it(role) else state

    def cause_of(self, role: Side) -> str:
        """Return why a side is not open; "" if it is."""
        return f"the pair is faulted: {self.fault}" if self._fell_with_it(role) else self._sides[role].cause

    def _fell_with_it(self, role: Side) -> bool:
        return self.fault is not None and self._sides[role].state is SideState.OPEN

    @property
    def is_over(self) -> bool:
        """Whether both sides were closed, which is the normal end of a pair."""
        return all(side.state is SideState.CLOSED for side in self._sides.values())

    def closed(self, role: Side, now: float) -> list[SideChange]:
        """Record that this side was closed."""
        if self._sides[role].state is SideState.CLOSED:
            return []
        return self._leave(role, SideState.CLOSED, "close() was called", now)

    def refused(self, role: Side, why: str, now: float) -> list[SideChange]:
        """Record that this side refuses the client until its configuration changes; ``why`` is the reason."""
        if self._sides[role].state is not SideState.OPEN:
            return []
        return self._leave(role, SideState.REFUSED, why, now)

    def answered(self, role: Side, now: float) -> list[SideChange]:
        """Record that this side accepted an operation, which ends a refusal."""
        side = self._sides[role]
        if side.state is not SideState.REFUSED or self.fault is not None or self._is_late(now):
            return []
        fresh, changes = _Side(), [SideChange(role, SideState.OPEN, "it accepts again")]
        is_whole = self._sides[role.partner].state is SideState.OPEN
        self._sides[role], self.is_whole = fresh, is_whole
        return changes

    def next_timer(self) -> float | None:
        """When to call :meth:`handle_timer` next; None for never."""
        if self.fault is not None or self.is_over:
            return None
        timers = [side.look_at for side in self._sides.values() if side.state is SideState.REFUSED]
        ended = self._first_ended()
        if ended is not None:
            timers.append(self._sides[ended].since + GRACE)
        return min(timers, default=None)

    def handle_timer(self, now: float) -> list[Side]:
        """Advance time to ``now``, which may set :attr:`fault`; return the sides to probe by opening a link."""
        if self.fault is not None or self.is_over:
            return []
        ended = self._first_ended()
        if ended is not None and self._is_late(now):
            self.fault = PairFault(ended, self._sides[ended].state, self._sides[ended].cause)
            return []
        due = [
            role
            for role, side in self._sides.items()
            if side.state is SideState.REFUSED and now >= side.look_at
        ]
        for role in due:
            side = self._sides[role]
            side.looks += 1
            side.look_at = now + self._wait_after(side.looks)
        return due

    def _wait_after(self, looks: int) -> float:
        if SideState.REFUSED in self._ends:  # within GRACE there is no time for a backoff
            return LOOK
        return min(LOOK * 2.0 ** min(looks, 16), MAX_PROBE_INTERVAL_SECONDS)

    def _leave(self, role: Side, state: SideState, cause: str, now: float) -> list[SideChange]:
        if self.fault is not None:
            return []
        before = self._sides[role]
        since = before.since if before.state in self._ends else now
        side = _Side(state, cause, since)
        side.look_at = now + LOOK
        self._sides[role] = side
        self.is_whole = False
        return [SideChange(role, state, cause)]

    def _first_ended(self) -> Side | None:
        ended = [role for role, side in self._sides.items() if side.state in self._ends]
        return min(ended, key=lambda role: self._sides[role].since, default=None)

    def _is_late(self, now: float) -> bool:
        ended = self._first_ended()
        return ended is not None and now >= self._sides[ended].since + GRACE
