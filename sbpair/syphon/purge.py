"""How are the dead letters of a backlog queue deleted? Received and gone, in one step; counted as they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

from sbpair.amqp.performatives import Source, Target

from .connection import NamespaceConnection
from .errors import ConnectionLost
from .link import Receiver
from .look import DEAD_LETTERS

SETTLED, FIRST = 1, 0  # 2.8.2, 2.8.3: the peer settles as it sends, so that receiving deletes
ROUND = 500  # messages a round


async def purge(
    connection: NamespaceConnection, backlog: str, deleted: Callable[[], None], *, stop: asyncio.Event
) -> None:
    """Delete every dead letter of ``backlog``; ``deleted`` is called for each.

    ``stop`` ends it between two rounds. Raises TokenRefused, LinkRefused, ConnectionLost.
    """
    path = backlog + DEAD_LETTERS
    await connection.authorize(path)
    seen = 0

    def on_message(event: object) -> None:
        nonlocal seen
        seen += 1
        deleted()

    receiver = _receiver(connection, path, on_message)
    connection.register(receiver)
    await receiver.wait_attached()
    try:
        while not stop.is_set():
            before = seen
            receiver.flow(ROUND, drain=True)
            await receiver.drained()
            if receiver.detached.done():
                raise ConnectionLost(f"no link to {path}", receiver.detached.result())
            if seen == before:
                return
    finally:
        await receiver.close()


def _receiver(connection: NamespaceConnection, path: str, on_message: Callable[[object], None]) -> Receiver:
    name = f"sbpair-purge-{uuid4()}"
    link = connection.opening(
        path,
        lambda: connection.begin().attach_receiver(
            name,
            source=Source(connection.namespace.address(path)),
            target=Target(name),
            snd_settle_mode=SETTLED,
            rcv_settle_mode=FIRST,
        ),
    )
    return Receiver(connection, link, path, on_message)
