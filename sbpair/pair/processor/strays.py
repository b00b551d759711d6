"""Strays: messages whose lock outlived their link. They are settled over ``$management``.

    the handler ends after the link -----------------> settled by the lock token --confirmed, refused
    the settlement was sent, but not confirmed ------> settled again --confirmed
                                                              '-- no such lock: settled before, or lost: unknown
    refused while no link is attached ---------------> settled again, until a refusal comes with a link attached
    no connection until the lock ends ---------------> lost, or unknown

Without this, every message in flight on a detached link would be delivered twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from sbpair.pair.amqp.performatives import Accepted, Condition, DeliveryState, Modified, Rejected
from sbpair.pair.amqp.types import Array
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError, LinkRefusedError
from sbpair.pair.client.link import DESCRIPTION, REASON
from sbpair.pair.client.locks import UUID_CODE
from sbpair.pair.client.request import RequestNode, refusal_of

from .delivery import Delivery
from .settlement import LOCK_LOST

AT_ONCE = 50  # concurrent requests on one node


@dataclass(slots=True, eq=False)
class Stray:
    """A settlement to make over ``$management``."""

    delivery: Delivery
    was_sent: bool
    """Whether it was sent, over the link or ``$management``, without an answer: it may have taken effect."""


Ended = Callable[[Stray, Condition | None], None]


class Strays:
    """The strays of one side."""

    def __init__(self, path: str, ended: Ended, unknown: Callable[[list[Stray]], None]) -> None:
        """Create an empty set of strays.

        ``ended`` is called with the broker's refusal or None, ``unknown`` with strays whose settlement is unknown.
        """
        self._path = path
        self._ended = ended
        self._unknown = unknown
        self._waiting: dict[Stray, None] = {}
        self._settling: asyncio.Task[None] | None = None
        self.connection: NamespaceConnection | None = None
        """The latest connection, which may have no link yet, or outlive it; None before the first."""
        self.is_attached = False
        """Whether a link to the entity is attached: until then, a refusal may be the reason why none is."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stray: Stray) -> None:
        """Settle a stray, now or once there is a connection."""
        self._waiting[stray] = None
        self.settle()

    def settle(self) -> None:
        """Settle the waiting strays, if the connection is open; to be called again while any waits."""
        if (
            self._waiting
            and self.connection is not None
            and self.connection.is_open
            and (self._settling is None or self._settling.done())
        ):
            self._settling = asyncio.ensure_future(self._settle())

    async def _settle(self) -> None:
        """Settle until none waits, including strays added while a node is closed or its connection is replaced."""
        while self._waiting and (connection := self.connection) is not None:
            try:
                await self._settle_over(connection)
            except ClientError:
                if connection is self.connection:
                    return  # settle() is called again in a moment

    async def _settle_over(self, connection: NamespaceConnection) -> None:
        node = RequestNode(connection, connection.namespace.address(f"{self._path}/$management"))
        try:
            await node.wait_open()
            while some := list(self._waiting)[:AT_ONCE]:
                settling = (self._settle_one(node, stray) for stray in some)
                ended = await asyncio.gather(*settling, return_exceptions=True)  # each has its answer
                for error in filter(None, ended):
                    raise error
        finally:
            await node.close()

    async def _settle_one(self, node: RequestNode, stray: Stray) -> None:
        was_sent, stray.was_sent = stray.was_sent, True  # should its answer be lost
        refusal = await settle_by_token(node, stray.delivery.tag, stray.delivery.state)
        stray.was_sent = was_sent
        if refusal is not None and not self.is_attached and refusal.symbol not in LOCK_LOST:
            raise LinkRefusedError(f"a settlement on {self._path} was refused", refusal)
        if self._waiting.pop(stray, stray) is stray:
            return
        if refusal is not None and stray.was_sent and refusal.symbol in LOCK_LOST:
            self._unknown([stray])
        else:
            self._ended(stray, refusal)

    def give_up(self, now: float | None = None) -> None:
        """Report strays whose lock has expired as unknown; without ``now``, all of them."""
        over = [each for each in self._waiting if now is None or each.delivery.lock_ends <= now]
        for stray in over:
            del self._waiting[stray]
        if over:
            self._unknown(over)

    async def close(self, timeout: float) -> None:
        """Settle waiting strays within ``timeout`` seconds, and report the rest as unknown."""
        self.settle()
        if self._settling is not None:
            await asyncio.wait([self._settling], timeout=timeout)
            self._settling.cancel()
        self.give_up()


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
