"""Receiving from one entity on one side, over one link at a time: credit, locks, settlements and the watchdog."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from azure.servicebus.exceptions import AutoLockRenewTimeout, MessageLockLostError

from sbpair.amqp.events import DispositionReceived, MessageReceived
from sbpair.amqp.performatives import ACCEPTED, Condition, DeliveryState, Rejected
from sbpair.client.connection import NamespaceConnection
from sbpair.client.errors import ClientError, said
from sbpair.client.link import Receiver
from sbpair.client.locks import LockClock, renew_locks
from sbpair.client.peek import peek
from sbpair.client.request import RequestNode
from sbpair.envelope.restore import locked_until_of
from sbpair.pairing.pair_state import Role

from . import events
from .context import Context
from .delivery import Delivery, Phase, message_id_of
from .message import ReceivedMessage
from .settlement import Answer, Verb, answer_to
from .settling import Report, Settlements, messages_by_outcome, release
from .strays import Stray, Strays
from .watchdog import Watchdog

logger = logging.getLogger("sbpair.processor")

RENEWED_AT = 1 / 3  # of its span is left when a lock is renewed
LOCKS_AT_ONCE = 200  # in one renewal request
CLOCK_READ_EVERY = 0.05  # seconds: messages that arrive together were locked together
LINK_USED_EVERY = 240.0  # seconds: a link idle for ten minutes is detached
ANSWER_WITHIN = 60.0  # seconds for the confirmation of a settlement, and for a peek
CONFIRM_WITHIN = 5.0  # seconds for the last confirmations, when stopping
PEEKED = 64  # messages asked for by the watchdog
ACTIVE = 0  # the state of a message that is neither deferred nor scheduled


class QueueLink:
    """The messages of one side in hand, and the link they came over."""

    def __init__(self, context: Context, side: Role) -> None:
        self.side = side
        self.is_stopping = False
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._clock = LockClock()
        self._watchdog = Watchdog(self._loop.time())
        self._connection: NamespaceConnection | None = None
        self._receiver: Receiver | None = None
        self._settlements: Settlements | None = None
        self._open: dict[bytes, Delivery] = {}  # by delivery tag, which is the lock token
        self._strays = Strays(context.path, self._stray_ended, self._strays_unknown)
        self._clock_read_at = -CLOCK_READ_EVERY
        self._lock_left = self._clock.span
        self._used_at = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._replacing = False
        self._peek_from = 0
        self._report = Report(self._before_settling, self._answered, self._stray)

    async def run(self, connection: NamespaceConnection) -> Condition | None:
        """Receive until the link ends; return the peer's error.

        Raises TokenRefused, LinkRefused or ConnectionLost when the link cannot be attached.
        """
        context = self._context
        receiver = await connection.open_receiver(context.path, self._on_message, self._on_disposition)
        self._connection, self._receiver = connection, receiver
        self._strays.connection = connection
        self._strays.settle()
        self._settlements = Settlements(receiver, self._report)
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
        """The number of messages in hand, and of settlements without their confirmation."""
        return len(self._open) + len(self._strays) + (len(self._settlements) if self._settlements else 0)

    # Arrivals

    def _on_message(self, event: MessageReceived) -> None:
        context, now = self._context, self._loop.time()
        context.counters.received += 1
        silent_for = self._watchdog.heard(now)
        if silent_for is not None:
            self._tell_silent(silent_for)
        _, delivery_id, tag, payload, _, _, _ = event
        receiver = self._receiver
        if self.is_stopping or receiver is None:
            self._release([delivery_id])
            return
        if now - self._clock_read_at >= CLOCK_READ_EVERY:
            self._read_clock(payload, now)
        if self._lock_left <= 0:  # it lay in a socket while this process was suspended
            self._release([delivery_id])
            return
        message = ReceivedMessage(payload, tag, self.side)
        delivery = Delivery(self, receiver, delivery_id, tag, message, now, now + self._lock_left)
        self._open[tag] = delivery
        context.counters.in_flight += 1
        context.dispatcher.take(delivery)
        context.changed()

    def _read_clock(self, payload: bytes, now: float) -> None:
        """Measure how much of a new lock is left, and how long a lock lasts here."""
        self._clock_read_at = now
        ends, wall = locked_until_of(payload), time.time()
        clock = self._clock
        self._lock_left = clock.span if ends is None else clock.left(ends / 1000, wall, wall)
        self._context.dispatcher.window.lock_span = clock.span

    # Settling

    def settle(self, delivery: Delivery, verb: Verb, state: DeliveryState) -> None:
        """Settle a delivery that is waiting or running; without effect on any other."""
        if not self._leave(delivery):
            return
        delivery.phase, delivery.verb, delivery.state = Phase.SETTLING, verb, state
        delivery.message.settled()
        if self._settlements is not None and delivery.receiver is self._receiver:
            self._settlements.add(delivery)
        else:
            self._before_settling([delivery])
            self._stray(delivery, was_sent=False)
        self._context.dispatcher.left(delivery)

    def give_back(self, delivery: Delivery) -> None:
        """Release a delivery that is waiting or running; without effect on any other."""
        if self._leave(delivery):
            delivery.end(None)
            if delivery.receiver is self._receiver:
                self._release([delivery.delivery_id])
            self._context.dispatcher.left(delivery)

    def find(self, tag: bytes) -> Delivery | None:
        """The delivery with this tag, while it can be settled."""
        return self._open.get(tag)

    def _leave(self, delivery: Delivery) -> bool:
        if self._open.pop(delivery.tag, None) is not delivery:
            return False
        self._context.counters.in_flight -= 1
        return True

    def _release(self, delivery_ids: list[int]) -> None:
        self._context.counters.released += len(delivery_ids)
        if self._receiver is not None:
            release(self._receiver, delivery_ids)

    def _on_disposition(self, event: DispositionReceived) -> None:
        if self._settlements is not None:
            self._settlements.on_disposition(event)

    def _before_settling(self, deliveries: list[Delivery]) -> None:
        context = self._context
        if not context.reports_messages():
            return
        handled = [each.message for each in messages_by_outcome(deliveries)]
        if handled:
            context.emit(
                events.MessagesReceived(
                    time.time(),
                    context.path,
                    self.side.value,
                    tuple(map(message_id_of, handled)),
                    tuple(str(message.session_id or "") for message in handled),
                    tuple(message.sequence_number or 0 for message in handled),
                )
            )

    def _answered(self, delivery: Delivery, answer: Answer, cause: str) -> None:
        context = self._context
        delivery.end(answer)
        if answer is Answer.CONFIRMED:
            if delivery.verb is Verb.COMPLETE:
                context.counters.completed += 1
            else:
                context.counters.settled_otherwise += 1
        elif answer is Answer.LOCK_LOST:
            self._tell_lost(delivery)
        else:
            name = message_id_of(delivery.message)
            context.emit(
                events.SettlementRefused(
                    time.time(), context.path, self.side.value, name, delivery.verb.value, cause
                )
            )

    def _stray(self, delivery: Delivery, was_sent: bool) -> None:
        if delivery.verb is Verb.RELEASE:
            delivery.end(None)  # its lock ends by itself
        else:
            self._strays.add(Stray(delivery, was_sent))

    def _stray_ended(self, stray: Stray, refusal: Condition | None) -> None:
        if refusal is None:
            self._answered(stray.delivery, Answer.CONFIRMED, "")
        else:
            self._answered(stray.delivery, answer_to(ACCEPTED, Rejected(refusal)), said(refusal))

    def _strays_unknown(self, strays: list[Stray]) -> None:
        """Report settlements without an answer; those that were never sent were lost with their lock."""
        for stray in strays:
            stray.delivery.end(None if stray.was_sent else Answer.LOCK_LOST)
            if not stray.was_sent:
                self._tell_lost(stray.delivery)
        sent = [stray.delivery for stray in strays if stray.was_sent]
        if sent:
            self._context.counters.settlements_unknown += len(sent)
            ids = tuple(message_id_of(each.message) for each in sent)
            self._context.emit(
                events.SettlementUnknown(time.time(), self._context.path, self.side.value, ids)
            )

    def _tell_lost(self, delivery: Delivery) -> None:
        self._context.counters.locks_lost += 1
        self._context.emit(
            events.LockLost(
                time.time(),
                self._context.path,
                self.side.value,
                message_id_of(delivery.message),
                delivery.is_returned,
            )
        )

    # Credit

    def top_up(self) -> None:
        """Grant credit for the room there is; called after every change."""
        receiver, dispatcher = self._receiver, self._context.dispatcher
        if receiver is None or self.is_stopping or not receiver.is_open:
            return
        settling = 0 if self._settlements is None else len(self._settlements)
        grant = dispatcher.window.grant(receiver.credit, dispatcher.in_hand, settling)
        if grant is not None:
            self._used_at = self._loop.time()
            receiver.flow(grant)

    # Timers

    def next_timer(self) -> float | None:
        """When to call :meth:`handle_timer` while nothing is unsettled; None without a link."""
        return None if self._receiver is None else self._watchdog.next_check()

    def handle_timer(self, now: float) -> None:
        """Renew locks, notice lost ones, and watch over the link, as due."""
        self._lose_expired(now)
        self._strays.give_up(now)
        receiver = self._receiver
        if receiver is None:
            return
        self._renew_due(now)
        sent_at = None if self._settlements is None else self._settlements.oldest()
        if sent_at is not None and now - sent_at > ANSWER_WITHIN and self._connection is not None:
            logger.warning("%s on the %s does not answer settlements; reconnecting", receiver.path, self.side)
            self._connection.abort()
            return
        if not self._open and not self.is_stopping:
            self._watch(receiver, now)

    def _locked(self) -> Iterator[Delivery]:
        """The deliveries whose locks are renewed: those of handlers, and those to be settled by hand."""
        return (each for each in self._open.values() if each.phase is Phase.RUNNING)

    def _lose_expired(self, now: float) -> None:
        for delivery in [each for each in self._open.values() if each.lock_ends <= now]:
            error = MessageLockLostError(message="The lock of the message has ended.")
            if delivery.phase is Phase.RUNNING and now - delivery.arrived >= self._context.max_lock_renewal:
                error.__cause__ = AutoLockRenewTimeout("max_lock_renewal is over.")
            self._lose(delivery, error)

    def _lose(self, delivery: Delivery, error: Exception) -> None:
        """Give up a message whose lock is lost: its handler is told, and it is delivered again."""
        if not self._leave(delivery):
            return
        delivery.end(Answer.LOCK_LOST)
        delivery.message.auto_renew_error = error
        self._context.dispatcher.withdraw(delivery, error)
        self._tell_lost(delivery)
        self._context.dispatcher.left(delivery)
        self._context.changed()

    def _renew_due(self, now: float) -> None:
        if self._connection is None or (self._renewing is not None and not self._renewing.done()):
            return
        ends_by, most = now + self._clock.span * RENEWED_AT, self._context.max_lock_renewal
        due = [each for each in self._locked() if each.lock_ends < ends_by and now - each.arrived < most]
        if due:
            self._renewing = asyncio.ensure_future(self._renew(self._connection, due))

    async def _renew(self, connection: NamespaceConnection, due: list[Delivery]) -> None:
        """Renew some locks. A renewal that fails is tried again while the locks last."""
        for first in range(0, len(due), LOCKS_AT_ONCE):
            some = due[first : first + LOCKS_AT_ONCE]
            try:
                ends = await renew_locks(connection, self._context.path, [each.tag for each in some])
            except ClientError as error:
                logger.info("locks on %s were not renewed: %s", self._context.path, error)
                return
            now, wall = self._loop.time(), time.time()
            for delivery, end in zip(some, ends, strict=True):
                if end is None:
                    self._lose(delivery, MessageLockLostError(message="The lock of the message was lost."))
                elif delivery.is_open:
                    delivery.lock_ends = now + self._clock.renewed(end, wall)
                    delivery.message.renewed(datetime.fromtimestamp(end, UTC))

    # The watchdog

    def _watch(self, receiver: Receiver, now: float) -> None:
        if self._watchdog.should_replace(now):
            self._replacing = True
            receiver.let_go()
        elif self._watchdog.is_due(now) and (self._asking is None or self._asking.done()):
            if now - self._used_at >= LINK_USED_EVERY:
                self._used_at = now
                receiver.flow(receiver.credit)
            self._asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        """Peek whether messages wait that should have been delivered; a peek that hangs ends the connection."""
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

    async def stop_receiving(self) -> None:
        """Take the credit back; messages already on their way are given back."""
        self.is_stopping = True
        receiver = self._receiver
        if receiver is not None and receiver.is_open:
            receiver.flow(receiver.credit, drain=True)
            try:
                async with asyncio.timeout(CONFIRM_WITHIN):
                    await receiver.drained()
            except TimeoutError:
                logger.info("%s on the %s did not drain its link", receiver.path, self.side)

    async def close(self) -> None:
        """Give back what is in hand, wait for the last confirmations, and detach."""
        receiver, settlements = self._receiver, self._settlements
        for delivery in list(self._open.values()):
            self.give_back(delivery)
        await self._strays.close(CONFIRM_WITHIN)
        if receiver is None or settlements is None:
            return
        try:
            async with asyncio.timeout(CONFIRM_WITHIN):
                await settlements.is_empty.wait()
        except TimeoutError:
            logger.info("%s on the %s did not confirm all settlements", receiver.path, self.side)
        await receiver.close()
        self._strays.give_up()

    def _forget(self) -> None:
        """Note that the link has ended. Locks outlive it: handlers go on, and what they settle are strays."""
        settlements = self._settlements
        self._connection = self._receiver = self._settlements = self._strays.connection = None
        if settlements is not None:
            settlements.end()
        for task in (self._asking, self._renewing):
            if task is not None:
                task.cancel()
        self._asking = self._renewing = None
        self._context.changed()
