"""Events on their way to the log and to callbacks, of a syphon and of a processor.

An error of a callback is logged, and affects neither the other callbacks nor the caller. The events of a client have
a dispatcher of their own (``pairing/dispatcher.py``): many threads emit them, and the first callback gets earlier ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

EventT = TypeVar("EventT", bound="DataclassInstance")


class Emitter(Generic[EventT]):
    """The log and the callbacks of one source of events. Callbacks may be subscribed in any thread."""

    def __init__(self, logger: logging.Logger, levels: Mapping[type[EventT], int]) -> None:
        """``levels`` of the log by class of event; INFO for the others.

        No event may have a field with the name of an attribute of a log record: logging would raise KeyError.
        """
        self._logger = logger
        self._levels = levels
        self._callbacks: list[Callable[[EventT], object]] = []

    def subscribe(self, callback: Callable[[EventT], object]) -> Callable[[], None]:
        """Call ``callback`` with each event; return a function that removes it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def emit(self, event: EventT) -> None:
        """Log an event with its fields as ``extra``, and call the callbacks."""
        level = self._levels.get(type(event), logging.INFO)
        if self._logger.isEnabledFor(level):
            extra = {"event": type(event).__name__, **fields_of(event)}
            extra.pop("at", None)  # the record has a time of its own
            self._logger.log(level, "%s", event, extra=extra)
        call_all(self._callbacks, event, self._logger)


def call_all(callbacks: Iterable[Callable[[EventT], object]], event: EventT, logger: logging.Logger) -> None:
    """Call each of ``callbacks`` with ``event``; their errors are logged."""
    for callback in list(callbacks):
        try:
            callback(event)
        except Exception:  # a failing callback must not stop the emitter
            logger.exception("a callback failed on %s", type(event).__name__)


def fields_of(event: DataclassInstance) -> dict[str, Any]:
    """The fields of an event by name."""
    return {field.name: getattr(event, field.name) for field in fields(event)}
