"""Aliases: application properties that hold the values which parking removes from a message.

Time spans are integer milliseconds, the unit of AMQP's ``header.ttl``; instants are integer milliseconds since the
epoch, as AMQP's timestamp. Both are written as ISO 8601. Imports the standard library only.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache

PATH = "x-ms-path"
SESSION_ID = "x-ms-sessionid"
TIME_TO_LIVE = "x-ms-timetolive"
SCHEDULED = "x-ms-scheduledenqueuetimeutc"
PARTITION_KEY = "x-sbpair-partitionkey"
DEADLINE = "x-sbpair-deadline"
ABSOLUTE_EXPIRY = "x-sbpair-absoluteexpirytime"
VERSION = "x-sbpair-version"
ORDER = "x-sbpair-order"

ENVELOPE_VERSION = "1"
"""The value of VERSION: identifies this set of aliases."""

RESERVED = frozenset(
    {PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED, PARTITION_KEY, DEADLINE, ABSOLUTE_EXPIRY, VERSION, ORDER}
)
"""Names an application must not use; a restored message carries none of them."""

ANNOTATION_SCHEDULED = "x-opt-scheduled-enqueue-time"
ANNOTATION_PARTITION_KEY = "x-opt-partition-key"
ANNOTATION_DESTINATION = "x-opt-sbpair-path"
"""The destination of a message sent via its backlog queue, for the case that it cannot be transferred."""

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"


_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000, 3_600_000, 60_000, 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_duration(milliseconds: int) -> str:
    """Format milliseconds: ``PT5M`` for 300 000, ``PT0.001S`` for 1, ``P1DT1S`` for 86 401 000.

    Raises ValueError when the span is negative.
    """
    if milliseconds < 0:
        raise ValueError(f"a span cannot be negative: {milliseconds} ms")
    days, rest = divmod(milliseconds, _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    seconds, fraction = divmod(rest, _SECOND)
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if fraction:
        clock += f"{seconds}.{fraction:03d}".rstrip("0") + "S"
    elif seconds or not (days or clock):
        clock += f"{seconds}S"
    return "P" + (f"{days}D" if days else "") + (f"T{clock}" if clock else "")


@cache  # late: a sender parses none
def _duration() -> re.Pattern[str]:
    return re.compile(
        # The digits are bounded, so that parsing stays linear in the length of the text.
        r"P(?:(?P<weeks>[0-9]{1,18})W)?(?:(?P<days>[0-9]{1,18})D)?"
        r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,18})H)?(?:(?P<minutes>[0-9]{1,18})M)?"
        r"(?:(?P<seconds>[0-9]{1,18})(?:[.,](?P<fraction>[0-9]{1,18}))?S)?)?"
    )


def parse_duration(text: str) -> int:
    """Parse a span into milliseconds, truncating finer fractions.

    Raises ValueError with the text when it is not a duration, or has years or months: they have no fixed length.
    """
    match = _duration().fullmatch(text)
    if match is None or text in {"P", "PT"}:
        raise ValueError(f"not an ISO 8601 duration: {text[:64]!r}")
    parts = {name: int(value or 0) for name, value in match.groupdict().items() if name != "fraction"}
    fraction = int(((match["fraction"] or "") + "000")[:3])
    hours = (parts["weeks"] * 7 + parts["days"]) * 24 + parts["hours"]
    return hours * _HOUR + parts["minutes"] * _MINUTE + parts["seconds"] * _SECOND + fraction


def format_instant(milliseconds: int) -> str:
    """Format milliseconds since the epoch: ``2026-11-21T00:00:00Z``, with a fraction only when it is not zero.

    Raises ValueError outside the years 1 to 9999.
    """
    try:
        instant = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise ValueError(f"an instant outside the years 1 to 9999: {milliseconds} ms") from None
    text = instant.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    fraction = instant.microsecond // 1000
    return text + (f".{fraction:03d}Z" if fraction else "Z")


def parse_instant(text: str) -> int:
    """Parse an instant into milliseconds since the epoch; without an offset it is UTC.

    Raises ValueError with the text when it is not an instant.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"not an ISO 8601 instant: {text[:64]!r}") from None
    return instant_of(instant)


def instant_of(instant: datetime) -> int:
    """Convert a datetime to milliseconds since the epoch; a naive one is UTC, as in the SDK."""
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)
