"""Processor options."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from sbpair.pair.ground.ranges import check_choice, check_span, check_whole

Secondary = Literal["auto", "never", "only"]


@dataclass(frozen=True, slots=True)
class ProcessorOptions:
    """The options of a processor. Raises ValueError for a value out of its range, TypeError for a wrong type."""

    max_concurrent_calls: int = 16
    """Maximum number of handlers at a time, over both namespaces; 1 to 5000."""

    max_concurrent_sessions: int | None = None
    """Maximum number of sessions held at a time on each side, for an entity with sessions; 1 to 1000. One handler runs
    in each session, and ``max_concurrent_calls`` has no effect."""

    session_idle_timeout: timedelta = timedelta(seconds=10)
    """How long a session is held without a message; 0.1 s to 1 h."""

    secondary: Secondary = "auto"
    """Whether to receive from the secondary: ``auto`` while the entity exists there, ``never``, or ``only``."""

    autosettle: bool = True
    """Complete a message when its handler returns, abandon it when the handler raises. False: settle by hand."""

    max_lock_renewal: timedelta = timedelta(minutes=5)
    """How long the lock of a message is renewed while its handler runs; 0 to 24 h."""

    deduplicate: timedelta | None = None
    """Complete a message without its handler if a message with the same id was handled within this time; 1 s to 24 h,
    None for never."""

    stop_timeout: timedelta = timedelta(seconds=30)
    """How long handlers may take to finish when the processor stops; 0 to 1 h."""

    missing_entity_interval: timedelta = timedelta(seconds=60)
    """How often to check for an entity that does not exist on a side; 1 s to 1 h."""

    operation_timeout: timedelta = timedelta(seconds=60)
    """How long a namespace may take to answer, or be silent, before its connection counts as lost; 5 s to 10 min."""

    retry_backoff_max: timedelta = timedelta(seconds=30)
    """Maximum delay between two attempts to reach a namespace; 100 ms to 10 min."""

    SPANS: ClassVar[dict[str, tuple[float, float]]] = {
        "session_idle_timeout": (0.1, 3600),
        "max_lock_renewal": (0, 86_400),
        "deduplicate": (1, 86_400),
        "stop_timeout": (0, 3600),
        "missing_entity_interval": (1, 3600),
        "operation_timeout": (5, 600),
        "retry_backoff_max": (0.1, 600),
    }
    MAX_CALLS: ClassVar[int] = 5000
    MAX_SESSIONS: ClassVar[int] = 1000

    @property
    def calls(self) -> int:
        """How many handlers run at a time."""
        sessions = self.max_concurrent_sessions
        return self.max_concurrent_calls if sessions is None else sessions

    def __post_init__(self) -> None:
        check_whole("max_concurrent_calls", self.max_concurrent_calls, 1, self.MAX_CALLS)
        if self.max_concurrent_sessions is not None:
            check_whole("max_concurrent_sessions", self.max_concurrent_sessions, 1, self.MAX_SESSIONS)
        check_choice("secondary", self.secondary, ("auto", "never", "only"))
        if not isinstance(self.autosettle, bool):
            raise ValueError(f"autosettle must be True or False, not {self.autosettle!r}")
        for name, (least, most) in self.SPANS.items():
            value = getattr(self, name)
            if name != "deduplicate" or value is not None:
                check_span(name, value, least, most)
