"""A client's sender link on a queue: what does each send become, and what is it answered?"""

from __future__ import annotations

from collections.abc import Sequence

from ....amqp.events import MessageReceived
from ....amqp.link import ReceiverLink
from ....amqp.performatives import ACCEPTED, DeliveryState, Rejected, TransactionalState
from ...entities.entity import Entity
from ...entities.stored_message import StoredMessage
from ...errors import BrokerError, Rerouting
from ...faults import Delay, Effect, Ending, LateVisibility, Operation
from ..intake import messages_of, messages_of_run
from ..moment import Moment
from .fault_answers import end, lie
from .host import LinkHost
from .node import Node

TRANSFER_DESTINATION = "com.microsoft:transfer-destination-address"
"""The link property that names where messages go on to: the link's target is the entity they go via (3.7)."""

_BATCH_SIZE = "com.microsoft:max-message-batch-size"
CREDIT = 2000  # Python's client ignores it, JavaScript's and proton live by it


class QueueSender(Node):
    """Takes a client's messages into ``queue``, or via it to ``destination``; a batch all or none."""

    queue: Entity

    def __init__(
        self,
        connection: LinkHost,
        link: ReceiverLink,
        queue: Entity,
        destination: Entity | None = None,
    ) -> None:
        super().__init__(connection, link, queue)
        self._destination = destination
        self._face = connection.face
        self._link = link
        self.is_starved = False  # NoCredit

    def answer(self, limit: int) -> dict[object, object]:
        """The properties of our attach: the largest batch, and where the messages go on to."""
        properties: dict[object, object] = {_BATCH_SIZE: limit}
        if self._destination is not None:
            properties[TRANSFER_DESTINATION] = self._destination.path
        return properties

    def opened(self, moment: Moment) -> None:
        """The link was answered: let the client send."""
        if not self.is_starved:
            self._link.flow(CREDIT)

    def message_received(self, event: MessageReceived, moment: Moment) -> None:
        """Store, then answer: accepted only for what is stored."""
        effect = self._face.strike(Operation.SEND, self.queue.path, moment)
        if effect is not None:
            self._suffer(effect, event, moment)
        else:
            answer = self._store(event, moment.entity)
            if not event.settled:
                self._answer(event, answer)
        self._top_up()

    def messages_received(self, events: Sequence[MessageReceived], moment: Moment) -> None:
        """Store what came together as one, where that is the same as each for itself: it costs half."""
        if len(events) > 1 and self._store_run(events, moment.entity):
            self._top_up()
        else:
            super().messages_received(events, moment)

    def _store_run(self, events: Sequence[MessageReceived], now: int) -> bool:
        """Store and accept all; False, with nothing done, when one of them needs a look of its own."""
        if self._destination is not None:
            return False
        messages = messages_of_run(self._face, self.queue, events)
        if messages is None:
            return False
        try:
            self.queue.enqueue_all(messages, now)
        except BrokerError:
            return False
        first, last = events[0].delivery_id, events[-1].delivery_id
        if last - first == len(events) - 1 and not any(event.settled for event in events):
            self._link.dispose(first, last, ACCEPTED)
        else:
            for event in events:
                if not event.settled:
                    self._answer(event, ACCEPTED)
        return True

    def _top_up(self) -> None:
        if self._link.credit < CREDIT // 2 and not self.is_starved and self._link.is_open:
            self._link.flow(CREDIT)

    def _suffer(self, effect: Effect, event: MessageReceived, moment: Moment) -> None:
        """What becomes of a send that a fault strikes."""
        answer = self._store(event, moment.entity, effect) if effect.happens else None
        if isinstance(effect, Ending):
            end(effect, self.connection, self.link, self._tracker, moment)
        if event.settled or not effect.answers:
            return
        if isinstance(effect, Delay):
            self.connection.later(effect.seconds, lambda: self._answer(event, answer), moment)
        else:
            self._answer(event, answer if effect.happens else lie(effect, self._tracker, moment))

    def _store(self, event: MessageReceived, now: int, effect: Effect | None = None) -> DeliveryState | None:
        """Store; the answer, or None when it comes later (Q-16)."""
        visible_at = now + round(effect.seconds * 1000) if isinstance(effect, LateVisibility) else None
        txn_id = event.state.txn_id if isinstance(event.state, TransactionalState) else None
        try:
            if txn_id is None:
                self._take(self._messages(event, now, visible_at), now)
                return ACCEPTED
            transaction = self.connection.transaction(txn_id)
            via = None if self._destination is None else self.queue
            transaction.send(self._destination or self.queue, self._messages(event, now), now, via)
            return TransactionalState(txn_id, ACCEPTED)
        except Rerouting as rerouting:
            self._face.namespace.call_at(rerouting.at, lambda then: self._store_again(event, then))
            return None
        except BrokerError as error:
            self.connection.refused(event.state, error)
            return Rejected(self._face.refusal(error, self.queue.path, now))

    def _take(self, messages: list[StoredMessage], now: int) -> None:
        if self._destination is None:
            self.queue.enqueue_all(messages, now)
        else:
            self.queue.check_sends_enabled()
            self._face.namespace.transfer(messages, self.queue, self._destination.path, now)

    def _messages(
        self, event: MessageReceived, now: int, visible_at: int | None = None
    ) -> list[StoredMessage]:
        payload, kind = event.payload, event.message_format
        return messages_of(self._face, self.queue, payload, kind, now, visible_at)

    def _store_again(self, event: MessageReceived, now: int) -> None:
        answer = self._store(event, now)
        if not event.settled:
            self._answer(event, answer)
            self._face.stir(self.connection)

    def _answer(self, event: MessageReceived, answer: DeliveryState | None) -> None:
        if answer is not None and self._link.is_open:
            self._link.dispose(event.delivery_id, event.delivery_id, answer)

    @property
    def _tracker(self) -> str:
        return self._face.tracker(self.queue.path)
