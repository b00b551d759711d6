"""In which state is each entity, as its events told?

    healthy --suspected--> suspect --failed over--> failed_over --recovered--> healthy   (a failback)
                              '------recovered------> healthy                            (a false alarm)

One event, ``entity_recovered``, ends both a suspicion and an outage; who counts failbacks must remember
which it was.
"""

from __future__ import annotations

import threading
from enum import Enum

from .record import event_name, own_fields


class Watched(Enum):
    """The state of an entity, by the names the pairing has for it (P-3, P-4, P-6)."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed_over"


_STATE_AFTER = {
    "entity_suspected": Watched.SUSPECT,
    "entity_failed_over": Watched.FAILED_OVER,
    "entity_recovered": Watched.HEALTHY,
}


class EntityStates:
    """A sink that remembers the state of every entity it was told of; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, tuple[str, Watched]] = {}  # by the case-folded path

    def write(self, event: object) -> None:
        """Take note of an event."""
        self.told(event)

    def told(self, event: object) -> tuple[str, Watched, Watched] | None:
        """(path, state before, state after), or None for an event that changes no entity."""
        after = _STATE_AFTER.get(event_name(type(event)))
        if after is None:
            return None
        path = str(own_fields(event).get("path", ""))
        with self._lock:
            name, before = self._states.get(path.casefold(), (path, Watched.HEALTHY))
            self._states[path.casefold()] = (name, after)
        return name, before, after

    def snapshot(self) -> dict[str, str]:
        """The state of each entity by its path; one that never failed is not there: it is healthy."""
        with self._lock:
            return {name: state.value for name, state in self._states.values()}
