"""Peek at the messages of an entity, as bytes, over ``$management``."""

from __future__ import annotations

from sbpair.amqp.types import Int

from .errors import LinkRefused
from .request import NO_CONTENT, RequestNode, refusal_of, value_of


async def peek(
    node: RequestNode, path: str, start: int, most: int, *, session_id: str | None = None
) -> list[bytes]:
    """Up to ``most`` messages of ``path``, or of one of its sessions, from sequence number ``start`` on.

    Includes locked, deferred and scheduled messages. Raises LinkRefused or ConnectionLost.
    """
    properties: dict[object, object] = {"operation": "com.microsoft:peek-message", "type": "entity-mgmt"}
    asked: dict[object, object] = {"from-sequence-number": start, "message-count": Int(most)}
    if session_id is not None:
        asked["session-id"] = session_id
    answer = await node.ask(properties, asked)
    refusal = refusal_of(answer)
    if refusal is not None:
        raise LinkRefused(f"{path} cannot be peeked", refusal)
    if answer.application_properties.get("statusCode") == NO_CONTENT:
        return []
    try:
        return [bytes(entry["message"]) for entry in value_of(answer)["messages"] or []]
    except (KeyError, TypeError, ValueError) as error:
        raise LinkRefused(f"the answer to a peek at {path} cannot be read: {error!r}") from error
