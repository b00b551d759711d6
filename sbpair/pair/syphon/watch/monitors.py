"""Monitors of the backlog queues in a running syphon."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError

from ..events import MessagesUntransferred, SyphonEvent
from ..options import SyphonOptions
from ..status import SyphonCounters
from .peeking import DEAD_LETTERS, TRANSFER_DEAD_LETTERS, BacklogDepths, OverdueBacklogs, depth_of

CHECK_INTERVAL = 60.0  # seconds

logger = logging.getLogger("sbpair.syphon")


@dataclass(slots=True)
class SubQueueCounts:
    """The number of messages in the sub-queue ``suffix`` of each of the ``backlogs``.

    ``moved`` returns a count that grows when messages may have got there. Messages are counted at the start, when that
    count has grown, and while any were found: peeking is billed. ``on_more`` is called with a backlog and its count
    when the count has increased since the last check.
    """

    backlogs: tuple[str, ...]
    suffix: str
    moved: Callable[[], int]
    on_more: Callable[[str, int], None]
    found: dict[str, int] = field(default_factory=dict)
    """Counts at the last check, by backlog; a count of ``peeking.MAX_COUNTED`` means at least that many."""
    _moved_before: int = -1  # not checked yet

    @property
    def is_due(self) -> bool:
        """Whether the counts may have changed."""
        return self.moved() != self._moved_before or any(self.found.values())

    async def run(
        self, busy: Callable[[], Iterable[str]], borrow: Callable[[], Awaitable[NamespaceConnection]]
    ) -> None:
        """Check at intervals until cancelled.

        ``busy`` is ignored, since even an empty backlog can have such messages.
        """
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            if self.is_due:
                try:
                    await self.check(await borrow())
                except ClientError as error:
                    logger.debug("the queues %s cannot be peeked: %s", self.suffix, error)

    async def check(self, connection: NamespaceConnection) -> None:
        """Count the messages now. Raises TokenRefusedError, LinkRefusedError, ConnectionLostError."""
        moved = self.moved()
        for backlog in self.backlogs:
            depth = await depth_of(connection, backlog + self.suffix)
            count = 0 if depth is None else depth.depth
            if count > self.found.get(backlog, 0):
                self.on_more(backlog, count)
            self.found[backlog] = count
        self._moved_before = moved


class BacklogMonitors:
    """Watches depths and dead letters with ``measure_every``, ages with ``overdue_after``, and refused landings."""

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
