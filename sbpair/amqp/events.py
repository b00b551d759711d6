"""What should the owner of a connection know? Past tense, in the order it happened.

All are immutable. The two that come once a message are named tuples: a frozen dataclass costs
three times as much to make.
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
    """Server: a client wants in; the owner answers with `Connection.authenticate` (5.3.3.2)."""

    mechanism: str
    initial_response: bytes | None
    hostname: str | None

    def __repr__(self) -> str:  # the response is a secret
        return f"SaslInitReceived(mechanism={self.mechanism!r}, hostname={self.hostname!r})"


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """The peer's open is in (2.4.1)."""

    open: Open


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """It is over: closed by either side, end of stream, or a protocol error. Emitted once, and last.

    Sessions and links are not ended one by one: `Connection.sessions` still lists them.
    """

    condition: Condition | None


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """Both halves of the session are open (2.5.1)."""

    session: Session


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is over; `session.links` still lists what was attached."""

    session: Session
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer attached (2.6.3). Of its own accord: answer with `link.attach` or `link.refuse`.
    As the answer to ours: `link.is_refused` when its terminus is missing, and LinkDetached follows."""

    link: Link
    attach: Attach


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The link is over; `closed` False when the peer only suspended it (2.6.4)."""

    link: Link
    condition: Condition | None
    closed: bool


@dataclass(frozen=True, slots=True)
class CreditGranted:
    """The peer set what we may send (2.6.7); with `drain` it wants it used or given back now."""

    link: SenderLink
    credit: int
    drain: bool
    properties: AmqpMap | None


@dataclass(frozen=True, slots=True)
class CreditDrained:
    """The sender gave back the credit we asked it to drain."""

    link: ReceiverLink


class MessageReceived(NamedTuple):
    """All transfer frames of one delivery are in (2.6.14).

    It may have been on its way when the owner refused or detached the link: look at `link.is_open`.
    """

    link: ReceiverLink
    delivery_id: int
    tag: bytes
    payload: bytes
    settled: bool
    message_format: int
    state: DeliveryState | None


class DispositionReceived(NamedTuple):
    """The peer told the state of deliveries first … last of one link, all known to us (2.6.12)."""

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
