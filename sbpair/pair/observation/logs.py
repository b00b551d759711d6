"""Logging as lines of JSON for log collectors, or of text for people.

    undo = use_json_logs()          # everything under the logger "sbpair", as JSON lines on stderr
    undo = use_text_logs()          # the same as text, with time and level

Opt-in: sbpair never configures logging by itself.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from typing import TextIO

from sbpair.pair.tracing import current

from .record import JsonValue, Record, iso, plain, scrub

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: ``at``, ``level``, ``logger``, ``message``, and its ``extra``.

    While tracing is on, ``trace_id`` and ``span_id`` identify the span in which it was logged. Control characters are
    escaped, keys are redacted, and values without a JSON form are written as their ``repr``. An ``extra`` with the
    name of a fixed field is dropped.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: Record = {
            "at": iso(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": scrub(record.getMessage()),
        }
        if current.active is not None and (ids := current.active.ids()):
            line["trace_id"], line["span_id"] = ids
        if record.exc_info:
            line["exception"] = scrub(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = scrub(record.stack_info)
        for name, value in vars(record).items():
            if name not in _STANDARD and name not in line:
                line[name] = _tolerant(value)
        return json.dumps(line, separators=(",", ":"), ensure_ascii=True)


class TextFormatter(logging.Formatter):
    """Formats a record as one line: time in UTC, level, logger and message, without control characters.

    Keys are redacted. An exception is one line too: its traceback is for JSON lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        line = f"{iso(record.created)} {record.levelname} {record.name}: {scrub(text)}"
        return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)


def _tolerant(value: object) -> JsonValue:
    try:
        return plain(value)
    except TypeError:
        return scrub(repr(value))


def use_json_logs(
    name: str = "sbpair", *, stream: TextIO | None = None, level: int = logging.INFO
) -> Callable[[], None]:
    """Write everything under the logger ``name`` to ``stream`` (default: stderr) as JSON; return an undo function."""
    return log_with(JsonFormatter(), name, stream=stream, level=level)


def use_text_logs(
    name: str = "sbpair", *, stream: TextIO | None = None, level: int = logging.INFO
) -> Callable[[], None]:
    """Write everything under the logger ``name`` to ``stream`` (default: stderr) as text; return an undo function."""
    return log_with(TextFormatter(), name, stream=stream, level=level)


def log_with(
    formatter: logging.Formatter,
    name: str = "sbpair",
    *,
    stream: TextIO | None = None,
    level: int = logging.INFO,
) -> Callable[[], None]:
    """Write everything under the logger ``name`` in the form of ``formatter``; return an undo function."""
    logger = logging.getLogger(name)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    level_before, propagated = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False  # else the host's handlers repeat every line

    def undo() -> None:
        logger.removeHandler(handler)
        logger.setLevel(level_before)
        logger.propagate = propagated

    return undo
