"""Settling over ``$management``, by lock token, for a message whose lock outlived its link."""

from __future__ import annotations

from uuid import UUID

from sbpair.pair.amqp.performatives import Accepted, Condition, DeliveryState, Modified, Rejected
from sbpair.pair.amqp.types import Array
from sbpair.pair.client.locks import UUID_CODE
from sbpair.pair.client.request import RequestNode, refusal_of
from sbpair.pair.client.settling import DESCRIPTION, REASON


async def settle_by_token(node: RequestNode, tag: bytes, state: DeliveryState) -> Condition | None:
    """Settle the message whose delivery tag is ``tag``; return why the broker refuses, or None.

    ``node`` is the ``$management`` node of the entity. Raises ConnectionLostError or LinkRefusedError when it does
    not answer, and ValueError for a tag that is not a lock token or a state that ``$management`` does not support
    (released).
    """
    body: dict[object, object] = {
        "lock-tokens": Array(UUID_CODE, (UUID(bytes_le=tag),)),
        **_disposition(state),
    }
    answer = await node.ask({"operation": "com.microsoft:update-disposition", "type": "entity-mgmt"}, body)
    return refusal_of(answer)


def _disposition(state: DeliveryState) -> dict[object, object]:
    match state:
        case Accepted():
            return {"disposition-status": "completed"}
        case Modified(undeliverable_here=True, message_annotations=changes):
            return {"disposition-status": "defered", **_changes(changes)}  # the wire's spelling
        case Modified(message_annotations=changes):
            return {"disposition-status": "abandoned", **_changes(changes)}
        case Rejected(error):
            info = dict((error.info if error is not None else None) or {})
            return {
                "disposition-status": "suspended",
                "deadletter-reason": info.pop(REASON, ""),
                "deadletter-description": info.pop(DESCRIPTION, ""),
                **_changes(info),
            }
        case _:
            raise ValueError(f"{type(state).__name__} is not supported over $management")


def _changes(properties: dict[object, object] | None) -> dict[object, object]:
    return (
        {"properties-to-modify": {str(name): value for name, value in properties.items()}}
        if properties
        else {}
    )
