"""Which fault strikes this operation, and which hold now? Told what happens, and when, it answers."""

from __future__ import annotations

from math import inf

from .effects import Effect, Operation, Standing
from .rule import ActiveFault, FaultRule


class FaultEngine:
    """The faults that are set on one namespace; ``now`` is in seconds of connection time."""

    def __init__(self) -> None:
        self._active: list[ActiveFault] = []

    def __len__(self) -> int:
        return len(self._active)

    @property
    def active(self) -> list[ActiveFault]:
        """All that are set, the oldest first."""
        return list(self._active)

    def add(self, rule: FaultRule, now: float) -> ActiveFault:
        """Set a rule; of several that would strike the same, the one set last does."""
        active = ActiveFault(rule, now)
        self._active.append(active)
        return active

    def remove(self, active: ActiveFault) -> None:
        """Take it away again; nothing happens when it is not set."""
        self._active = [other for other in self._active if other is not active]

    def strike(self, operation: Operation, path: str, now: float) -> Effect | None:
        """The effect that strikes an operation on the entity of this path."""
        for active in reversed(self._active):
            if active.meets(operation, path, now):
                return active.rule.effect
        return None

    def standing(self, now: float) -> list[ActiveFault]:
        """Those whose standing effect holds, the oldest first."""
        return [
            active
            for active in self._active
            if isinstance(active.rule.effect, Standing) and active.holds(now)
        ]

    def next_change(self, now: float) -> float:
        """When :meth:`standing` answers something else; infinity for never."""
        spans = (
            active.next_change(now) for active in self._active if isinstance(active.rule.effect, Standing)
        )
        return min(spans, default=inf)
