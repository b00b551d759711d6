"""How long did it take us, and not the others on this machine?"""

from __future__ import annotations

import gc
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")


class _Collections:
    """How long the garbage collections of this process have taken, in which nobody else runs."""

    def __init__(self) -> None:
        self.seconds = self._since = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        now = time.monotonic()
        if phase == "stop":
            self.seconds += now - self._since
        self._since = now


_collections = _Collections()


class Stopwatch:
    """For bounds that are promises (G-18): a call is late when we are, not when six workers share two cores.

    ``seconds`` since it was made, less those in which our threads were ready to run and had no core, as the
    system counts them, and less the garbage collections: what other tests have left is none of the call's. Where
    the system does not count, every other second is ours.
    """

    def __init__(self) -> None:
        self._starved = _starved()
        self._collected = _collections.seconds
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        passed = time.monotonic() - self._since
        starved = sum(span - self._starved.get(thread, 0.0) for thread, span in _starved().items())
        return passed - starved - (_collections.seconds - self._collected)


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
