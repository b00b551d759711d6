"""Long-lived objects of the broker's process, kept out of the garbage collector's way.

A full collection visits every waiting message, and no client is served meanwhile: 200 ms with 200,000 messages.
Messages are freed by their reference counts, so visiting the same ones again gains nothing.

Python collects once 700 more objects have been created than freed. Forwarding a backlog frees a message for each that
it creates, so the next collection would visit all of them: the process therefore also collects at intervals while it
works.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

LONG = 0.01  # seconds of a full collection from which its survivors are set aside
LOOK_EVERY = 0.1  # seconds between checks whether a collection is due
WORKED = 0.1  # seconds of processor time from which one is due
SHARE = 5  # a collection is due only after this many times the processor time that the last one took
ALL_AGAIN = 3600.0  # seconds after which everything set aside is collected once more


class LongLivedObjects:
    """Sets aside the objects that survived a long full collection: the next one visits only newer objects.

    Objects set aside are still freed by their reference counts. Those in cycles are not, so once an hour a long
    collection returns everything to the collector.

    ``now``: a monotonic clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._returned_at = now()

    def __call__(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        """Handle the start or end of a collection, as a member of ``gc.callbacks``."""
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


class CollectionPace:
    """Decides when a collection is due, by the processor time of the process, in seconds: never while it is idle."""

    def __init__(self, spent: float) -> None:
        self._collected_at = spent
        self._pause = WORKED

    def is_due(self, spent: float) -> bool:
        """Whether to collect, now that the process has spent this much in total."""
        return spent - self._collected_at >= self._pause

    def collected(self, spent: float, took: float) -> None:
        """Record a collection that ended at ``spent`` and took ``took``, both in seconds."""
        self._collected_at = spent
        self._pause = max(WORKED, took * SHARE)


def _collect_at_intervals(ended: threading.Event) -> None:
    pace = CollectionPace(time.process_time())
    while not ended.wait(LOOK_EVERY):
        if pace.is_due(time.process_time()):
            began = time.thread_time()
            gc.collect()
            pace.collected(time.process_time(), time.thread_time() - began)


@contextmanager
def short_collections() -> Iterator[None]:
    """Keep collections of this process short while in the block; this affects the whole process."""
    callback, ended = LongLivedObjects(), threading.Event()
    collecting = threading.Thread(
        target=_collect_at_intervals, args=(ended,), name="sbpair-collections", daemon=True
    )
    gc.callbacks.append(callback)
    gc.freeze()  # what was imported
    collecting.start()
    try:
        yield
    finally:
        ended.set()
        collecting.join()
        gc.callbacks.remove(callback)
        gc.unfreeze()
