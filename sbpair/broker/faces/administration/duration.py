"""How does the administration API write a span? As an XML Schema duration, whose largest value means never.

In the broker a span is whole milliseconds, and never is None.
"""

from __future__ import annotations

import re

LARGEST = "P10675199DT2H48M5.4775807S"
"""The largest count of 100 ns ticks in 64 bits; an SDK may send it back as ...5.477539S: both are never."""

_LARGEST_MS = 922_337_203_685_477
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_PATTERN = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,9})Y)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,12})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,15})(?:\.([0-9]{1,12}))?S)?)?"
)
_UNITS_MS = (365 * _DAY_MS, 30 * _DAY_MS, _DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS)  # as the service counts


def parse_duration(text: str) -> int | None:
    """Milliseconds of an ISO-8601 duration, fractions of one cut off; None for the largest, which is never.

    Raises ``ValueError`` for anything else, a negative or a larger span.
    """
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError("it is not an ISO-8601 duration such as PT1M or P1DT12H")
    *units, fraction = found.groups()
    whole = sum(int(unit or 0) * size for unit, size in zip(units, _UNITS_MS, strict=True))
    milliseconds = whole + int((fraction or "").ljust(3, "0")[:3])
    if milliseconds > _LARGEST_MS:
        raise ValueError(f"it is longer than {LARGEST}")
    return None if milliseconds == _LARGEST_MS else milliseconds


def format_duration(milliseconds: int | None) -> str:
    """``milliseconds`` (>= 0) as a duration of days and smaller units; None is the largest."""
    if milliseconds is None or milliseconds >= _LARGEST_MS:
        return LARGEST
    days, rest = divmod(milliseconds, _DAY_MS)
    hours, rest = divmod(rest, _HOUR_MS)
    minutes, rest = divmod(rest, _MINUTE_MS)
    seconds = f"{rest // 1000}.{rest % 1000:03}".rstrip("0").rstrip(".")
    date = f"{days}D" if days else ""
    parts = ((f"{hours}H", hours), (f"{minutes}M", minutes), (f"{seconds}S", rest))
    time = "".join(text for text, value in parts if value)
    return f"P{date}{'T' + time if time else ''}" if date or time else "PT0S"
