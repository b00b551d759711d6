"""Parameter types of the command line: durations, settings, rates, sizes, names, entity paths, existing paths.

Each reads the text of one flag. A value of the wrong form is a usage error (exit code 2) that shows the
expected form; a path that does not exist is a configuration error (exit code 3).
"""

from __future__ import annotations

import json
import math
import re
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import click

from sbpair.pair.cli.errors import ConfigurationError

SPAN_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}  # seconds
BYTES = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "kB": 1000, "MB": 1000**2}
NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", re.ASCII)
RATE = re.compile(rf"{NUMBER}(?:/(s|m|h))?", re.ASCII)
SIZE = re.compile(rf"{NUMBER} ?({'|'.join(filter(None, BYTES))})?", re.ASCII)


class DurationType(click.ParamType[timedelta]):
    """A duration: `90s`, `500ms`, `2m`, `1h`, or a plain number of seconds."""

    name = "span"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = SPAN.fullmatch(value.strip())
        seconds = float(match[1]) * SPAN_UNITS[match[2] or "s"] if match else math.nan
        if not 0 <= seconds <= timedelta.max.total_seconds():
            self.fail(f"{value!r} is not a duration such as 90s, 500ms, 2m or 1h", param, ctx)
        return timedelta(seconds=seconds)


def span_text(span: timedelta) -> str:
    """Return a duration as `DurationType` reads it, in the largest unit that is whole."""
    milliseconds = span / timedelta(milliseconds=1)
    if not milliseconds.is_integer():
        return f"{milliseconds:.3f}ms"
    whole = int(milliseconds)
    in_ms = {"h": 3_600_000, "m": 60_000, "s": 1000}
    unit = next((unit for unit, size in in_ms.items() if whole and whole % size == 0), None)
    return f"{whole // in_ms[unit]}{unit}" if unit else f"{whole}ms"


def read_setting(text: str, of: str = "") -> tuple[str, object]:
    """Return the name and value of `name=value`; a number, true or false is read as JSON.

    Raises UsageError with a text that begins with ``of``.
    """
    name, _, value = text.partition("=")
    if not (name and value):
        raise click.UsageError(f"{of}{text!r:.60} is not NAME=VALUE", click.get_current_context())
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = value
    return name, found if isinstance(found, bool | int | float) else value


class Rate(click.ParamType[float]):
    """Messages per second: `200/s`, `5000/m`, or a plain number."""

    name = "rate"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = RATE.fullmatch(str(value).strip())
        rate = float(match[1]) / SPAN_UNITS[match[2] or "s"] if match else 0.0
        if rate <= 0:
            self.fail(f"{value!r} is not a rate such as 200/s, 5000/m or 12", param, ctx)
        return rate


class Size(click.ParamType[int]):
    """Bytes: `1KiB`, `256kB`, or a plain number."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a size such as 1KiB, 256kB or 1000", param, ctx)
        return int(float(match[1]) * BYTES[match[2] or ""])


class PlainName(click.ParamType[str]):
    """The name of a namespace as it occurs in the names of its backlog queues: no slashes."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip() or value != value.strip() or "/" in value or not value.isprintable():
            self.fail(f"{value!r} is not a plain name without slashes", param, ctx)
        return value


class EntityPath(click.ParamType[str]):
    """The path of a queue or topic that accepts messages."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from sbpair.pair.envelope.names import path_refusal  # late: not needed for a start

        refusal = path_refusal(value)
        if refusal is not None:
            self.fail(f"{value!r} is not a queue or topic that accepts messages: {refusal}", param, ctx)
        return value


class ExistingPath(click.Path):
    """A file or directory that exists, as a `pathlib.Path`; `file_okay` and `dir_okay` are click's.

    Raises ConfigurationError with the flag and the path when it does not exist.
    """

    def __init__(self, *, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def fail(
        self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None
    ) -> NoReturn:
        flag = param.opts[0] if param is not None else "path"
        raise ConfigurationError(f"{flag}: {message}")
