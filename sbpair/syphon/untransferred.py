"""Counts the messages that landed and were then refused by their entity, after the commit.

The service puts them into the transfer dead-letter queue of their backlog, from which no syphon receives (see
``landing_link``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from sbpair.client.connection import NamespaceConnection
from sbpair.client.errors import ClientError

from .events import MessagesUntransferred, SyphonEvent
from .peeking import TRANSFER_DEAD_LETTERS, depth_of

CHECK_INTERVAL = 60.0  # seconds

logger = logging.getLogger("sbpair.syphon")


@dataclass(slots=True)
class UntransferredMessages:
    """The number of such messages in each of the ``backlogs``; reported when it has increased since the last check.

    ``landed`` returns how many messages have landed so far: nothing is peeked while none land and none were found.
    """

    backlogs: tuple[str, ...]
    landed: Callable[[], int]
    emit: Callable[[SyphonEvent], None]
    found: dict[str, int] = field(default_factory=dict)
    """Counts at the last check, by backlog; a count of ``monitor.MAX_COUNTED`` means at least that many."""
    _landed_before: int = -1  # not checked yet

    async def run(
        self, busy: Callable[[], Iterable[str]], borrow: Callable[[], Awaitable[NamespaceConnection]]
    ) -> None:
        """Check at intervals until cancelled. ``busy`` is ignored, since an empty backlog can have such messages."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            if self.landed() == self._landed_before and not any(self.found.values()):
                continue
            try:
                await self.check(await borrow())
            except ClientError as error:
                logger.debug("the transfer dead-letter queues cannot be peeked: %s", error)

    async def check(self, connection: NamespaceConnection) -> None:
        """Count the messages now. Raises TokenRefusedError, LinkRefusedError, ConnectionLostError."""
        landed = self.landed()
        for backlog in self.backlogs:
            count = (await depth_of(connection, backlog + TRANSFER_DEAD_LETTERS)).depth
            if count > self.found.get(backlog, 0):
                self.emit(MessagesUntransferred(time.time(), backlog, count))
            self.found[backlog] = count
        self._landed_before = landed
