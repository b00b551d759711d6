"""How long an attempt waits for the answer of one primary entity, and whether the entity is silent.

Patience is learned from the answers: four times the time within which nearly all of them came, at least half a second
and at most ``longest``. While too few answers are remembered it is three quarters of ``longest``. An answer that took
unusually long counts at once, and weighs half as much five seconds later.

An entity is *silent* while several attempts wait and it is unlikely, by the times of its answers, that none of them has
been answered: what is sent then would only become a copy. Performs no I/O and reads no clock: times are seconds of a
monotonic clock.
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
"""The answer times that are told apart."""
MIN_ANSWERS = 5.0
HALF_LIFE = 5.0  # seconds
LEARNS_EVERY = 0.5  # seconds
MIN_WAITING, MAX_WAITING = 3, 16  # attempts that are looked at for a silence
MIN_SILENCE = 0.25  # seconds
UNLIKELY = 1e-3
LEAST_SHARE = 0.02  # of the answers, of which nothing can be said


class Waiting:
    """One attempt, which counts as waiting for its answer but while a link is opened for it."""

    __slots__ = ("_began", "_patience")

    def __init__(self, patience: Patience, began: float) -> None:
        self._patience = patience
        self.resume(began)

    def pause(self) -> None:
        """It waits for a link: nothing was asked yet. Also when it has ended."""
        self._patience.waiting.pop(self._began, None)

    def resume(self, now: float) -> None:
        """It asks now."""
        self._began = now
        self._patience.waiting[now] = None


class Patience:
    """What one entity has taught. Threads may use it at the same time: a lost count changes nothing."""

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
        """Whether the attempts that wait show that the entity does not answer."""
        if len(self.waiting) < MIN_WAITING or not self._is_known:
            return False
        try:
            began = list(islice(self.waiting, MAX_WAITING))
        except RuntimeError:  # another thread began or ended an attempt meanwhile
            return False
        if not began or now - began[0] < MIN_SILENCE or self.has_answered_since(began[0]):
            return False
        return math.prod(self._share_slower(now - each) for each in began) < UNLIKELY

    def after(self, unanswered: int) -> float:
        """How long the next attempt waits after so many unanswered ones in a row: the answers may have become slow."""
        return min(self.seconds * 2.0 ** min(max(unanswered, 0), 16), self.longest)

    def _share_slower(self, age: float) -> float:
        """The share of the answers that take longer than ``age``."""
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
