"""Look into a queue without touching it: peek, page by page, over ``$management``."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sbpair.amqp.message import ValueBody
from sbpair.amqp.performatives import Condition
from sbpair.amqp.types import Int

from .connection import NamespaceConnection
from .errors import LinkRefused
from .parked import ParkedMessage, read_parked
from .request import RequestNode

PAGE = 100  # messages a peek
OK, NO_CONTENT = 200, 204
DEAD_LETTERS = "/$DeadLetterQueue"

CONDITIONS = {401: "amqp:unauthorized-access", 403: "amqp:unauthorized-access", 404: "amqp:not-found"}


async def look(
    connection: NamespaceConnection, path: str, *, start: int = 1, most: int | None = None
) -> AsyncIterator[ParkedMessage]:
    """The messages of ``path`` in their order, from sequence number ``start`` on, at most ``most`` of them.

    Locked and scheduled ones are seen too.

    Raises TokenRefused, LinkRefused, ConnectionLost.
    """
    await connection.authorize(path)
    node = RequestNode(connection, connection.namespace.address(f"{path}/$management"))
    try:
        left = most
        while left is None or left > 0:
            page = await _page(node, path, start, PAGE if left is None else min(PAGE, left))
            for message in page:
                yield message
            numbers = [each.sequence_number for each in page if each.sequence_number is not None]
            if not numbers:
                return
            start = max(numbers) + 1
            left = None if left is None else left - len(page)
    finally:
        await node.close()


async def _page(node: RequestNode, path: str, start: int, most: int) -> list[ParkedMessage]:
    properties: dict[object, object] = {"operation": "com.microsoft:peek-message", "type": "entity-mgmt"}
    answer = await node.ask(properties, {"from-sequence-number": start, "message-count": Int(most)})
    status = answer.application_properties.get("statusCode")
    if status == NO_CONTENT:
        return []
    body = answer.body.value if isinstance(answer.body, ValueBody) else None
    if status != OK or not isinstance(body, dict):
        symbol = CONDITIONS.get(status) if isinstance(status, int) else None
        said = answer.application_properties.get("statusDescription")
        condition = Condition(symbol or "amqp:internal-error", f"status {status}: {said}")
        raise LinkRefused(f"{path} cannot be peeked into", condition)
    return [read_parked(bytes(entry["message"])) for entry in body.get("messages", [])]
