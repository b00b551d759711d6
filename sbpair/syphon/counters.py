"""How far is the syphon? The counters, and the state of the whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum


class SyphonState(Enum):
    """What the syphon is doing."""

    IDLE = "idle"  # not started, or stopped
    CONNECTING = "connecting"  # a side is not reachable now; it is being tried again
    RUNNING = "running"
    DRAINING = "draining"  # until the backlogs are empty, or until what is in flight at shutdown has ended
    FAULTED = "faulted"  # a side refuses us; ``SyphonStatus.reason`` says why


@dataclass(frozen=True, slots=True)
class SyphonStatus:
    """The state, and why it is that one when it is not a good one."""

    state: SyphonState
    reason: str | None = None


@dataclass(slots=True)
class SyphonCounters:
    """Counts of messages since the syphon was made, but for ``receives`` and ``pending``."""

    received: int = 0  # deliveries from a backlog
    forwarded: int = 0  # accepted by their destination
    completed: int = 0  # removed from their backlog, as its broker confirmed
    dead_lettered: int = 0  # set aside on their backlog, as its broker confirmed
    released: int = 0  # given back to their backlog, unsettled
    lock_lost: int = 0  # forwarded, but the backlog would not remove them: they will come twice
    receives: int = 0  # long polls begun: the billed operations of an idle backlog (P-41, G-24)
    pending: int = 0  # in our hands now

    def snapshot(self) -> SyphonCounters:
        return SyphonCounters(**asdict(self))
