"""The sessions of one side: at most ``max_concurrent_sessions``, each replaced when it is idle.

While there is room, one request for the next available session waits at the broker. A session also held on the other
side is not handled until it is released there: a session has one handler at a time, over both sides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from typing import Any

from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.client.backoff import Backoff
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError, SessionUnavailableError
from sbpair.pair.client.locks import LockClock
from sbpair.pair.client.management_node import ManagementNode
from sbpair.pair.ground.side import Side

from . import events
from .context import Context
from .delivery import Delivery
from .session_link import SessionLink

logger = logging.getLogger("sbpair.processor")

ACCEPT_WAITS = 60.0  # seconds that a request for a session waits at the broker
MAX_RETRY_SECONDS = 30.0  # seconds between requests while sessions are held and no other is given


class SideTurns:
    """Turns for a session that both sides hold: only one side handles it at a time."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    def enter(self, session_id: str) -> asyncio.Future[None]:
        """Queue for a session; return a future that resolves when the turn begins. Give it to :meth:`leave`."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(session_id, deque()).append(turn)
        self._begin(session_id)
        return turn

    def leave(self, session_id: str, turn: asyncio.Future[None]) -> None:
        """End a turn, or stop waiting for it. The next turn in the queue begins."""
        self._queues[session_id].remove(turn)
        self._begin(session_id)

    def _begin(self, session_id: str) -> None:
        """Begin the first turn of the queue if it has not begun; remove the queue if it is empty."""
        queue = self._queues[session_id]
        if not queue:
            del self._queues[session_id]
        elif not queue[0].done():
            queue[0].set_result(None)


class Sessions:
    """The sessions of one side in flight."""

    def __init__(self, context: Context, side: Side, most: int, turns: SideTurns) -> None:
        self.side = side
        self.is_stopping = False
        self._context = context
        self._most = most
        self._turns = turns
        self._clock = LockClock()
        self._links: dict[SessionLink, None] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._released = asyncio.Event()  # a session ended since the last refusal
        self._backoff = Backoff(MAX_RETRY_SECONDS)
        self._accepting: asyncio.Task[None] | None = None

    is_replaced = False

    async def run(self, connection: NamespaceConnection) -> Condition | None:
        """Accept sessions until the connection ends; return the peer's error.

        Raises TokenRefusedError, LinkRefusedError or ConnectionLostError when no session can be accepted and none is
        held. While sessions are held, a refusal does not affect them.
        """
        context = self._context
        await connection.authorize(context.path)
        context.emit(events.ReceivingStarted(time.time(), context.path, self.side.value))
        node = ManagementNode(connection, context.path)
        self._accepting = asyncio.ensure_future(self._accept(connection, node))
        try:
            either: tuple[asyncio.Future[Any], ...] = (self._accepting, connection.closed)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._accepting.done() and not self._accepting.cancelled():
                self._accepting.result()
            return connection.closed.result() if connection.closed.done() else None
        finally:
            self._accepting.cancel()
            if not self.is_stopping:
                for link in list(self._links):
                    link.let_go()
                await asyncio.gather(*self._serving, return_exceptions=True)
                node.abandon()

    async def _accept(self, connection: NamespaceConnection, node: ManagementNode) -> None:
        """Accept sessions while there is room. Raises ClientError when one is refused and no other is held."""
        while not self.is_stopping:
            await self._room.wait()
            link = SessionLink(self._context, self.side, self._clock, connection, node)
            try:
                await link.accept(ACCEPT_WAITS)
            except SessionUnavailableError:
                self._backoff.succeeded()
                continue
            except ClientError as error:
                if not self._links or not connection.is_open:
                    raise
                await self._pause(error)
                continue
            self._backoff.succeeded()
            self._hold(link)

    def _hold(self, link: SessionLink) -> None:
        """Serve an accepted session in a task of its own."""
        self._links[link] = None
        if len(self._links) >= self._most:
            self._room.clear()
        task = asyncio.ensure_future(self._serve(link))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _pause(self, error: ClientError) -> None:
        """Wait before the next request for a session, or until a session ends; that may free a place at the peer."""
        pause = self._backoff.next_pause()
        logger.warning(
            "%s on the %s gives no further session, while %d are held; asking again in %.1f s: %s",
            self._context.path,
            self.side,
            len(self._links),
            pause,
            error,
        )
        self._released.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._released.wait()

    async def _serve(self, link: SessionLink) -> None:
        context, session_id = self._context, link.session_id
        context.emit(events.SessionAccepted(time.time(), context.path, self.side.value, session_id))
        turn = self._turns.enter(session_id)
        try:
            either: tuple[asyncio.Future[Any], ...] = (turn, link.detached)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not link.detached.done():
                await link.run()
        finally:
            self._turns.leave(session_id, turn)
            del self._links[link]
            self._room.set()
            self._released.set()
            context.emit(events.SessionReleased(time.time(), context.path, self.side.value, session_id))
            context.changed()

    # The interface of a link

    @property
    def unsettled(self) -> int:
        """The number of messages in flight plus that of unconfirmed settlements."""
        return sum(link.unsettled for link in self._links)

    def find(self, tag: bytes) -> Delivery | None:
        """Return the delivery with this tag if it can still be settled, or None."""
        return next((found for link in self._links if (found := link.find(tag)) is not None), None)

    def session(self, session_id: str) -> SessionLink | None:
        """Return the link of a session that is held, or None."""
        return next((link for link in self._links if link.session_id == session_id), None)

    def top_up(self) -> None:
        """Dispatch the next messages, and grant credit for the available room."""
        for link in list(self._links):
            link.top_up()

    def next_timer(self) -> float | None:
        """Return when to call :meth:`handle_timer` while nothing is unsettled; None without a session."""
        return min((at for link in self._links if (at := link.next_timer()) is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Renew locks, and release idle sessions, as due."""
        for link in list(self._links):
            link.handle_timer(now)

    async def stop_receiving(self) -> None:
        """Accept no more sessions, and withdraw the credit of those held."""
        self.is_stopping = True
        if self._accepting is not None:
            self._accepting.cancel()
        await asyncio.gather(*(link.stop_receiving() for link in self._links))

    async def close(self) -> None:
        """Give back the messages in flight, wait for the last confirmations, and release the sessions."""
        await asyncio.gather(*(link.close() for link in self._links))
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
