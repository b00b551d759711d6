"""Counters of a processor."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(slots=True)
class ProcessorCounters:
    """The counters of a processor since it was created. ``in_flight`` is a gauge, the others only increase."""

    received: int = 0
    """Messages that arrived."""
    messages_handled: int = 0
    """Handlers that ended."""
    handlers_failed: int = 0
    """Handlers that raised an error other than DeadLetter, Defer and Abandon."""
    handler_seconds: float = 0.0
    """Time that handlers took, in seconds."""
    in_flight: int = 0
    """Messages in flight: waiting for a handler, or being handled."""
    completed: int = 0
    """Completions that the broker confirmed."""
    settled_otherwise: int = 0
    """Confirmed abandonments, deferrals and dead-letterings."""
    released: int = 0
    """Messages given back without a handler, or when stopping."""
    duplicates: int = 0
    """Messages completed without their handler, because their id was handled before."""
    locks_lost: int = 0
    """Messages whose lock ended before they were settled."""
    settlements_unknown: int = 0
    """Settlements whose confirmation was lost with their link."""
    silent_links: int = 0
    """Links that were replaced because they delivered nothing although messages waited."""

    def snapshot(self) -> ProcessorCounters:
        """Return a copy."""
        return replace(self)
