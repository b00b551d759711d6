"""What becomes of a pair of which one side has ended? (P-50)

                 close()                                    close() of the other, in time
    OPEN ----------------------> CLOSED ----------------------------------------------> the pair is over
     | ^
     | | something is accepted
     | |                                       5 s after the first of the two ended
     '-'-----------------------> FAULTED ----------------------------------------------> the pair is faulted
       refused for a reason that lies in the configuration of the whole namespace

A side that was refused is looked at again every second, so that one refusal by mistake, or a key that is
renewed at once, ends nothing. When the five seconds are over nothing is cured any more (G-25).

The sender's client and the syphon both hold one of these. It reads no clock. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

GRACE = 5.0  # seconds that a partner has to follow
LOOK = 1.0  # seconds between two looks at a side that was refused


class Role(StrEnum):
    """Which of the two namespaces."""

    PRIMARY = "primary"
    SECONDARY = "secondary"

    @property
    def partner(self) -> Role:
        return Role.SECONDARY if self is Role.PRIMARY else Role.PRIMARY


class SideState(Enum):
    """What a pairing thinks of one side."""

    OPEN = "open"
    CLOSED = "closed"
    FAULTED = "faulted"


@dataclass(frozen=True, slots=True)
class SideChange:
    """A side has come to this state, because of this."""

    role: Role
    after: SideState
    cause: str


@dataclass(frozen=True, slots=True)
class PairFault:
    """Why a pair is faulted: this side ended first, and its partner was not closed in time."""

    role: Role
    state: SideState
    cause: str

    def __str__(self) -> str:
        return (
            f"the {self.role} was {self.state.value} ({self.cause}); the {self.role.partner} did not follow"
        )


@dataclass(slots=True)
class _Side:
    state: SideState = SideState.OPEN
    cause: str = ""
    since: float = 0.0
    look_at: float = 0.0


class Bond:
    """The two sides of a pair. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._sides = {role: _Side() for role in Role}
        self.fault: PairFault | None = None
        self.is_whole = True
        """Whether both sides are open: then an accepted message changes nothing."""

    def state_of(self, role: Role) -> SideState:
        return self._sides[role].state

    @property
    def is_over(self) -> bool:
        """Whether both sides were closed: the pair ended as it should."""
        return all(side.state is SideState.CLOSED for side in self._sides.values())

    def closed(self, role: Role, now: float) -> list[SideChange]:
        """Somebody closed this side."""
        if self._sides[role].state is SideState.CLOSED:
            return []
        return self._end(role, SideState.CLOSED, "close() was called", now)

    def refused(self, role: Role, why: str, now: float) -> list[SideChange]:
        """A connection to this side cannot be had until somebody changes its configuration."""
        if self._sides[role].state is not SideState.OPEN:
            return []
        return self._end(role, SideState.FAULTED, why, now)

    def answered(self, role: Role, now: float) -> list[SideChange]:
        """This side accepted something: whatever it was refused for is cured."""
        side = self._sides[role]
        if side.state is not SideState.FAULTED or self.fault is not None or self._is_late(now):
            return []
        self._sides[role] = _Side()
        self.is_whole = all(each.state is SideState.OPEN for each in self._sides.values())
        return [SideChange(role, SideState.OPEN, "it accepts again")]

    def next_timer(self) -> float | None:
        """When :meth:`handle_timer` wants to be called; None for never."""
        ended = self._first_ended()
        if ended is None or self.fault is not None or self.is_over:
            return None
        looks = [side.look_at for side in self._sides.values() if side.state is SideState.FAULTED]
        return min([self._sides[ended].since + GRACE, *looks])

    def handle_timer(self, now: float) -> list[Role]:
        """Let time pass: :attr:`fault` may be set. The sides to look at now, by opening a link to them."""
        ended = self._first_ended()
        if ended is None or self.fault is not None or self.is_over:
            return []
        if self._is_late(now):
            self.fault = PairFault(ended, self._sides[ended].state, self._sides[ended].cause)
            return []
        due = [
            role
            for role, side in self._sides.items()
            if side.state is SideState.FAULTED and now >= side.look_at
        ]
        for role in due:
            self._sides[role].look_at = now + LOOK
        return due

    def _end(self, role: Role, state: SideState, cause: str, now: float) -> list[SideChange]:
        if self.fault is not None:
            return []
        before = self._sides[role]
        since = now if before.state is SideState.OPEN else before.since
        self._sides[role] = _Side(state, cause, since, now + LOOK)
        self.is_whole = False
        return [SideChange(role, state, cause)]

    def _first_ended(self) -> Role | None:
        ended = [role for role, side in self._sides.items() if side.state is not SideState.OPEN]
        return min(ended, key=lambda role: self._sides[role].since, default=None)

    def _is_late(self, now: float) -> bool:
        ended = self._first_ended()
        return ended is not None and now >= self._sides[ended].since + GRACE
