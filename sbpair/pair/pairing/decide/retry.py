"""Retries of a failed send.

A paired client disables the SDK's own retries, so that it sees and classifies every attempt. The retries here replace
them, with the SDK's names, defaults and formula. Each pause is randomised, so that clients which fail together do not
retry together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The four retry settings of the SDK's client; the backoff settings are in seconds.

    Raises ValueError or TypeError naming the setting when one is invalid.
    """

    total: int = 3
    backoff_factor: float = 0.8
    backoff_max: float = 120.0
    mode: str = "exponential"

    MODES: ClassVar[tuple[str, ...]] = ("exponential", "fixed")

    def __post_init__(self) -> None:
        if isinstance(self.total, bool) or not isinstance(self.total, int):
            raise TypeError(f"retry_total must be a whole number, 0 or more, not {self.total!r}")
        if self.total < 0:
            raise ValueError(f"retry_total must be 0 or more, not {self.total}")
        for name in ("backoff_factor", "backoff_max"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"retry_{name} must be a number of seconds, not {value!r}")
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"retry_{name} must be a finite number of seconds, 0 or more, not {value}")
        if self.mode not in self.MODES:
            raise ValueError(f"retry_mode must be 'exponential' or 'fixed', not {self.mode!r}")

    def spread(self, retry: int, rng: Random) -> float | None:
        """Return a random pause, between half and one and a half times that of :meth:`pause`."""
        pause = self.pause(retry)
        return None if pause is None else pause * rng.uniform(0.5, 1.5)

    def pause(self, retry: int) -> float | None:
        """Return the mean number of seconds to wait before retry number ``retry``, from 1; None beyond the total."""
        if retry > self.total:
            return None
        growth = 1.0 if self.mode == "fixed" else 2.0 ** min(retry, 64)
        return min(self.backoff_max, self.backoff_factor * growth)


FIRST_BUSY_PAUSE, MAX_BUSY_PAUSE = 1.6, 10.0  # seconds


def busy_pause(rng: Random, earlier: int, hint: float | None) -> float:
    """Return the seconds to wait after the answer *busy*, which came ``earlier`` times before.

    The broker's ``hint`` if there is one; otherwise the pause doubles, with full jitter.
    """
    if hint is not None:
        return hint
    return rng.uniform(0.0, min(FIRST_BUSY_PAUSE * 2.0 ** min(earlier, 8), MAX_BUSY_PAUSE))


NO_RETRIES = RetryPolicy(total=0)
