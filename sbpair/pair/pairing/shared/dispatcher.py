"""Dispatch of events to callbacks, to the log, and to the caller's span.

Each event is one line on the logger "sbpair": its name and a sentence, with its fields as ``extra``. An exception in a
callback is logged and does not affect the send. The effects of an outage on a send are noted on the span of its caller.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import repeat

from sbpair.pair.ground.emitter import Repeats, failures_of_callbacks, fields_of
from sbpair.pair.tracing import current
from sbpair.pair.tracing.current import Attributes, Tracing

from ..decide.pair import Pair, Result, SendFlow
from ..events import EntityFailedOver, MessageParked, MessageSpooled, PairingEvent
from ..outcome import Outcome
from .log_lines import LINES

_logger = logging.getLogger("sbpair")
_logger.addHandler(logging.NullHandler())  # silent unless the application configures logging

MAX_EARLY_EVENTS = 100  # events kept for the first callback


class EventDispatcher:
    """The event callbacks of one client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._undelivered: deque[PairingEvent] = deque()
        self._begun: PairingEvent | None = None  # the first of them, once it is on its way to these
        self._calls: deque[Callable[[PairingEvent], object]] = deque()
        self._batons = [True]  # taken by the thread that delivers
        self._callbacks: list[Callable[[PairingEvent], object]] = []
        # Until the first callback subscribes.
        self._early: deque[PairingEvent] | None = deque(maxlen=MAX_EARLY_EVENTS)
        self._repeats = Repeats()

    def subscribe(self, callback: Callable[[PairingEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with every event, in any thread, one at a time; return a function that unsubscribes it.

        The first callback is first called with the latest events, up to MAX_EARLY_EVENTS, since a new client emits
        events before its application can subscribe.
        """
        while early := self._early_or_added(callback):
            for event in early:
                _call(callback, event)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return unsubscribe

    def listen(self, callback: Callable[[PairingEvent], object]) -> None:
        """As :meth:`subscribe`, for background services: earlier events are kept for the application."""
        with self._lock:
            self._callbacks.append(callback)

    def _early_or_added(self, callback: Callable[[PairingEvent], object]) -> list[PairingEvent]:
        """Return the early events not delivered yet; if there are none left, add ``callback`` for later events."""
        with self._lock:
            early = list(self._early or ())
            if early and self._early is not None:
                self._early.clear()
            else:
                self._early = None
                self._callbacks.append(callback)
            return early

    def renew(self) -> None:
        """Reset after a fork, in the child: undelivered events and the locks belong to the parent."""
        self._lock, self._batons = threading.Lock(), [True]
        self._undelivered, self._begun, self._calls = deque(), None, deque()

    def emit(self, happened: Iterable[PairingEvent]) -> None:
        """Log each event and pass it to every callback, after the events that were put before."""
        self.put(happened)
        self.deliver()

    def put(self, happened: Iterable[PairingEvent]) -> None:
        """Add events for :meth:`deliver`; call it under the lock of the state, so that events follow their causes."""
        self._undelivered.extend(happened)

    def take(self, pending: list[PairingEvent]) -> None:
        """Add events as :meth:`put`, and empty ``pending``; a signal in between loses no event."""
        # in one instruction, as moving() of interruptible.py
        self._undelivered.extend(map(pending.pop, repeat(0, len(pending))))

    def deliver(self) -> None:
        """Log the events that were put, and pass them to the callbacks, to each in the same order.

        Returns at once while another thread delivers, or in a callback: that thread then delivers these events too.
        """
        batons, undelivered = self._batons, self._undelivered
        while undelivered:
            taken: list[bool] = []
            try:
                taken.extend(map(batons.pop, (0,)))  # as above
                while undelivered:
                    self._deliver(undelivered[0])
                    undelivered.popleft()
            except IndexError:
                if taken:
                    raise
                return
            finally:
                batons.extend(taken)

    def _deliver(self, event: PairingEvent) -> None:
        """Deliver an event; an interrupted callback is skipped, and the others still get the event."""
        if self._begun is not event:
            with self._lock:
                self._calls, self._begun = deque([self._log, *self._callbacks]), event
                if self._early is not None:
                    self._early.append(event)
        while self._calls:
            _call(self._calls.popleft(), event)

    def _log(self, event: PairingEvent) -> None:
        line = LINES[type(event)]
        if not _logger.isEnabledFor(line.level):
            return
        if isinstance(event, EntityFailedOver):
            self._repeats = Repeats()  # from now on all is news
        values, name = fields_of(event), type(event).__name__
        level = self._repeats.level_of(line, name, values)
        now = values.pop("at")  # the record has a time of its own, which others can read
        if "until" in values:
            values["until"] = datetime.fromtimestamp(time.time() + values["until"] - now, UTC).isoformat()
        # a record's own attributes cannot be replaced, and BacklogsCreated has a field "created" as they do
        _logger.log(level, "%s", line.text(event), extra={"event": name, "fields": values})


def _call(callback: Callable[[PairingEvent], object], event: PairingEvent) -> None:
    """Call ``callback`` with ``event``; its error is logged."""
    is_traced = current.active is not None  # the application's own calls are not housekeeping
    with current.only(current.SdkSpans.ALL) if is_traced else nullcontext():
        try:
            callback(event)
        except failures_of_callbacks():
            _logger.exception("a callback failed on %s", type(event).__name__)


def note(flow: SendFlow, pair: Pair, tracing: Tracing) -> SendFlow:
    """Return the same flow, which also notes its steps on the span of its caller. Advance it as ``flow``."""
    result: Result | None = None
    try:
        while True:
            before = pair.pending_events
            try:
                step = next(flow) if result is None else flow.send(result)
            except StopIteration as finished:
                outcome: Outcome = finished.value
                return outcome
            finally:
                for name, attributes in _span_events(pair.events_since(before)):
                    tracing.note(name, attributes)
            result = yield step
    finally:
        flow.close()


def _span_events(happened: list[PairingEvent]) -> Iterator[tuple[str, Attributes]]:
    for event in happened:
        match event:
            case EntityFailedOver(path=path, cause=cause):
                yield "sbpair.failover", {"messaging.destination.name": path, "sbpair.cause": cause}
            case MessageParked(path=path, backlog=backlog, count=count, ambiguous=ambiguous):
                attributes = _stored_attributes(path, count, ambiguous)
                yield "sbpair.parked", {**attributes, "sbpair.backlog": backlog}
            case MessageSpooled(path=path, count=count, ambiguous=ambiguous):
                yield "sbpair.spooled", _stored_attributes(path, count, ambiguous)


def _stored_attributes(path: str, count: int, ambiguous: bool) -> Attributes:
    return {
        "messaging.destination.name": path,
        "messaging.batch.message_count": count,
        "sbpair.ambiguous": ambiguous,
    }
