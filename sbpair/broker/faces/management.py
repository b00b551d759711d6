"""$management of an entity: peeking, renewing and settling locks from anywhere, receiving what was deferred.

An operation the broker does not have is refused with ``amqp:not-implemented`` and its name. Lock tokens in
bodies are plain uuids; in delivery tags the same 16 bytes stand in .NET order.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...amqp.message import Message, ValueBody
from ...amqp.types import Array, Symbol, Timestamp
from ..auth import Right
from ..entities.queue import DESCRIPTION, REASON, Queue
from ..entities.stored_message import LockToken
from ..errors import BrokerError, InvalidArgument, NotImplementedHere, OutOfRange
from .message_form import delivered, peeked
from .moment import Moment
from .request_node import Answer, status
from .wording import tracked

if TYPE_CHECKING:
    from .client_connection import ClientConnection

_NAMES = ("statusCode", "statusDescription")
_VENDOR = "com.microsoft:"
_TIMESTAMP = 0x83
MOST_PEEKED = 256
MOST_PEEKED_BYTES = 1_000_000  # a response is one message: the rest is for the next peek
MOST_TOKENS = 10_000

Body = dict[object, object]


def manage(connection: ClientConnection, queue: Queue | None, request: Message, moment: Moment) -> Answer:
    """Answer one request on the $management node of ``queue``."""
    assert queue is not None  # noqa: S101 - only $cbs is a node without an entity
    face = connection.face
    face.namespace.management_requested()
    try:
        connection.claims.require(queue.path, (Right.LISTEN,), moment.wall)
        return _operation(request)(queue, _body(request), moment.entity)
    except BrokerError as error:
        words = tracked(str(error), face.tracker(queue.path), moment.entity)
        properties = status(error.status, words, names=_NAMES)
        return Answer({**properties, "errorCondition": Symbol(error.condition)}, {})


Operation = Callable[[Queue, Body, int], Answer]


def _operation(request: Message) -> Operation:
    name = request.application_properties.get("operation")
    if not isinstance(name, str):
        raise InvalidArgument("The request has no property operation.")
    operation = _OPERATIONS.get(name.removeprefix(_VENDOR)) if name.startswith(_VENDOR) else None
    if operation is None:
        raise NotImplementedHere(f"The management operation {name!r:.100} is not implemented by this broker.")
    return operation


def _body(request: Message) -> Body:
    body = request.body.value if isinstance(request.body, ValueBody) else None
    if not isinstance(body, dict):
        raise InvalidArgument("The request's body is not a map.")
    return body


def _peek(queue: Queue, body: Body, now: int) -> Answer:
    start, most = _whole(body, "from-sequence-number"), _whole(body, "message-count")
    if most < 1:
        raise OutOfRange(f"message-count is {most}: at least 1 is needed.")
    messages: list[object] = []
    size = 0
    for message in queue.peek(start, min(most, MOST_PEEKED), now):
        encoded = peeked(message)
        size += len(encoded)
        if messages and size > MOST_PEEKED_BYTES:
            break
        messages.append({"message": encoded})
    if not messages:
        return Answer(status(204, "NoContent", names=_NAMES), {})
    return _ok({"messages": messages})


def _renew_lock(queue: Queue, body: Body, now: int) -> Answer:
    until = tuple(Timestamp(queue.renew(token, now)) for token in _lock_tokens(body))
    return _ok({"expirations": Array(_TIMESTAMP, until)})


def _update_disposition(queue: Queue, body: Body, now: int) -> Answer:
    disposition = body.get("disposition-status")
    settle = _DISPOSITIONS.get(disposition) if isinstance(disposition, str) else None
    if settle is None:
        raise InvalidArgument(
            f"disposition-status is {disposition!r:.60}: one of {', '.join(_DISPOSITIONS)}."
        )
    for token in _lock_tokens(body):
        settle(queue, token, body, now)
    return _ok({})


def _receive_by_sequence_number(queue: Queue, body: Body, now: int) -> Answer:
    deletes = body.get("receiver-settle-mode") == 0
    messages: list[object] = []
    for number in _items(body, "sequence-numbers"):
        if type(number) is not int:
            raise InvalidArgument("sequence-numbers is not an array of longs.")
        message = queue.receive_deferred(number, now, delete=deletes)
        entry: dict[object, object] = {"message": delivered(message, queue)}
        if message.lock_token is not None:
            entry["lock-token"] = uuid.UUID(bytes_le=message.lock_token)
        messages.append(entry)
    return _ok({"messages": messages})


_OPERATIONS: dict[str, Operation] = {
    "peek-message": _peek,
    "renew-lock": _renew_lock,
    "update-disposition": _update_disposition,
    "receive-by-sequence-number": _receive_by_sequence_number,
}


def _suspend(queue: Queue, token: LockToken, body: Body, now: int) -> None:
    given = {REASON: body.get("deadletter-reason"), DESCRIPTION: body.get("deadletter-description")}
    reasons = {key: value for key, value in given.items() if isinstance(value, str)}
    queue.dead_letter(token, now, {**_changes(body), **reasons})


# the keys are the wire's spelling, "defered" too
_DISPOSITIONS: dict[str, Callable[[Queue, LockToken, Body, int], None]] = {
    "completed": lambda queue, token, body, now: queue.complete(token, now),
    "abandoned": lambda queue, token, body, now: queue.abandon(token, now, _changes(body)),
    "defered": lambda queue, token, body, now: queue.defer(token, now, _changes(body)),
    "suspended": _suspend,
}


def _changes(body: Body) -> dict[str, object]:
    changes = body.get("properties-to-modify")
    if not isinstance(changes, dict):
        return {}
    return {key: value for key, value in changes.items() if isinstance(key, str)}


def _ok(body: Body) -> Answer:
    return Answer(status(200, "OK", names=_NAMES), body)


def _whole(body: Body, name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} is {value!r:.60}: a whole number is needed.")
    return int(value)


def _items(body: Body, name: str) -> tuple[object, ...]:
    value = body.get(name)
    items = value.items if isinstance(value, Array) else tuple(value) if isinstance(value, list) else None
    if items is None:
        raise InvalidArgument(f"{name} is not an array.")
    if not 0 < len(items) <= MOST_TOKENS:
        raise OutOfRange(f"{name} has {len(items)} items: 1 to {MOST_TOKENS} are allowed.")
    return items


def _lock_tokens(body: Body) -> list[LockToken]:
    tokens = _items(body, "lock-tokens")
    if not all(isinstance(token, uuid.UUID) for token in tokens):
        raise InvalidArgument("lock-tokens is not an array of uuids.")
    return [LockToken(token.bytes_le) for token in tokens if isinstance(token, uuid.UUID)]
