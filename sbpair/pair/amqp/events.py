"""The events of a connection, in the order they happened.

All are immutable. The two that occur once per message are named tuples, which take a third of the time of a frozen
dataclass to create.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .performatives import AmqpMap, Attach, Condition, DeliveryState, Open

if TYPE_CHECKING:
    from .link import Link, ReceiverLink, SenderLink
    from .session import Session


@dataclass(frozen=True, slots=True)
class SaslInitReceived:
    """Server: a client authenticates; answer with `Connection.authenticate` (5.3.3.2)."""

    mechanism: str
    initial_response: bytes | None
    hostname: str | None

    def __repr__(self) -> str:  # omits the response, which is a secret
        return f"SaslInitReceived(mechanism={self.mechanism!r}, hostname={self.hostname!r})"


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """The peer sent its open (2.4.1)."""

    open: Open


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The connection ended: closed by either side, end of stream, or a protocol error. Emitted once, and last.

    Sessions and links emit no events of their own then: `Connection.sessions` still lists them.
    """

    condition: Condition | None


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """Both halves of the session are open (2.5.1)."""

    session: Session


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session ended; `session.links` still lists its links."""

    session: Session
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer attached a link (2.6.3).

    When the peer initiated it, answer with `link.attach` or `link.refuse`. When it answers our attach without a
    terminus, `link.is_refused` is true and LinkDetached follows.
    """

    link: Link
    attach: Attach


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The link ended; ``closed`` is False when the peer only suspended it (2.6.4)."""

    link: Link
    condition: Condition | None
    closed: bool


@dataclass(frozen=True, slots=True)
class CreditGranted:
    """The peer set our link credit (2.6.7); with ``drain`` it must be used or given back now."""

    link: SenderLink
    credit: int
    drain: bool
    properties: AmqpMap | None


@dataclass(frozen=True, slots=True)
class CreditDrained:
    """The sender used or gave back the credit of a drain."""

    link: ReceiverLink


class MessageReceived(NamedTuple):
    """A delivery arrived in full (2.6.14).

    It may have been in flight when the application refused or detached the link: check `link.is_open`.
    """

    link: ReceiverLink
    delivery_id: int
    tag: bytes
    payload: bytes
    settled: bool
    message_format: int
    state: DeliveryState | None


class DispositionReceived(NamedTuple):
    """The peer set the state of deliveries ``first`` to ``last`` of one link, all known (2.6.12)."""

    link: SenderLink | ReceiverLink
    first: int
    last: int
    state: DeliveryState | None
    settled: bool


Event = (
    SaslInitReceived
    | ConnectionOpened
    | ConnectionClosed
    | SessionBegun
    | SessionEnded
    | LinkAttached
    | LinkDetached
    | CreditGranted
    | CreditDrained
    | MessageReceived
    | DispositionReceived
)
