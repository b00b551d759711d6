"""What time is it for the entities: the wall's, or the one a test turns?

Entity time drives locks, time to live, schedules and idle deletion. A driven clock starts at the real
now, since clients compare lock times with their own clock.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Protocol


class Clock(Protocol):
    """Entity time."""

    def now(self) -> int:
        """Milliseconds since the epoch."""

    def is_driven(self) -> bool:
        """True when only :meth:`ManualClock.advance` moves it: then no timer waits for it."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def is_driven(self) -> bool:
        """It runs by itself."""
        return False


class ShiftedClock:
    """The machine's clock, set ahead by what it was advanced: it runs on, so clients agree on short spans.

    It starts ``ahead`` (milliseconds, or a timedelta; negative: behind) of the machine's.
    """

    def __init__(self, ahead: int | timedelta = 0) -> None:
        self._ahead = milliseconds(ahead)

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + self._ahead

    def is_driven(self) -> bool:
        """It runs by itself."""
        return False

    def advance(self, span: int | timedelta) -> int:
        """As :meth:`ManualClock.advance`."""
        self._ahead += _forward(span)
        return self.now()


class ManualClock:
    """A clock that stands still until it is advanced; it starts at the real now.

    Clients compare the end of a lock with their own clock: a test that lasts longer than a lock wants a
    :class:`ShiftedClock`.
    """

    def __init__(self, start: int | None = None) -> None:
        self._now = time.time_ns() // 1_000_000 if start is None else start

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return self._now

    def is_driven(self) -> bool:
        """It moves only by hand."""
        return True

    def advance(self, span: int | timedelta) -> int:
        """Move on by ``span`` (milliseconds, or a timedelta) and return the new now.

        Raises ValueError for a negative span. On a running broker use ``Broker.advance``, which also
        lets happen what falls due.
        """
        self._now += _forward(span)
        return self._now


def _forward(span: int | timedelta) -> int:
    step = milliseconds(span)
    if step < 0:
        raise ValueError(f"a clock is not turned back: the span is {span!r}")
    return step


def milliseconds(span: int | timedelta) -> int:
    """A span in whole milliseconds."""
    return span // timedelta(milliseconds=1) if isinstance(span, timedelta) else span
