"""Dispatch of events to callbacks and to the log.

Each event is one line on the logger "sbpair": its name and a sentence, with its fields as ``extra``.
An exception in a callback is logged and does not affect the send.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from sbpair.emitter import call_all, fields_of
from sbpair.tracing import current

from .events import PairingEvent
from .log_lines import LINES

_logger = logging.getLogger("sbpair")
_logger.addHandler(logging.NullHandler())  # silent unless the application configures logging

MAX_EARLY_EVENTS = 100  # events kept for the first callback


class _Undelivered(threading.local):
    """What the calling thread has still to deliver; None while it delivers nothing."""

    events: deque[PairingEvent] | None = None


class EventDispatcher:
    """The event callbacks of one client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._undelivered = _Undelivered()
        self._callbacks: list[Callable[[PairingEvent], object]] = []
        # Until the first callback subscribes.
        self._early: deque[PairingEvent] | None = deque(maxlen=MAX_EARLY_EVENTS)

    def subscribe(self, callback: Callable[[PairingEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with every event, in the thread that emits it; return a function that unsubscribes it.

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
        """Replace the lock after a fork, since another thread may have held it."""
        self._lock = threading.Lock()

    def emit(self, happened: Iterable[PairingEvent]) -> None:
        """Log each event and pass it to every callback.

        In a callback, return at once: the events follow those that this thread is delivering.
        """
        undelivered = self._undelivered.events
        if undelivered is not None:
            undelivered.extend(happened)
            return
        self._undelivered.events = undelivered = deque(happened)
        try:
            while undelivered:
                self._deliver(undelivered.popleft())
        finally:
            self._undelivered.events = None

    def _deliver(self, event: PairingEvent) -> None:
        _log(event)
        with self._lock:
            callbacks = list(self._callbacks)
            if self._early is not None:
                self._early.append(event)
        _call_all(callbacks, event)


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
