"""Peek the messages of a queue page by page, over ``$management``."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sbpair.client.connection import NamespaceConnection
from sbpair.client.request import RequestNode, peek
from sbpair.envelope.inspect import ParkedMessage, read_parked

PAGE = 100  # messages per peek
DEAD_LETTERS = "/$DeadLetterQueue"
TRANSFER_DEAD_LETTERS = (
    "/$Transfer" + DEAD_LETTERS
)  # of messages sent via the queue and refused after the commit


async def peek_parked(
    connection: NamespaceConnection, path: str, *, start: int = 1, most: int | None = None
) -> AsyncIterator[ParkedMessage]:
    """Peek up to ``most`` messages of ``path``, in order from sequence number ``start``, locked and scheduled ones too.

    Raises TokenRefused, LinkRefused, ConnectionLost.
    """
    await connection.authorize(path)
    node = RequestNode(connection, connection.namespace.address(f"{path}/$management"))
    try:
        left = most
        while left is None or left > 0:
            most_now = PAGE if left is None else min(PAGE, left)
            page = [read_parked(payload) for payload in await peek(node, path, start, most_now)]
            for message in page:
                yield message
            numbers = [each.sequence_number for each in page if each.sequence_number is not None]
            if not numbers:
                return
            start = max(numbers) + 1
            left = None if left is None else left - len(page)
    finally:
        await node.close()
