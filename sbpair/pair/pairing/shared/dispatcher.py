"""Dispatch of events to callbacks, to the log, and to the caller's span.

Each event is one line on the logger "sbpair": its name and a sentence, with its fields as ``extra``.
An exception in a callback is logged and does not affect the send. What an outage does to one send is noted on the
span of its caller.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial

from sbpair.pair.ground.emitter import call_all, fields_of
from sbpair.pair.ground.interruptible import moving
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

    def subscribe(self, callback: Callable[[PairingEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with every event, in any thread, one at a time; return a function that unsubscribes it.

        The first callback is first called with the latest events, up to MAX_EARLY_EVENTS, since a new client emits
        events before its application can subscribe.
        """
        while early := self._early_or_added(callback):
            for event in early:
                _call_all([callback], event)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return unsubscribe

    def listen(self, callback: Callable[[PairingEvent], object]) -> None:
        """As :meth:`subscribe`, for what runs beside the senders: earlier events are kept for the application."""
        with self._lock:
            self._callbacks.append(callback)

    def _early_or_added(self, callback: Callable[[PairingEvent], object]) -> list[PairingEvent]:
        """Return the early events not delivered yet; with none left, add ``callback`` for those to come."""
        with self._lock:
            early = list(self._early or ())
            if early and self._early is not None:
                self._early.clear()
            else:
                self._early = None
                self._callbacks.append(callback)
            return early

    def renew(self) -> None:
        """After a fork, in the child: what is not delivered yet, and the locks, are the parent's."""
        self._lock, self._batons = threading.Lock(), [True]
        self._undelivered, self._begun, self._calls = deque(), None, deque()

    def emit(self, happened: Iterable[PairingEvent]) -> None:
        """Log each event and pass it to every callback, after those that were put before."""
        self.put(happened)
        self.deliver()

    def put(self, happened: Iterable[PairingEvent]) -> None:
        """Add events to those that :meth:`deliver` passes on; under one lock, in the order of their causes."""
        self._undelivered.extend(happened)

    def take(self, pending: list[PairingEvent]) -> None:
        """As :meth:`put`, and empty ``pending``: no signal loses an event between the two."""
        self._undelivered.extend(moving(partial(pending.pop, 0), len(pending)))

    def deliver(self) -> None:
        """Log the events that were put, and pass them on in this order, the same for every callback.

        Returns at once while another thread delivers, or in a callback: those events follow in that thread.
        """
        batons, undelivered = self._batons, self._undelivered
        while undelivered:
            taken: list[bool] = []
            try:
                taken.extend(moving(batons.pop))
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
        """Go on with an event: a signal that interrupts a callback leaves it out for that one only."""
        if self._begun is not event:
            with self._lock:
                self._calls, self._begun = deque([_log, *self._callbacks]), event
                if self._early is not None:
                    self._early.append(event)
        while self._calls:
            _call_all([self._calls.popleft()], event)


def _call_all(callbacks: Iterable[Callable[[PairingEvent], object]], event: PairingEvent) -> None:
    if current.active is None:
        call_all(callbacks, event, _logger)
    else:
        with current.only(current.SdkSpans.ALL):  # the application's own calls are not housekeeping
            call_all(callbacks, event, _logger)


def _log(event: PairingEvent) -> None:
    line = LINES[type(event)]
    if not _logger.isEnabledFor(line.level):
        return
    values = fields_of(event)
    now = values.pop("at")  # the record has a time of its own, which others can read
    if "until" in values:
        values["until"] = datetime.fromtimestamp(time.time() + values["until"] - now, UTC).isoformat()
    # a record's own attributes cannot be replaced, and BacklogsCreated has a field "created" as they do
    extra = {"event": type(event).__name__, "fields": values}
    _logger.log(line.level, "%s", line.text(event), extra=extra)


def note(flow: SendFlow, pair: Pair, tracing: Tracing) -> SendFlow:
    """The same flow, which adds what it does to the span of its caller. Advance it where ``flow`` may be advanced."""
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
