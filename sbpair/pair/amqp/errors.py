"""Exceptions, and the error conditions of AMQP and Service Bus.

    AmqpError
    ├── EncodeError             a value does not fit its AMQP type
    ├── DecodeError             malformed bytes (1.6, 2.3)
    ├── LocalProtocolError      the application broke a rule (a transfer without credit)
    └── PeerError               the peer broke a rule; internal
        ├── PeerConnectionError     answered with close
        ├── PeerSessionError        answered with end
        └── PeerLinkError           answered with detach

A PeerError is answered on the wire and becomes an event. Callers see EncodeError, LocalProtocolError and, from the
codec, DecodeError.
"""

from __future__ import annotations

from typing import Final

# 2.8.15, amqp-error
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"
# 2.8.16, connection-error
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
CONNECTION_REDIRECT: Final = "amqp:connection:redirect"
# 2.8.17, session-error
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
ERRANT_LINK: Final = "amqp:session:errant-link"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
# 2.8.18, link-error
DETACH_FORCED: Final = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
LINK_REDIRECT: Final = "amqp:link:redirect"
STOLEN: Final = "amqp:link:stolen"
# 4.5.9, transaction-error
TRANSACTION_UNKNOWN_ID: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT: Final = "amqp:transaction:timeout"
# Service Bus
SERVER_BUSY: Final = "com.microsoft:server-busy"
TIMEOUT: Final = "com.microsoft:timeout"
ENTITY_DISABLED: Final = "com.microsoft:entity-disabled"
AUTH_FAILED: Final = "com.microsoft:auth-failed"
MESSAGE_LOCK_LOST: Final = "com.microsoft:message-lock-lost"
SESSION_LOCK_LOST: Final = "com.microsoft:session-lock-lost"
SESSION_CANNOT_BE_LOCKED: Final = "com.microsoft:session-cannot-be-locked"
DEAD_LETTER: Final = "com.microsoft:dead-letter"
ENTITY_ALREADY_EXISTS: Final = "com.microsoft:entity-already-exists"
ARGUMENT_ERROR: Final = "com.microsoft:argument-error"
ARGUMENT_OUT_OF_RANGE: Final = "com.microsoft:argument-out-of-range"
MESSAGE_NOT_FOUND: Final = "com.microsoft:message-not-found"
PARTITION_NOT_AVAILABLE: Final = "com.microsoft:partition-not-available"


class AmqpError(Exception):
    """The base of everything this package raises."""


class EncodeError(AmqpError, ValueError):
    """A value does not fit its AMQP type."""


class DecodeError(AmqpError, ValueError):
    """The bytes are not valid AMQP, or exceed the limits of the decoder."""


class LocalProtocolError(AmqpError):
    """The state of the endpoint does not allow the call."""


class PeerError(AmqpError):
    """The peer broke a rule, named by the condition; never reaches the application."""

    def __init__(self, symbol: str, description: str) -> None:
        super().__init__(f"{symbol}: {description}")
        self.symbol = symbol
        self.description = description


class PeerConnectionError(PeerError):
    """A fault that ends the connection (2.4)."""


class PeerSessionError(PeerError):
    """A fault that ends the session it came in on (2.5)."""


class PeerLinkError(PeerError):
    """A fault that detaches the link it came in on (2.6)."""
