"""Settling a message by its lock token over the management node."""

from __future__ import annotations

from uuid import UUID

import pytest

from sbpair.pair.amqp.message import Message, ValueBody
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Condition,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from sbpair.pair.amqp.types import Symbol
from sbpair.pair.client.request import RequestNode
from sbpair.pair.processor.strays import settle_by_token
from tests.pair.client.played import Played, played, status

__all__ = ["played"]

pytestmark = pytest.mark.spec("R-66")

TAG = bytes(range(16))
REASON = {Symbol("DeadLetterReason"): "Late", Symbol("DeadLetterErrorDescription"): "by a day", "more": 1}


def node_of(played: Played, answer: Message) -> RequestNode:
    played.peer.nodes["orders/$management"] = lambda request: answer
    return RequestNode(played.connection, played.connection.namespace.address("orders/$management"))


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (ACCEPTED, {"disposition-status": "completed"}),
        (Modified(), {"disposition-status": "abandoned"}),
        (Modified(message_annotations={Symbol("n"): 1}),
         {"disposition-status": "abandoned", "properties-to-modify": {"n": 1}}),
        (Modified(undeliverable_here=True, message_annotations={"n": 1}),
         {"disposition-status": "defered", "properties-to-modify": {"n": 1}}),
        (Rejected(Condition("com.microsoft:dead-letter", "", dict(REASON))),
         {"disposition-status": "suspended", "deadletter-reason": "Late", "deadletter-description": "by a day",
          "properties-to-modify": {"more": 1}}),
        (Rejected(),
         {"disposition-status": "suspended", "deadletter-reason": "", "deadletter-description": ""}),
    ],
)  # fmt: skip
async def test_a_message_is_settled_by_its_token(
    played: Played, state: DeliveryState, asked: dict[str, object]
) -> None:
    node = node_of(played, status(200))
    assert await settle_by_token(node, TAG, state) is None
    path, request = played.peer.requests[-1]
    assert path == "orders/$management"
    assert {name: request.application_properties[name] for name in ("operation", "type")} == {
        "operation": "com.microsoft:update-disposition",
        "type": "entity-mgmt",
    }
    assert isinstance(request.body, ValueBody)
    body = request.body.value
    assert isinstance(body, dict)
    assert body.pop("lock-tokens").items == (UUID(bytes_le=TAG),)
    assert body == asked
    await node.close()


async def test_a_refusal_is_returned_and_an_unsupported_operation_is_an_error(played: Played) -> None:
    node = node_of(played, status(410, "the lock is gone"))
    refusal = await settle_by_token(node, TAG, ACCEPTED)
    assert refusal is not None
    assert "the lock is gone" in str(refusal.description)
    with pytest.raises(ValueError, match=r"Released is not supported over \$management"):
        await settle_by_token(node, TAG, Released())
    await node.close()
