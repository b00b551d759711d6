"""Settlement of the messages of an entity that were read and committed, by receiving and completing them at once.

Locks are held for milliseconds. Only messages that were peeked, and so are known to wait, are requested
(:mod:`.claim`). Messages that another consumer has locked remain for the next settlement. Settlement is idempotent.

An entity that requires sessions is settled session by session, several at a time; a session that another receiver
holds remains too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sbpair.pair.amqp.errors import NOT_ALLOWED
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.performatives import Accepted, DeliveryState
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError, SessionUnavailableError
from sbpair.pair.client.link import Receiver, Settlements, release

from .claim import Claim
from .glimpse import UnsettledMessage, unsettled_message
from .ranges import Mark

SESSIONS_AT_ONCE = 16
SESSION_WAIT = 1.0  # seconds to wait for a session that another receiver holds


class Settler:
    """Settlement of ``path`` up to ``marks``.

    ``completed`` counts the confirmed messages, ``passed_over`` those that another consumer has locked.
    """

    _receiving: Receiving | None = None

    def __init__(self, path: str, marks: Sequence[Mark], *, by_session: bool = False) -> None:
        self.path = path
        self.marks = tuple(marks)
        self.by_session = by_session
        """Whether the entity requires sessions; found out when it refuses a receiver without one."""

        self.completed = 0
        self.passed_over = 0

    async def settle(self, connection: NamespaceConnection, known: Sequence[UnsettledMessage]) -> None:
        """Complete the ``known`` messages, which were peeked and have been read.

        Call it again with higher numbers as they are peeked, then :meth:`confirmed`, and :meth:`close` in any case.
        Raises TokenRefusedError, LinkRefusedError, ConnectionLostError, and EntityRenewedError for a message that was
        enqueued after all messages read. If cancelled, unconfirmed messages may or may not be completed; either is
        safe.
        """
        if not self.by_session:
            try:
                receiving = self._receiving
                if receiving is None:
                    receiving = Receiving(Claim(self.path, self.marks))
                    await receiving.open(connection, self.path, None)
                    self._receiving = receiving
                receiving.claim.add(each.number or 0 for each in known)
                await receiving.run()
                return
            except LinkRefusedError as error:
                refused = error.condition is not None and error.condition.symbol == NOT_ALLOWED
                if not refused or any(each.session is None for each in known):
                    raise
                self.by_session = True
        await self._settle_sessions(connection, known)

    async def confirmed(self) -> None:
        """Wait until the peer has confirmed every completion. Raises ConnectionLostError."""
        if self._receiving is not None:
            await self._receiving.confirmed()

    async def close(self) -> None:
        """Give back the messages that are not completed, and detach."""
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            await self._close(receiving)

    async def _close(self, receiving: Receiving) -> None:
        self.completed += receiving.completed
        self.passed_over += receiving.claim.passed_over
        await receiving.close()

    async def _settle_sessions(
        self, connection: NamespaceConnection, known: Sequence[UnsettledMessage]
    ) -> None:
        by_session: dict[str, list[int]] = {}
        for each in known:
            session = each.session
            if session is None:  # a session receiver cannot get it
                self.passed_over += 1
            else:
                by_session.setdefault(session, []).append(each.number or 0)
        few = asyncio.Semaphore(SESSIONS_AT_ONCE)

        async def settle_session(session: str, numbers: list[int]) -> None:
            async with few:
                await self._settle_session(connection, session, numbers)

        ended = await asyncio.gather(
            *(settle_session(session, numbers) for session, numbers in by_session.items()),
            return_exceptions=True,
        )
        for failure in ended:
            if failure is not None:
                raise failure

    async def _settle_session(
        self, connection: NamespaceConnection, session: str, known: Sequence[int]
    ) -> None:
        receiving = Receiving(Claim(self.path, self.marks, known))
        try:
            await receiving.open(connection, self.path, session)
        except SessionUnavailableError:
            self.passed_over += len(known)
            return
        try:
            await receiving.run()
            await receiving.confirmed()
        finally:
            await self._close(receiving)


class Receiving:
    """One receiver link that carries out a claim."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.completed = 0
        self._arrived: list[MessageReceived] = []
        self._others: list[int] = []
        self._settlements = Settlements[None](self._count)
        self._receiver: Receiver

    async def open(self, connection: NamespaceConnection, path: str, session: str | None) -> None:
        """Attach, to ``session`` if given.

        Raises SessionUnavailableError, TokenRefusedError, LinkRefusedError, ConnectionLostError.
        """
        arrived, states = self._arrived.append, self._settlements.on_disposition
        if session is None:
            self._receiver = await connection.open_receiver(path, arrived, states)
        else:
            self._receiver = await connection.open_session_receiver(
                path, arrived, states, session_id=session, timeout=SESSION_WAIT
            )

    async def run(self) -> None:
        """Receive and complete the known messages of the claim. Raises ConnectionLostError, EntityRenewedError."""
        while credit := self.claim.credit:
            await self._round(credit)

    async def close(self) -> None:
        """Give back the messages that are not completed, and detach.

        They are held until now: a message given back at once is the next one to arrive.
        """
        release(self._receiver, self._others)
        await self._receiver.close()

    async def _round(self, credit: int) -> None:
        receiver = self._receiver
        self._arrived.clear()
        await receiver.drain(credit)
        try:
            for event in self._arrived:
                self._others.append(event.delivery_id)
                if self.claim.take(unsettled_message(event.payload)):
                    self._settlements.add(self._others.pop(), None)
        finally:
            self._settlements.flush(receiver)
        self.claim.end_round(len(self._arrived))

    async def confirmed(self) -> None:
        """Wait until the peer has confirmed every completion. Raises ConnectionLostError."""
        if not self._settlements:
            return
        answered = asyncio.ensure_future(self._settlements.is_empty.wait())
        try:
            either: tuple[asyncio.Future[Any], ...] = (answered, self._receiver.detached)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
        if self._settlements:
            raise ConnectionLostError(
                f"the link to {self._receiver.path} was detached", self._receiver.detached.result()
            )

    def _count(self, _: None, state: DeliveryState | None) -> None:
        self.completed += isinstance(state, Accepted)
