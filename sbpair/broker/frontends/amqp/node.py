"""Nodes: the broker's end of each link, and the part of the connection they use.

The connection passes each event of a link to its node, with the current clock readings; the node answers
through the link. There is one node for each link.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Protocol

from sbpair.pair.amqp.events import CreditGranted, DispositionReceived, MessageReceived
from sbpair.pair.amqp.link import ReceiverLink, SenderLink
from sbpair.pair.amqp.performatives import Condition, DeliveryState
from sbpair.pair.amqp.session import Session

from ...clock import ClockReading
from ...entities.queue import Queue
from ...entities.transaction import Transaction
from ...errors import BrokerError
from ..namespace_frontend import NamespaceFrontend
from .claims import Claims


class ConnectionLinks(Protocol):
    """The links of a client's connection as its nodes see them; iterating yields the nodes."""

    def __iter__(self) -> Iterator[Node]: ...

    def hold_back(self, node: Node) -> None:
        """Put a receiver back in line when the window of its session, which is used up, opens again."""

    def transaction(self, txn_id: bytes) -> Transaction:
        """Return the open transaction of that id, declared on this connection. Raises UnknownTransactionError."""

    def refused(self, state: DeliveryState | None, error: BrokerError) -> None:
        """Report a refused operation: if ``state`` makes it part of a transaction, the transaction fails."""


class Answers(Protocol):
    """The answers that a client has not read yet."""

    def answered(self, size: int, session: Session) -> None:
        """Count an answer on a link of ``session``."""

    @property
    def are_too_many(self) -> bool:
        """Whether the next request must wait."""


class ConnectionContext(Hashable, Protocol):
    """A client's connection as its nodes see it."""

    @property
    def frontend(self) -> NamespaceFrontend:
        """The namespace the client is connected to."""

    @property
    def claims(self) -> Claims:
        """The rights that the client has proved."""

    @property
    def container(self) -> str:
        """The client's container id; "" before its ``open``."""

    own_container: str

    @property
    def properties(self) -> Mapping[object, object]:
        """The properties of the client's ``open``."""

    timers_moved: bool

    @property
    def is_clogged(self) -> bool:
        """Whether the client is not reading; nothing is delivered while it is not."""

    @property
    def answers(self) -> Answers:
        """The answers that the client has not read yet."""

    @property
    def links(self) -> ConnectionLinks:
        """The links of the connection."""

    def close(self, symbol: str, text: str, now: ClockReading) -> None:
        """Close from the broker's side, with a reason."""

    def later(self, seconds: float, act: Callable[[], None], now: ClockReading) -> None:
        """Call ``act`` after ``seconds`` if the connection still exists."""


class Node:
    """The broker's end of a link, at ``queue`` or, if that is None, at the namespace.

    The methods for events do nothing unless a kind of node overrides them. ``moves_timers``: whether a message to the
    node may move a timer of the connection.
    """

    moves_timers = True

    def __init__(
        self, connection: ConnectionContext, link: SenderLink | ReceiverLink, queue: Queue | None
    ) -> None:
        self.used: ClockReading  # last activity on the link; set by the connection
        self.connection = connection
        self.link = link
        self.queue = queue

    def opened(self, now: ClockReading) -> None:
        """Called when the broker's half of the link is open."""

    def message_received(self, event: MessageReceived, now: ClockReading) -> None:
        """Called when a message has arrived."""

    def messages_received(self, events: Sequence[MessageReceived], now: ClockReading) -> int:
        """Process consecutive messages; returns how many, fewer if the rest must wait."""
        for event in events:
            self.message_received(event, now)
        return len(events)

    def credit_granted(self, event: CreditGranted, now: ClockReading) -> None:
        """Called when the client has changed its credit."""

    def disposition_received(self, event: DispositionReceived, now: ClockReading) -> None:
        """Called when the client has settled deliveries."""

    def updated(self, now: ClockReading) -> None:
        """Called when an update has changed the entity's description."""

    def unclogged(self, now: ClockReading) -> None:
        """Called when deliveries can continue: the client reads again, or a window has opened."""

    def deleted(self, path: str, condition: Condition) -> None:
        """End the link: the entity was deleted."""
        self.link.refuse(condition)
        self.stir()

    def stir(self) -> None:
        """Cause pending answers to be sent."""
        self.connection.frontend.stir(self.connection)

    def detached(self, now: ClockReading) -> None:
        """Called when either side has ended the link."""
