"""A client's receiver link on a queue: what is it handed, and what does its settlement do?

Peek-lock unless the client sends all settled (``snd-settle-mode`` 1): then receive-and-delete. Locks outlive
the link: a token is valid wherever it is shown. The answers to a settlement are those the clients wait for:

    state sent                            what the queue does      answered (settled, role sender)
    accepted                              complete                 accepted
    modified{delivery-failed, here}       abandon                  the same
    modified{undeliverable-here}          defer                    the same
    modified{delivery-failed=false}       release                  the same
    rejected{info}                        dead-letter              rejected{null}
    released                              release                  released
    any of them, too late                 nothing                  rejected{message-lock-lost}
    transactional-state{one of them}      at the commit            transactional-state{as above}
"""

from __future__ import annotations

from collections.abc import Callable

from ....amqp.events import CreditGranted, DispositionReceived
from ....amqp.link import SenderLink
from ....amqp.outcomes import Outcome
from ....amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Attach,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    TransactionalState,
)
from ...entities.credits import OF_A_MESSAGE
from ...entities.entity import Entity
from ...entities.message_session import SessionLock
from ...entities.queue import DESCRIPTION, REASON, Queue
from ...entities.settlement import Settlement, Verb
from ...entities.stored_message import LockToken, StoredMessage
from ...errors import BrokerError, LockLost, NotImplementedHere
from ...faults import Delay, Effect, Ending, Operation, Refusal
from ..message_form import delivered
from ..moment import Moment
from .fault_answers import end, lie
from .host import LinkHost
from .node import Node

SETTLED = 1  # 2.8.2
_SPANS = 2**32


class QueueReceiver(Node):
    """Hands a client messages of ``queue`` while it has credit."""

    queue: Entity
    link: SenderLink

    def __init__(self, connection: LinkHost, link: SenderLink, queue: Entity, *, deletes: bool) -> None:
        super().__init__(connection, link, queue)
        self._face = connection.face
        self.deletes = deletes
        self._source = queue.seen_from(connection)
        self._held: dict[int, LockToken] = {}  # by delivery-id
        self._tags = 0
        self._late = 0  # deliveries that a fault delays: each has its credit
        self._lost = 0  # and those that it withholds, until the client grants anew

    @property
    def line(self) -> Entity | SessionLock:
        """Where it stands in line while it has credit."""
        return self.queue

    def answer(self, attach: Attach) -> tuple[Source | None, dict[object, object] | None]:
        """Source and properties of our attach: the source as it came, for clients compare its address."""
        return attach.source, None

    @property
    def has_cache(self) -> bool:
        """It may find a message where another receiver of the queue does not (Q-18)."""
        return self._source is not self.queue

    @property
    def is_hungry(self) -> bool:
        """Credit is left, and the connection takes more."""
        return self._room > 0 and self.link.is_open and not self.connection.is_clogged

    @property
    def _room(self) -> int:
        return self.link.credit - self._late - self._lost

    def credit_granted(self, event: CreditGranted, moment: Moment) -> None:
        """Stand in line while there is credit; a drain is answered after one more look at the queue."""
        self._lost = 0
        if event.credit > 0:
            if not self._face.is_waiting(self):
                self._face.namespace.receive_began()  # P-41
            self._face.wait(self, moment)
        else:
            self._face.leave(self, moment)
        if event.drain:
            self._drain(moment)

    def _drain(self, moment: Moment) -> None:
        """Send what there is, and give the rest of the credit back; refused as who waits is."""
        try:
            while self.is_hungry and self.deliver(moment):
                self._face.namespace.credits.charge(OF_A_MESSAGE, moment.entity)
        except BrokerError as error:
            self._face.leave(self, moment)
            self.refused(error, moment)
            return
        self._face.leave(self, moment)
        self.link.drained()

    def deliver(self, moment: Moment) -> bool:
        """Send one message; False when there is none. Raises EntityDisabled."""
        message = self.take(moment.entity)
        if message is None:
            return False
        self.used = moment
        effect = self._face.strike(Operation.RECEIVE, self.queue.path, moment)
        if effect is None:
            self._transfer(message)
        elif isinstance(effect, Ending):
            end(effect, self.connection, self.link, self._tracker, moment)
        elif isinstance(effect, Delay):
            self._late += 1
            self.connection.later(effect.seconds, lambda: self._transfer_late(message), moment)
        else:
            self._lost += 1
        return True

    def refused(self, error: BrokerError, moment: Moment) -> None:
        """There is nothing to be had here any more."""
        self.link.detach(self._face.refusal(error, self.queue.path, moment.entity))

    def deliver_run(self, moment: Moment) -> bool:
        """Send what there is, as far as the credit goes, to who is alone in the line; False: nothing.

        Raises as :meth:`deliver`.
        """
        if self.deletes or type(self._source) is not Queue or self._face.is_each_weighed:
            return self.deliver(moment)
        messages = self.take_some(self._room, moment.entity)
        if messages:
            self.used = moment
        for message in messages:
            self._transfer(message)
        return bool(messages)

    def _transfer_late(self, message: StoredMessage) -> None:
        self._late -= 1
        if self.link.is_open and self.link.credit > 0:  # else the client has taken it back: nobody gets it
            self._transfer(message)

    def _transfer(self, message: StoredMessage) -> None:
        payload, token = delivered(message, self.queue), message.lock_token
        if token is None:
            self._tags += 1
            self.link.transfer(payload, tag=self._tags.to_bytes(16, "little"), settled=True)
        else:
            self._held[self.link.transfer(payload, tag=token)] = token

    @property
    def _tracker(self) -> str:
        return self._face.tracker(self.queue.path)

    def take(self, now: int) -> StoredMessage | None:
        """The next message, locked or, with receive-and-delete, gone. Raises EntityDisabled."""
        return self._source.receive_and_delete(now) if self.deletes else self._source.receive(now)

    def take_some(self, most: int, now: int) -> list[StoredMessage]:
        """The next messages, locked, of a queue that is not partitioned. Raises EntityDisabled."""
        assert isinstance(self.queue, Queue)  # noqa: S101 - who calls has looked
        return self.queue.receive_some(most, now)

    def disposition_received(self, event: DispositionReceived, moment: Moment) -> None:
        """Settle a run of deliveries; runs with the same answer are answered as one."""
        if isinstance(event.state, Received) or (event.state is None and not event.settled):
            return  # 3.4.1: not terminal
        effect = self._face.strike(Operation.SETTLE, self.queue.path, moment)
        if effect is None:
            self._settle_run(event, moment, self._answer)
        else:
            self._suffer(effect, event, moment)

    def _suffer(self, effect: Effect, event: DispositionReceived, moment: Moment) -> None:
        """What becomes of a settlement that a fault strikes."""
        answers: list[tuple[int, int, DeliveryState]] = []
        if effect.happens:
            self._settle_run(event, moment, lambda _, *answer: answers.append(answer))
        if isinstance(effect, Ending):
            end(effect, self.connection, self.link, self._tracker, moment)
        elif isinstance(effect, Refusal):
            self._answer(event, event.first, event.last, lie(effect, self._tracker, moment))
        elif isinstance(effect, Delay):
            self.connection.later(effect.seconds, lambda: self._answer_all(event, answers), moment)

    def _answer_all(self, event: DispositionReceived, answers: list[tuple[int, int, DeliveryState]]) -> None:
        for first, last, answer in answers:
            if self.link.is_open:
                self._answer(event, first, last, answer)

    def _settle_run(
        self,
        event: DispositionReceived,
        moment: Moment,
        answered: Callable[[DispositionReceived, int, int, DeliveryState], None],
    ) -> None:
        first, answer = event.first, None
        span = (event.last - event.first) % _SPANS
        for offset in range(span + 1):
            number = (event.first + offset) % _SPANS
            became = self._settle(self._held.pop(number, None), event.state, moment)
            if answer is not None and became is not answer and became != answer:
                answered(event, first, (number - 1) % _SPANS, answer)
                first = number
            answer = became
        if answer is not None:
            answered(event, first, event.last, answer)

    def _answer(self, event: DispositionReceived, first: int, last: int, answer: DeliveryState) -> None:
        if not event.settled:
            self.link.settle(first, last, answer)

    def _settle(self, token: LockToken | None, state: DeliveryState | None, moment: Moment) -> DeliveryState:
        try:
            if token is None:
                raise LockLost
            if type(state) is Accepted:
                self.complete(token, moment.entity)
                return ACCEPTED
            return self.apply(token, state, moment.entity)
        except BrokerError as error:
            self.connection.refused(state, error)
            return Rejected(self._face.refusal(error, self.queue.path, moment.entity))

    def complete(self, token: LockToken, now: int) -> None:
        """Complete: :meth:`apply` for what nearly every state is. Raises as it does."""
        self.queue.complete(token, now)

    def apply(self, token: LockToken, state: DeliveryState | None, now: int) -> DeliveryState:
        """Do what the client's ``state`` says, and return the state to answer. Raises LockLost and others."""
        if isinstance(state, TransactionalState):
            transaction = self.connection.transaction(state.txn_id)
            transaction.settle(settlement_of(self.queue, token, state.outcome), now)
            return TransactionalState(state.txn_id, answer_to(state.outcome))
        settlement_of(self.queue, token, state).apply(now)
        return answer_to(state)

    def detached(self, moment: Moment) -> None:
        """Leave the line; what is locked stays locked until its time (3.1)."""
        self._face.leave(self, moment)

    def unclogged(self, moment: Moment) -> None:
        """The connection takes more again."""
        if self.is_hungry:
            self._face.wait(self, moment)


def settlement_of(queue: Entity, token: LockToken, state: DeliveryState | None) -> Settlement:
    """What the client's ``state`` asks for. Raises NotImplementedHere for a state that is no outcome."""
    match state:
        case Accepted():
            return Settlement(queue, token, Verb.COMPLETE)
        case Modified(undeliverable_here=True, message_annotations=changes):
            return Settlement(queue, token, Verb.DEFER, _properties(changes))
        case Modified(delivery_failed=False):
            return Settlement(queue, token, Verb.RELEASE)
        case Modified(message_annotations=changes):
            return Settlement(queue, token, Verb.ABANDON, _properties(changes))
        case Rejected(error):
            reasons = dead_letter_properties(None if error is None else error.info)
            return Settlement(queue, token, Verb.DEAD_LETTER, reasons)
        case Released() | None:
            return Settlement(queue, token, Verb.RELEASE)
        case _:
            raise NotImplementedHere("A delivery state that is no outcome settles nothing.")


def answer_to(state: DeliveryState | None) -> Outcome:
    """The state that the clients wait for as the answer to theirs."""
    match state:
        case Accepted():
            return ACCEPTED
        case Rejected():
            return Rejected()
        case Modified():
            return state
        case _:
            return RELEASED


def dead_letter_properties(info: dict[object, object] | None) -> dict[str, object]:
    """The application properties of a dead-lettered message: reason, description and what else is given."""
    return {key: _text_of(key, value) for key, value in _properties(info).items() if value is not None}


def _text_of(key: str, value: object) -> object:
    return str(value) if key in (REASON, DESCRIPTION) else value


def _properties(entries: dict[object, object] | None) -> dict[str, object]:
    return {str(key): value for key, value in (entries or {}).items() if isinstance(key, str)}
