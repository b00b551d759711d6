"""State shared by the links of one processor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .dispatcher import Dispatcher
from .events import ProcessorEvent
from .status import ProcessorCounters


@dataclass(frozen=True, slots=True)
class Context:
    """The entity, its messages in flight, and the callbacks for reports; durations in seconds."""

    path: str
    dispatcher: Dispatcher
    counters: ProcessorCounters
    emit: Callable[[ProcessorEvent], None]
    max_lock_renewal: float
    session_idle_timeout: float
    reports_messages: Callable[[], bool]
    """Whether to emit MessagesReceived for each message, for an audit."""
    changed: Callable[[], None]
    """Called when there may be room for more messages, or a timer to set."""
