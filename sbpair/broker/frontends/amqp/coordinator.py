"""The transaction coordinator: a client's link for declare and discharge (AMQP 4.2, 4.3).

A transaction belongs to the link that declared it and can be used on any link of the same connection. When
the link or the connection ends, open transactions are rolled back.

Links that are attached after it in its session share an anchor: its transactions are on the entity of the first of
these links, and sends to other entities go via that entity. SDKs request cross-entity transactions in this way.
"""

from __future__ import annotations

from sbpair.pair.amqp.errors import NOT_IMPLEMENTED, DecodeError
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.link import ReceiverLink
from sbpair.pair.amqp.message import decode_request
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Condition,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Rejected,
)

from ...clock import ClockReading
from ...entities.queue import Queue
from ...entities.transaction import Anchor, Transaction, top_level
from ...errors import BrokerError, MalformedMessageError, TooManyTransactionsError, UnknownTransactionError
from ..refusals import tracked
from .node import ConnectionContext, Node

CREDIT = 100
MAX_OPEN = 100
PATH = "$coordinator"  # as named in error texts


class CoordinatorNode(Node):
    """The broker's end of a coordinator link, with the transactions it has declared."""

    link: ReceiverLink

    def __init__(self, connection: ConnectionContext, link: ReceiverLink) -> None:
        super().__init__(connection, link, None)
        self._anchor = Anchor()
        self._open: dict[bytes, Transaction] = {}

    def opened(self, now: ClockReading) -> None:
        """Grant credit."""
        self.link.flow(CREDIT)

    def saw_link_on(self, queue: Queue) -> None:
        """Report that a link on ``queue`` was attached in the same session."""
        if self._anchor.top is None:
            self._anchor.top = top_level(queue)

    def transaction(self, txn_id: bytes) -> Transaction | None:
        """Return the open transaction of that id, if this link declared it; else None."""
        return self._open.get(txn_id)

    def message_received(self, event: MessageReceived, now: ClockReading) -> None:
        """Answer a declare or a discharge."""
        if self.link.credit < CREDIT // 2:
            self.link.flow(CREDIT)
        frontend = self.connection.frontend
        try:
            answer = self._answer(event.payload, now)
        except DecodeError as error:
            malformed = MalformedMessageError(f"The request could not be decoded: {error}.")
            answer = Rejected(frontend.refusal(malformed, PATH, now.entity))
        except BrokerError as error:
            answer = Rejected(frontend.refusal(error, PATH, now.entity))
        if not event.settled:
            self.link.dispose(event.delivery_id, event.delivery_id, answer)

    def _answer(self, payload: bytes, now: ClockReading) -> DeliveryState:
        match decode_request(payload):
            case Declare(None):
                return self._declare()
            case Declare():
                text = "A distributed transaction (a declare with a global id) is not implemented."
                tracker = self.connection.frontend.tracker(PATH)
                return Rejected(Condition(NOT_IMPLEMENTED, tracked(text, tracker, now.entity)))
            case Discharge(txn_id, fail):
                transaction = self._open.pop(txn_id, None)
                if transaction is None:
                    raise UnknownTransactionError(txn_id)
                if not fail:
                    transaction.commit(now.entity)
                return ACCEPTED

    def _declare(self) -> Declared:
        if len(self._open) >= MAX_OPEN:
            raise TooManyTransactionsError(MAX_OPEN)
        namespace = self.connection.frontend.namespace
        txn_id = bytes(namespace.new_token())
        self._open[txn_id] = Transaction(namespace, self._anchor)
        return Declared(txn_id)

    def detached(self, now: ClockReading) -> None:
        """Roll back the open transactions."""
        self._open.clear()
