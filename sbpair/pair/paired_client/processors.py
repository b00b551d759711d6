"""The processors of one client: stopped with it, and observed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from sbpair.pair.processor.base import BaseProcessor
    from sbpair.pair.processor.events import ProcessorEvent
    from sbpair.pair.processor.status import ProcessorCounters

ProcessorT = TypeVar("ProcessorT", bound="BaseProcessor")


class Processors(Generic[ProcessorT]):
    """The processors of a client that are still in use. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: WeakSet[ProcessorT] = WeakSet()
        self._callbacks: list[Callable[[object], None]] = []
        self.on_added: Callable[[], None] | None = None
        """Called after the first processor, and each one that follows it."""
        self.are_journaled = False
        """Whether processors report each message they handle."""

    def add(self, processor: ProcessorT) -> None:
        """Observe a processor."""
        with self._lock:
            self._alive.add(processor)
        processor.on_event(self._emit)
        if self.on_added is not None:
            self.on_added()
        processor.reports_messages = self.are_journaled

    def alive(self) -> list[ProcessorT]:
        """The processors that are still in use."""
        with self._lock:
            return list(self._alive)

    def on_event(self, callback: Callable[[object], None]) -> Callable[[], None]:
        """Call ``callback`` with each event of each processor; return a function that removes it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def _emit(self, event: ProcessorEvent) -> None:
        for callback in list(self._callbacks):
            callback(event)

    def by_path(self, read: Callable[[ProcessorCounters], float]) -> Mapping[str, float]:
        """Return the sum of a counter for each entity."""
        sums: dict[str, float] = {}
        for processor in self.alive():
            sums[processor.path] = sums.get(processor.path, 0.0) + read(processor.counters)
        return sums
