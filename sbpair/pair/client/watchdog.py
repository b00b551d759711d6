"""The watchdog of one link: when to check whether messages wait although none arrives. Pure.

    idle for a minute --> peek --none waits-------------------------> idle for another minute
                            '---some wait, none arrives in 5 s------> replace the link
                                  the new link delivers ------------> the old one was silent
                                  it does not ----------------------> other consumers hold them: peek half as often

A peek cannot distinguish a waiting message from one that another consumer has locked.
"""

from __future__ import annotations

INTERVAL = 60.0  # seconds without a message until the first peek, and between two
MAX_INTERVAL_SECONDS = 16 * 60.0  # between two peeks while other consumers hold all waiting messages
PATIENCE = 5.0  # seconds within which a waiting message should arrive


class Watchdog:
    """Watches the successive links of one entity; times are monotonic seconds."""

    def __init__(self, now: float, longest_idle: float = INTERVAL) -> None:
        """Create a watchdog. ``longest_idle``: the longest interval between peeks when no message waits, in seconds."""
        self._longest_idle = longest_idle
        self.heard_at = now
        """When the last message arrived; before the first one, when the watch began."""
        self._interval = INTERVAL
        self._asked_at = now
        self._suspected_at: float | None = None
        self._silent_since: float | None = None  # of the link that was replaced
        self._attached_at = now

    def next_check(self) -> float:
        """Return when to call :meth:`is_due` and :meth:`should_replace`, while nothing is in flight."""
        if self._suspected_at is not None:
            return self._suspected_at + PATIENCE
        return max(self.heard_at, self._asked_at) + self._interval

    def is_due(self, now: float) -> bool:
        """Whether to peek now. If True, the next peek is due after another interval."""
        if self._suspected_at is not None or now < self.next_check():
            return False
        self._asked_at = now
        return True

    def peeked(self, now: float, *, waits: bool) -> None:
        """Record the answer to a peek: whether any message is there."""
        if not waits:
            self._interval, self._suspected_at = min(self._interval * 2, self._longest_idle), None
        elif self.heard_at < self._asked_at:
            self._suspected_at = now

    def should_replace(self, now: float) -> bool:
        """Whether to replace the link: a peek found messages, and none arrived within PATIENCE seconds."""
        if self._suspected_at is None or now < self._suspected_at + PATIENCE:
            return False
        self._suspected_at = None
        if self._silent_since is not None:  # replacing the previous link did not help
            self._interval = min(self._interval * 2, MAX_INTERVAL_SECONDS)
        self._silent_since = self.heard_at
        self._asked_at = now
        return True

    def heard(self, now: float) -> float | None:
        """Record that a message arrived. Return how many seconds the previous link was silent, if it was replaced."""
        since, self._silent_since = self._silent_since, None
        self.heard_at, self._suspected_at, self._interval = now, None, INTERVAL
        has_just_begun = now <= self._attached_at + PATIENCE
        return now - since if since is not None and has_just_begun else None

    def attached(self, now: float) -> None:
        """Record a new link."""
        self._attached_at = self._asked_at = now
        self._suspected_at = None
