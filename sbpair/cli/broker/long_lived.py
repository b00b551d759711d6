"""Long-lived objects of the broker's process, kept out of the garbage collector's way.

A full collection visits every waiting message, and no client is served meanwhile: 200 ms with 200,000 messages.
Messages are freed by their reference counts, so visiting the same ones again gains nothing.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

LONG = 0.02  # seconds of a full collection from which its survivors are set aside
ALL_AGAIN = 3600.0  # seconds after which everything set aside is collected once more


class LongLivedObjects:
    """Sets aside what survived a long full collection: the next one visits only what is newer.

    Objects set aside are still freed by their reference counts. Those in cycles are not, so once an hour a long
    collection returns everything to the collector.

    ``now``: a monotonic clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._returned_at = now()

    def __call__(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        """The signature of ``gc.callbacks``: called before and after each collection."""
        if info["generation"] < 2:
            return
        now = self._now()
        if phase == "start":
            self._began = now
        elif now - self._began >= LONG:
            self._set_aside(now)

    def _set_aside(self, now: float) -> None:
        if now - self._returned_at < ALL_AGAIN:
            gc.freeze()
        else:
            self._returned_at = now
            gc.unfreeze()


@contextmanager
def short_collections() -> Iterator[None]:
    """Keep full collections of this process short while in the block; this affects the whole process."""
    callback = LongLivedObjects()
    gc.callbacks.append(callback)
    try:
        yield
    finally:
        gc.callbacks.remove(callback)
        gc.unfreeze()
