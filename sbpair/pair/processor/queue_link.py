"""Receiving from an entity without sessions on one side: the locks of messages, strays, and the watchdog."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from azure.servicebus.exceptions import AutoLockRenewTimeout, MessageLockLostError

from sbpair.pair.amqp.performatives import ACCEPTED, Condition, Rejected
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError, condition_text
from sbpair.pair.client.link import LINK_USED_EVERY, Receiver
from sbpair.pair.client.locks import LockClock, LockKeeper
from sbpair.pair.client.request import RequestNode, peek
from sbpair.pair.client.watchdog import Watchdog
from sbpair.pair.envelope.restore import locked_until_of
from sbpair.pair.ground.side import Side

from . import events
from .context import Context
from .delivery import Delivery, DeliveryPhase
from .link import ANSWER_WITHIN, CONFIRM_WITHIN, EntityLink
from .message import ReceivedMessage
from .settlement import Answer, Verb, answer_to
from .strays import Stray, Strays

logger = logging.getLogger("sbpair.processor")

CLOCK_READ_EVERY = 0.05  # seconds: messages that arrive together were locked together
PEEKED = 64  # messages that the watchdog requests
ACTIVE = 0  # the state of a message that is neither deferred nor scheduled


class QueueLink(EntityLink):
    """The messages of one side in flight, and the link that they arrived on."""

    def __init__(self, context: Context, side: Side) -> None:
        super().__init__(context, side, LockClock())
        self._keeper = LockKeeper[Delivery](context.path, self._clock, self._clock.local, self._renewed)
        self._watchdog = Watchdog(self._loop.time())
        self._strays = Strays(context.path, self._stray_ended, self._strays_unknown)
        self._clock_read_at = -CLOCK_READ_EVERY
        self._lock_left = self._clock.span
        self._locked_since = 0.0  # no lock of the messages to come is older; by the clock of the locks
        self._used_at = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._replacing = False
        self._peek_from = 0

    async def run(self, connection: NamespaceConnection) -> Condition | None:
        """Receive until the link ends; return the peer's error.

        Raises TokenRefusedError, LinkRefusedError or ConnectionLostError when the link cannot be attached.
        """
        context = self._context
        await connection.authorize(context.path)
        self._strays.connection = connection  # renews and settles even while the link is refused
        receiver = await connection.open_receiver(
            context.path, self._on_message, self._on_disposition, self._on_drained
        )
        self._attached(connection, receiver)
        self._strays.is_attached = True
        self._strays.settle()
        self._watchdog.attached(self._loop.time())
        self._replacing = False
        context.emit(events.ReceivingStarted(time.time(), context.path, self.side.value))
        context.changed()
        try:
            await asyncio.wait([receiver.detached])
            return receiver.detached.result()
        finally:
            self._forget()

    @property
    def is_replaced(self) -> bool:
        """Whether the link ended because the watchdog replaces it."""
        return self._replacing

    @property
    def unsettled(self) -> int:
        """The number of messages in flight plus that of unconfirmed settlements."""
        return super().unsettled + len(self._strays)

    # Arrivals

    def _arrived(self, payload: bytes, now: float) -> float:
        silent_for = self._watchdog.heard(now)
        if silent_for is not None:
            self._tell_silent(silent_for)
        if now - self._clock_read_at >= CLOCK_READ_EVERY:
            self._read_clock(payload, now)
        if self._lock_left <= 0:
            # Either it waited in the socket while this process was suspended, or the broker's clock was set. Messages
            # that come after the credit is used up or cleared were locked later, and show which.
            self._clear_credit()
        return self._lock_left

    def _admit(self, delivery: Delivery) -> None:
        self._context.dispatcher.take(delivery)

    def _read_clock(self, payload: bytes, now: float) -> None:
        """Measure how much of a new lock remains on arrival, and the lock duration of this entity."""
        self._clock_read_at = now
        ends, clock, local = locked_until_of(payload), self._clock, self._clock.local()
        since = self._locked_since if clock.is_measured else local  # the first message of all counts as new
        self._lock_left = clock.span if ends is None else clock.left(ends / 1000, local, since)
        self._context.dispatcher.window.lock_span = clock.span

    # Strays

    def _stray(self, delivery: Delivery, was_sent: bool) -> None:
        if delivery.verb is Verb.RELEASE:
            delivery.end(None)  # its lock ends on its own
        else:
            self._strays.add(Stray(delivery, was_sent))

    def _stray_ended(self, stray: Stray, refusal: Condition | None) -> None:
        if refusal is None:
            self._answered(stray.delivery, Answer.CONFIRMED, "")
        else:
            answer = answer_to(ACCEPTED, Rejected(refusal))
            if answer is Answer.LOCK_LOST and stray.delivery.lock_ends > self._loop.time():
                self._give_back_forgotten()
            self._answered(stray.delivery, answer, condition_text(refusal))

    def _give_back_forgotten(self) -> None:
        """Give back the waiting messages of earlier links: the broker has lost their locks, for example by a restart.

        The broker redelivers these messages. Running handlers continue.
        """
        for delivery in list(self._open.values()):
            if delivery.phase is DeliveryPhase.WAITING and delivery.receiver is not self._receiver:
                self.give_back(delivery)

    def _strays_unknown(self, strays: list[Stray]) -> None:
        """Report unanswered settlements as unknown, and those never sent as lost locks."""
        for stray in strays:
            stray.delivery.end(None if stray.was_sent else Answer.LOCK_LOST)
            if not stray.was_sent:
                self._tell_lost(stray.delivery)
        sent = [stray.delivery for stray in strays if stray.was_sent]
        if sent:
            self._tell_unknown(sent)

    # Timers

    def next_timer(self) -> float | None:
        """Return when to call :meth:`handle_timer` while nothing is unsettled; None without a link."""
        if self._receiver is None:
            return None
        check, since = self._watchdog.next_check(), self._clearing_since
        return check if since is None else min(check, since + ANSWER_WITHIN)

    def handle_timer(self, now: float) -> None:
        """Renew locks, detect lost ones, settle strays, and check the link, as due."""
        self._lose_expired(now)
        self._strays.give_up(now)
        self._strays.settle()
        self._renew_due(now)
        receiver = self._receiver
        if receiver is None:
            return
        self._check_answers()
        if not self._open and not self.is_stopping:
            self._watch(receiver, now)

    def _locked_deliveries(self) -> Iterator[Delivery]:
        """Iterate over the deliveries whose locks are renewed: those being handled, or to be settled by hand."""
        return (each for each in self._open.values() if each.phase is DeliveryPhase.RUNNING)

    def _lose_expired(self, now: float) -> None:
        for delivery in [each for each in self._open.values() if each.lock_ends <= now]:
            error = MessageLockLostError(message="The lock of the message has ended.")
            if (
                delivery.phase is DeliveryPhase.RUNNING
                and now - delivery.arrived >= self._context.max_lock_renewal
            ):
                error.__cause__ = AutoLockRenewTimeout("max_lock_renewal has passed.")
            self._lose(delivery, error)

    def _renew_due(self, now: float) -> None:
        connection, most = self._strays.connection, self._context.max_lock_renewal
        if connection is not None and connection.is_open:  # it may outlive the link, as the locks do
            locked = (each for each in self._locked_deliveries() if now - each.arrived < most)
            self._keeper.renew_due(connection, locked)

    def _renewed(self, renewed: Sequence[Delivery], ends: Sequence[float | None]) -> None:
        for delivery, end in zip(renewed, ends, strict=True):
            if end is None:
                self._lose(delivery, MessageLockLostError(message="The lock of the message was lost."))
            elif delivery.is_open:
                delivery.message.renewed(datetime.fromtimestamp(end, UTC))

    # Credit

    def top_up(self) -> None:
        receiver = self._receiver
        if self._clearing_since is not None or receiver is None:
            return
        if not receiver.credit and not self._is_withdrawn:
            self._locked_since = self._clock.local()
            if self._lock_left <= 0:
                self._clock_read_at = -CLOCK_READ_EVERY
        super().top_up()

    # The watchdog

    def _watch(self, receiver: Receiver, now: float) -> None:
        connection = self._connection
        if connection is not None and (self._watchdog.should_replace(now) or self._is_unanswered(now)):
            self._replacing = True
            self._let_go(connection, receiver)
        elif self._watchdog.is_due(now) and (self._asking is None or self._asking.done()):
            if now - self._used_at >= LINK_USED_EVERY:
                self._used_at = now
                receiver.flow(receiver.credit)
            self._asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        """Peek to find out whether messages wait that should have been delivered.

        If the peek hangs, the connection is closed.
        """
        connection, path = self._connection, self._context.path
        if connection is None:
            return
        node = RequestNode(connection, connection.namespace.address(f"{path}/$management"))
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                found = [ReceivedMessage(each) for each in await peek(node, path, self._peek_from, PEEKED)]
        except TimeoutError:
            logger.warning("%s on the %s does not answer a peek; reconnecting", path, self.side)
            connection.abort()
            return
        except ClientError as error:
            logger.info("%s on the %s cannot be peeked: %s", path, self.side, error)
            return
        finally:
            await node.close()
        deliverable = [each for each in found if each.state.value == ACTIVE]
        is_last = deliverable or len(found) < PEEKED
        self._peek_from = 0 if is_last else (found[-1].sequence_number or 0) + 1
        self._watchdog.peeked(self._loop.time(), waits=bool(deliverable))
        self._context.changed()

    def _tell_silent(self, seconds: float) -> None:
        self._context.counters.silent_links += 1
        self._context.emit(events.LinkSilent(time.time(), self._context.path, self.side.value, seconds))

    # The end

    async def close(self) -> None:
        """Give back the messages in flight, wait for the last confirmations, and detach."""
        await self._strays.close(CONFIRM_WITHIN)
        await super().close()
        self._forget()  # a silent peer has not ended the link: unconfirmed settlements become strays
        self._strays.give_up()

    def _forget(self) -> None:
        """Handle the end of the link. Locks outlive it: handlers continue, and their settlements become strays."""
        self._strays.is_attached = False
        self._keeper.stop()
        if self._asking is not None:
            self._asking.cancel()
        self._asking = None
        self._detached()
