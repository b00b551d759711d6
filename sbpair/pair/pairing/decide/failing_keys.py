"""Keys whose messages fail while others of the entity succeed: one partition is down or throttled.

    three failures in a row, others succeed ---> SET ASIDE for 30 s ---> one trial --accepted--> forgotten
                                                      ^------------------failed----'

A key that has not failed for a minute is forgotten. Others succeed when some were accepted since its first failure, and
lately. A key that is *busy* may be so by chance, where many are: it is set aside when so many answers in a row are
unlikely, by the share of the other sends since then that were busy at first.

A key is a session id or a partition key. Performs no I/O and reads no clock: times are arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

FAILURES = 3  # in a row
ASIDE = 30.0  # seconds
UNLIKELY = 1e-6
FORGOTTEN = 60.0  # seconds after its last failure
MAX_KEYS = 1000


@dataclass(slots=True)
class _Key:
    accepted_before: int  # sends of the entity, when its failures began
    busy_before: int
    failures: int = 0
    busy: int = 0
    busy_at_first: int = 0
    aside_until: float = 0.0
    failed_at: float = 0.0
    cause: Exception | None = None


class FailingKeys:
    """The keys of one entity that failed last, at most MAX_KEYS."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, _Key] = OrderedDict()
        self._others_succeeded_at = -ASIDE
        self._accepted, self._busy_at_first = 0, 0  # sends

    def __len__(self) -> int:
        return len(self._keys)

    def succeeded(self, key: str | None, now: float) -> None:
        """Record a message that the primary accepted."""
        self._others_succeeded_at = now
        self._accepted += 1
        if key is not None:
            self._keys.pop(key, None)
        while self._keys and now - next(iter(self._keys.values())).failed_at > FORGOTTEN:
            self._keys.popitem(last=False)

    def failed(self, key: str | None, cause: Exception | None, now: float) -> bool:
        """Record a failed message; return whether its key is set aside from now on, and was not before."""
        if key is None:
            return False
        entry = self._failing(key, cause, now)
        entry.failures += 1
        return entry.failures >= FAILURES and self._others_succeed(entry, now) and _put_aside(entry, now)

    def busy(self, key: str | None, cause: Exception | None, now: float, *, is_first: bool) -> bool:
        """Record that the primary was busy for a message, at its first attempt or a later one.

        Returns whether its key is set aside from now on, and was not before.
        """
        if key is None:
            self._busy_at_first += is_first
            return False
        entry = self._failing(key, cause, now)
        self._busy_at_first += is_first
        entry.busy += 1
        entry.busy_at_first += is_first
        if entry.busy < FAILURES or not self._others_succeed(entry, now):
            return False
        return self._busy_share(entry) ** entry.busy < UNLIKELY and _put_aside(entry, now)

    def set_aside(self, key: str | None, now: float) -> Exception | None:
        """The error of a key that is set aside; None when a message of this key may try the primary."""
        entry = self._keys.get(key) if key is not None else None
        if entry is None or entry.aside_until == 0.0:
            return None
        if now < entry.aside_until:
            return entry.cause
        entry.aside_until = now + ASIDE  # one trial; others wait for its result
        return None

    def is_aside(self, key: str, now: float) -> bool:
        """Whether a key is set aside, also by the trial of another message."""
        entry = self._keys.get(key)
        return entry is not None and entry.aside_until > now

    def count_aside(self, now: float) -> int:
        """The number of keys that are set aside now. May be called in any thread."""
        return sum(each.aside_until > now for each in list(self._keys.values()))

    def _others_succeed(self, entry: _Key, now: float) -> bool:
        return self._accepted > entry.accepted_before and now - self._others_succeeded_at <= ASIDE

    def _busy_share(self, entry: _Key) -> float:
        """The share of the other sends that were busy at first, 1 or more until enough were accepted."""
        busy = self._busy_at_first - entry.busy_before - entry.busy_at_first
        return (busy + 1) / (self._accepted - entry.accepted_before + 1)

    def _failing(self, key: str, cause: Exception | None, now: float) -> _Key:
        entry = self._keys.setdefault(key, _Key(self._accepted, self._busy_at_first))
        self._keys.move_to_end(key)
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        entry.failed_at, entry.cause = now, cause
        return entry


def _put_aside(entry: _Key, now: float) -> bool:
    """Set a key aside, or leave it so for longer; return whether that is new."""
    is_new, entry.aside_until = entry.aside_until == 0.0, now + ASIDE
    return is_new
