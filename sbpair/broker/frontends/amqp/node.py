"""Nodes: the broker's end of each link, and the part of the connection they use.

The connection passes each event of a link to its node, with the current clock readings; the node answers
through the link. There is one node for each link.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

from ....amqp.events import CreditGranted, DispositionReceived, MessageReceived
from ....amqp.link import ReceiverLink, SenderLink
from ....amqp.performatives import Condition
from ...clock import ClockReading
from ...entities.entity import Entity
from ..namespace_frontend import NamespaceFrontend
from .claims import Claims

if TYPE_CHECKING:
    from .links import Links


class ConnectionContext(Hashable, Protocol):
    """A client's connection as its nodes see it."""

    @property
    def frontend(self) -> NamespaceFrontend:
        """The namespace the client is connected to."""

    @property
    def claims(self) -> Claims:
        """The rights the client has proved."""

    @property
    def container(self) -> str:
        """The client's container id; "" before its ``open``."""

    timers_moved: bool

    @property
    def is_clogged(self) -> bool:
        """Whether the client fails to read what was sent: deliver nothing more until it does."""

    @property
    def links(self) -> Links:
        """The links of the connection."""

    def close(self, symbol: str, text: str, now: ClockReading) -> None:
        """Close from the broker's side, with a reason."""

    def later(self, seconds: float, act: Callable[[], None], now: ClockReading) -> None:
        """Call ``act`` after ``seconds`` if the connection still exists."""


class Node:
    """One end of a link, at ``queue`` or at the namespace (None).

    Events a kind of node does not use are ignored. ``moves_timers``: whether a message to it may move a timer of the
    connection.
    """

    moves_timers = True

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
