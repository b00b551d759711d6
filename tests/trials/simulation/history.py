"""The events of one run, recorded by the drivers and the brokers' entities, not by the code under test.

attempt  ack  refused          an application and its message
stored                         a broker took a copy: from whom, where
unanswered                     ... and its sender got no answer: one ambiguity event (G-4)
delivered                      a consumer received it, in these bytes
dead-lettered                  a backlog dead-lettered it, for this reason
handling  handled              a processor called its handler, and it returned
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    who: str
    what: str
    message_id: str = ""
    more: str = ""

    def __str__(self) -> str:
        return f"{self.at:9.4f}  {self.who:<12} {self.what:<14} {self.message_id:<8} {self.more}"


@dataclass(slots=True)
class Hop:
    """A syphon's copy at its destination, while the backlog still has the parked one."""

    who: str
    message_id: str
    since: float
    until: float | None = None  # when the backlog got the answer; None: never
    landed_at: float | None = (
        None  # when a transaction stored it on the secondary; None: it came home, or without one
    )
    is_kept: bool = False  # its partition was down when it was to be completed, and the parked one stays

    @property
    def is_atomic(self) -> bool:
        """Whether it was stored and completed in one step: no fault makes that unsure."""
        return self.landed_at is not None and self.until == self.landed_at


@dataclass(slots=True)
class Handled:
    """A handler of a processor that returned, and what became of its message."""

    who: str
    path: str
    message_id: str
    since: float
    returned: float
    is_completed: bool = False  # by the same processor


@dataclass(slots=True)
class History:
    entries: list[Entry] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    attempted: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    delivered: Counter[str] = field(default_factory=Counter)
    dead: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unanswered: Counter[str] = field(default_factory=Counter)  # copies whose sender got no answer
    audited: Counter[str] = field(default_factory=Counter)  # by the topic's other subscription
    expired: Counter[str] = field(default_factory=Counter)  # set aside by the primary, past their time
    deadlines: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By message id, the earliest and the latest: each call of the application fixes its own (G-15)."""
    hops: list[Hop] = field(default_factory=list)
    handled: list[Handled] = field(default_factory=list)
    disturbed: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, at: float, who: str, what: str, message_id: str = "", more: str = "") -> None:
        self.entries.append(Entry(at, who, what, message_id, more))

    def wrong(self, what: str) -> None:
        self.violations.append(what)

    def open_hop(self, who: str, message_id: str) -> Hop | None:
        """The latest hop of this message whose parked one is still in the backlog."""
        hops = (hop for hop in reversed(self.hops) if (hop.who, hop.message_id) == (who, message_id))
        return next((hop for hop in hops if hop.until is None), None)

    def ambiguity(self, message_id: str) -> int:
        """How many copies of this message a fault has made unsure for the one who sent them (G-4)."""
        hops = [hop for hop in self.hops if hop.message_id == message_id and not hop.is_atomic]
        hit = sum(1 for hop in hops if self._is_hit(hop))
        return self.unanswered[message_id] + hit

    def _is_hit(self, hop: Hop) -> bool:
        until = float("inf") if hop.until is None else hop.until
        return hop.is_kept or self.is_disturbed(hop.who, hop.since, until)

    def is_disturbed(self, who: str, since: float, until: float) -> bool:
        """Whether a fault made unsure what this process did between two instants."""
        return any(start <= until and end >= since for start, end in self.disturbed[who])

    def last_handled(self, who: str, path: str, message_id: str) -> Handled | None:
        """The latest return of a handler of this message that was not followed by a completion."""
        copy = who, path, message_id
        return next(
            (
                each
                for each in reversed(self.handled)
                if (each.who, each.path, each.message_id) == copy and not each.is_completed
            ),
            None,
        )
