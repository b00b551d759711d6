"""The events of a syphon or a processor, passed to the log and to callbacks.

In the log, an event is its name and a sentence. Its level follows one policy: ERROR needs a person; WARNING is trouble
that begins, passes by itself or ends; INFO is the normal course; DEBUG is one line for each message or batch. An event
that every retry repeats is logged at its level once, again when it changes, and otherwise at growing intervals; in
between it is DEBUG. A change of times and ids in a text does not count as a change.

An error of a callback is logged, and affects neither the other callbacks nor the caller. The events of a client have
their own dispatcher (``pairing/dispatcher.py``): many threads emit them, and the first callback also gets earlier
events.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FIRST_INTERVAL = 60.0  # seconds until a repeated event is logged again; doubles
FORGOTTEN = 600.0  # seconds without a repetition after which it is news
MAX_SUBJECTS = 1000  # senders choose the paths

EventT = TypeVar("EventT", bound="DataclassInstance")


class LogLine(NamedTuple):
    """The level of an event, and its sentence with fields in braces; ``again`` is the time of the next attempt.

    ``repeats``, for an event that each retry emits again, names the fields, separated by spaces, that make two events
    equal.
    """

    level: int
    sentence: str
    repeats: str = ""

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


class _Repeated:
    """The last log line of one subject, and when it is logged again."""

    __slots__ = ("due", "interval", "seen_at")

    def __init__(self, now: float) -> None:
        self.seen_at = self.due = now
        self.interval = FIRST_INTERVAL


class Repeats:
    """Detects events that repeat a logged one, for the last MAX_SUBJECTS subjects."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], _Repeated] = OrderedDict()

    def is_news(self, kind: str, subject: Iterable[object], now: float) -> bool:
        """Whether to log at its level an event about these fields, at the time ``now``."""
        key = (kind, *(_lasting(each) for each in subject))
        known = self._known.pop(key, None)
        if known is None or not 0 <= now - known.seen_at < FORGOTTEN:
            known = _Repeated(now)
        self._known[key] = known
        if len(self._known) > MAX_SUBJECTS:
            self._known.popitem(last=False)
        known.seen_at = now
        if now < known.due:
            return False
        known.due, known.interval = now + known.interval, 2 * known.interval
        return True

    def level_of(self, line: LogLine, name: str, words: Mapping[str, Any]) -> int:
        """Return the level of an event with these fields, which include ``at``: DEBUG for a repetition."""
        if line.repeats and not self.is_news(name, map(words.get, line.repeats.split()), words["at"]):
            return logging.DEBUG
        return line.level


def _lasting(word: object) -> object:
    """Return a field without parts that differ in each answer, such as times and ids."""
    return _made_anew().sub("…", word) if isinstance(word, str) else word


@cache
def _made_anew() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:Reference|TrackingId|Timestamp):.*"  # the service's trackers of an answer, up to the end
        r"|\d{1,4}[-/]\d{1,2}[-/]\d{1,4}(?:[T ]\d{1,2}:\d{2}[\d:.,]*(?: ?[AP]M)?)?(?:Z|[+-]\d\d:?\d\d)?"  # a date
        r"|\b\d{1,2}:\d{2}:\d{2}[\d.]*"  # a time
        r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\w*"  # an id
        r"|\b(?=[a-fA-F]*\d)[0-9a-fA-F]{12,}\b"  # another, or an instant in milliseconds
        r"|\b\d+(?:\.\d+)? ?(?:ms|s|seconds|minutes)\b",  # a span
        re.DOTALL,
    )


def _again(seconds: float) -> str:
    return f"again in {seconds:.1f} s" if seconds >= 0.05 else "again at once"


class Emitter(Generic[EventT]):
    """The log and the callbacks of one source of events. Callbacks may be subscribed in any thread."""

    def __init__(self, logger: logging.Logger, lines: Mapping[type[EventT], LogLine]) -> None:
        """Create an emitter; ``lines`` maps each event class to its log line."""
        self._logger = logger
        self._lines = lines
        self._repeats = Repeats()
        self._callbacks: list[Callable[[EventT], object]] = []

    def subscribe(self, callback: Callable[[EventT], object]) -> Callable[[], None]:
        """Call ``callback`` with each event; return a function that removes it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def emit(self, event: EventT) -> None:
        """Log an event with its fields as ``extra``, and call the callbacks."""
        line = self._lines[type(event)]
        if self._logger.isEnabledFor(line.level):
            name, words = type(event).__name__, fields_of(event)
            level = self._repeats.level_of(line, name, words)
            words.pop("at", None)  # the record has a time of its own
            self._logger.log(level, "%s", line.text(event), extra={"event": name, "fields": words})
        for callback in list(self._callbacks):
            try:
                callback(event)
            except failures_of_callbacks():
                self._logger.exception("a callback failed on %s", type(event).__name__)


def failures_of_callbacks() -> tuple[type[BaseException], ...]:
    """Return what a callback may raise without stopping those that call it."""
    from asyncio import CancelledError  # late: a blocking client does without, and few callbacks fail

    return Exception, CancelledError


def fields_of(event: DataclassInstance) -> dict[str, Any]:
    """The fields of an event by name."""
    return {field.name: getattr(event, field.name) for field in fields(event)}
