"""Redrives and purges the dead letters of a backlog queue, including messages that could not be transferred.

A redrive works in rounds:

    peek    find the dead letters, and those with the requested reason
    round   receive up to 100, send each to the backlog, and complete it once accepted
    end     all are redriven, or no more arrive: the others count as missed

Dead letters with other reasons stay locked until the end, and their locks are renewed; otherwise they would be received
again and again, ahead of the others. Each message is sent before it is completed, so an interruption in between leaves
a duplicate, never a loss. Messages dead-lettered meanwhile are left for the next redrive; otherwise they could
circulate between the redrive and a syphon.

Messages of the transfer dead-letter queue are parked again first, because the syphon had restored them before their
entity on the secondary refused them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.performatives import Accepted, DeliveryState
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ConnectionLostError, outcome_text
from sbpair.pair.client.link import Receiver, Sender, release
from sbpair.pair.client.locks import LockClock, LockKeeper
from sbpair.pair.envelope.inspect import read_parked
from sbpair.pair.envelope.restore import locked_until_of, redriven

from ..forward.locks import KeptDelivery
from ..land.transfer import DestinationUnknownError, park_again
from .peeking import DEAD_LETTERS, TRANSFER_DEAD_LETTERS, peek_parked

ROUND = 100  # messages locked at a time: few enough for locks of a minute
WAIT_FOR_OTHERS, PEEK_EVERY = 5.0, 0.5  # seconds, for messages that another redrive may have locked
TICK = 1.0  # seconds between checks of the locks
MAX_REPEATED_ROUNDS = 10  # rounds in a row without a new message
SETTLED, FIRST = 1, 0  # settle modes (AMQP 2.8.2, 2.8.3): the peer sends settled, so that receiving deletes
PURGE_ROUND = 500  # messages


@dataclass(slots=True)
class RedriveCounts:
    """The outcome of a redrive."""

    redriven: int = 0  # sent to their backlog and removed from the dead letters
    left: int = 0  # dead-lettered for another reason, malformed, or without a destination
    missed: int = 0  # locked by another receiver
    refused: int = 0  # not accepted by the backlog: they are still dead letters
    twice: int = 0  # sent to their backlog, but possibly still dead letters too
    refusal: str | None = None  # the answer of the backlog


async def redrive(
    connection: NamespaceConnection,
    backlog: str,
    counts: RedriveCounts,
    *,
    reason: str | None = None,
    untransferred: bool = False,
    stop: asyncio.Event,
) -> None:
    """Send the dead letters of ``backlog`` to it again.

    ``reason``: only those with this reason, case-insensitive. ``untransferred``: those of its transfer dead-letter
    queue instead. ``stop``: set it to end the redrive between two rounds. ``counts`` is updated, and is also valid when
    this raises TokenRefusedError, LinkRefusedError or ConnectionLostError.
    """
    path = backlog + (TRANSFER_DEAD_LETTERS if untransferred else DEAD_LETTERS)
    rewrite = park_again if untransferred else redriven
    wanted = set()
    async for message in peek_parked(connection, path):
        if reason is not None and (message.reason or "").casefold() != reason.casefold():
            counts.left += 1
        elif message.sequence_number is not None:
            wanted.add(message.sequence_number)
    if wanted:
        sender = await connection.open_sender(backlog)
        try:
            async with _Rounds.of(connection, path) as rounds:
                await _redrive(rounds, sender, wanted, counts, rewrite, stop)
        finally:
            await sender.close()


async def _redrive(
    rounds: _Rounds,
    sender: Sender,
    wanted: set[int],
    counts: RedriveCounts,
    rewrite: Callable[[bytes], bytes],
    stop: asyncio.Event,
) -> None:
    while wanted and not counts.refused and not stop.is_set():
        taken = await rounds.take() or await rounds.wait_for(wanted)
        if not taken:
            counts.missed += len(wanted)
            break
        ours = [event for number, event in taken if number in wanted]
        rounds.keep([event for number, event in taken if number not in wanted])
        wanted.difference_update(number for number, _ in taken)
        await asyncio.gather(*(_one(event, rewrite, rounds.receiver, sender, counts) for event in ours))
        if sender.detached.done() or rounds.receiver.detached.done():
            raise ConnectionLostError("the links were lost during the redrive")


async def _one(
    event: MessageReceived,
    rewrite: Callable[[bytes], bytes],
    receiver: Receiver,
    sender: Sender,
    counts: RedriveCounts,
) -> None:
    try:
        payload = rewrite(event.payload)
    except (DecodeError, IndexError, DestinationUnknownError):
        counts.left += 1
        release(receiver, [event.delivery_id])
        return
    outcome = await sender.send(payload, event.message_format or 0)
    if not isinstance(outcome, Accepted):
        counts.refused += 1
        counts.refusal = _refusal(outcome)
        release(receiver, [event.delivery_id])
    elif isinstance(await receiver.settle_and_wait(event.delivery_id, Accepted()), Accepted):
        counts.redriven += 1
    else:
        counts.twice += 1


def _refusal(outcome: DeliveryState | None) -> str:
    return "the link was lost before the answer" if outcome is None else outcome_text(outcome)


async def purge(
    connection: NamespaceConnection, backlog: str, deleted: Callable[[], None], *, stop: asyncio.Event
) -> None:
    """Delete all dead letters of ``backlog``, calling ``deleted`` for each.

    ``stop`` ends it between two rounds. Raises TokenRefusedError, LinkRefusedError, ConnectionLostError.
    """
    path = backlog + DEAD_LETTERS
    await connection.authorize(path)
    seen = 0

    def on_message(event: object) -> None:
        nonlocal seen
        seen += 1
        deleted()

    link = connection.attach_receiver(path, snd_settle_mode=SETTLED, rcv_settle_mode=FIRST)
    receiver = Receiver(connection, link, path, on_message)
    connection.register(receiver)
    await receiver.wait_attached()
    try:
        while not stop.is_set():
            before = seen
            await receiver.drain(PURGE_ROUND)
            if seen == before:
                return
    finally:
        await receiver.close()


class _Rounds:
    """Receives the messages of a queue in rounds, each a drain."""

    def __init__(self, connection: NamespaceConnection, path: str) -> None:
        self.connection, self.path = connection, path
        self._arrived: list[MessageReceived] = []
        self._seen: set[int] = set()
        self._kept: dict[bytes, KeptDelivery] = {}  # by lock token
        self._clock = LockClock()
        self._keeper = LockKeeper[KeptDelivery](path, self._clock, self._clock.local, self._renewed)
        self.receiver: Receiver

    @classmethod
    @asynccontextmanager
    async def of(cls, connection: NamespaceConnection, path: str) -> AsyncIterator[_Rounds]:
        rounds = cls(connection, path)
        rounds.receiver = await connection.open_receiver(path, rounds._arrived.append)
        keeping = asyncio.ensure_future(rounds.keep_locks())
        try:
            yield rounds
        finally:
            keeping.cancel()
            rounds._keeper.stop()
            release(rounds.receiver, (each.delivery_id for each in rounds._kept.values()))
            await rounds.receiver.close()

    def keep(self, events: Iterable[MessageReceived]) -> None:
        """Keep these messages locked until the end."""
        now, local = asyncio.get_running_loop().time(), self._clock.local()
        for event in events:
            ends = locked_until_of(event.payload)
            left = self._clock.span if ends is None else self._clock.left(ends / 1000, local, local)
            self._kept[event.tag] = KeptDelivery(event.delivery_id, event.tag, now + left)

    async def take(self) -> list[tuple[int, MessageReceived]]:
        """Receive the next messages with their sequence numbers; return an empty list when there are no more.

        A message that is redelivered because its lock expired is recognised by its number, and kept locked again.
        Raises ConnectionLostError when the link ends; otherwise missing messages would seem to be locked by others.
        """
        for _ in range(MAX_REPEATED_ROUNDS):
            self._arrived.clear()
            await self.receiver.drain(ROUND)
            taken = [(read_parked(event.payload).sequence_number or 0, event) for event in self._arrived]
            fresh = {number for number, _ in taken} - self._seen
            if fresh or not taken:
                self._seen |= fresh
                return taken
            self.keep(event for _, event in taken)
        return []

    async def wait_for(self, wanted: set[int]) -> list[tuple[int, MessageReceived]]:
        """Wait for messages that others have locked; remove numbers that no longer exist from ``wanted``."""
        taken: list[tuple[int, MessageReceived]] = []
        ends = asyncio.get_running_loop().time() + WAIT_FOR_OTHERS
        while not taken:
            there = {message.sequence_number async for message in peek_parked(self.connection, self.path)}
            wanted.intersection_update(number for number in there if number is not None)
            if not wanted or asyncio.get_running_loop().time() > ends:
                break
            await asyncio.sleep(PEEK_EVERY)
            taken = await self.take()
        return taken

    async def keep_locks(self) -> None:
        """Renew the kept locks until cancelled."""
        while True:
            await asyncio.sleep(TICK)
            self._keeper.renew_due(self.connection, self._kept.values())

    def _renewed(self, renewed: Sequence[KeptDelivery], ends: Sequence[float | None]) -> None:
        for each, end in zip(renewed, ends, strict=True):
            if end is None:  # it is delivered again
                self._kept.pop(each.tag, None)
