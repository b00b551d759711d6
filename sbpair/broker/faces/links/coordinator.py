"""A client's link to the transaction coordinator: declare, discharge (4.2, 4.3).

A transaction belongs to the link that declared it, and is used on any link of the same connection. When the
link ends, what is open is rolled back; so it is when the connection drops.

Links attached behind it on its session share an anchor: the first entity attached there is the one that its
transactions are on, and sends to others go via it. That is how SDKs ask for transactions across entities.
"""

from __future__ import annotations

from ....amqp.errors import NOT_IMPLEMENTED
from ....amqp.events import MessageReceived
from ....amqp.link import ReceiverLink
from ....amqp.performatives import ACCEPTED, Condition, Declare, Declared, DeliveryState, Discharge, Rejected
from ....amqp.transactions import decode_request
from ....amqp.types import DecodeError
from ...entities.entity import Entity
from ...entities.transaction import Anchor, Transaction, top_level
from ...errors import BrokerError, MalformedMessage, TooManyTransactions, UnknownTransaction
from ..moment import Moment
from ..wording import tracked
from .host import LinkHost
from .node import Node

CREDIT = 100
MOST_OPEN = 100
PATH = "$coordinator"  # in trackers


class CoordinatorNode(Node):
    """The broker's end of such a link, with the transactions it has declared."""

    link: ReceiverLink

    def __init__(self, connection: LinkHost, link: ReceiverLink) -> None:
        super().__init__(connection, link, None)
        self._anchor = Anchor()
        self._open: dict[bytes, Transaction] = {}

    def opened(self, moment: Moment) -> None:
        """Let the client ask."""
        self.link.flow(CREDIT)

    def saw_link_on(self, queue: Entity) -> None:
        """A link on ``queue`` was attached in the same session."""
        if self._anchor.top is None:
            self._anchor.top = top_level(queue)

    def transaction(self, txn_id: bytes) -> Transaction | None:
        """The open transaction of that id, if this link declared it."""
        return self._open.get(txn_id)

    def message_received(self, event: MessageReceived, moment: Moment) -> None:
        """Answer a declare or a discharge."""
        if self.link.credit < CREDIT // 2:
            self.link.flow(CREDIT)
        face = self.connection.face
        try:
            answer = self._answer(event.payload, moment)
        except DecodeError as error:
            malformed = MalformedMessage(f"The request could not be decoded: {error}.")
            answer = Rejected(face.refusal(malformed, PATH, moment.entity))
        except BrokerError as error:
            answer = Rejected(face.refusal(error, PATH, moment.entity))
        if not event.settled:
            self.link.dispose(event.delivery_id, event.delivery_id, answer)

    def _answer(self, payload: bytes, moment: Moment) -> DeliveryState:
        match decode_request(payload):
            case Declare(None):
                return self._declare()
            case Declare():
                text = "A distributed transaction (a declare with a global id) is not implemented."
                tracker = self.connection.face.tracker(PATH)
                return Rejected(Condition(NOT_IMPLEMENTED, tracked(text, tracker, moment.entity)))
            case Discharge(txn_id, fail):
                transaction = self._open.pop(txn_id, None)
                if transaction is None:
                    raise UnknownTransaction(txn_id)
                if not fail:
                    transaction.commit(moment.entity)
                return ACCEPTED

    def _declare(self) -> Declared:
        if len(self._open) >= MOST_OPEN:
            raise TooManyTransactions(MOST_OPEN)
        namespace = self.connection.face.namespace
        txn_id = bytes(namespace.new_token())
        self._open[txn_id] = Transaction(namespace, self._anchor)
        return Declared(txn_id)

    def detached(self, moment: Moment) -> None:
        """The controller is gone: nothing of what it left open was done, or will be."""
        self._open.clear()
