"""Peek at the messages of an entity page by page, over ``$management``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from sbpair.client.connection import NamespaceConnection
from sbpair.client.request import RequestNode, peek
from sbpair.envelope.inspect import ParkedMessage, read_parked

T = TypeVar("T")

PAGE = 100  # messages per peek
DEAD_LETTERS = "/$DeadLetterQueue"
TRANSFER_DEAD_LETTERS = (
    "/$Transfer" + DEAD_LETTERS
)  # of messages sent via the queue and refused after the commit


def peek_parked(
    connection: NamespaceConnection, path: str, *, start: int = 1, most: int | None = None
) -> AsyncIterator[ParkedMessage]:
    """Peek up to ``most`` messages of ``path``, in order from sequence number ``start``, locked and scheduled ones too.

    Raises TokenRefused, LinkRefused, ConnectionLost.
    """
    return peek_all(
        connection, path, read_parked, lambda message: message.sequence_number, start=start, most=most
    )


async def peek_all(
    connection: NamespaceConnection,
    path: str,
    read: Callable[[bytes], T],
    number_of: Callable[[T], int | None],
    *,
    start: int = 1,
    most: int | None = None,
    session_id: str | None = None,
) -> AsyncIterator[T]:
    """Peek up to ``most`` messages of ``path``, or of one of its sessions, page by page from ``start`` on.

    Yields what ``read`` makes of the bytes of each; ``number_of`` gives its sequence number. A page without any
    number is the last. Raises TokenRefused, LinkRefused or ConnectionLost.
    """
    await connection.authorize(path)
    node = RequestNode(connection, connection.namespace.address(f"{path}/$management"))
    try:
        left = most
        while left is None or left > 0:
            most_now = PAGE if left is None else min(PAGE, left)
            payloads = await peek(node, path, start, most_now, session_id=session_id)
            page = [read(payload) for payload in payloads]
            for message in page:
                yield message
            numbers = [number for number in map(number_of, page) if number is not None]
            if not numbers:
                return
            start = max(numbers) + 1
            left = None if left is None else left - len(page)
    finally:
        await node.close()
