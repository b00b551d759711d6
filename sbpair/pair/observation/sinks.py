"""Event sources and sinks, and ``attach``, which connects them.

    detach = attach(client, journal, metrics)

:class:`EntityStates` is the sink that derives the state of each entity from its events:

    healthy --suspected--> suspect --failed over--> failed_over --recovered--> healthy   (a failback)
                              '------recovered------> healthy                            (a false alarm)

    failed_over --returning--> returning --recovered--> healthy
                                  '-------aborted-----> failed_over                      (the same outage)

``entity_recovered`` ends both a suspicion and an outage, so counting failbacks needs the state before it.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from .record import event_name, own_fields

logger = logging.getLogger("sbpair.observation")


class EventSource(Protocol):
    """Emits events: a paired client or a syphon."""

    def on_event(self, callback: Callable[[object], None], /) -> Callable[[], None]: ...


class Sink(Protocol):
    """Receives events on any thread. ``write`` must return quickly."""

    def write(self, event: object, /) -> None: ...


def attach(source: EventSource, *sinks: Sink) -> Callable[[], None]:
    """Pass every event of ``source`` to every sink, in order; returns a function that detaches them.

    An exception from a sink is logged; the remaining sinks still receive the event.
    """

    def emit(event: object) -> None:
        for sink in sinks:
            try:
                sink.write(event)
            except Exception:  # a failing sink must not fail the send or the other sinks
                logger.exception("%s failed on %s", type(sink).__name__, type(event).__name__)

    return source.on_event(emit)


class ObservedState(Enum):
    """The state of an entity; RETURNING is FAILED_OVER with trial sends."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed_over"
    RETURNING = "returning"


_STATE_AFTER = {
    "entity_suspected": ObservedState.SUSPECT,
    "entity_failed_over": ObservedState.FAILED_OVER,
    "entity_returning": ObservedState.RETURNING,
    "return_aborted": ObservedState.FAILED_OVER,
    "entity_recovered": ObservedState.HEALTHY,
}


class EntityStates:
    """A sink that tracks the state of every entity that it receives events for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, tuple[str, ObservedState]] = {}  # by the case-folded path

    def write(self, event: object) -> None:
        """Apply an event."""
        self.apply(event)

    def apply(self, event: object) -> tuple[str, ObservedState, ObservedState] | None:
        """Apply an event; returns (path, state before, state after), or None if no entity changed."""
        after = _STATE_AFTER.get(event_name(type(event)))
        if after is None:
            return None
        path = str(own_fields(event).get("path", ""))
        with self._lock:
            name, before = self._states.get(path.casefold(), (path, ObservedState.HEALTHY))
            self._states[path.casefold()] = (name, after)
        return name, before, after

    def snapshot(self) -> dict[str, str]:
        """Return the states by path. Entities that never failed are healthy and not listed."""
        with self._lock:
            return {name: state.value for name, state in self._states.values()}


class Renewable(Protocol):
    """Holds locks, threads or descriptors that a forked child must replace."""

    def renew(self) -> None: ...


_alive: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_children(thing: Renewable) -> None:
    """Call ``thing.renew()`` in every child process forked during its lifetime.

    The child's copy becomes a separate writer, because two processes must not share the ordinals of one. It replaces
    its locks, which another thread may have held at the fork.
    """
    _alive.add(thing)


def _in_child() -> None:
    for thing in list(_alive):
        thing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
