"""Settlement of the messages of an entity up to a sequence number, by receiving and completing them at once.

Locks are held for milliseconds. Messages beyond the number are released immediately; messages locked by another
consumer remain for the next settlement. Settlement is idempotent.
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

ROUND = 500  # messages locked at a time: few enough for the shortest lock duration


class EntityRenewed(Exception):
    """The entity was deleted and recreated, so sequence numbers of the checkpoint denote other messages."""

    def __init__(self, path: str, upto: int) -> None:
        super().__init__(
            f"sbpair: {path} was deleted and created again since this checkpoint was written: a message with a "
            f"number up to {upto} was enqueued after all messages read. Start a new checkpoint; the message was "
            "not completed"
        )


class Settler:
    """Settlement over one receiver link to ``path``; ``completed`` counts the confirmed messages.

    ``until`` is the latest enqueued time (ms) of the messages that may be completed; None allows any.
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
        """Complete the messages from ``head`` to ``upto`` in rounds, until a round completes none.

        Raises TokenRefused, LinkRefused, ConnectionLost, and EntityRenewed for a message enqueued after
        ``until``. If cancelled, unconfirmed messages may or may not be completed; either is safe.
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
        """Run one round; return the highest number completed, None when there was none."""
        receiver = self._receiver
        self._arrived.clear()
        receiver.flow(credit, drain=True)
        await receiver.drained()
        ours: list[int] = []
        beyond: list[int] = []
        last: int | None = None
        for event in self._arrived:
            number, enqueued_at = position_of(event.payload)
            is_young = self._until is not None and (enqueued_at is None or enqueued_at > self._until)
            if (
                number is None or number > upto or is_young
            ):  # without a number it is unknown whether it was read
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
            raise ConnectionLost(f"the link to {self.path} was detached", receiver.detached.result())

    def _on_states(self, event: DispositionReceived) -> None:
        for offset in range((event.last - event.first) % SERIAL + 1):
            delivery_id = (event.first + offset) % SERIAL
            if delivery_id in self._owed:
                self._owed.discard(delivery_id)
                self.completed += isinstance(event.state, Accepted)
        if not self._owed:
            self._answered.set()


def position_of(payload: bytes) -> tuple[int | None, int | None]:
    """The sequence number and the enqueued time (ms) of a message; None for each that is absent."""
    annotations = decode_map_section(split(payload).message_annotations)
    number, at = annotations.get("x-opt-sequence-number"), annotations.get("x-opt-enqueued-time")
    return (
        int(number) if isinstance(number, int) else None,
        int(at) if isinstance(at, int) else None,
    )
