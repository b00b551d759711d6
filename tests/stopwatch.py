"""A stopwatch that charges a call for its own time and not for the pauses of a busy machine."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")
_BEAT = 0.02  # seconds


class _Collections:
    """Total time that the garbage collections of this process have taken; no other thread runs during one."""

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
    """Measure a block against a deadline that the product promises: ``with Stopwatch() as watch: ...``.

    ``seconds`` is the wall time of the block without three kinds of pause: the process did not run at all (it was
    suspended, or its virtual machine was), a thread was ready to run and had no core, and garbage collection.

    A thread that beats every 20 ms detects the first: a gap between two beats counts as two beats at most. The
    kernel counts the second; where it does not, that time is charged to the block.
    """

    def __enter__(self) -> Stopwatch:
        self._ended = threading.Event()
        self._counted = 0.0
        self._collected = _collections.seconds
        self._starved = _starved()
        self._since = time.monotonic()
        self._beating = threading.Thread(target=self._beat, name="stopwatch", daemon=True)
        self._beating.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._beating.join()
        starved = sum(span - self._starved.get(thread, 0.0) for thread, span in _starved().items())
        self.seconds = self._counted - starved - (_collections.seconds - self._collected)

    def _beat(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._ended.wait(_BEAT)
            now = time.monotonic()
            self._counted += min(now - self._since, 2 * _BEAT)
            self._since = now


def _starved() -> dict[str, float]:
    """Seconds that each thread of this process has been ready to run without a core."""
    found = {}
    try:
        for task in _TASKS.iterdir():
            try:
                found[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
            except (OSError, ValueError):
                continue  # the thread has ended
    except OSError:
        return {}
    return found
