"""Counts the messages in a sub-queue of each backlog: they wait for a person, and no syphon receives them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError

from .peeking import depth_of

CHECK_INTERVAL = 60.0  # seconds

logger = logging.getLogger("sbpair.syphon")


@dataclass(slots=True)
class SubQueueCounts:
    """The number of messages in the sub-queue ``suffix`` of each of the ``backlogs``.

    ``moved`` returns a count that grows when messages may have got there. They are counted at first, when it has grown,
    and while any were found: otherwise nothing is peeked, which would be billed. ``on_more`` is called with a backlog
    and its count when that has increased since the last check.
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
        """Check at intervals until cancelled. ``busy`` is ignored, since an empty backlog can have such messages."""
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
