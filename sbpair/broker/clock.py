"""Clocks for entity time, the readings of all clocks at one instant, and ISO 8601 durations.

Entity time drives locks, time to live, schedules and idle deletion. A driven clock starts at the real now,
because clients compare lock expiries with their own clock.
"""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import NamedTuple, Protocol


class ClockReading(NamedTuple):
    """The same instant on every clock a frontend needs."""

    connection: float
    """Seconds, monotonic: handshakes and heartbeats, which the peer times too."""
    wall: int
    """Seconds since the epoch: expiry of tokens."""
    entity: int
    """Milliseconds since the epoch: locks, time to live, schedules; a test may drive it."""
    ahead: float = 0.0
    """Seconds by which a test has set connection time ahead; ``wall`` includes them."""

    @property
    def idle(self) -> float:
        """Seconds of connection time, for measuring how long a link or connection has been idle."""
        return self.connection + self.ahead

    @property
    def milliseconds(self) -> int:
        """Connection time, rounded to whole milliseconds so that a timer set for one is due when it fires."""
        return round(self.connection * 1000)


class Clock(Protocol):
    """Entity time."""

    def now(self) -> int:
        """Milliseconds since the epoch."""

    def is_driven(self) -> bool:
        """Whether only :meth:`ManualClock.advance` moves the clock, so that no timer of the loop needs to be set."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def is_driven(self) -> bool:
        """Always false: the clock runs by itself."""
        return False


class ShiftedClock:
    """The machine's clock plus an offset. It keeps running, so clients measure the same durations.

    It starts ``ahead`` (milliseconds, or a timedelta; negative: behind) of the machine's clock.
    """

    def __init__(self, ahead: int | timedelta = 0) -> None:
        self._ahead = milliseconds(ahead)

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + self._ahead

    def is_driven(self) -> bool:
        """Always false: the clock runs by itself."""
        return False

    def advance(self, span: int | timedelta) -> int:
        """As :meth:`ManualClock.advance`."""
        self._ahead += _forward(span)
        return self.now()


class ManualClock:
    """A clock that stands still until it is advanced.

    It starts at ``start`` (milliseconds since the epoch), by default the current time.

    Clients compare lock expiries with their own clock, so a test that outlasts a lock needs a
    :class:`ShiftedClock`.
    """

    def __init__(self, start: int | None = None) -> None:
        self._now = time.time_ns() // 1_000_000 if start is None else start

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return self._now

    def is_driven(self) -> bool:
        """Always true: the clock moves only when advanced."""
        return True

    def advance(self, span: int | timedelta) -> int:
        """Move the clock forward by ``span`` (milliseconds, or a timedelta) and return the new time.

        Raises ValueError for a negative span. On a running broker use ``Broker.advance``, which also processes
        everything that falls due.
        """
        self._now += _forward(span)
        return self._now


def _forward(span: int | timedelta) -> int:
    step = milliseconds(span)
    if step < 0:
        raise ValueError(f"a clock cannot go back: the span is {span!r}")
    return step


def milliseconds(span: int | timedelta) -> int:
    """Return a span in whole milliseconds."""
    return span // timedelta(milliseconds=1) if isinstance(span, timedelta) else span


MAX_DURATION = "P10675199DT2H48M5.4775807S"
"""The largest 64-bit count of 100 ns ticks, which means never. An SDK may return it rounded to ``…5.477539S``."""

TICKS_PER_MS = 10_000
MAX_TICKS = 2**63 - 1
_MAX_DURATION_MS = MAX_TICKS // TICKS_PER_MS
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_PATTERN = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,9})Y)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,12})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,15})(?:\.([0-9]{1,12}))?S)?)?"
)
# years and months have the lengths that the service gives them
_UNITS_MS = (365 * _DAY_MS, 30 * _DAY_MS, _DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS)


def parse_duration(text: str) -> int | None:
    """Return an ISO 8601 duration in milliseconds, truncated; None for the largest, which means never.

    Raises ValueError for any other text and for a negative or larger duration.
    """
    milliseconds = parse_ticks(text) // TICKS_PER_MS
    return None if milliseconds == _MAX_DURATION_MS else milliseconds


def parse_ticks(text: str) -> int:
    """Return an ISO 8601 duration in ticks of 100 ns, truncated. Raises ValueError as :func:`parse_duration`."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError("it is not an ISO 8601 duration such as PT1M or P1DT12H")
    *units, fraction = found.groups()
    whole = sum(int(unit or 0) * size for unit, size in zip(units, _UNITS_MS, strict=True))
    ticks = whole * TICKS_PER_MS + int((fraction or "").ljust(7, "0")[:7])
    if ticks // TICKS_PER_MS > _MAX_DURATION_MS:
        raise ValueError(f"it is longer than {MAX_DURATION}")
    return min(ticks, MAX_TICKS)


def format_duration(milliseconds: int | None) -> str:
    """Return ``milliseconds`` (0 or more) as an ISO 8601 duration of days and smaller units; None gives the largest."""
    if milliseconds is None or milliseconds >= _MAX_DURATION_MS:
        return MAX_DURATION
    return format_ticks(milliseconds * TICKS_PER_MS)


def format_ticks(ticks: int) -> str:
    """Return ticks of 100 ns as an ISO 8601 duration of days and smaller units."""
    milliseconds, part = divmod(ticks, TICKS_PER_MS)
    days, rest = divmod(milliseconds, _DAY_MS)
    hours, rest = divmod(rest, _HOUR_MS)
    minutes, rest = divmod(rest, _MINUTE_MS)
    rest = rest * TICKS_PER_MS + part
    seconds = f"{rest // 10_000_000}.{rest % 10_000_000:07}".rstrip("0").rstrip(".")
    date = f"{days}D" if days else ""
    parts = ((f"{hours}H", hours), (f"{minutes}M", minutes), (f"{seconds}S", rest))
    time = "".join(text for text, value in parts if value)
    return f"P{date}{'T' + time if time else ''}" if date or time else "PT0S"
