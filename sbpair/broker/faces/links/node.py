"""What stands at the broker's end of a link?

A node is told what its link heard, with the moment, and answers through the link. The connection that
owns the link does the telling; there is one node a link.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....amqp.events import CreditGranted, DispositionReceived, MessageReceived
from ....amqp.link import ReceiverLink, SenderLink
from ....amqp.performatives import Condition
from ...entities.entity import Entity
from ..moment import Moment
from .host import LinkHost


class Node:
    """One link's end, at ``queue`` or at the namespace (None); what a kind of link never hears is ignored."""

    def __init__(self, connection: LinkHost, link: SenderLink | ReceiverLink, queue: Entity | None) -> None:
        self.used: Moment  # when anything last went over the link; its connection sets it
        self.connection = connection
        self.link = link
        self.queue = queue

    def opened(self, moment: Moment) -> None:
        """Our half of the link is open."""

    def message_received(self, event: MessageReceived, moment: Moment) -> None:
        """A message came in on a link we receive from."""

    def messages_received(self, events: Sequence[MessageReceived], moment: Moment) -> None:
        """Messages came in, one behind the other."""
        for event in events:
            self.message_received(event, moment)

    def credit_granted(self, event: CreditGranted, moment: Moment) -> None:
        """The peer said how much we may send."""

    def disposition_received(self, event: DispositionReceived, moment: Moment) -> None:
        """The peer said what became of deliveries."""

    def deleted(self, path: str, condition: Condition) -> None:
        """The entity is gone: so is the link."""
        self.link.refuse(condition)
        self.stir()

    def stir(self) -> None:
        """Have the connection say what there is to say."""
        self.connection.face.stir(self.connection)

    def detached(self, moment: Moment) -> None:
        """The link is over, whoever ended it."""
