"""How are spans and instants written in a parked message, and read back? (P-20)

Spans are integer milliseconds: the unit of AMQP's header.ttl. Instants are integer milliseconds
since the epoch: AMQP's timestamp. Pure: the standard library only.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000, 3_600_000, 60_000, 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:[.,](?P<fraction>\d+))?S)?)?"
)


def format_duration(milliseconds: int) -> str:
    """``PT5M`` for 300 000, ``PT0.001S`` for 1, ``P1DT1S`` for 86 401 000.

    Raises ValueError for a negative span.
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


def parse_duration(text: str) -> int:
    """The span in milliseconds (finer fractions are cut off). Raises ValueError, naming the text.

    Years and months are refused: they have no fixed length.
    """
    match = _DURATION.fullmatch(text)
    if match is None or text in {"P", "PT"}:
        raise ValueError(f"not an ISO 8601 duration: {text!r}")
    parts = {name: int(value or 0) for name, value in match.groupdict().items() if name != "fraction"}
    fraction = int(((match["fraction"] or "") + "000")[:3])
    hours = (parts["weeks"] * 7 + parts["days"]) * 24 + parts["hours"]
    return hours * _HOUR + parts["minutes"] * _MINUTE + parts["seconds"] * _SECOND + fraction


def format_instant(milliseconds: int) -> str:
    """``2026-11-21T00:00:00Z``, with milliseconds only where there are some.

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
    """Milliseconds since the epoch. No offset is read as UTC. Raises ValueError, naming the text."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"not an ISO 8601 instant: {text!r}") from None
    return instant_of(instant)


def instant_of(instant: datetime) -> int:
    """A datetime in milliseconds since the epoch; a naive one is UTC, as in the SDK."""
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)
