"""Is anything left in a backlog that a receive does not show, locked perhaps by a syphon that died?

A drain-flow that brings nothing proves that nothing is free; to peek proves that nothing is there.
Deferred and scheduled messages do not count: no syphon would ever be given them.
"""

from __future__ import annotations

from sbpair.amqp.message import Message, ValueBody
from sbpair.amqp.types import Int

from .connection import NamespaceConnection
from .errors import ConnectionLost
from .request import RequestNode

PAGE = 100  # messages a peek
OK, NO_CONTENT = 200, 204
ACTIVE = 0  # x-opt-message-state


async def has_more(connection: NamespaceConnection, backlog: str) -> bool:
    """Whether an active message is in ``backlog``, locked or not. Raises SyphonError."""
    await connection.authorize(backlog)
    node = RequestNode(connection, connection.namespace.address(f"{backlog}/$management"))
    try:
        start = 1
        while page := await _peek(node, backlog, start):
            numbers, states = zip(*page, strict=True)
            if ACTIVE in states:
                return True
            start = max(numbers) + 1
        return False
    finally:
        await node.close()


async def _peek(node: RequestNode, backlog: str, start: int) -> list[tuple[int, int]]:
    """Sequence number and state of each message from ``start`` on, at most a page of them."""
    properties: dict[object, object] = {"operation": "com.microsoft:peek-message", "type": "entity-mgmt"}
    answer = await node.ask(properties, {"from-sequence-number": start, "message-count": Int(PAGE)})
    status = answer.application_properties.get("statusCode")
    if status == NO_CONTENT:
        return []
    if status != OK or not isinstance(answer.body, ValueBody) or not isinstance(answer.body.value, dict):
        raise ConnectionLost(f"{backlog} cannot be peeked into: status {status}")
    found = []
    for entry in answer.body.value.get("messages", []):
        annotations = Message.decode(entry["message"]).message_annotations
        state = annotations.get("x-opt-message-state", ACTIVE)
        found.append((int(annotations["x-opt-sequence-number"]), int(state)))  # type: ignore[call-overload]
    return found
