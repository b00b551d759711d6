"""Keys whose messages fail while others of the entity succeed: one partition is down or throttled.

    failures in a row that chance does not explain ---> SET ASIDE for 30 s ---> one trial --accepted--> forgotten
                                                             ^-------------------failed----'

A message fails when it is not accepted for any reason, including *busy*. A key is set aside after at least three
failures in a row, and only if so many are unlikely to be chance: the measure is the share of other sends whose first
attempt failed, since the key's first failure and recently. Other keys must have succeeded since then. A key that has
not failed for a minute is forgotten.

A key is a session id or a partition key. Performs no I/O and reads no clock: times are arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from copy import copy

from ..outcome import RememberedFailure

FAILURES = 3  # in a row, at least
ASIDE = 30.0  # seconds
UNLIKELY = 1e-6
FORGOTTEN = 60.0  # seconds after its last failure
LATELY = 60.0  # seconds to twice as many, in which the share of the others is counted
MAX_KEYS = 1000


class _Sends:
    """Counts of an entity's sends, by the result of their first attempt; those accepted, at any attempt, too."""

    __slots__ = ("accepted", "accepted_at_first", "failed_at_first")

    def __init__(self) -> None:
        self.accepted = self.accepted_at_first = self.failed_at_first = 0

    def share(self, before: _Sends, own: int) -> float:
        """Return the share of first attempts that failed since ``before``; ``own`` failures are not counted."""
        failed = self.failed_at_first - before.failed_at_first - own
        return failed / max(1, failed + self.accepted_at_first - before.accepted_at_first)


class _Key:
    __slots__ = ("aside_until", "before", "cause", "failed_at", "failed_at_first", "failures")

    def __init__(self, before: _Sends) -> None:
        self.before = before  # of the entity, when its failures began
        self.failures = 0  # in a row
        self.failed_at_first = 0  # of them
        self.aside_until = self.failed_at = 0.0
        self.cause: RememberedFailure | None = None


class FailingKeys:
    """The keys of one entity that failed most recently, at most MAX_KEYS."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, _Key] = OrderedDict()
        self._others_succeeded_at = -ASIDE
        self._sends = _Sends()
        self._lately, self._earlier, self._turns_at = (
            _Sends(),
            _Sends(),
            0.0,
        )  # as they were LATELY ago, and twice

    def __len__(self) -> int:
        return len(self._keys)

    def succeeded(self, key: str | None, now: float, *, is_first: bool = True) -> None:
        """Record that the primary accepted a message, at the first or a later attempt of its send."""
        self._turn(now)
        self._others_succeeded_at = now
        self._sends.accepted += 1
        self._sends.accepted_at_first += is_first
        if key is not None:
            self._keys.pop(key, None)
        while self._keys and now - next(iter(self._keys.values())).failed_at > FORGOTTEN:
            self._keys.popitem(last=False)

    def failed(self, key: str | None, cause: Exception, now: float, *, is_first: bool) -> bool:
        """Record that the primary did not accept a message, at the first or a later attempt of its send.

        Returns whether its key becomes set aside by this failure.
        """
        self._turn(now)
        entry = None if key is None else self._failing(key, cause, now)
        self._sends.failed_at_first += is_first
        if entry is None:
            return False
        entry.failures += 1
        entry.failed_at_first += is_first
        if entry.failures < FAILURES or not self._others_succeed(entry, now):
            return False
        return self._chance(entry) ** entry.failures < UNLIKELY and _put_aside(entry, now)

    def set_aside(self, key: str | None, now: float) -> Exception | None:
        """Return a new copy of the error for which the key is set aside; None if its messages may try the primary."""
        entry = self._keys.get(key) if key is not None else None
        if entry is None or entry.aside_until == 0.0:
            return None
        if now < entry.aside_until and entry.cause is not None:
            return entry.cause.again()
        entry.aside_until = now + ASIDE  # one trial; others wait for its result
        return None

    def is_aside(self, key: str, now: float) -> bool:
        """Whether a key is set aside, including while another message makes its trial."""
        entry = self._keys.get(key)
        return entry is not None and entry.aside_until > now

    def count_aside(self, now: float) -> int:
        """The number of keys that are set aside now. May be called in any thread."""
        return sum(each.aside_until > now for each in list(self._keys.values()))

    def _others_succeed(self, entry: _Key, now: float) -> bool:
        return self._sends.accepted > entry.before.accepted and now - self._others_succeeded_at <= ASIDE

    def _chance(self, entry: _Key) -> float:
        """Return the share of other sends whose first attempt failed, since this key began to fail or recently."""
        own, sends = entry.failed_at_first, self._sends
        return max(sends.share(entry.before, own), sends.share(self._earlier, own))

    def _turn(self, now: float) -> None:
        if now >= self._turns_at:
            self._earlier, self._lately = self._lately, copy(self._sends)
            self._turns_at = now + LATELY

    def _failing(self, key: str, cause: Exception, now: float) -> _Key:
        entry = self._keys.get(key)
        if entry is None:
            entry = self._keys[key] = _Key(copy(self._sends))
        self._keys.move_to_end(key)
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        entry.failed_at, entry.cause = now, RememberedFailure.of(cause)
        return entry


def _put_aside(entry: _Key, now: float) -> bool:
    """Set a key aside, or extend the time for which it is; return whether it was not set aside before."""
    is_new, entry.aside_until = entry.aside_until == 0.0, now + ASIDE
    return is_new
