"""Peek at the messages of an entity, as bytes, over ``$management``."""

from __future__ import annotations

from sbpair.amqp.message import ValueBody
from sbpair.amqp.performatives import Condition
from sbpair.amqp.types import Int

from .errors import LinkRefused
from .request import RequestNode

OK, NO_CONTENT = 200, 204
CONDITIONS = {
    401: "amqp:unauthorized-access",
    403: "amqp:unauthorized-access",
    404: "amqp:not-found",
    429: "com.microsoft:server-busy",
    503: "com.microsoft:server-busy",
}


async def peek(node: RequestNode, path: str, start: int, most: int) -> list[bytes]:
    """Up to ``most`` messages of ``path``, from sequence number ``start`` on.

    Includes locked, deferred and scheduled messages. Raises LinkRefused or ConnectionLost.
    """
    properties: dict[object, object] = {"operation": "com.microsoft:peek-message", "type": "entity-mgmt"}
    answer = await node.ask(properties, {"from-sequence-number": start, "message-count": Int(most)})
    status = answer.application_properties.get("statusCode")
    if status == NO_CONTENT:
        return []
    body = answer.body.value if isinstance(answer.body, ValueBody) else None
    if status != OK or not isinstance(body, dict):
        symbol = CONDITIONS.get(status) if isinstance(status, int) else None
        told = answer.application_properties.get("errorCondition")
        if symbol is None and isinstance(told, str):
            symbol = told
        said = answer.application_properties.get("statusDescription")
        shown = int(status) if isinstance(status, int) else status  # as a plain number, not an AMQP type
        condition = Condition(symbol or "amqp:internal-error", f"status {shown}: {said}")
        raise LinkRefused(f"{path} cannot be peeked", condition)
    try:
        return [bytes(entry["message"]) for entry in body.get("messages") or []]
    except (KeyError, TypeError, ValueError) as error:
        raise LinkRefused(f"the answer to a peek at {path} cannot be read: {error!r}") from error
