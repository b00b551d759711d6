"""How long did it take us, and not the others on this machine?"""

from __future__ import annotations

import time
from pathlib import Path

_TASKS = Path("/proc/self/task")


class Stopwatch:
    """For bounds that are promises (G-18): a call is late when we are, not when six workers share two cores.

    ``seconds`` since it was made, less those in which our threads were ready to run and had no core, as the
    system counts them. Where it does not count them, every second is ours.
    """

    def __init__(self) -> None:
        self._starved = _starved()
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        passed = time.monotonic() - self._since
        starved = sum(span - self._starved.get(thread, 0.0) for thread, span in _starved().items())
        return passed - starved


def _starved() -> dict[str, float]:
    """Seconds that each thread of this process was kept waiting for a core."""
    found = {}
    try:
        for task in _TASKS.iterdir():
            try:
                found[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
            except (OSError, ValueError):
                continue  # it has ended
    except OSError:
        return {}
    return found
