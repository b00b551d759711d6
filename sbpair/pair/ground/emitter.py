"""Events on their way to the log and to callbacks, of a syphon and of a processor.

In the log each event is its name and a sentence, at a level of one policy: ERROR needs a person, WARNING is trouble
that begins, passes by itself or ends, INFO the normal course, DEBUG one line for each message or batch. What each retry
repeats is logged at its level once, again when it changes, and otherwise at growing intervals; in between it is DEBUG.

An error of a callback is logged, and affects neither the other callbacks nor the caller. The events of a client have
a dispatcher of their own (``pairing/dispatcher.py``): many threads emit them, and the first callback gets earlier ones.
"""

from __future__ import annotations

import logging
import re
from asyncio import CancelledError
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FIRST_INTERVAL = 60.0  # seconds until what is repeated is logged again; doubles
FORGOTTEN = 600.0  # seconds without a repetition after which it is news
MAX_SUBJECTS = 1000  # senders choose the paths

_FLEETING = frozenset({"at", "retry_in", "until"})
_TRACKED = re.compile(r"\b(?:Reference|TrackingId|Timestamp):")

EventT = TypeVar("EventT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class LogLine:
    """The level of an event, and its sentence with fields in braces; ``again`` stands for when it is retried.

    ``repeats`` names the field that says what the event is about, where each retry emits another.
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


@dataclass(slots=True)
class _Repeated:
    """What was logged of one subject, and when it is logged again."""

    words: dict[str, Any]
    seen_at: float
    due: float
    interval: float = FIRST_INTERVAL


class Repeats:
    """Which events only repeat what was logged, of the MAX_SUBJECTS subjects last seen."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, object], _Repeated] = OrderedDict()

    def is_news(self, kind: str, subject: object, words: Mapping[str, Any]) -> bool:
        """Whether an event with these fields, ``at`` among them, is to be logged at its level."""
        now = words["at"]
        said = {name: _lasting(word) for name, word in words.items() if name not in _FLEETING}
        known = self._known.pop((kind, subject), None)
        if known is None or known.words != said or not 0 <= now - known.seen_at < FORGOTTEN:
            known = _Repeated(said, now, now)
        self._known[kind, subject] = known
        if len(self._known) > MAX_SUBJECTS:
            self._known.popitem(last=False)
        known.seen_at = now
        if now < known.due:
            return False
        known.due, known.interval = now + known.interval, 2 * known.interval
        return True


def _lasting(word: object) -> object:
    """A field without what the service makes anew for each answer."""
    return _TRACKED.split(word, maxsplit=1)[0] if isinstance(word, str) else word


def _again(seconds: float) -> str:
    return f"again in {seconds:.1f} s" if seconds >= 0.05 else "again at once"


class Emitter(Generic[EventT]):
    """The log and the callbacks of one source of events. Callbacks may be subscribed in any thread."""

    def __init__(self, logger: logging.Logger, lines: Mapping[type[EventT], LogLine]) -> None:
        """``lines`` of the log by class of event."""
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
            is_news = not line.repeats or self._repeats.is_news(name, words[line.repeats], words)
            words.pop("at", None)  # the record has a time of its own
            level = line.level if is_news else logging.DEBUG
            self._logger.log(level, "%s", line.text(event), extra={"event": name, "fields": words})
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
