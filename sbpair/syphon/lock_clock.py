"""How much of a lock is left, whatever the clocks of the backlog's broker and of this machine say?

A delivery tells when its lock ends by the broker's clock. How far such an end lies ahead of our clock is the
*lead*: the span of a lock and the difference of the clocks together, which cannot be told apart, and need
not be. A lock that has just begun has the greatest lead; one with less is older by what is missing.

    our clock      |---------- lead of one that begins now ----------|
                   |------ lead of this one ------|<----- its age --->|

What is too old to be trusted, lain in a socket perhaps while this process slept, is asked about before it is
used: a lock that was renewed has just begun. Pure: times are float seconds, ends by the broker's clock and
now by ours.
"""

from __future__ import annotations

DEFAULT_LOCK = 60.0  # seconds: what a backlog's lock lasts (P-11), and the most one is trusted to
SHORTEST_LOCK, LONGEST_LOCK = 5.0, 300.0  # seconds, of any queue
TRUSTED_PART = 1 / 2  # of its span may have gone before a lock is asked about


class LockClock:
    """The locks of one backlog, against our clock."""

    def __init__(self) -> None:
        self._lead: float | None = None
        self.span = DEFAULT_LOCK
        """Seconds a lock is trusted to last.

        More than it does only where the queue's is shorter than a minute and our clock is behind as well.
        """

    @property
    def difference(self) -> float | None:
        """About how many seconds the broker's clock is ahead of ours; None when they may agree."""
        lead = self._lead
        if lead is None or 0 < lead <= LONGEST_LOCK + SHORTEST_LOCK:
            return None
        return lead - DEFAULT_LOCK

    def left(self, ends: float, now: float, since: float) -> float:
        """Seconds that are certainly left of a lock seen ``now``, not begun before ``since``; 0: ask."""
        lead = ends - now
        if self._lead is None:
            if now - since > SHORTEST_LOCK * TRUSTED_PART:
                return 0.0
            self._learn(lead)
            return self.span
        age = self._lead - lead
        if age < 0:
            self._learn(lead)
            return self.span
        return self.span - age if age <= self.span * TRUSTED_PART else 0.0

    def renewed(self, ends: float, now: float) -> float:
        """A lock begins anew ``now``, which says how the clocks stand; the seconds that it has."""
        self._learn(ends - now)
        return self.span

    def forget(self) -> None:
        """Nothing is known any more: a renewal said neither yes nor no."""
        self._lead, self.span = None, DEFAULT_LOCK

    def _learn(self, lead: float) -> None:
        is_told = 0 < lead <= LONGEST_LOCK  # else the clocks differ: the lead says nothing
        self._lead = lead
        self.span = min(max(lead, SHORTEST_LOCK), DEFAULT_LOCK) if is_told else DEFAULT_LOCK
