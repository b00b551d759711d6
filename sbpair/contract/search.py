"""Finding messages by peeking, which locks nothing: whether there are any, and where the canaries of a drill are.

On a queue that search starts after the newest message at the start of the drill, so that a long queue costs no more
than a short one. A partitioned queue numbers each partition separately: there every search starts at the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field

from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.envelope.inspect import ParkedMessage
from sbpair.pair.syphon.watch.peeking import DEAD_LETTERS, PAGE, peek_parked

FIRST_OF_A_PARTITION = 1 << 48  # the upper 16 bits of a sequence number are the partition's
TIMEOUT = 15.0  # seconds to connect to a side
MAX_IN_A_BACKLOG = 10_000  # messages searched in one backlog queue


async def is_empty(connection: NamespaceConnection, path: str) -> bool:
    """Whether an entity holds no message in any state, locked or not. Raises ClientError."""
    return not [each async for each in peek_parked(connection, path, most=1)]


@dataclass(slots=True)
class CanarySearch:
    """Searches one pair, and counts the peeks."""

    primary: NamespaceAccess
    secondary: NamespaceAccess
    path: str
    start: int = 1
    peeks: int = 0
    _connections: dict[str, NamespaceConnection] = field(default_factory=dict)

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    async def at_home(self, wanted: Collection[str]) -> dict[str, int]:
        """Return the ``wanted`` canaries that are on the primary: sequence numbers by message id."""
        found: dict[str, int] = {}
        last = self.start - 1
        async for message in self._find(self.primary, self.path, self.start, None):
            last = max(last, message.sequence_number or 0)
            if message.message_id is not None and message.message_id in wanted:
                found[message.message_id] = message.sequence_number or 0
        if last < FIRST_OF_A_PARTITION:
            self.start = last + 1
        return found

    async def in_backlog(self, backlog: str, wanted: Collection[str]) -> set[str]:
        """Return the ``wanted`` canaries that are still in this backlog queue, locked or not."""
        return {str(each.message_id) for each in await self._find_parked(backlog, wanted)}

    async def dead_lettered(self, backlog: str, wanted: Collection[str]) -> dict[str, str]:
        """Return the ``wanted`` canaries that were dead-lettered on this backlog queue: reasons by message id."""
        return {
            str(each.message_id): f"{each.reason}: {each.description}"
            for each in await self._find_parked(backlog + DEAD_LETTERS, wanted)
        }

    async def is_empty(self) -> bool:
        """Whether the entity at which the canaries arrive is empty."""
        self.peeks += 1
        return await is_empty(await self._connect(self.primary), self.path)

    async def _find_parked(self, path: str, wanted: Collection[str]) -> list[ParkedMessage]:
        messages = self._find(self.secondary, path, 1, MAX_IN_A_BACKLOG)
        return [each async for each in messages if each.message_id in wanted]

    async def _find(
        self, namespace: NamespaceAccess, path: str, start: int, most: int | None
    ) -> AsyncIterator[ParkedMessage]:
        connection = await self._connect(namespace)
        self.peeks += 1
        seen = 0
        async for message in peek_parked(connection, path, start=start, most=most):
            seen += 1
            self.peeks += seen % PAGE == 1
            yield message

    async def _connect(self, namespace: NamespaceAccess) -> NamespaceConnection:
        """Return an open connection; reconnects if the service has closed it as idle."""
        connection = self._connections.get(namespace.netloc)
        if connection is None or not connection.is_open:
            connection = await connect(namespace, timeout=TIMEOUT)
            self._connections[namespace.netloc] = connection
        return connection
