"""The paces of all entities of one side, kept while links and connections come and go.

A side that has come back serves its clients first, whatever is sent to it: the messages of backlogs, those of
ordered sessions, and those that land.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from heapq import nsmallest

from sbpair.pair.envelope.names import path_key

from .pace import Pace

MAX_SHOWN = 200  # rates of a metric
MAX_PATHS = 10_000  # paces kept, of those used last; senders choose the paths
OUTAGE = 5.0  # seconds: a side that was away for longer may come back with little room
REMEMBERED = 600.0  # seconds for which an entity counts as having just come back


class Paces:
    """One :class:`Pace` for each path; ``max_rate`` in messages per second, None for no limit. Pure.

    Times are monotonic seconds.
    """

    def __init__(self, max_rate: float | None = None) -> None:
        self._max_rate = max_rate
        self._paces: OrderedDict[str, Pace] = OrderedDict()
        self._lost_at: float | None = None
        self._returned_at = -math.inf

    def of(self, path: str, now: float) -> Pace:
        """Return the pace of a path."""
        key = path_key(path)
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = Pace(self._max_rate)
            if now < self._returned_at + REMEMBERED:
                pace.was_out_of_reach(now)
            if len(self._paces) > MAX_PATHS:
                self._paces.popitem(last=False)
        else:
            self._paces.move_to_end(key)
        return pace

    def rates(self, now: float) -> dict[str, float]:
        """Return the messages per second for each path that is paced, in lower case: the MAX_SHOWN slowest.

        May be called in any thread.
        """
        shown = ((pace.shown(now), key) for key, pace in list(self._paces.items()))
        slowest = nsmallest(MAX_SHOWN, ((rate, key) for rate, key in shown if rate < math.inf))
        return {key: rate for rate, key in slowest}

    @property
    def is_side_lost(self) -> bool:
        """Whether the side was out of reach, and was not reached since."""
        return self._lost_at is not None

    def side_lost(self, now: float) -> None:
        """Record that the side is out of reach."""
        if self._lost_at is None:
            self._lost_at = now

    def side_reached(self, now: float) -> None:
        """Record that the side is connected: after an outage all entities begin slowly."""
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is not None and now - lost_at >= OUTAGE:
            self._returned_at = now
            for pace in self._paces.values():
                pace.was_out_of_reach(now)
