"""Settlement of the messages of an entity up to a sequence number: receive and complete in one step.

Locks last for milliseconds. Messages beyond the number are released at once; messages that another consumer holds
remain and are found the next time. Repeating a settlement has no effect.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sbpair.amqp.events import DispositionReceived, MessageReceived
from sbpair.amqp.message import decode_map_section, split
from sbpair.amqp.performatives import Accepted, Released
from sbpair.client.connection import NamespaceConnection
from sbpair.client.errors import ConnectionLost
from sbpair.client.link import SERIAL, Receiver, runs

ROUND = 500  # messages in our hands at a time: few enough for the shortest lock


class EntityRenewed(Exception):
    """Messages with numbers that were read before are not those that were read."""

    def __init__(self, path: str, upto: int) -> None:
        super().__init__(
            f"sbpair: {path} was deleted and created again under this checkpoint: a message with a number up "
            f"to {upto} came after all that was read. It is not completed; begin a new checkpoint"
        )


class Settler:
    """One link to one entity; ``completed`` counts what the broker confirmed.

    ``until``: when the last message that may be completed was enqueued (ms); None for not known.
    """

    def __init__(self, path: str, until: int | None = None) -> None:
        self.path = path
        self._until = until
        self._is_renewed = False
        self.completed = 0
        self._arrived: list[MessageReceived] = []
        self._owed: set[int] = set()
        self._answered = asyncio.Event()
        self._receiver: Receiver

    async def settle(self, connection: NamespaceConnection, head: int, upto: int) -> None:
        """Complete what is there from ``head`` to ``upto``, round by round, until a round brings nothing.

        Raises TokenRefused, LinkRefused, ConnectionLost, EntityRenewed. What was asked for and not answered
        when this is cancelled may be completed or not: both are right.
        """
        self._receiver = await connection.open_receiver(self.path, self._arrived.append, self._on_states)
        try:
            while head <= upto:
                last = await self._round(min(ROUND, upto - head + 1), upto)
                if self._is_renewed:
                    raise EntityRenewed(self.path, upto)
                if last is None:
                    return
                head = max(head, last) + 1
        finally:
            await self._receiver.close()

    async def _round(self, credit: int, upto: int) -> int | None:
        """The last number that was completed; None when there was none."""
        receiver = self._receiver
        self._arrived.clear()
        receiver.flow(credit, drain=True)
        await receiver.drained()
        ours: list[int] = []
        beyond: list[int] = []
        last: int | None = None
        for event in self._arrived:
            number, enqueued_at = place_of(event.payload)
            is_young = self._until is not None and (enqueued_at is None or enqueued_at > self._until)
            if number is None or number > upto or is_young:  # one without a number may be anybody's
                beyond.append(event.delivery_id)
                self._is_renewed |= (
                    is_young and enqueued_at is not None and number is not None and number <= upto
                )
            else:
                ours.append(event.delivery_id)
                last = number if last is None else max(last, number)
        for first, end in runs(beyond):
            receiver.give_back(first, end, Released())
        await self._complete(ours)
        return last

    async def _complete(self, deliveries: list[int]) -> None:
        if not deliveries:
            return
        receiver = self._receiver
        self._owed = set(deliveries)
        self._answered.clear()
        for first, end in runs(deliveries):
            receiver.settle(first, end, Accepted())
        answered = asyncio.ensure_future(self._answered.wait())
        try:
            either: tuple[asyncio.Future[Any], ...] = (answered, receiver.detached)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
        if self._owed:
            raise ConnectionLost(f"no link to {self.path}", receiver.detached.result())

    def _on_states(self, event: DispositionReceived) -> None:
        for offset in range((event.last - event.first) % SERIAL + 1):
            delivery_id = (event.first + offset) % SERIAL
            if delivery_id in self._owed:
                self._owed.discard(delivery_id)
                self.completed += isinstance(event.state, Accepted)
        if not self._owed:
            self._answered.set()


def place_of(payload: bytes) -> tuple[int | None, int | None]:
    """The number of a message, and when it was enqueued (ms); None for what cannot be read."""
    annotations = decode_map_section(split(payload).message_annotations)
    number, at = annotations.get("x-opt-sequence-number"), annotations.get("x-opt-enqueued-time")
    return (
        int(number) if isinstance(number, int) else None,
        int(at) if isinstance(at, int) else None,
    )
