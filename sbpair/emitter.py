"""Events on their way to the log and to callbacks, of a syphon and of a processor.

In the log each event is its name and a sentence, at a level of one policy: ERROR needs a person, WARNING is trouble
that begins, passes by itself or ends, INFO the normal course, DEBUG one line for each message or batch.

An error of a callback is logged, and affects neither the other callbacks nor the caller. The events of a client have
a dispatcher of their own (``pairing/dispatcher.py``): many threads emit them, and the first callback gets earlier ones.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

EventT = TypeVar("EventT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class LogLine:
    """The level of an event, and its sentence with fields in braces; ``again`` stands for when it is retried."""

    level: int
    sentence: str

    def text(self, event: DataclassInstance) -> str:
        """The name of the event and its sentence."""
        words = fields_of(event)
        if "retry_in" in words:
            words["again"] = _again(words["retry_in"])
        if "until" in words:
            words["rest"] = words["until"] - words["at"]
        if words.get("path", "") is None:
            words["path"] = "no usable path"
        return f"{type(event).__name__}: {self.sentence.format_map(words)}"


def _again(seconds: float) -> str:
    return f"again in {seconds:.1f} s" if seconds >= 0.05 else "again at once"


class Emitter(Generic[EventT]):
    """The log and the callbacks of one source of events. Callbacks may be subscribed in any thread."""

    def __init__(self, logger: logging.Logger, lines: Mapping[type[EventT], LogLine]) -> None:
        """``lines`` of the log by class of event.

        No event may have a field with the name of an attribute of a log record: logging would raise KeyError.
        """
        self._logger = logger
        self._lines = lines
        self._callbacks: list[Callable[[EventT], object]] = []

    def subscribe(self, callback: Callable[[EventT], object]) -> Callable[[], None]:
        """Call ``callback`` with each event; return a function that removes it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def emit(self, event: EventT) -> None:
        """Log an event with its fields as ``extra``, and call the callbacks."""
        line = self._lines[type(event)]
        if self._logger.isEnabledFor(line.level):
            extra = {"event": type(event).__name__, **fields_of(event)}
            extra.pop("at", None)  # the record has a time of its own
            self._logger.log(line.level, "%s", line.text(event), extra=extra)
        call_all(self._callbacks, event, self._logger)


def call_all(callbacks: Iterable[Callable[[EventT], object]], event: EventT, logger: logging.Logger) -> None:
    """Call each of ``callbacks`` with ``event``; their errors are logged."""
    for callback in list(callbacks):
        try:
            callback(event)
        except (Exception, CancelledError):  # a failing callback must not stop the emitter
            logger.exception("a callback failed on %s", type(event).__name__)


def fields_of(event: DataclassInstance) -> dict[str, Any]:
    """The fields of an event by name."""
    return {field.name: getattr(event, field.name) for field in fields(event)}
