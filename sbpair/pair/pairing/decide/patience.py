"""How long an attempt waits for the answer of one primary entity, and whether the entity is silent.

The time that an attempt waits is called its patience. It is learned from the answers: four times the time within which
nearly all of them came, at least half a second and at most ``longest``. While too few answers are remembered it is
three quarters of ``longest``. An unusually late answer counts at once, and weighs half as much five seconds later.

An entity is *silent* while several attempts wait and, by its earlier answer times, one of them should have been
answered: a message sent to it then would probably be parked as well, and exist twice. Performs no I/O and reads no
clock: times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate, islice

MIN_PATIENCE = 0.5  # seconds
UNKNOWN = 0.75  # of the longest patience, while nothing is known
FACTOR = 4.0
RARE = 0.01  # the share of the answers that may take longer
BOUNDS = tuple(0.001 * 2.0 ** (step / 2) for step in range(30))  # 1 ms to 23 s
"""The bounds of the classes of answer times, in seconds."""
MIN_ANSWERS = 5.0
HALF_LIFE = 5.0  # seconds
LEARNS_EVERY = 0.5  # seconds
MIN_WAITING, MAX_WAITING = 3, 16  # attempts that are looked at for a silence
MIN_SILENCE = 0.25  # seconds
LOST_AFTER = 2.0  # times the longest patience
UNLIKELY = 1e-3
LEAST_SHARE = 0.02  # of the answers: a smaller share is too uncertain
BYTES_PER_SECOND = 64 * 1024  # a slow but working connection; a large message may take that much longer


class Waiting:
    """One attempt, which counts as waiting for its answer except while a link is opened for it."""

    __slots__ = ("_began", "_patience")

    def __init__(self, patience: Patience, began: float) -> None:
        self._patience = patience
        self.resume(began)

    def pause(self) -> None:
        """Stop the clock of an attempt, because it waits for a link or has ended."""
        self._patience.waiting.pop(self._began, None)

    def resume(self, now: float) -> None:
        """Start the clock of an attempt, because it is sent now."""
        self._began = now
        self._patience.waiting[now] = None


class Patience:
    """The learned answer times of one entity. Safe to share among threads: a lost count is harmless."""

    __slots__ = (
        "_answered_at",
        "_counts",
        "_is_known",
        "_next_at",
        "_seen_at",
        "_slower",
        "longest",
        "seconds",
        "waiting",
    )

    def __init__(self, longest: float) -> None:
        self.seconds = UNKNOWN * longest
        """How long an attempt waits for its answer."""
        self.waiting: dict[float, None] = {}
        """When the attempts that wait for their answers began, the first of them first."""
        self.longest = longest
        self._counts = [0.0] * (len(BOUNDS) + 1)
        self._slower: list[float] = []  # the share of the answers that took longer than each bound
        self._is_known = False
        self._seen_at = self._next_at = self._answered_at = -math.inf

    def answered(self, took: float, now: float) -> None:
        """Record an answer that came ``took`` seconds after its attempt began."""
        self._answered_at = now
        self._counts[bisect_left(BOUNDS, took)] += 1.0
        if now >= self._next_at or took * FACTOR > self.seconds or not self._is_known:
            self._learn(now)

    def heard(self, now: float) -> None:
        """Record that the entity answered, though with a refusal: it is not silent."""
        self._answered_at = now

    def has_answered_since(self, began: float) -> bool:
        """Whether any attempt was answered after ``began``."""
        return self._answered_at > began

    def is_silent(self, now: float) -> bool:
        """Whether the waiting attempts show that the entity does not answer."""
        if len(self.waiting) < MIN_WAITING or not self._is_known:
            return False
        try:
            began = list(islice(self.waiting, MAX_WAITING))
        except RuntimeError:  # another thread began or ended an attempt meanwhile
            return False
        while began and now - began[0] > LOST_AFTER * self.longest:  # its end was interrupted
            self.waiting.pop(began.pop(0), None)
        if not began or now - began[0] < MIN_SILENCE or self.has_answered_since(began[0]):
            return False
        return math.prod(self._share_slower(now - each) for each in began) < UNLIKELY

    def after(self, unanswered: int) -> float:
        """Return how long the next attempt waits, after ``unanswered`` ones in a row.

        Each of them makes the wait longer, because the answers may have become slow.
        """
        return min(self.seconds * 2.0 ** min(max(unanswered, 0), 16), self.longest)

    def _share_slower(self, age: float) -> float:
        """Return the share of answers that take longer than ``age``."""
        step = bisect_right(BOUNDS, age)
        return 1.0 if step == 0 else max(self._slower[step - 1], LEAST_SHARE)

    def _learn(self, now: float) -> None:
        fade = 0.5 ** ((now - self._seen_at) / HALF_LIFE) if self._seen_at > -math.inf else 1.0
        self._counts = counts = [count * fade for count in self._counts]
        self._seen_at, self._next_at = now, now + LEARNS_EVERY
        total = sum(counts)
        self._is_known = total >= MIN_ANSWERS
        if not self._is_known:
            self.seconds = UNKNOWN * self.longest
            return
        self._slower = [(total - faster) / total for faster in accumulate(counts[:-1])]
        step = next((step for step, share in enumerate(self._slower) if share <= RARE), len(BOUNDS) - 1)
        self.seconds = min(max(FACTOR * BOUNDS[step], MIN_PATIENCE), self.longest)


def without_transfer(took: float, size: int) -> float:
    """Return the seconds of an attempt, minus those that ``size`` bytes may take on a slow connection."""
    return max(0.0, took - transfer_seconds(size))


def transfer_seconds(size: int) -> float:
    """Return the seconds that this many bytes may take on a slow connection."""
    return size / BYTES_PER_SECOND
