"""One peek: the messages of an entity from a sequence number on, as bytes, over ``$management``."""

from __future__ import annotations

from sbpair.amqp.message import ValueBody
from sbpair.amqp.performatives import Condition
from sbpair.amqp.types import Int

from .errors import LinkRefused
from .request import RequestNode

OK, NO_CONTENT = 200, 204
CONDITIONS = {401: "amqp:unauthorized-access", 403: "amqp:unauthorized-access", 404: "amqp:not-found"}


async def peek(node: RequestNode, path: str, start: int, most: int) -> list[bytes]:
    """Up to ``most`` messages of ``path`` with the sequence number ``start`` or a later one.

    Locked, deferred and scheduled ones too. Raises LinkRefused, ConnectionLost.
    """
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
    return [bytes(entry["message"]) for entry in body.get("messages", [])]
