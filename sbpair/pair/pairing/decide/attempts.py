"""The recent attempts at one primary entity, successful and failed, in ten buckets.

Every attempt counts, including those that are retried. Performs no I/O and reads no clock: times are arguments.
"""

from __future__ import annotations

import math

BUCKETS = 10
MIN_FAILURES = 5
"""The least number of failed attempts from which a share is judged."""
CALM_SHARE = 0.2
"""The share of failures in the last two buckets up to which the trouble is over."""
SLACK = 1  # buckets kept longer, so that a timer that is late still finds the first failure
MIN_SPAN = 1.0  # seconds, where the failover interval is shorter


class RecentAttempts:
    """A ring of buckets over ``span`` seconds.

    ``accepted_at`` is the time of the last success. ``failing_since`` is the first failure since then, None after a
    success. ``bad_since`` is the first failure of the current trouble, None while no failure is remembered; with few
    failures, each success in time ends the trouble, and the next failure begins another.
    """

    __slots__ = ("_buckets", "_is_well", "_width", "accepted_at", "bad_since", "failing_since")

    def __init__(self, span: float) -> None:
        self._width = max(span, MIN_SPAN) / BUCKETS
        self._buckets: dict[int, list[int]] = {}  # by number: [successes, failures]
        self.accepted_at = -math.inf
        self.bad_since: float | None = None
        self.failing_since: float | None = None
        self._is_well = True  # whether the last attempt was accepted, and in time

    def succeeded(self, now: float) -> None:
        """Record an attempt that the primary accepted."""
        self._bucket(now)[0] += 1
        self.failing_since, self.accepted_at, self._is_well = None, now, True

    def slow(self, now: float, times: int) -> None:
        """Record an attempt that was accepted after a long time: a failure for the share, but not for the interval.

        ``times``: how many usual attempts would fit into its duration. It counts as that many, at most MIN_FAILURES,
        because a single sender that waits long for each answer makes few attempts.
        """
        for _ in range(min(times, MIN_FAILURES)):
            self.failed(now)
        self.failing_since, self.accepted_at = None, now

    def failed(self, now: float) -> None:
        """Record an attempt that failed."""
        bucket = self._bucket(now)
        if self.bad_since is None or (self._is_well and self.is_over(now)):
            self.bad_since = now
        bucket[1] += 1
        self._is_well = False
        self.failing_since = now if self.failing_since is None else self.failing_since

    def is_clean(self, now: float) -> bool:
        """Whether no failure is remembered."""
        self._bucket(now)
        return self.bad_since is None

    def is_bad(self, share: float, now: float) -> bool:
        """Whether at least MIN_FAILURES failed, and at least this share of all."""
        successes, failures = self._count(now, BUCKETS)
        return failures >= MIN_FAILURES and failures >= share * (successes + failures)

    def failed_share(self, now: float) -> float:
        """Return the share of attempts that failed; 0.0 below MIN_FAILURES failures. May be called in any thread."""
        successes, failures = self._count(now, BUCKETS)
        return failures / (successes + failures) if failures >= MIN_FAILURES else 0.0

    def has_success(self, now: float) -> bool:
        """Whether any attempt was accepted, however slowly."""
        return self.accepted_at >= now - BUCKETS * self._width

    def is_over(self, now: float, few: int = MIN_FAILURES) -> bool:
        """Whether the trouble is over: at most ``few`` failures in total, or in the last two buckets."""
        if self._count(now, BUCKETS)[1] <= few:
            return True
        successes, failures = self._count(now, 2)
        return failures <= CALM_SHARE * (successes + failures)

    def is_rare(self, share: float, few: int, now: float, chance: float = 0.0) -> bool:
        """Whether, in the last two buckets, at most ``few`` attempts failed, or at most this share of them.

        ``chance`` is the number of standard deviations by which random failures may exceed the share.
        """
        successes, failures = self._count(now, 2)
        expected = share * (successes + failures)
        return failures <= max(few, expected + chance * math.sqrt(expected))

    def next_judgement(self, now: float) -> float:
        """Return when the buckets move on by one, so that the judgement may change."""
        return now + self._width

    def forget(self) -> None:
        """Forget all attempts."""
        self._buckets.clear()
        self.bad_since = self.failing_since = None

    def _bucket(self, now: float) -> list[int]:
        number = int(now // self._width)
        bucket = self._buckets.get(number)
        if bucket is None:
            for old in [each for each in self._buckets if each < number - BUCKETS - SLACK]:
                del self._buckets[old]
            if not any(failures for _, failures in self._buckets.values()):
                self.bad_since = self.failing_since = None
            bucket = self._buckets[number] = [0, 0]
        return bucket

    def _count(self, now: float, buckets: int) -> tuple[int, int]:
        first = int(now // self._width) - buckets + 1
        counted = [each for number, each in list(self._buckets.items()) if number >= first]
        return sum(each[0] for each in counted), sum(each[1] for each in counted)
