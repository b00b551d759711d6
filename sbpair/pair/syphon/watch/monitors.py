"""What a running syphon watches about its backlog queues, beside forwarding from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from sbpair.pair.client.connection import NamespaceConnection

from ..events import MessagesUntransferred, SyphonEvent
from ..options import SyphonOptions
from ..status import SyphonCounters
from .peeking import DEAD_LETTERS, TRANSFER_DEAD_LETTERS, BacklogDepths, OverdueBacklogs
from .sub_queues import SubQueueCounts


class BacklogMonitors:
    """Depths and dead letters with ``measure_every``, ages with ``overdue_after``, refused landings where any land."""

    def __init__(
        self,
        backlogs: tuple[str, ...],
        options: SyphonOptions,
        counters: SyphonCounters,
        emit: Callable[[SyphonEvent], None],
    ) -> None:
        self._emit = emit
        every, threshold = options.measure_every, options.overdue_after
        self.depths = None if every is None else BacklogDepths(backlogs, every.total_seconds())
        self._overdue = None if threshold is None else OverdueBacklogs(threshold, emit)
        self._may_land = options.land == "either"
        self.dead_letters = SubQueueCounts(
            backlogs, DEAD_LETTERS, lambda: counters.dead_lettered, lambda backlog, count: None
        )
        self.untransferred = SubQueueCounts(
            backlogs, TRANSFER_DEAD_LETTERS, lambda: counters.landed, self._untransferred_grew
        )

    async def run(
        self, busy: Callable[[], Iterable[str]], borrow: Callable[[], Awaitable[NamespaceConnection]]
    ) -> None:
        """Watch until cancelled; ``busy`` returns the backlogs that may hold messages, ``borrow`` a connection."""
        runs = []
        if self._overdue is not None:
            runs.append(self._overdue.run)
        if self.depths is not None:
            runs += [self.depths.run, self.dead_letters.run]
        if self._may_land:
            runs.append(self.untransferred.run)
        await asyncio.gather(*(run(busy, borrow) for run in runs))

    def _untransferred_grew(self, backlog: str, count: int) -> None:
        self._emit(MessagesUntransferred(time.time(), backlog, count))
