"""What does the end of a link need of the connection that it belongs to?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from ....amqp.performatives import DeliveryState
from ...entities.transaction import Transaction
from ...errors import BrokerError
from ..moment import Moment
from ..namespace_face import NamespaceFace
from .claims import Claims


class LinkHost(Hashable, Protocol):
    """A client's connection, as its links see it."""

    @property
    def face(self) -> NamespaceFace:
        """The namespace that is meant."""

    @property
    def claims(self) -> Claims:
        """What the client may."""

    @property
    def is_clogged(self) -> bool:
        """The client does not take what was sent: hand it nothing more until it does."""

    def nodes(self) -> Iterable[object]:
        """The ends of all its links."""

    def close(self, symbol: str, text: str, moment: Moment) -> None:
        """Close from our side, with a reason."""

    def later(self, seconds: float, act: Callable[[], None], moment: Moment) -> None:
        """Do something so many seconds from now, if the connection lives so long."""

    def refused(self, state: DeliveryState | None, error: BrokerError) -> None:
        """Something was refused: if ``state`` makes it part of a transaction, that is doomed."""

    def transaction(self, txn_id: bytes) -> Transaction:
        """The open transaction of that id, declared on this connection. Raises UnknownTransaction."""
