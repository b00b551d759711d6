"""What does a request on a $management node ask, and of which queue? One reading for every operation."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from ....amqp.message import Message, ValueBody
from ....amqp.types import Array
from ...entities.credits import OF_A_MESSAGE
from ...entities.entity import Entity
from ...entities.message_session import SessionLock
from ...entities.settlement import Settlement, Verb
from ...entities.stored_message import LockToken, StoredMessage
from ...entities.transaction import Transaction
from ...errors import InvalidArgument, OutOfRange
from .host import LinkHost
from .request_node import Answer, status

NAMES = ("statusCode", "statusDescription")
SERVER_TIMEOUT = "com.microsoft:server-timeout"
MOST_ITEMS = 10_000
_INT_MAX = 2**31 - 1

Body = dict[object, object]


@dataclass(frozen=True, slots=True)
class ManagementCall:
    """One request: its ``body``, the ``queue`` asked, by which connection, ``now`` in milliseconds, and
    the transaction it is part of.

    The readers raise InvalidArgument or OutOfRange, and name the field.
    """

    connection: LinkHost
    queue: Entity
    body: Body
    now: int
    transaction: Transaction | None = None

    def charge(self, messages: int) -> None:
        """Take the credits of so many messages beside the first, which asking has paid (3.9)."""
        self.connection.face.namespace.credits.charge(max(0, messages) * OF_A_MESSAGE, self.now)

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self.body.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgument(f"{name} is {value!r:.60}: a whole number is needed.")
        return int(value)

    def count(self, name: str, least: int, default: int | None = None) -> int:
        """A whole number that counts something."""
        value = self.whole(name, default)
        if not least <= value <= _INT_MAX:
            raise OutOfRange(f"{name} is {value}: at least {least} is needed.")
        return value

    def items(self, name: str) -> tuple[object, ...]:
        """The items of an array or a list."""
        value = self.body.get(name)
        items = value.items if isinstance(value, Array) else tuple(value) if isinstance(value, list) else None
        if items is None:
            raise InvalidArgument(f"{name} is not an array.")
        if not 0 < len(items) <= MOST_ITEMS:
            raise OutOfRange(f"{name} has {len(items)} items: 1 to {MOST_ITEMS} are allowed.")
        return items

    def sequence_numbers(self) -> list[int]:
        """The sequence numbers asked for."""
        numbers = self.items("sequence-numbers")
        if not all(type(number) is int for number in numbers):
            raise InvalidArgument("sequence-numbers is not an array of longs.")
        return [number for number in numbers if isinstance(number, int)]

    def lock_tokens(self) -> list[LockToken]:
        """The lock tokens: plain uuids here, in .NET order in delivery tags."""
        tokens = self.items("lock-tokens")
        if not all(isinstance(token, uuid.UUID) for token in tokens):
            raise InvalidArgument("lock-tokens is not an array of uuids.")
        return [LockToken(token.bytes_le) for token in tokens if isinstance(token, uuid.UUID)]

    def settle(self, token: LockToken, verb: Verb, properties: dict[str, object]) -> None:
        """Settle what is held under ``token``, now or at the commit. Raises LockLost and others."""
        settlement = Settlement(self.queue, token, verb, properties)
        if self.transaction is None:
            settlement.apply(self.now)
        else:
            self.transaction.settle(settlement, self.now)

    def send(self, messages: list[StoredMessage]) -> list[int]:
        """Enqueue all of the messages, now or at the commit; their numbers. Raises as the queue does."""
        if self.transaction is None:
            return self.queue.enqueue_all(messages, self.now)
        self.transaction.send(self.queue, messages, self.now)
        return [self.queue.reserve(message) for message in messages]

    def renew(self, token: LockToken) -> int:
        """Renew the lock; until when it holds. Raises LockLost, NotAllowed."""
        if self.transaction is None:
            return self.queue.renew(token, self.now)
        return self.transaction.renew(self.queue, token, self.now)

    def session_id(self) -> str | None:
        """The session id, if the request has one."""
        value = self.body.get("session-id")
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"session-id is {value!r:.60}: a text is needed.")
        return value

    def session_lock(self) -> SessionLock | None:
        """This connection's hold on the session named, if one is; raises SessionLockLost when it has none."""
        session_id = self.session_id()
        if session_id is None or self.queue.sessions is None:
            return None
        lock = self.connection.face.session_lock(self.connection, self.queue, session_id)
        self.queue.sessions.check(lock, self.now)
        return lock


def body_of(request: Message) -> Body:
    """The request's body. Raises InvalidArgument, for a time-out of the server that is none too.

    Every operation is answered at once, so whatever time the client gives is kept to (3.10).
    """
    body = request.body.value if isinstance(request.body, ValueBody) else None
    if not isinstance(body, dict):
        raise InvalidArgument("The request's body is not a map.")
    span = request.application_properties.get(SERVER_TIMEOUT, 0)
    if not isinstance(span, int) or isinstance(span, bool) or span < 0:
        raise InvalidArgument(f"{SERVER_TIMEOUT} is {span!r:.60}: whole milliseconds are needed.")
    return body


def ok(body: Body) -> Answer:
    """It was done, and this came of it."""
    return Answer(status(200, "OK", names=NAMES), body)


def nothing() -> Answer:
    """It was looked for, and there is none."""
    return Answer(status(204, "NoContent", names=NAMES), {})
