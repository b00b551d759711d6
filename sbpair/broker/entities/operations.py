"""How many operations would this namespace have been billed for? (P-34, P-41, P-43; partitions: Q-20)"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """Billed operations of a namespace since it was made.

    ``sends`` messages accepted, pings not among them · ``pings`` pings accepted (P-34: billed as messages) ·
    ``receives`` messages handed to a receiver · ``polls`` receives that began: link credit granted from zero
    (P-41) · ``management`` operations on a $management node.
    """

    sends: int = 0
    pings: int = 0
    receives: int = 0
    polls: int = 0
    management: int = 0

    @property
    def billed(self) -> int:
        """Message operations as billed; a poll is paid by the receives it brought."""
        return self.sends + self.pings + self.receives + self.management


class Operations:
    """The counters behind :class:`OperationCounts`."""

    __slots__ = ("management", "pings", "polls", "receives", "sends")

    def __init__(self) -> None:
        self.sends = self.pings = self.receives = self.polls = self.management = 0

    def counts(self) -> OperationCounts:
        """The counts as they are now."""
        return OperationCounts(self.sends, self.pings, self.receives, self.polls, self.management)
