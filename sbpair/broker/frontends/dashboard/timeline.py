"""The history of a pair, built from the journal records of senders and syphons.

spans     the states of each entity, with their start times
landing   the entities whose parked messages now land on the secondary
events    the events, the newest last; repeated events within one state become one event with a count
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field

Row = dict[str, object]
Records = Callable[[], Iterable[Mapping[str, object]]]
"""Returns the journal records added since the last call."""

KEPT = 300  # events
MAX_ENTITIES, MAX_SPANS = 50, 60
MAX_KINDS = 200  # of events, whose messages are counted
MAX_TEXT = 300  # characters

STATE_AFTER = {
    "entity_suspected": "suspect",
    "entity_failed_over": "failed_over",
    "entity_recovered": "healthy",
}
LANDING_AFTER = {"landing_began": True, "landing_ended": False, "landing_refused": False}
FORWARDED, LANDED = "messages_forwarded", "messages_landed"
BROKER = "broker"  # the dashboard shows the broker's own messages directly
_NOT_SHOWN = ("journal_opened", "journal_closed", "syphon_counters")
_REASONS = ("cause", "reason", "description")


@dataclass(slots=True)
class TimelineEvent:
    """One event, or several equal ones, from ``at`` to ``until`` (ISO 8601), for ``messages`` messages."""

    at: str
    until: str
    role: str
    event: str
    path: str
    why: str
    where: str
    times: int = 1
    messages: int = 0


@dataclass(slots=True)
class StatePeriod:
    """The state of an entity from ``at`` on."""

    state: str
    at: str


@dataclass(slots=True)
class PairTimeline:
    """The history so far; pass each record to :meth:`take` once."""

    records: int = 0
    events: deque[TimelineEvent] = field(default_factory=lambda: deque(maxlen=KEPT))
    spans: dict[str, deque[StatePeriod]] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    landing: dict[str, None] = field(default_factory=dict)
    _open: dict[tuple[str, str, str, str], TimelineEvent] = field(default_factory=dict)

    def take(self, records: Iterable[Mapping[str, object]]) -> None:
        """Add journal records; anything else is skipped."""
        for record in records:
            if isinstance(record.get("event"), str) and isinstance(record.get("at"), str):
                self.records += 1
                self._take(record)

    def _take(self, record: Mapping[str, object]) -> None:
        event, at, path = _kind(record), _text(record, "at"), _text(record, "path")
        if event in _NOT_SHOWN or record.get("role") == BROKER:
            return
        count = _messages(record)
        if event in self.messages or len(self.messages) < MAX_KINDS:
            self.messages[event] = self.messages.get(event, 0) + count
        if event in STATE_AFTER:
            self._open.clear()
            self._change(path, STATE_AFTER[event], at)
        if event in LANDING_AFTER:
            self._open.clear()
            self._lands(path, LANDING_AFTER[event])
        where = _text(record, "backlog_queue") or _text(record, "side")
        key = (_text(record, "role"), event, path, where)
        alike = self._open.get(key)
        if alike is not None:
            alike.until, alike.times, alike.messages = at, alike.times + 1, alike.messages + count
            return
        if len(self._open) >= KEPT:
            self._open.clear()
        why = next((text for name in _REASONS if (text := _text(record, name))), "")
        self._open[key] = TimelineEvent(at, at, key[0], event, path, why, where, messages=count)
        self.events.append(self._open[key])

    def _change(self, path: str, state: str, at: str) -> None:
        if path not in self.spans and len(self.spans) >= MAX_ENTITIES:
            return
        spans = self.spans.setdefault(path, deque(maxlen=MAX_SPANS))
        spans.append(StatePeriod(state, at))

    def _lands(self, path: str, lands: bool) -> None:
        if not lands:
            self.landing.pop(path, None)
        elif len(self.landing) < MAX_ENTITIES:
            self.landing[path] = None

    def view(self) -> Row:
        """Return the history as plain values, the newest event first."""
        return {
            "records": self.records,
            "messages": self.messages,
            "landing": list(self.landing),
            "entities": [
                {"path": path, "state": spans[-1].state, "spans": [asdict(span) for span in spans]}
                for path, spans in self.spans.items()
            ],
            "events": [asdict(each) for each in sorted(self.events, key=lambda each: each.at, reverse=True)],
        }


def _kind(record: Mapping[str, object]) -> str:
    """Return the name of the event; messages forwarded to the secondary have landed."""
    event = _text(record, "event")
    return LANDED if event == FORWARDED and record.get("side") == "secondary" else event


def _text(record: Mapping[str, object], name: str) -> str:
    value = record.get(name)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _messages(record: Mapping[str, object]) -> int:
    count, ids = record.get("count"), record.get("message_ids")
    if isinstance(count, int) and not isinstance(count, bool):
        return count
    return len(ids) if isinstance(ids, list) else 0
