"""How do dead-lettered messages of a backlog queue get back into it, so that the syphon takes them again?

    peek    which dead letters are there now, and for this reason?
    round   take up to 100 --> send each to the backlog --> accepted: complete the dead letter
    end     all of them are back, or a round brought nothing new; what was not wanted is given back

Sent first, then completed: who is interrupted in between leaves a message twice, never not at all. What is
dead-lettered anew while this runs is left for the next time, or it would go round in circles with a syphon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sbpair.amqp.events import MessageReceived
from sbpair.amqp.performatives import Accepted, DeliveryState, Rejected, Released
from sbpair.amqp.types import DecodeError

from .connection import NamespaceConnection
from .errors import ConnectionLost, said
from .link import Receiver, Sender
from .look import DEAD_LETTERS, look
from .parked import read_parked
from .redriven import redriven

ROUND = 100  # messages in our hands at a time: few enough for a lock of a minute


@dataclass(slots=True)
class RedriveCounts:
    """What became of the dead letters."""

    redriven: int = 0  # back in their backlog, and gone from the dead letters
    left: int = 0  # dead-lettered for another reason, or not for us to read
    refused: int = 0  # the backlog did not take them: they are still dead letters
    twice: int = 0  # back in their backlog, but perhaps still dead letters too
    refusal: str | None = None  # what the backlog said


async def redrive(
    connection: NamespaceConnection,
    backlog: str,
    counts: RedriveCounts,
    *,
    reason: str | None = None,
    stop: asyncio.Event,
) -> None:
    """Send the dead letters of ``backlog`` back into it: all, or those with this ``reason``.

    ``stop`` ends it between two rounds. Raises TokenRefused, LinkRefused, ConnectionLost; ``counts`` is true
    then too.
    """
    wanted = set()
    async for message in look(connection, backlog + DEAD_LETTERS):
        if reason is not None and (message.reason or "").casefold() != reason.casefold():
            counts.left += 1
        elif message.sequence_number is not None:
            wanted.add(message.sequence_number)
    if wanted:
        sender = await connection.open_sender(backlog)
        try:
            async with _Rounds.of(connection, backlog + DEAD_LETTERS) as rounds:
                await _redrive(rounds, sender, wanted, counts, stop)
        finally:
            await sender.close()


async def _redrive(
    rounds: _Rounds, sender: Sender, wanted: set[int], counts: RedriveCounts, stop: asyncio.Event
) -> None:
    while wanted and not counts.refused and not stop.is_set():
        taken = await rounds.take()
        if not taken:
            break
        ours = [event for number, event in taken if number in wanted]
        rounds.held += [event.delivery_id for number, event in taken if number not in wanted]
        wanted.difference_update(number for number, _ in taken)
        await asyncio.gather(*(_one(event, rounds.receiver, sender, counts) for event in ours))
        if sender.detached.done() or rounds.receiver.detached.done():
            raise ConnectionLost("the links went while dead letters were being sent back")


async def _one(event: MessageReceived, receiver: Receiver, sender: Sender, counts: RedriveCounts) -> None:
    try:
        payload = redriven(event.payload)
    except (DecodeError, IndexError):
        counts.left += 1
        receiver.give_back(event.delivery_id, event.delivery_id, Released())
        return
    outcome = await sender.send(payload, event.message_format or 0)
    if not isinstance(outcome, Accepted):
        counts.refused += 1
        counts.refusal = _refusal(outcome)
        receiver.give_back(event.delivery_id, event.delivery_id, Released())
    elif isinstance(await receiver.settled(event.delivery_id, Accepted()), Accepted):
        counts.redriven += 1
    else:
        counts.twice += 1


def _refusal(outcome: DeliveryState | None) -> str:
    if isinstance(outcome, Rejected):
        return said(outcome.error)
    return "the link went before the answer came" if outcome is None else type(outcome).__name__.lower()


class _Rounds:
    """Takes the messages of a queue in rounds, each of which says when nothing more is there."""

    def __init__(self, connection: NamespaceConnection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._arrived: list[MessageReceived] = []
        self._seen: set[int] = set()
        self.held: list[int] = []
        self.receiver: Receiver

    @classmethod
    @asynccontextmanager
    async def of(cls, connection: NamespaceConnection, path: str) -> AsyncIterator[_Rounds]:
        rounds = cls(connection, path)
        rounds.receiver = await connection.open_receiver(path, rounds._arrived.append)
        try:
            yield rounds
        finally:
            for delivery_id in rounds.held:
                rounds.receiver.give_back(delivery_id, delivery_id, Released())
            await rounds.receiver.close()

    async def take(self) -> list[tuple[int, MessageReceived]]:
        """The next messages with their sequence numbers; empty when a round brings none that is new.

        What is not wanted stays locked until the end, so that it does not come again at once; should its
        lock end before, it is known by its number.
        """
        self._arrived.clear()
        self.receiver.flow(ROUND, drain=True)
        await self.receiver.drained()
        taken = [(read_parked(event.payload).sequence_number or 0, event) for event in self._arrived]
        fresh = {number for number, _ in taken} - self._seen
        self._seen |= fresh
        if not fresh:
            self.held += [event.delivery_id for _, event in taken]
        return taken if fresh else []
