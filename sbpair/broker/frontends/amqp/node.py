"""Nodes: the broker's end of each link, and the part of the connection they use.

The connection passes each event of a link to its node, with the current clock readings; the node answers
through the link. There is one node for each link.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ....amqp.events import CreditGranted, DispositionReceived, MessageReceived
from ....amqp.link import ReceiverLink, SenderLink
from ....amqp.performatives import Condition, DeliveryState
from ...clock import ClockReading
from ...entities.entity import Entity
from ...entities.transaction import Transaction
from ...errors import BrokerError
from ..namespace_frontend import NamespaceFrontend
from .claims import Claims

if TYPE_CHECKING:
    from .queue_receiver import QueueReceiver


class ConnectionContext(Hashable, Protocol):
    """A client's connection as its nodes see it."""

    @property
    def frontend(self) -> NamespaceFrontend:
        """The namespace the client is connected to."""

    @property
    def claims(self) -> Claims:
        """The rights the client has proved."""

    @property
    def is_clogged(self) -> bool:
        """Whether the client fails to read what was sent: deliver nothing more until it does."""

    def nodes(self) -> Iterable[object]:
        """The nodes of all links of the connection."""

    def close(self, symbol: str, text: str, now: ClockReading) -> None:
        """Close from the broker's side, with a reason."""

    def later(self, seconds: float, act: Callable[[], None], now: ClockReading) -> None:
        """Call ``act`` after ``seconds`` if the connection still exists."""

    def hold_back(self, node: QueueReceiver) -> None:
        """The window of the receiver's session is used up: put it back in line when the window opens."""

    def refused(self, state: DeliveryState | None, error: BrokerError) -> None:
        """Report a refusal: when ``state`` makes it part of a transaction, the transaction fails."""

    def transaction(self, txn_id: bytes) -> Transaction:
        """The open transaction of that id, declared on this connection. Raises UnknownTransaction."""


class Node:
    """One end of a link, at ``queue`` or at the namespace (None).

    Events a kind of node does not use are ignored.
    """

    def __init__(
        self, connection: ConnectionContext, link: SenderLink | ReceiverLink, queue: Entity | None
    ) -> None:
        self.used: ClockReading  # last activity on the link; set by the connection
        self.connection = connection
        self.link = link
        self.queue = queue

    def opened(self, now: ClockReading) -> None:
        """The broker's half of the link is open."""

    def message_received(self, event: MessageReceived, now: ClockReading) -> None:
        """A message arrived."""

    def messages_received(self, events: Sequence[MessageReceived], now: ClockReading) -> None:
        """Consecutive messages arrived."""
        for event in events:
            self.message_received(event, now)

    def credit_granted(self, event: CreditGranted, now: ClockReading) -> None:
        """The client changed its credit."""

    def disposition_received(self, event: DispositionReceived, now: ClockReading) -> None:
        """The client settled deliveries."""

    def deleted(self, path: str, condition: Condition) -> None:
        """The entity was deleted: end the link."""
        self.link.refuse(condition)
        self.stir()

    def stir(self) -> None:
        """Have pending answers sent."""
        self.connection.frontend.stir(self.connection)

    def detached(self, now: ClockReading) -> None:
        """The link has ended, from either side."""
