"""A link of a processor: arrivals, settlements, credit and closing. Subclasses renew the locks."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable

from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.performatives import DeliveryState, Rejected
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import condition_text
from sbpair.pair.client.link import Receiver, Settlements, release
from sbpair.pair.client.locks import LockClock
from sbpair.pair.ground.recorded import checksum_of, enqueued_of
from sbpair.pair.ground.side import Side

from . import events
from .context import Context
from .credit import ProcessorWindow
from .delivery import Delivery, DeliveryPhase, message_id_of
from .message import ReceivedMessage
from .settlement import Answer, Verb, answer_to

logger = logging.getLogger("sbpair.processor")

ANSWER_WITHIN = 60.0  # seconds for the confirmation of a settlement, and for a peek
CONFIRM_WITHIN = 5.0  # seconds for the last confirmations, when stopping


class EntityLink(ABC):
    """The messages in flight of one side or one session, and the link that they arrived on."""

    def __init__(self, context: Context, side: Side, clock: LockClock) -> None:
        self.side = side
        self.is_stopping = False
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._connection: NamespaceConnection | None = None
        self._receiver: Receiver | None = None
        self._settlements = Settlements[Delivery](self._confirmed)
        self._open: dict[bytes, Delivery] = {}  # by delivery tag, which is the lock token
        self._clearing_since: float | None = (
            None  # the peer was asked then to clear the credit, and has not yet
        )
        self._is_withdrawn = False  # messages may come on credit that was withdrawn, and not cleared since

    def _attached(self, connection: NamespaceConnection, receiver: Receiver) -> None:
        self._connection, self._receiver = connection, receiver

    def _detached(self) -> None:
        """Drop the link; settlements that it did not confirm are passed to :meth:`_stray`."""
        self._connection = self._receiver = self._clearing_since = None
        self._is_withdrawn = False
        sent, due = self._settlements.end()
        self._report_received(due)
        for delivery in sent:
            self._stray(delivery, was_sent=True)
        for delivery in due:
            self._stray(delivery, was_sent=False)
        self._context.changed()

    @property
    def unsettled(self) -> int:
        """The number of messages in flight plus that of unconfirmed settlements."""
        return len(self._open) + len(self._settlements)

    # Arrivals

    def _on_message(self, event: MessageReceived) -> None:
        context, now = self._context, self._loop.time()
        context.counters.received += 1
        _, delivery_id, tag, payload, _, _, _ = event
        receiver = self._receiver
        left = self._arrived(payload, now)
        if self.is_stopping or receiver is None or left <= 0:
            self._release([delivery_id])
            context.changed()  # it used up credit: without new credit, nothing more would come
            return
        message = ReceivedMessage(payload, tag, self.side)
        delivery = Delivery(self, receiver, delivery_id, tag, message, now, now + left)
        self._open[tag] = delivery
        context.counters.in_flight += 1
        self._admit(delivery)
        context.changed()

    @abstractmethod
    def _arrived(self, payload: bytes, now: float) -> float:
        """Record an arriving message; return how many seconds of its lock are left, 0 to give it back."""

    @abstractmethod
    def _admit(self, delivery: Delivery) -> None:
        """Pass a message to the dispatcher, now or later."""

    @abstractmethod
    def _stray(self, delivery: Delivery, was_sent: bool) -> None:
        """Handle a settlement that the link did not confirm; ``was_sent``: it was sent over the link."""

    @abstractmethod
    def next_timer(self) -> float | None:
        """Return when to call :meth:`handle_timer` while nothing is unsettled; None without a link."""

    @abstractmethod
    def handle_timer(self, now: float) -> None:
        """Renew locks, detect lost ones, and check the link, as due."""

    # Settling

    def settle(self, delivery: Delivery, verb: Verb, state: DeliveryState) -> None:
        """Settle a delivery that is waiting or running; does nothing in any other phase."""
        if not self._leave(delivery):
            if delivery.is_handled:
                # its lock is lost, but its copies may be completed as unreported duplicates
                self._report_received([delivery])
            return
        delivery.phase, delivery.verb, delivery.state = DeliveryPhase.SETTLING, verb, state
        delivery.message.settled()
        if self._receiver is not None and delivery.receiver is self._receiver:
            if not self._settlements.due:
                self._loop.call_soon(self._flush, self._receiver)
            self._settlements.add(delivery.delivery_id, delivery, state)
        else:
            self._report_received([delivery])
            self._stray(delivery, was_sent=False)
        self._context.dispatcher.left(delivery)
        self._context.changed()  # a settlement by hand, or of a duplicate, may come after its handler returned

    def give_back(self, delivery: Delivery) -> None:
        """Release a delivery that is waiting or running; does nothing in any other phase."""
        if self._leave(delivery):
            delivery.end(None)
            if delivery.receiver is self._receiver:
                self._release([delivery.delivery_id])
            self._context.dispatcher.left(delivery)

    def returned(self, delivery: Delivery) -> None:  # noqa: B027 - does nothing unless overridden
        """Record that the handler of a delivery has ended."""

    def find(self, tag: bytes) -> Delivery | None:
        """Return the delivery with this tag if it can still be settled, or None."""
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

    def _flush(self, receiver: Receiver) -> None:
        """Send the settlements of this turn of the loop; if the link has ended, they become strays."""
        if receiver is self._receiver and not receiver.detached.done():
            self._report_received(self._settlements.due)
            self._settlements.flush(receiver)

    def _on_disposition(self, event: DispositionReceived) -> None:
        self._settlements.on_disposition(event)

    def _confirmed(self, delivery: Delivery, state: DeliveryState | None) -> None:
        answer = answer_to(delivery.state, state)
        error = state.error if isinstance(state, Rejected) else None
        self._answered(delivery, answer, "" if answer is Answer.CONFIRMED else condition_text(error))

    def _report_received(self, deliveries: Iterable[Delivery]) -> None:
        """Report deliveries that their handlers completed or dead-lettered as received, each once."""
        context = self._context
        if not context.reports_messages():
            return
        ended = (each for each in deliveries if each.is_handled or each.verb is Verb.DEAD_LETTER)
        received = [each for each in ended if not each.is_reported]
        for each in received:
            each.is_reported = True
        handled = [each.message for each in received]
        if handled:
            context.emit(
                events.MessagesReceived(
                    time.time(),
                    context.path,
                    self.side.value,
                    tuple(map(message_id_of, handled)),
                    tuple(str(message.session_id or "") for message in handled),
                    tuple(message.sequence_number or 0 for message in handled),
                    tuple(map(enqueued_of, handled)),
                    tuple(map(checksum_of, handled)),
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

    def _tell_lost(self, delivery: Delivery) -> None:
        self._context.counters.locks_lost += 1
        self._context.emit(
            events.LockEnded(
                time.time(),
                self._context.path,
                self.side.value,
                message_id_of(delivery.message),
                delivery.is_returned,
            )
        )

    def _tell_unknown(self, deliveries: list[Delivery]) -> None:
        """Report settlements whose confirmation was lost."""
        self._context.counters.settlements_unknown += len(deliveries)
        ids = tuple(message_id_of(each.message) for each in deliveries)
        self._context.emit(events.SettlementUnknown(time.time(), self._context.path, self.side.value, ids))

    def _lose(self, delivery: Delivery, error: Exception) -> None:
        """Give up a message whose lock is lost and notify its handler; the broker redelivers it."""
        if not self._leave(delivery):
            return
        delivery.end(Answer.LOCK_LOST)
        delivery.message.auto_renew_error = error
        self._context.dispatcher.withdraw(delivery, error)
        self._tell_lost(delivery)
        self._context.dispatcher.left(delivery)
        self._context.changed()

    # Credit

    def top_up(self) -> None:
        """Grant credit for the available room; called after every change."""
        self._grant(self._context.dispatcher.window, self._context.dispatcher.in_hand)

    def _grant(self, window: ProcessorWindow, in_hand: int) -> None:
        receiver = self._receiver
        if receiver is None or self.is_stopping or not receiver.is_open:
            return
        grant = window.grant(receiver.credit, in_hand, len(self._settlements))
        if grant is not None:
            receiver.flow(grant)
            self._is_withdrawn = self._is_withdrawn or not grant

    def _clear_credit(self) -> None:
        """Ask the peer to clear the credit; until it has done so, messages that it sent before may arrive."""
        receiver = self._receiver
        may_come = receiver is not None and (receiver.credit > 0 or self._is_withdrawn)
        if receiver is not None and may_come and self._clearing_since is None:
            self._clearing_since = self._loop.time()
            receiver.flow(receiver.credit, drain=True)

    def _on_drained(self) -> None:
        if self._clearing_since is not None and self._receiver is not None and not self._receiver.credit:
            self._clearing_since, self._is_withdrawn = None, False
            self._context.changed()

    def _is_unanswered(self, now: float) -> bool:
        """Whether the peer has not cleared the credit in time: the link is silent."""
        return self._clearing_since is not None and now - self._clearing_since > ANSWER_WITHIN

    def _check_answers(self) -> None:
        """Drop a connection that does not answer settlements."""
        if self._connection is not None and self._settlements.is_overdue(ANSWER_WITHIN):
            path = self._context.path
            logger.warning("%s on the %s does not answer settlements; reconnecting", path, self.side)
            self._connection.abort()

    # The end

    def _let_go(self, connection: NamespaceConnection, receiver: Receiver) -> None:
        """Detach without waiting; if the peer does not answer even that, its connection is closed."""
        receiver.let_go()
        self._loop.call_later(CONFIRM_WITHIN, self._check_detached, connection, receiver)

    def _check_detached(self, connection: NamespaceConnection, receiver: Receiver) -> None:
        if not receiver.detached.done():
            logger.warning("%s on the %s does not end its link; reconnecting", receiver.path, self.side)
            connection.abort()

    async def stop_receiving(self) -> None:
        """Withdraw the credit and wait for the drain; messages that still arrive are given back."""
        self.is_stopping = True
        receiver = self._receiver
        if receiver is not None and receiver.is_open and not await receiver.withdraw(CONFIRM_WITHIN):
            logger.info("%s on the %s did not drain its link", receiver.path, self.side)

    async def close(self) -> None:
        """Give back the messages in flight, wait for the last confirmations, and detach."""
        for delivery in list(self._open.values()):
            self.give_back(delivery)
        receiver = self._receiver
        if receiver is None:
            return
        try:
            async with asyncio.timeout(CONFIRM_WITHIN):
                await self._settlements.is_empty.wait()
        except TimeoutError:
            logger.info("%s on the %s did not confirm all settlements", receiver.path, self.side)
        await receiver.close()
