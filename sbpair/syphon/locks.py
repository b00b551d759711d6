"""Keep the locks of messages whose destination takes its time: renewed over ``$management`` (F-62)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from sbpair.amqp.message import ValueBody
from sbpair.amqp.performatives import Condition
from sbpair.amqp.types import Array

from .connection import NamespaceConnection
from .errors import LinkRefused
from .request import RequestNode

OK = 200
UUID_CODE = 0x98
RENEWED_AT = 1 / 3  # of its span is left when a lock is renewed


async def renew_locks(connection: NamespaceConnection, backlog: str, tags: Sequence[bytes]) -> list[float]:
    """Restart the locks of deliveries, all or none; the seconds that each has from now on.

    Raises LinkRefused when one of them is lost, ConnectionLost.
    """
    node = RequestNode(connection, connection.namespace.address(f"{backlog}/$management"))
    try:
        properties: dict[object, object] = {"operation": "com.microsoft:renew-lock", "type": "entity-mgmt"}
        tokens = tuple(UUID(bytes_le=tag) for tag in tags)
        answer = await node.ask(properties, {"lock-tokens": Array(UUID_CODE, tokens)})
        status = answer.application_properties.get("statusCode")
        body = answer.body.value if isinstance(answer.body, ValueBody) else None
        if status != OK or not isinstance(body, dict):
            said = answer.application_properties.get("statusDescription")
            raise LinkRefused(
                f"the locks on {backlog} were not renewed",
                Condition("amqp:internal-error", f"status {status}: {said}"),
            )
        now = time.time()
        until = body.get("expirations")
        expirations = until.items if isinstance(until, Array) else until
        return [each / 1000 - now for each in expirations or () if isinstance(each, int)]
    finally:
        await node.close()
