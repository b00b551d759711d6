"""A client's sender link on a queue: stores its messages and answers each delivery."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.link import ReceiverLink
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Attach,
    Condition,
    DeliveryState,
    Rejected,
    Target,
    TransactionalState,
)

from ...clock import ClockReading
from ...entities.queue import Queue
from ...entities.stored_message import StoredMessage
from ...errors import BrokerError, MessageTooLargeError, ReroutingError
from ...faults import Delay, Effect, EndingEffect, LateVisibility, Operation
from ..received_message import TOLERANCE, messages_of, messages_of_run
from .faults import end_faulted, fault_outcome
from .node import ConnectionContext, Node

TRANSFER_DESTINATION = "com.microsoft:transfer-destination-address"
"""The link property that names the destination of messages; the link's target is the entity that they go via."""

_BATCH_SIZE = "com.microsoft:max-message-batch-size"
_is_settled = attrgetter("settled")
CREDIT = 2000  # the Python SDK ignores it; the JavaScript SDK and proton respect it


class QueueSender(Node):
    """Stores a client's messages in ``queue``, or sends them via it to ``destination``.

    A batch as a whole or not at all.
    """

    queue: Queue
    moves_timers = False

    def __init__(
        self,
        connection: ConnectionContext,
        link: ReceiverLink,
        queue: Queue,
        destination: Queue | None = None,
    ) -> None:
        super().__init__(connection, link, queue)
        self._destination = destination
        self._frontend = connection.frontend
        self._link = link
        self.is_starved = False  # NoCredit

    def answer(self) -> dict[object, object]:
        """Return the properties of the answering attach: the largest batch and, when sending via, the destination."""
        properties: dict[object, object] = {_BATCH_SIZE: self.queue.description.max_batch_size}
        if self._destination is not None:
            properties[TRANSFER_DESTINATION] = self._destination.path
        return properties

    def target(self, attach: Attach) -> Target | None:
        """Return the target of the answering attach."""
        return attach.target if isinstance(attach.target, Target) else None

    def tolerate(self, limit: int) -> None:
        """Accept messages slightly above the link's limit; refuse larger ones with MessageTooLargeError."""

        def refusal(size: int) -> Condition:
            return self._frontend.refusal(
                MessageTooLargeError(size, limit), self.queue.path, self.used.entity
            )

        self._link.tolerate(limit + TOLERANCE, refusal)

    def opened(self, now: ClockReading) -> None:
        """Grant credit."""
        if not self.is_starved:
            self._link.flow(CREDIT)

    def message_received(self, event: MessageReceived, now: ClockReading) -> None:
        """Store the message in memory, then answer.

        The answer is sent once the message is on disk (:class:`Commits`).
        """
        effect = self._frontend.apply_fault(Operation.SEND, self.queue.path, now)
        if effect is not None:
            self._apply_fault(effect, event, now)
        else:
            answer = self._store(event, now.entity)
            if not event.settled:
                self._answer(event, answer)
        self._top_up()

    def messages_received(self, events: Sequence[MessageReceived], now: ClockReading) -> int:
        """Store consecutive messages together, at half the cost, when that is equivalent to storing each."""
        if len(events) > 1 and self._store_run(events, now.entity):
            self._top_up()
        else:
            for event in events:
                self.message_received(event, now)
        return len(events)

    def _store_run(self, events: Sequence[MessageReceived], now: int) -> bool:
        """Store and accept all; return False, with nothing done, when they must be stored one by one."""
        if self._destination is not None:
            return False
        messages = messages_of_run(self._frontend, self.queue, events)
        if messages is None:
            return False
        try:
            self.queue.enqueue_all(messages, now)
        except BrokerError:
            return False
        first, last = events[0].delivery_id, events[-1].delivery_id
        if last - first == len(events) - 1 and not any(map(_is_settled, events)):
            self._link.dispose(first, last, ACCEPTED)
        else:
            for event in events:
                if not event.settled:
                    self._answer(event, ACCEPTED)
        return True

    def _top_up(self) -> None:
        if self._link.credit < CREDIT // 2 and not self.is_starved and self._link.is_open:
            self._link.flow(CREDIT)

    def _apply_fault(self, effect: Effect, event: MessageReceived, now: ClockReading) -> None:
        """Store under a fault."""
        answer = self._store(event, now.entity, effect) if effect.happens else None
        if isinstance(effect, EndingEffect):
            end_faulted(effect, self.connection, self.link, self._tracker, now)
        if event.settled or not effect.answers:
            return
        if isinstance(effect, Delay):
            self.connection.later(effect.seconds, lambda: self._answer(event, answer), now)
        else:
            self._answer(event, answer if effect.happens else fault_outcome(effect, self._tracker, now))

    def _store(self, event: MessageReceived, now: int, effect: Effect | None = None) -> DeliveryState | None:
        """Store messages and return the answer, or None if it follows later."""
        visible_at = now + round(effect.seconds * 1000) if isinstance(effect, LateVisibility) else None
        txn_id = event.state.txn_id if isinstance(event.state, TransactionalState) else None
        try:
            if txn_id is None:
                self._take(self._messages(event, now, visible_at), now)
                return ACCEPTED
            transaction = self.connection.links.transaction(txn_id)
            via = None if self._destination is None else self.queue
            transaction.send(self._destination or self.queue, self._messages(event, now), now, via)
            return TransactionalState(txn_id, ACCEPTED)
        except ReroutingError as rerouting:
            self._frontend.namespace.call_at(rerouting.at, lambda then: self._store_again(event, then))
            return None
        except BrokerError as error:
            self.connection.links.refused(event.state, error)
            return Rejected(self._frontend.refusal(error, self.queue.path, now))

    def _take(self, messages: list[StoredMessage], now: int) -> None:
        if self._destination is None:
            self.queue.enqueue_all(messages, now)
        else:
            self.queue.check_sends_enabled()
            self._frontend.namespace.transfer(messages, self.queue, self._destination.path, now)

    def _messages(
        self, event: MessageReceived, now: int, visible_at: int | None = None
    ) -> list[StoredMessage]:
        payload, kind = event.payload, event.message_format
        return messages_of(self._frontend, self.queue, payload, kind, now, visible_at)

    def _store_again(self, event: MessageReceived, now: int) -> None:
        answer = self._store(event, now)
        if not event.settled:
            self._answer(event, answer)
            self._frontend.stir(self.connection)

    def _answer(self, event: MessageReceived, answer: DeliveryState | None) -> None:
        if answer is not None and self._link.is_open:
            self._link.dispose(event.delivery_id, event.delivery_id, answer)

    @property
    def _tracker(self) -> str:
        return self._frontend.tracker(self.queue.path)
