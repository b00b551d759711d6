"""Complete the messages of an entity up to a sequence number: received, completed, in one go.

Locks exist in here alone, for milliseconds. What is behind the number is given back at once; what another
consumer holds stays, and is found the next time. To do it again does nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sbpair.amqp.events import DispositionReceived, MessageReceived
from sbpair.amqp.performatives import Accepted, Released
from sbpair.amqp.sections import decode_map_section, split
from sbpair.syphon.connection import NamespaceConnection
from sbpair.syphon.errors import ConnectionLost
from sbpair.syphon.link import SERIAL, Receiver
from sbpair.syphon.ranges import runs

ROUND = 500  # messages in our hands at a time: few enough for the shortest lock


class Settler:
    """One link to one entity; ``completed`` counts what the broker confirmed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.completed = 0
        self._arrived: list[MessageReceived] = []
        self._owed: set[int] = set()
        self._answered = asyncio.Event()
        self._receiver: Receiver

    async def settle(self, connection: NamespaceConnection, head: int, upto: int) -> None:
        """Complete what is there from ``head`` to ``upto``, round by round, until a round brings nothing.

        Raises TokenRefused, LinkRefused, ConnectionLost. What was asked for and not answered when this is
        cancelled may be completed or not: both are right.
        """
        self._receiver = await connection.open_receiver(self.path, self._arrived.append, self._on_states)
        try:
            while head <= upto:
                last = await self._round(min(ROUND, upto - head + 1), upto)
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
            number = number_of(event.payload)
            if number is None or number > upto:  # one without a number may be anybody's
                beyond.append(event.delivery_id)
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


def number_of(payload: bytes) -> int | None:
    """The sequence number of a message that was received; None where it has none that can be read."""
    value = decode_map_section(split(payload).message_annotations).get("x-opt-sequence-number")
    return int(value) if isinstance(value, int) else None
