"""Landing: whether the messages of a destination go to the primary, or to its path on the secondary. Pure.

                out of reach for `after` seconds, and the secondary has a twin
    PRIMARY --------------------------------------------------------------------> SECONDARY
       ^                                                                              |
       |      the entity on the primary answers, or the secondary has no twin         |
       '------------------------------------------------------------------------------'

A destination is out of reach from the first attempt without an answer, or from the loss of the primary as a whole,
until the entity answers by accepting a message, refusing one, or asking to wait. Any such answer counts, since
consumers can then work there too; a new connection to the primary does not, because no entity has answered yet. If
there is no message to be answered, an accepted link to the entity counts after a while.

Times are monotonic seconds; destinations are keys of paths.
"""

from __future__ import annotations

from sbpair.pair.ground.side import Side

MAX_PATHS = 10_000  # destinations remembered; senders choose the paths


class Landing:
    """Decides for each destination whether its messages land; the owner reports events, and asks before it sends."""

    def __init__(self, after: float) -> None:
        self._after = after
        self._side_since: float | None = None
        self._since: dict[str, float] = {}  # destinations out of reach, the earliest known first
        self._no_twin: dict[str, float] = {}  # until when the secondary is taken to have no twin
        self._landing: dict[str, str] = {}  # the paths of destinations whose landing has begun

    @property
    def landing(self) -> tuple[str, ...]:
        """The destinations whose messages have begun to land."""
        return tuple(self._landing)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of these destinations, spelled as in the first message that landed."""
        return tuple(self._landing.values())

    # Events

    def side_lost(self, now: float) -> None:
        """Record that the primary was lost, or cannot be connected to."""
        if self._side_since is None:
            self._side_since = now

    def side_reached(self) -> None:
        """Record that the primary is connected; each destination that was out of reach must still answer."""
        self._side_since = None

    def out_of_reach(self, key: str, since: float) -> None:
        """Record that a destination has not answered since ``since``."""
        if self._side_since is not None:
            since = min(since, self._side_since)
        if key not in self._since:
            self._since[key] = since
            if len(self._since) > MAX_PATHS:
                self._forget(next(iter(self._since)))

    def note_answer(self, key: str) -> bool:
        """Record that a destination answered; return whether its messages had begun to land."""
        was_landing = key in self._landing
        self._forget(key)
        return was_landing

    def twin_missing(self, key: str, until: float) -> None:
        """Record that the secondary has no usable entity with that path; the next check is at ``until``."""
        self._no_twin[key] = until
        self._landing.pop(key, None)

    def begins(self, key: str, path: str) -> bool:
        """Record that messages of a destination land; return whether they did not before."""
        is_first = key not in self._landing
        self._landing.setdefault(key, path)
        return is_first

    def _forget(self, key: str) -> None:
        for table in (self._since, self._no_twin, self._landing):
            table.pop(key, None)

    # Decisions

    def is_out_of_reach(self, key: str) -> bool:
        """Whether a destination has not answered yet."""
        return self._out_since(key) is not None

    def side_due(self) -> float | None:
        """Return when messages begin to land because the primary is lost; None while it is connected."""
        return None if self._side_since is None else self._side_since + self._after

    def due(self, key: str) -> float | None:
        """Return when the messages of a destination begin or began to land; None while the destination is in reach."""
        since = self._out_since(key)
        if since is None:
            return None
        return max(since + self._after, self._no_twin.get(key, since))

    def out_of_reach_for(self, key: str, now: float) -> float:
        """Return for how many seconds a destination has been out of reach; 0.0 while it is in reach."""
        since = self._out_since(key)
        return 0.0 if since is None else now - since

    def where(self, key: str, now: float) -> Side:
        """Return the side that the messages of a destination go to."""
        due = self.due(key)
        return Side.SECONDARY if due is not None and now >= due else Side.PRIMARY

    def _out_since(self, key: str) -> float | None:
        since, side = self._since.get(key), self._side_since
        if since is None or side is None:
            return side if since is None else since
        return min(since, side)
