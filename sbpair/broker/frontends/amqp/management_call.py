"""One request to a $management node: access to its fields and to the entity it is for."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sbpair.pair.amqp.message import Message, ValueBody
from sbpair.pair.amqp.types import Array

from ...entities.queue import Queue
from ...entities.quotas import MESSAGE_COST
from ...entities.sessions import SessionLock
from ...entities.stored_message import LockToken, StoredMessage
from ...entities.transaction import Settlement, SettlementVerb, Transaction
from ...errors import InvalidArgumentError, OutOfRangeError
from .node import ConnectionContext
from .request_response import NodeResponse, status

NAMES = ("statusCode", "statusDescription")
SERVER_TIMEOUT = "com.microsoft:server-timeout"
MAX_ITEMS = 10_000
_INT_MAX = 2**31 - 1

Body = dict[object, object]


@dataclass(frozen=True, slots=True)
class ManagementCall:
    """One request: its ``body``, the ``queue``, the connection, ``now`` in milliseconds, and its transaction.

    The accessors of fields raise InvalidArgumentError for a missing value or another type, OutOfRangeError for a value
    out of range; both errors name the field.
    """

    connection: ConnectionContext
    queue: Queue
    body: Body
    now: int
    transaction: Transaction | None = None

    def charge(self, messages: int) -> None:
        """Charge credits for ``messages`` messages beyond the one paid for by the request."""
        self.connection.frontend.namespace.credits.charge(max(0, messages) * MESSAGE_COST, self.now)

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number."""
        value = self.body.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgumentError(f"{name} is {value!r:.60}: use a whole number.")
        return int(value)

    def count(self, name: str, least: int, default: int | None = None) -> int:
        """Return a whole number from ``least`` to 2^31-1."""
        value = self.whole(name, default)
        if not least <= value <= _INT_MAX:
            raise OutOfRangeError(f"{name} is {value}: use {least} to {_INT_MAX}.")
        return value

    def items(self, name: str) -> tuple[object, ...]:
        """Return the items of an array or a list."""
        value = self.body.get(name)
        items = value.items if isinstance(value, Array) else tuple(value) if isinstance(value, list) else None
        if items is None:
            raise InvalidArgumentError(f"{name} is not an array.")
        if not 0 < len(items) <= MAX_ITEMS:
            raise OutOfRangeError(f"{name} has {len(items)} items: 1 to {MAX_ITEMS} are allowed.")
        return items

    def sequence_numbers(self) -> list[int]:
        """Return the requested sequence numbers."""
        numbers = self.items("sequence-numbers")
        if not all(type(number) is int for number in numbers):
            raise InvalidArgumentError("sequence-numbers is not an array of longs.")
        return [number for number in numbers if isinstance(number, int)]

    def lock_tokens(self) -> list[LockToken]:
        """Return the lock tokens. Here they are plain UUIDs; in delivery tags they have .NET's byte order."""
        tokens = self.items("lock-tokens")
        if not all(isinstance(token, uuid.UUID) for token in tokens):
            raise InvalidArgumentError("lock-tokens is not an array of uuids.")
        return [LockToken(token.bytes_le) for token in tokens if isinstance(token, uuid.UUID)]

    def settle(self, token: LockToken, verb: SettlementVerb, properties: dict[str, object]) -> None:
        """Settle the message locked under ``token``, now or at the commit.

        Raises LockLostError, SessionLostError, NotAllowedError and, in a transaction, TransactionRolledBackError.
        """
        settlement = Settlement(self.queue, token, verb, properties)
        if self.transaction is None:
            settlement.apply(self.now)
        else:
            self.transaction.settle(settlement, self.now)

    def send(self, messages: list[StoredMessage]) -> list[int]:
        """Enqueue all messages, now or at the commit, and return their sequence numbers.

        Raises as :meth:`Queue.enqueue_all` and, in a transaction, :meth:`Transaction.send`.
        """
        if self.transaction is None:
            return self.queue.enqueue_all(messages, self.now)
        self.transaction.send(self.queue, messages, self.now)
        return [self.queue.reserve(message) for message in messages]

    def renew(self, token: LockToken) -> int:
        """Renew the lock and return its new expiry, in milliseconds. Raises LockLostError, NotAllowedError."""
        if self.transaction is None:
            return self.queue.renew(token, self.now)
        return self.transaction.renew(self.queue, token, self.now)

    def session_id(self) -> str | None:
        """Return the session id, or None."""
        value = self.body.get("session-id")
        if value is not None and not isinstance(value, str):
            raise InvalidArgumentError(f"session-id is {value!r:.60}: use a string.")
        return value

    def session_lock(self) -> SessionLock | None:
        """Return the lock of the named session, None when no session is named.

        Raises SessionLostError when this connection does not hold it.
        """
        session_id = self.session_id()
        if session_id is None or self.queue.sessions is None:
            return None
        lock = self.connection.frontend.session_lock(self.connection, self.queue, session_id)
        self.queue.sessions.check(lock, self.now)
        return lock


def body_of(request: Message) -> Body:
    """Return the request's body. Raises InvalidArgumentError for an invalid body or server timeout.

    A valid timeout needs no attention, because every operation is answered at once.
    """
    body = request.body.value if isinstance(request.body, ValueBody) else None
    if not isinstance(body, dict):
        raise InvalidArgumentError("The request's body is not a map.")
    span = request.application_properties.get(SERVER_TIMEOUT, 0)
    if not isinstance(span, int) or isinstance(span, bool) or span < 0:
        raise InvalidArgumentError(f"{SERVER_TIMEOUT} is {span!r:.60}: use whole milliseconds.")
    return body


def ok(body: Body) -> NodeResponse:
    """Return the answer of a successful request, with its result."""
    return NodeResponse(status(200, "OK", names=NAMES), body)


def nothing() -> NodeResponse:
    """Return the answer of a successful request that found nothing."""
    return NodeResponse(status(204, "NoContent", names=NAMES), {})
