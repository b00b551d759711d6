"""A client's receiver link on a queue: deliveries and their settlement.

Receivers use peek-lock or, if the client requests settled deliveries (``snd-settle-mode`` 1), receive-and-delete. Locks
outlive the link: a token is valid on any link. The answers to a settlement are those that the clients expect:

    state sent                            the queue                answered (settled, role sender)
    accepted                              completes                accepted
    modified{delivery-failed, here}       abandons                 the same
    modified{undeliverable-here}          defers                   the same
    modified{delivery-failed=false}       releases                 the same
    rejected{info}                        dead-letters             rejected{null}
    released                              releases                 released
    any of them, too late                 does nothing             rejected{message-lock-lost}
    transactional-state{one of them}      acts at the commit       transactional-state{as above}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from sbpair.pair.amqp.errors import DETACH_FORCED
from sbpair.pair.amqp.events import CreditGranted, DispositionReceived
from sbpair.pair.amqp.link import SenderLink
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Attach,
    Condition,
    DeliveryState,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Source,
    TransactionalState,
)

from ...clock import ClockReading
from ...entities.allowed_use import check_received_from
from ...entities.message_store import DESCRIPTION, REASON
from ...entities.queue import FrontEnd, Queue
from ...entities.queue_context import PER_STEP, SLICE
from ...entities.queue_partition import QueuePartition
from ...entities.quotas import MESSAGE_COST
from ...entities.sessions import SessionLock
from ...entities.stored_message import LockToken, StoredMessage
from ...entities.transaction import Settlement, SettlementVerb
from ...errors import BrokerError, LockLostError, OperationNotImplementedError
from ...faults import Delay, Effect, EndingEffect, LoseLock, Operation, RefusingEffect, SilenceLink
from ..delivered_message import delivered_run
from ..refusals import tracked
from .faults import end_faulted, fault_outcome
from .node import ConnectionContext, Node

SETTLED = 1  # 2.8.2
_SPANS = 2**32


class QueueReceiver(Node):
    """Delivers messages of ``queue`` to a client while it has credit."""

    queue: Queue
    link: SenderLink

    def __init__(
        self, connection: ConnectionContext, link: SenderLink, queue: Queue, *, deletes: bool
    ) -> None:
        super().__init__(connection, link, queue)
        self._frontend = connection.frontend
        self.deletes = deletes
        self._source = queue.source_for(connection)
        self._held: dict[int, LockToken] = {}  # by delivery-id
        self._late = 0  # deliveries that a fault delays: each uses a credit
        self._is_silent = False  # SilenceLink
        self._lost = 0  # deliveries that a fault withholds, until the client grants credit again

    @property
    def line(self) -> Queue | SessionLock:
        """The entity for whose messages the receiver waits in line while it has credit."""
        return self.queue

    def answer(self, attach: Attach) -> tuple[Source | None, dict[object, object] | None]:
        """Return source and properties of the answering attach; clients compare the address of the source."""
        return attach.source, None

    @property
    def has_cache(self) -> bool:
        """Whether the receiver may find a message where another receiver of the queue does not."""
        return isinstance(self._source, FrontEnd)

    @property
    def is_hungry(self) -> bool:
        """Whether credit is left, and both the connection and the session's window have room."""
        return (
            self._room > 0
            and self.link.is_open
            and not self._is_silent
            and not self.connection.is_clogged
            and not self.link.session.pending
        )

    @property
    def _room(self) -> int:
        return self.link.credit - self._late - self._lost

    def passed_over(self) -> None:
        """Wait to rejoin the line until the session's window opens again, if it is used up."""
        if self.link.session.pending:
            self.connection.links.hold_back(self)

    def credit_granted(self, event: CreditGranted, now: ClockReading) -> None:
        """Join the line while there is credit; answer a drain after one more attempt to deliver."""
        if self._is_silent:
            return
        self._lost = 0
        if event.credit > 0:
            if not self._frontend.is_waiting(self):
                self._frontend.namespace.receive_began()
            self._frontend.wait(self, now)
        else:
            self._frontend.leave(self, now)
        if event.drain:
            self._drain(now)

    def _drain(self, now: ClockReading) -> None:
        """Deliver the available messages within the credit, and return the remaining credit to the client."""
        until = self._frontend.namespace.work_done + SLICE
        try:
            while self.is_hungry and self.deliver(now):
                self._frontend.namespace.credits.charge(MESSAGE_COST, now.entity)
                self._frontend.namespace.worked(1)
                if self._frontend.namespace.work_done >= until:
                    self.connection.later(0.0, lambda: self._drain(now), now)
                    return
        except BrokerError as error:
            self._frontend.leave(self, now)
            self.refused(error, now)
            return
        self._frontend.leave(self, now)
        self.link.drained()

    def deliver(self, now: ClockReading) -> bool:
        """Deliver one message; return False when there is none. Raises EntityDisabledError."""
        message = self.take(now.entity)
        if message is None:
            return False
        self.used = now
        effect = self._frontend.apply_fault(Operation.RECEIVE, self.queue.path, now)
        if effect is None:
            self._transfer(message)
        elif isinstance(effect, EndingEffect):
            end_faulted(effect, self.connection, self.link, self._tracker, now)
        elif isinstance(effect, Delay):
            self._late += 1
            self.connection.later(effect.seconds, lambda: self._transfer_late(message), now)
        elif isinstance(effect, LoseLock):
            self._transfer(message)
            self.connection.later(effect.seconds, lambda: self._lose_lock(message, now), now)
        elif isinstance(effect, SilenceLink):
            self._is_silent = True
            if message.lock_token is not None:
                self.queue.release(message.lock_token, now.entity)
        else:
            self._lost += 1
        return True

    def refused(self, error: BrokerError, now: ClockReading) -> None:
        """Detach with the reason why nothing more can be received on this link."""
        self.link.detach(self._frontend.refusal(error, self.queue.path, now.entity))

    def deliver_run(self, limit: int, now: ClockReading) -> int:
        """Deliver up to ``limit`` messages within the credit, when no other receiver waits; return how many.

        Raises as :meth:`deliver`.
        """
        if (
            self.deletes
            or type(self._source) is not QueuePartition
            or self._frontend.needs_single_messages(Operation.RECEIVE, self.queue.path)
        ):
            return int(self.deliver(now))
        messages = self.take_some(min(limit, self._room), now.entity)
        if messages:
            self.used = now
            self._transfer_all(messages)
        return len(messages)

    def _lose_lock(self, message: StoredMessage, now: ClockReading) -> None:
        """End the lock of a delivered message as if it had expired, unless it is settled by now."""
        if message.lock_token is not None:
            with suppress(LockLostError):
                self.queue.abandon(message.lock_token, now.entity)

    def _transfer_late(self, message: StoredMessage) -> None:
        self._late -= 1
        if self.link.is_open and self.link.credit > 0:  # else the client has revoked the credit
            self._transfer(message)

    def _transfer(self, message: StoredMessage) -> None:
        self._transfer_all((message,))

    def _transfer_all(self, messages: Sequence[StoredMessage]) -> None:
        transfer, held, steps = self.link.transfer, self._held, 0
        for message, payload in zip(messages, delivered_run(messages, self.queue), strict=True):
            token = message.lock_token
            steps += len(payload) // PER_STEP
            if token is None:
                transfer(payload, tag=b"", settled=True)  # no lock, so no lock token as the tag
            else:
                held[transfer(payload, tag=token)] = token
        self._frontend.namespace.worked(steps)

    @property
    def _tracker(self) -> str:
        return self._frontend.tracker(self.queue.path)

    def take(self, now: int) -> StoredMessage | None:
        """Return the next message, locked or, with receive-and-delete, removed. Raises EntityDisabledError."""
        return self._source.receive_and_delete(now) if self.deletes else self._source.receive(now)

    def take_some(self, limit: int, now: int) -> list[StoredMessage]:
        """Return the next messages, locked, of a queue that is not partitioned. Raises EntityDisabledError."""
        assert isinstance(self._source, QueuePartition)  # noqa: S101 - checked by the caller
        return self._source.receive_batch(limit, now)

    def disposition_received(self, event: DispositionReceived, now: ClockReading) -> None:
        """Settle consecutive deliveries; those with equal answers are answered together."""
        if isinstance(event.state, Received) or (event.state is None and not event.settled):
            return  # 3.4.1: not terminal
        effect = self._frontend.apply_fault(Operation.SETTLE, self.queue.path, now)
        if effect is None:
            self._settle_run(event, now, self._answer)
        else:
            self._apply_fault(effect, event, now)

    def _apply_fault(self, effect: Effect, event: DispositionReceived, now: ClockReading) -> None:
        """Settle under a fault."""
        answers: list[tuple[int, int, DeliveryState]] = []
        if effect.happens:
            self._settle_run(event, now, lambda _, *answer: answers.append(answer))
        if isinstance(effect, EndingEffect):
            end_faulted(effect, self.connection, self.link, self._tracker, now)
        elif isinstance(effect, RefusingEffect):
            self._answer(event, event.first, event.last, fault_outcome(effect, self._tracker, now))
        elif isinstance(effect, Delay):
            self.connection.later(effect.seconds, lambda: self._answer_all(event, answers), now)

    def _answer_all(self, event: DispositionReceived, answers: list[tuple[int, int, DeliveryState]]) -> None:
        for first, last, answer in answers:
            if self.link.is_open:
                self._answer(event, first, last, answer)

    def _settle_run(
        self,
        event: DispositionReceived,
        now: ClockReading,
        answered: Callable[[DispositionReceived, int, int, DeliveryState], None],
    ) -> None:
        first, answer = event.first, None
        span = (event.last - event.first) % _SPANS
        tokens = [self._held.pop((first + offset) % _SPANS, None) for offset in range(span + 1)]
        if type(event.state) is Accepted and self.complete_all(tokens, now.entity):
            answered(event, first, event.last, ACCEPTED)
            return
        for offset, token in enumerate(tokens):
            number = (event.first + offset) % _SPANS
            became = self._settle(token, event.state, now)
            if answer is not None and became is not answer and became != answer:
                answered(event, first, (number - 1) % _SPANS, answer)
                first = number
            answer = became
        if answer is not None:
            answered(event, first, event.last, answer)

    def _answer(self, event: DispositionReceived, first: int, last: int, answer: DeliveryState) -> None:
        if not event.settled:
            self.link.settle(first, last, answer)

    def _settle(
        self, token: LockToken | None, state: DeliveryState | None, now: ClockReading
    ) -> DeliveryState:
        try:
            if token is None:
                raise LockLostError
            if type(state) is Accepted:
                self.complete(token, now.entity)
                return ACCEPTED
            return self.apply(token, state, now.entity)
        except BrokerError as error:
            self.connection.links.refused(state, error)
            return Rejected(self._frontend.refusal(error, self.queue.path, now.entity))

    def complete_all(self, tokens: Sequence[LockToken | None], now: int) -> bool:
        """Complete all of the messages, or none; return False when they must be completed one by one."""
        return self.queue.complete_all(tokens, now)

    def complete(self, token: LockToken, now: int) -> None:
        """Complete a message, the common case of :meth:`apply`. Raises as it does."""
        self.queue.complete(token, now)

    def apply(self, token: LockToken, state: DeliveryState | None, now: int) -> DeliveryState:
        """Apply the client's ``state`` to its message and return the state to answer with.

        Raises LockLostError, SessionLostError, NotAllowedError, OperationNotImplementedError, and in a transaction
        UnknownTransactionError and TransactionRolledBackError.
        """
        if isinstance(state, TransactionalState):
            transaction = self.connection.links.transaction(state.txn_id)
            transaction.settle(settlement_of(self.queue, token, state.outcome), now)
            return TransactionalState(state.txn_id, answer_to(state.outcome))
        settlement_of(self.queue, token, state).apply(now)
        return answer_to(state)

    def detached(self, now: ClockReading) -> None:
        """Stop waiting for messages; locked messages stay locked until their locks expire."""
        self._frontend.leave(self, now)

    def updated(self, now: ClockReading) -> None:
        """Detach, as the service does when the entity is updated; the client attaches again."""
        try:
            check_received_from(self.queue.top)
        except BrokerError:
            return  # detached with the reason when it next waits for a message
        text = (
            f"The link '{self.link.name}' is force detached by the broker due to errors occurred in consumer. "
            "Detach origin: InnerMessageReceiver was closed."
        )
        self._frontend.leave(self, now)
        self.link.detach(Condition(DETACH_FORCED, tracked(text, self._tracker, now.entity)))
        self.stir()

    def unclogged(self, now: ClockReading) -> None:
        """Return to the line: the connection can send again."""
        if self.is_hungry:
            self._frontend.wait(self, now)


def settlement_of(queue: Queue, token: LockToken, state: DeliveryState | None) -> Settlement:
    """Return the settlement that the client's ``state`` requests.

    Raises OperationNotImplementedError for a state that is not an outcome.
    """
    match state:
        case Accepted():
            return Settlement(queue, token, SettlementVerb.COMPLETE)
        case Modified(undeliverable_here=True, message_annotations=changes):
            return Settlement(queue, token, SettlementVerb.DEFER, _properties(changes))
        case Modified(delivery_failed=False):
            return Settlement(queue, token, SettlementVerb.RELEASE)
        case Modified(message_annotations=changes):
            return Settlement(queue, token, SettlementVerb.ABANDON, _properties(changes))
        case Rejected(error):
            reasons = dead_letter_properties(None if error is None else error.info)
            return Settlement(queue, token, SettlementVerb.DEAD_LETTER, reasons)
        case Released() | None:
            return Settlement(queue, token, SettlementVerb.RELEASE)
        case _:
            raise OperationNotImplementedError(
                "Only an outcome settles a delivery; this delivery state is not an outcome."
            )


def answer_to(state: DeliveryState | None) -> Outcome:
    """Return the state with which the broker answers the client's ``state``."""
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
    """Return the application properties of a dead-lettered message: reason, description and any others given."""
    return {key: _text_of(key, value) for key, value in _properties(info).items() if value is not None}


def _text_of(key: str, value: object) -> object:
    return str(value) if key in (REASON, DESCRIPTION) else value


def _properties(entries: dict[object, object] | None) -> dict[str, object]:
    return {str(key): value for key, value in (entries or {}).items() if isinstance(key, str)}
