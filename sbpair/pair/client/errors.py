"""The errors of the client.

ClientError
 ├── ConnectionLostError      the connection ended or failed; outcomes in flight are unknown
 │    └── OutOfReachError     none could be opened
 ├── LinkRefusedError         the peer refused, or detached, a link
 │    └── SessionUnavailableError   no session was free in time
 ├── TokenRefusedError        the peer refused the token for a path
 ├── RolledBackError          the peer refused a transaction; nothing of it was applied
 └── NamespaceUnusableError   the namespace cannot be used until its configuration changes
"""

from __future__ import annotations

from sbpair.pair.amqp.performatives import Condition, DeliveryState, Rejected
from sbpair.pair.ground.side import Side


class ClientError(Exception):
    """The base class; ``condition`` is the peer's AMQP condition, if it gave one."""

    def __init__(self, text: str, condition: Condition | None = None) -> None:
        super().__init__(text if condition is None else f"{text}: {condition_text(condition)}")
        self.condition = condition
        self.side: Side | None = None  # where the error came from, if that was noted


class ConnectionLostError(ClientError):
    """The connection ended, or could not be opened."""


class OutOfReachError(ConnectionLostError):
    """No connection could be opened: it was refused, timed out, or ended at once."""


class LinkRefusedError(ClientError):
    """The peer refused or detached a link."""


class SessionUnavailableError(LinkRefusedError):
    """No session was available in time, or another receiver holds the requested one.

    The condition is ``com.microsoft:timeout`` or ``com.microsoft:session-cannot-be-locked``.
    """


class TokenRefusedError(ClientError):
    """The peer refused the token for a path, or the credential gave none."""


class RolledBackError(ClientError):
    """The peer refused to begin or to commit a transaction: nothing of it was applied."""


class NamespaceUnusableError(ClientError):
    """The namespace cannot be used until a credential, a certificate or an address is corrected; do not retry."""


def condition_text(condition: Condition | None) -> str:
    """Return a condition as printable text: one line, at most 1000 characters."""
    if condition is None:
        return "the peer gave no reason"
    text = f"{condition.symbol}: {condition.description}" if condition.description else str(condition.symbol)
    return "".join(c if c.isprintable() else " " for c in text)[:1000]


def outcome_text(outcome: DeliveryState) -> str:
    """Return why a peer did not accept a delivery: its condition, or the name of the outcome."""
    return condition_text(outcome.error) if isinstance(outcome, Rejected) else type(outcome).__name__.lower()
