"""Dispatches events to callbacks and to the log.

Each event is one line on the logger "sbpair", with its fields as ``extra``. A callback that raises is logged
and does not disturb the send.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import fields

from . import events
from .events import PairingEvent

_logger = logging.getLogger("sbpair")
_logger.addHandler(logging.NullHandler())  # a library is silent until its application asks

_LEVELS: dict[type[PairingEvent], int] = {
    events.EntitySuspected: logging.WARNING,
    events.EntityFailedOver: logging.WARNING,
    events.EntityRecovered: logging.WARNING,
    events.BacklogWithdrawn: logging.WARNING,
    events.BacklogsNotCreated: logging.WARNING,
    events.ClassifierFailed: logging.ERROR,
    events.SideClosed: logging.WARNING,
    events.SideFaulted: logging.ERROR,
    events.SideRecovered: logging.WARNING,
    events.PairFaulted: logging.ERROR,
    events.HeadroomShort: logging.WARNING,
    events.PairingDisabled: logging.WARNING,
    events.SpooledMessageRefused: logging.ERROR,
    events.MessageParked: logging.DEBUG,
    events.MessageSpooled: logging.DEBUG,
    events.SendRaised: logging.DEBUG,
}


MOST_EARLY = 100  # events kept for the first callback


class EventDispatcher:
    """Those who listen to one client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[PairingEvent], object]] = []
        self._early: deque[PairingEvent] | None = deque(maxlen=MOST_EARLY)  # until somebody listens

    def subscribe(self, callback: Callable[[PairingEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with every event, in the thread it happened in; returns how to stop that.

        The first callback is called now with the last events before it: a client is at work once it is made.
        """
        with self._lock:
            self._callbacks.append(callback)
            early, self._early = self._early, None
        for event in early or ():
            _hand(callback, event)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return unsubscribe

    def renew(self) -> None:
        """After a fork: the lock may have been another thread's."""
        self._lock = threading.Lock()

    def tell(self, happened: Iterable[PairingEvent]) -> None:
        """Log each event and hand it to every callback."""
        for event in happened:
            _log(event)
            with self._lock:
                callbacks = list(self._callbacks)
                if self._early is not None:
                    self._early.append(event)
            for callback in callbacks:
                _hand(callback, event)


def _hand(callback: Callable[[PairingEvent], object], event: PairingEvent) -> None:
    try:
        callback(event)
    except Exception:  # a listener's fault is not the sender's
        _logger.exception("a callback failed on %s", type(event).__name__)


def _log(event: PairingEvent) -> None:
    level = _LEVELS.get(type(event), logging.INFO)
    if not _logger.isEnabledFor(level):
        return
    told = {field.name: getattr(event, field.name) for field in fields(event)}
    text = " ".join(f"{name}={value!r}" for name, value in told.items() if name != "at")
    _logger.log(
        level, "%s %s", type(event).__name__, text, extra={"event": type(event).__name__, "fields": told}
    )
