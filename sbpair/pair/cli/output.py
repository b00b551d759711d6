"""Terminal output: tables and ages on standard output, notices on standard error, with every secret blanked.

`as_log` switches the notices of the process to log lines, the final error included, so that a log collector reads a
single format.
"""

from __future__ import annotations

import base64
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import click

from sbpair.pair.auth.redaction import BLANK, blank_keys

if TYPE_CHECKING:
    from rich.table import Table

LOGGER = "sbpair.command"
MIN_SECRET_LENGTH = 6  # characters; a shorter "secret" would blank ordinary words
WIDTH_IN_A_FILE = 200  # columns
UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

_secrets: set[str] = set()
_end: Callable[[], None] | None = None  # ends the log of this run, if notices are log lines


# Secrets.


def remember(secret: str) -> None:
    """Blank this value in all later output: as it is, URL-encoded and in base64."""
    if len(secret) >= MIN_SECRET_LENGTH:
        encoded = base64.b64encode(secret.encode()).decode()
        _secrets.update({secret, quote(secret, safe=""), quote(secret), quote_plus(secret), encoded})


def redact(text: str) -> str:
    """Blank the remembered secrets in ``text``, and everything that looks like a key or a token."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, BLANK)
    return blank_keys(text)


# Notices.


def as_log(level: int, *, is_json: bool) -> None:
    """Write notices, and everything that is logged at ``level`` or above, as log lines from now on."""
    from sbpair.pair.observation.logs import JsonFormatter, TextFormatter, log_with

    global _end
    end_log()
    _end = log_with(_Redacting(JsonFormatter() if is_json else TextFormatter()), level=level)


def end_log() -> None:
    """Write notices as plain text again: the run that asked for a log is over."""
    global _end
    if _end is not None:
        _end()
        _end = None


class _Redacting(logging.Formatter):
    """Blanks the remembered secrets in the lines of another formatter."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        return redact(self._formatter.format(record))


def notice(line: str, command: str = "", level: int = logging.INFO) -> None:
    """Write a redacted line to standard error; unless it is a log line, it starts with the name of the command."""
    if _end is not None:
        logging.getLogger(LOGGER).log(level, "%s", redact(line))
    else:
        click.echo(f"sbpair{command and ' '}{command}: {redact(line)}", err=True)


def say_more(path: str, count: int) -> None:
    """Print that not all messages of ``path`` were shown."""
    notice(f"{path} has more messages than these {count}: give a larger --count")


# Tables and ages.


def plain(text: str) -> str:
    """Return ``text`` with its control characters replaced, so that it cannot move the cursor or change colours."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def show(table: Table) -> None:
    """Print ``table`` to standard output; cells that exceed their column wrap and are never cut."""
    from rich.console import Console

    for column in table.columns:
        column.overflow = "fold"
    width = None if sys.stdout.isatty() else WIDTH_IN_A_FILE
    Console(width=width, highlight=False, markup=False, emoji=False).print(table)


def age_seconds(since: int | None, now: int) -> float | None:
    """Return the seconds from ``since`` to ``now``, both in milliseconds since the epoch; 0 if ``since`` is later."""
    return None if since is None else max(now - since, 0) / 1000


def age_text(seconds: float | None) -> str:
    """Return a duration as text in its two largest units, such as ``3 h 12 min``; ``-`` for None."""
    if seconds is None:
        return "-"
    rest = int(seconds)
    words: list[str] = []
    for size, unit in UNITS:
        number, rest = divmod(rest, size)
        if number or words:
            words.append(f"{number} {unit}")
    return " ".join(words[:2]) or "0 s"


def instant_text(milliseconds: int | None) -> str:
    """Return a time in milliseconds since the epoch as text, such as ``2026-11-21 07:00:00Z``; ``-`` for None."""
    if milliseconds is None:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
