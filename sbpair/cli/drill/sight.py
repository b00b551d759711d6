"""Where are the canaries? By peeks, which lock nothing; or by receiving them, where that was asked for.

On a queue the looking begins at the number its newest message had when the drill began, so that a long queue
costs no more than a short one. A queue with partitions numbers each of them for itself: there every look
begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field

from sbpair.syphon.connection import NamespaceConnection
from sbpair.syphon.connection_string import Namespace
from sbpair.syphon.dial import connect
from sbpair.syphon.look import DEAD_LETTERS, PAGE, look
from sbpair.syphon.parked import ParkedMessage

FIRST_OF_A_PARTITION = 1 << 48  # the upper 16 bits of a sequence number are the partition's
TIMEOUT = 15.0  # seconds for a side to answer the first word
MOST_IN_A_BACKLOG = 10_000  # messages of one backlog queue that are looked through


@dataclass(slots=True)
class Sight:
    """Looks at one pair, and counts the looks."""

    primary: Namespace
    secondary: Namespace
    path: str
    ca_file: str | None
    start: int = 1
    peeks: int = 0
    _connections: dict[str, NamespaceConnection] = field(default_factory=dict)

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    async def at_home(self, wanted: Collection[str]) -> dict[str, int]:
        """The sequence numbers of those of ``wanted`` that are on the primary, by message id."""
        found: dict[str, int] = {}
        last = self.start - 1
        async for message in self._look(self.primary, self.path, self.start, None):
            last = max(last, message.sequence_number or 0)
            if message.message_id is not None and message.message_id in wanted:
                found[message.message_id] = message.sequence_number or 0
        if last < FIRST_OF_A_PARTITION:
            self.start = last + 1
        return found

    async def in_backlog(self, backlog: str, wanted: Collection[str]) -> set[str]:
        """Those of ``wanted`` that are still in this backlog queue, locked or not."""
        return {str(each.message_id) for each in await self._parked(backlog, wanted)}

    async def set_aside(self, backlog: str, wanted: Collection[str]) -> dict[str, str]:
        """Why those of ``wanted`` that were dead-lettered on this backlog queue were, by message id."""
        return {
            str(each.message_id): f"{each.reason}: {each.description}"
            for each in await self._parked(backlog + DEAD_LETTERS, wanted)
        }

    async def is_empty(self) -> bool:
        """Whether nothing is on the primary where the canaries are to arrive."""
        return not [each async for each in self._look(self.primary, self.path, 1, 1)]

    async def _parked(self, path: str, wanted: Collection[str]) -> list[ParkedMessage]:
        messages = self._look(self.secondary, path, 1, MOST_IN_A_BACKLOG)
        return [each async for each in messages if each.message_id in wanted]

    async def _look(
        self, namespace: Namespace, path: str, start: int, most: int | None
    ) -> AsyncIterator[ParkedMessage]:
        connection = await self._connected(namespace)
        self.peeks += 1
        seen = 0
        async for message in look(connection, path, start=start, most=most):
            seen += 1
            self.peeks += seen % PAGE == 1
            yield message

    async def _connected(self, namespace: Namespace) -> NamespaceConnection:
        """A connection that is open: the service closes one that has had nothing to do for long."""
        connection = self._connections.get(namespace.netloc)
        if connection is None or not connection.is_open:
            connection = await connect(namespace, ca_file=self.ca_file, timeout=TIMEOUT)
            self._connections[namespace.netloc] = connection
        return connection
