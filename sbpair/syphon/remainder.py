"""Is anything left in a backlog that a receive does not show, locked perhaps by a syphon that died?

A drain-flow that brings nothing proves that nothing is free; to peek proves that nothing is there.
Deferred and scheduled messages do not count: no syphon would ever be given them.
"""

from __future__ import annotations

from sbpair.amqp.sections import decode_map_section, split

from .connection import NamespaceConnection
from .peek import peek
from .request import RequestNode

PAGE = 100  # messages a peek
ACTIVE = 0  # x-opt-message-state


async def has_more(connection: NamespaceConnection, backlog: str) -> bool:
    """Whether an active message is in ``backlog``, locked or not. Raises SyphonError."""
    await connection.authorize(backlog)
    node = RequestNode(connection, connection.namespace.address(f"{backlog}/$management"))
    try:
        start = 1
        while page := await peek(node, backlog, start, PAGE):
            numbers, states = zip(*map(_number_and_state, page), strict=True)
            if ACTIVE in states:
                return True
            start = max(numbers) + 1
        return False
    finally:
        await node.close()


def _number_and_state(payload: bytes) -> tuple[int, int]:
    annotations = decode_map_section(split(payload).message_annotations)
    state = annotations.get("x-opt-message-state", ACTIVE)
    return int(annotations["x-opt-sequence-number"]), int(state)  # type: ignore[call-overload]
