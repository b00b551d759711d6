"""The controller of local transactions on one connection (AMQP part 4).

    declare --> txn-id --> transfers and settlements with that id --> commit: all of it, or nothing
                                                                 '--> roll_back: nothing

A transaction holds operations on one entity, and messages sent via it. Its operations may be on any link of the
connection. A settlement in a transaction ends the delivery on its link: after a rollback the message stays locked
until its lock ends.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

from sbpair.pair.amqp.message import encode_request
from sbpair.pair.amqp.performatives import (
    LOCAL_TRANSACTIONS,
    Accepted,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Rejected,
    Source,
)
from sbpair.pair.client.connection import SECOND, UNSETTLED, NamespaceConnection
from sbpair.pair.client.errors import ClientError, ConnectionLostError, LinkRefusedError, RolledBackError
from sbpair.pair.client.link import Sender
from sbpair.pair.ground.shared_task import result_of, share

NODE = "$coordinator"
MAX_OPEN = 64  # transactions at a time; the service allows a connection 100


class TransactionController:
    """Declares and discharges transactions over one link, which it opens when needed."""

    def __init__(self, connection: NamespaceConnection) -> None:
        self._connection = connection
        self._opening: asyncio.Task[Sender] | None = None
        self._room = asyncio.Semaphore(MAX_OPEN)

    async def ready(self) -> None:
        """Open the link. Raises LinkRefusedError when the peer refuses transactions, ConnectionLostError."""
        await self._link()

    async def declare(self) -> bytes:
        """Begin a transaction and return its id; waits while :data:`MAX_OPEN` are open.

        End each with :meth:`commit` or :meth:`roll_back`. Raises RolledBackError when the peer refuses it,
        LinkRefusedError when it refuses transactions, ConnectionLostError.
        """
        await self._room.acquire()
        try:
            outcome = await self._ask(Declare())
            if not isinstance(outcome, Declared):
                raise _roll_back("no transaction was begun", outcome)
        except BaseException:
            self._room.release()
            raise
        return outcome.txn_id

    async def commit(self, txn_id: bytes) -> None:
        """Apply the operations of a transaction.

        Raises RolledBackError when the peer refuses, and ConnectionLostError when its answer is lost: the operations
        are then applied all together, or not at all.
        """
        try:
            outcome = await self._ask(Discharge(txn_id, False))
        finally:
            self._room.release()
        if not isinstance(outcome, Accepted):
            raise _roll_back("the transaction was rolled back", outcome)

    async def roll_back(self, txn_id: bytes) -> None:
        """End a transaction without applying anything. Never raises: if the link is lost, the peer rolls back too."""
        try:
            await self._ask(Discharge(txn_id, True))
        except ClientError:
            pass
        finally:
            self._room.release()

    async def close(self) -> None:
        """Detach the link; open transactions are rolled back."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()

    async def _ask(self, request: Declare | Discharge) -> DeliveryState | None:
        sender, timeout = await self._link(), self._connection.answer_timeout
        try:
            async with asyncio.timeout(timeout):
                outcome = await sender.send(encode_request(request))
        except TimeoutError:
            sender.let_go()  # the peer rolls back what is open
            raise ConnectionLostError(f"no answer from {NODE} within {timeout:g} s") from None
        if outcome is None:
            raise ConnectionLostError(
                f"the link to {NODE} was lost before its answer", sender.detached.result()
            )
        return outcome

    async def _link(self) -> Sender:
        opening = self._opening
        is_over = opening is None or (opening.done() and not _is_open(opening))
        if opening is None or is_over:
            opening = self._opening = share(self._open())
        return await result_of(opening)

    async def _open(self) -> Sender:
        """Attach in a session of its own: in a shared one, the first entity attached would bind all transactions."""
        connection, name = self._connection, f"sbpair-transactions-{uuid4()}"
        session = connection.begin()
        try:
            link = connection.opening(
                f"a link to {NODE}",
                lambda: session.attach_sender(
                    name,
                    target=Coordinator((LOCAL_TRANSACTIONS,)),
                    source=Source(name),
                    snd_settle_mode=UNSETTLED,
                    rcv_settle_mode=SECOND,
                ),
            )
        except LinkRefusedError:
            session.end()
            raise
        sender = Sender(connection, link, NODE)
        connection.register(sender)
        await sender.wait_attached()
        return sender


def _is_open(opening: asyncio.Task[Sender]) -> bool:
    return not opening.cancelled() and opening.exception() is None and opening.result().is_open


def _roll_back(text: str, outcome: DeliveryState | None) -> RolledBackError:
    return RolledBackError(text, outcome.error if isinstance(outcome, Rejected) else None)
