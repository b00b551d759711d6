"""Restart the locks of deliveries, over ``$management`` (F-62, F-66)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from sbpair.amqp.message import Message, ValueBody
from sbpair.amqp.performatives import Condition
from sbpair.amqp.types import Array

from .connection import NamespaceConnection
from .errors import LinkRefused
from .request import CREDIT, RequestNode

OK, GONE = 200, 410
UUID_CODE = 0x98


async def renew_locks(
    connection: NamespaceConnection, backlog: str, tags: Sequence[bytes]
) -> list[float | None]:
    """When each lock ends now, in seconds since the epoch by the broker's clock; None for one that is lost.

    Raises LinkRefused when it cannot be said, TokenRefused, ConnectionLost.
    """
    node = RequestNode(connection, connection.namespace.address(f"{backlog}/$management"))
    try:
        ends = await _renew(node, backlog, tags)
        if ends is not None or len(tags) == 1:
            return ends or [None]
        found: list[float | None] = []  # one lost lock refuses all: ask for each alone
        for first in range(0, len(tags), CREDIT):
            asked = (_renew(node, backlog, [tag]) for tag in tags[first : first + CREDIT])
            found += [each[0] if each else None for each in await asyncio.gather(*asked)]
        return found
    finally:
        await node.close()


async def _renew(node: RequestNode, backlog: str, tags: Sequence[bytes]) -> list[float | None] | None:
    """Ask for all or none; None when one of them is lost."""
    properties: dict[object, object] = {"operation": "com.microsoft:renew-lock", "type": "entity-mgmt"}
    tokens = tuple(UUID(bytes_le=tag) for tag in tags)
    answer = await node.ask(properties, {"lock-tokens": Array(UUID_CODE, tokens)})
    status = answer.application_properties.get("statusCode")
    if status == GONE:
        return None
    ends = _expirations(answer) if status == OK else []
    if len(ends) != len(tags):
        said = answer.application_properties.get("statusDescription")
        condition = Condition("amqp:internal-error", f"status {status}: {said}")
        raise LinkRefused(f"the locks on {backlog} were not renewed", condition)
    return ends


def _expirations(answer: Message) -> list[float | None]:
    body = answer.body.value if isinstance(answer.body, ValueBody) else None
    until = body.get("expirations") if isinstance(body, dict) else None
    each = until.items if isinstance(until, Array) else until
    return [end / 1000 for end in each or () if isinstance(end, int)]
