"""Receiving one session: one handler at a time, in order; the session's lock, and its state.

accepted --> messages, one after another --> none for session_idle_timeout --> released
                |         '-- the lock is lost: the handler is cancelled or notified --> accepted again
                '-- one is abandoned or given back: those after it are given back too, and delivered again in order
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from azure.servicebus.exceptions import SessionLockLostError

from sbpair.pair.amqp.performatives import Condition, DeliveryState
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError
from sbpair.pair.client.locks import LockClock, renewal_margin
from sbpair.pair.client.management_node import ManagementNode
from sbpair.pair.client.session import SessionReceiver
from sbpair.pair.ground.side import Side

from .context import Context
from .credit import ProcessorWindow
from .delivery import Delivery, DeliveryPhase
from .link import EntityLink
from .settlement import Answer, Verb

logger = logging.getLogger("sbpair.processor")

REORDERING = (Verb.ABANDON, Verb.RELEASE)  # the message is delivered again, and must precede those after it


class SessionLink(EntityLink):
    """The messages in flight of one session."""

    def __init__(
        self,
        context: Context,
        side: Side,
        clock: LockClock,
        connection: NamespaceConnection,
        node: ManagementNode,
    ) -> None:
        super().__init__(context, side, clock)
        self._waiting: deque[Delivery] = deque()
        self._head: Delivery | None = None
        self._window = ProcessorWindow(1)
        self._node = node
        self._session_connection = connection
        self._lock_ends = 0.0
        self._used_at = self._loop.time()
        self._is_leaving = False
        self._coming_back: set[Delivery] = set()  # settled so, and the peer has not answered yet
        self._session: SessionReceiver | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def accept(self, timeout: float) -> str:
        """Wait up to ``timeout`` seconds for the next session; return its id.

        Raises SessionUnavailableError, or another ClientError.
        """
        connection = self._session_connection
        session = await connection.open_session_receiver(
            self._context.path, self._on_message, self._on_disposition, self._on_drained, timeout=timeout
        )
        self._session = session
        local, now = self._clock.local(), self._loop.time()
        self._lock_ends = now + (self._clock.left(session.locked_until, local, local) or self._clock.span)
        self._window.lock_span = self._clock.span
        self._used_at = now
        return session.session_id

    async def run(self) -> None:
        """Pass the messages of the accepted session to the dispatcher until it is idle or lost. Call accept() first."""
        session = self._session
        assert session is not None  # noqa: S101  (it was accepted)
        self._attached(self._session_connection, session)
        self._used_at = self._loop.time()
        self._context.changed()
        try:
            await asyncio.wait([session.detached])
        finally:
            self._forget()

    def let_go(self) -> None:
        """Release the session without waiting."""
        if self._session is not None and not self._session.detached.done():
            self._let_go(self._session_connection, self._session)

    @property
    def session_id(self) -> str:
        """The id of the accepted session; "" before that."""
        return "" if self._session is None else self._session.session_id

    @property
    def detached(self) -> asyncio.Future[Condition | None]:
        """Resolves when the accepted session is no longer held, with the peer's error."""
        assert self._session is not None  # noqa: S101  (it was accepted)
        return self._session.detached

    async def state(self) -> bytes | None:
        """Return the state of the session, or None.

        Raises SessionLockLostError when it is not held, ClientError when its lock is lost or the node is unreachable.
        """
        if self._session is None:
            raise SessionLockLostError(message="The session is not held.")
        return await self._node.ask(self._session.state)

    async def set_state(self, state: bytes | None) -> None:
        """Set the state of the session. Raises as :meth:`state`."""
        session = self._session
        if session is None:
            raise SessionLockLostError(message="The session is not held.")
        await self._node.ask(lambda node: session.set_state(node, state))

    # Order

    def _arrived(self, payload: bytes, now: float) -> float:
        self._used_at = now
        return 0.0 if self._is_rewinding else max(0.0, self._lock_ends - now)

    def _admit(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self._context.dispatcher.in_hand += 1
        if self._head is None:
            self._next()

    def _next(self) -> None:
        """Dispatch the next message once the handler of the previous one has ended and the message is settled."""
        head, dispatcher = self._head, self._context.dispatcher
        if head is not None:
            if head.is_open or dispatcher.is_running(head):
                return
            self._head = None
            self._used_at = self._loop.time()
            self._window.handled(head.seconds, len(head.message.payload))
        if self.is_stopping:
            return
        while self._waiting:
            delivery = self._waiting.popleft()
            if delivery.phase is DeliveryPhase.WAITING:
                self._head = delivery
                dispatcher.in_hand -= 1  # take() counts it
                dispatcher.take(delivery)
                return

    def returned(self, delivery: Delivery) -> None:
        """Dispatch the next message in the same turn of the loop, so that one disposition settles many."""
        self._next()

    def settle(self, delivery: Delivery, verb: Verb, state: DeliveryState) -> None:
        if delivery.is_open and verb in REORDERING:
            self._rewind()
            if self._receiver is not None:
                self._coming_back.add(delivery)
        super().settle(delivery, verb, state)

    def give_back(self, delivery: Delivery) -> None:
        if delivery.is_open and not self.is_stopping:
            self._rewind()
        super().give_back(delivery)

    def _rewind(self) -> None:
        """Give back the waiting messages, so that they are delivered again after the abandoned one."""
        receiver = self._receiver
        if receiver is None or self._is_rewinding:
            return
        self._clear_credit()
        waiting, self._waiting = self._waiting, deque()
        for delivery in waiting:
            super().give_back(delivery)

    @property
    def _is_rewinding(self) -> bool:
        """Whether an abandoned message is yet to be redelivered: later messages must wait, so no credit is granted."""
        return self._clearing_since is not None or bool(self._coming_back)

    def _answered(self, delivery: Delivery, answer: Answer, cause: str) -> None:
        super()._answered(delivery, answer, cause)
        if delivery in self._coming_back:
            self._coming_back.remove(delivery)
            self._context.changed()

    # Credit

    def top_up(self) -> None:
        self._next()
        if not self._is_rewinding:
            self._grant(self._window, len(self._open))

    # Timers

    def next_timer(self) -> float | None:
        if self._receiver is None or self._is_leaving:
            return None
        return min(self._used_at + self._context.session_idle_timeout, self._renew_at)

    @property
    def _renew_at(self) -> float:
        return self._lock_ends - renewal_margin(self._clock.span)

    def handle_timer(self, now: float) -> None:
        session = self._session
        if session is None or self._receiver is None:
            return
        self._check_answers()
        if now >= self._lock_ends or self._is_unanswered(now):
            self._is_leaving = True
            self.let_go()
        elif self._may_renew(now):
            self._renewing = asyncio.ensure_future(self._renew(session))
        is_idle = not self.unsettled and not self._is_rewinding
        if is_idle and now >= self._used_at + self._context.session_idle_timeout:
            self._is_leaving = True
            self.let_go()

    def _may_renew(self, now: float) -> bool:
        if now < self._renew_at:
            return False
        if self._renewing is not None and not self._renewing.done():
            return False
        head = self._head
        return head is None or now - head.arrived < self._context.max_lock_renewal

    async def _renew(self, session: SessionReceiver) -> None:
        """Renew the lock. A failed renewal is retried while the lock lasts."""
        try:
            ends = await self._node.ask(session.renew)
        except ClientError as error:
            logger.info("the lock of a session of %s was not renewed: %s", self._context.path, error)
            return
        self._lock_ends = self._loop.time() + self._clock.renewed(ends, self._clock.local())

    # The end

    def _stray(self, delivery: Delivery, was_sent: bool) -> None:
        """Handle the end of the link, and with it of the lock: sent settlements are unknown, the others are lost."""
        delivery.end(None if was_sent else Answer.LOCK_LOST)
        if was_sent:
            self._tell_unknown([delivery])
        elif delivery.verb is not Verb.RELEASE:
            self._tell_lost(delivery)

    def _forget(self) -> None:
        """Record that the session is no longer held: messages in flight are delivered again."""
        self._session = None
        self._coming_back.clear()
        if self._renewing is not None:
            self._renewing.cancel()
        self._detached()
        waiting, self._waiting = self._waiting, deque()
        for delivery in waiting:
            super().give_back(delivery)
        for delivery in list(self._open.values()):
            self._lose(delivery, SessionLockLostError(message="The lock of the session was lost."))
