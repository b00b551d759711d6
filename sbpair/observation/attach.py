"""How do events get from a client or a syphon to those who watch?

detach = attach(client, journal, metrics, webhook)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger("sbpair.observation")


class Source(Protocol):
    """What tells events: a paired client, or a syphon."""

    def on_event(self, callback: Callable[[object], None], /) -> Callable[[], None]: ...


class Sink(Protocol):
    """What takes events, from any thread and quickly."""

    def write(self, event: object, /) -> None: ...


def attach(source: Source, *sinks: Sink) -> Callable[[], None]:
    """Hand every event of ``source`` to every sink, in their order; returns what ends that.

    A sink that raises is logged, and the others are told nevertheless.
    """

    def tell(event: object) -> None:
        for sink in sinks:
            try:
                sink.write(event)
            except Exception:  # one watcher's fault is neither the sender's nor another watcher's
                logger.exception("%s failed on %s", type(sink).__name__, type(event).__name__)

    return source.on_event(tell)
