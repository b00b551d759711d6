"""The REST API for sending and receiving.

    POST    /{entity}/messages                 send: 201; with Content-Type BATCH_TYPE a batch, all or none
    POST    /{entity}/messages/head            receive and lock: 201, with the URL of the lock in Location
    DELETE  /{entity}/messages/head            receive and delete: 200
    PUT     /{entity}/messages/{id}/{lock}     unlock: 200
    POST    /{entity}/messages/{id}/{lock}     renew the lock: 200
    DELETE  /{entity}/messages/{id}/{lock}     complete: 200

The entity is a queue or a topic to send to; a queue, ``topic/Subscriptions/name`` or the
``$DeadLetterQueue`` of either to receive from. ``{id}`` is the message's id or sequence number. Both ways of
receiving wait ``?timeout=`` seconds, 60 by default, and answer 204 when no message arrives. The statuses are
those that Microsoft documents for each call: 410 for a missing entity, 404 for a missing message or lock, 403
for a message that is too large or exceeds the quota. Sessions cannot be received over HTTP.

Pure: a call that waits is returned to the server as a :class:`RestReceiver`. Call ``refusal`` first, before
the body is read.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qsl, unquote

from ...auth import Right
from ...clock import ClockReading
from ...entities.allowed_use import check_enabled, check_received_from, check_sent_to
from ...entities.queue import Queue
from ...entities.stored_message import LockToken
from ...errors import (
    BrokerError,
    EntityNotFoundError,
    HeaderTooLargeError,
    InvalidArgumentError,
    LockLostError,
    MessageTooLargeError,
    PropertyTooLargeError,
    SessionLostError,
)
from ...faults import Effect, LateVisibility, Operation
from ..address import parse_address
from ..admin.http_messages import Request, Response, failed, refuse_without
from ..namespace_frontend import NamespaceFrontend
from ..received_message import BATCH, messages_of
from .faults import UNTOUCHED, FaultedResponse, faulted_response
from .message import BATCH_TYPE, read_batch, read_message
from .receiver import RestReceiver, answer_headers

DEFAULT_TIMEOUT, MAX_TIMEOUT = 60.0, 3600.0  # seconds
_GUID = re.compile(r"\{?[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}\}?")
_STATUSES: dict[type[BrokerError], int] = {
    EntityNotFoundError: 410,
    LockLostError: 404,
    SessionLostError: 404,
    MessageTooLargeError: 403,
    HeaderTooLargeError: 403,
    PropertyTooLargeError: 403,
}


class RestOperation(Enum):
    """The operations of the API."""

    SEND = "send"
    LOCK = "lock"
    TAKE = "take"
    UNLOCK = "unlock"
    RENEW = "renew"
    COMPLETE = "complete"


_COLLECTION = {"POST": RestOperation.SEND}
_HEAD = {"POST": RestOperation.LOCK, "DELETE": RestOperation.TAKE}
_LOCKED = {"PUT": RestOperation.UNLOCK, "POST": RestOperation.RENEW, "DELETE": RestOperation.COMPLETE}


@dataclass(frozen=True, slots=True)
class RestCall:
    """One call on the entity at ``path``, for the message named by ``reference`` and ``lock``."""

    request: Request
    verb: RestOperation
    path: str
    reference: str = ""
    lock: str = ""

    def with_body(self, body: bytes) -> RestCall:
        """Return the same call with its body."""
        return RestCall(self.request.with_body(body), self.verb, self.path, self.reference, self.lock)

    @property
    def right(self) -> Right:
        """The right that the caller's token must grant."""
        return Right.SEND if self.verb is RestOperation.SEND else Right.LISTEN

    def timeout(self) -> float:
        """Return how long the caller waits, in seconds. Raises InvalidArgumentError outside 0 to 3600."""
        try:
            text = dict(parse_qsl(self.request.query, max_num_fields=32)).get("timeout", str(DEFAULT_TIMEOUT))
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= MAX_TIMEOUT:
            raise InvalidArgumentError(f"timeout is not a number of seconds from 0 to {MAX_TIMEOUT:g}.")
        return seconds


def call_of(request: Request) -> RestCall | None:
    """Return the call that a request makes; None for a request to the administration API."""
    raw = [segment for segment in request.raw_path.split("/") if segment]
    match [segment.lower() for segment in raw]:
        case [_, *_, "messages"]:
            verb, rest = _COLLECTION.get(request.method), 1
        case [_, *_, "messages", "head"]:
            verb, rest = _HEAD.get(request.method), 2
        case [_, *_, "messages", _, lock] if _GUID.fullmatch(unquote(lock)):
            verb, rest = _LOCKED.get(request.method), 3
        case _:
            return None
    if verb is None:
        return None
    reference, lock = (raw[-2], raw[-1]) if rest == 3 else ("", "")
    return RestCall(request, verb, "/".join(map(unquote, raw[:-rest])), unquote(reference), unquote(lock))


def refusal(call: RestCall, frontend: NamespaceFrontend, now_s: int) -> Response | None:
    """Return a 401 response unless the caller has the required right, Send or Listen, on the entity, else None.

    ``now_s``: seconds since the epoch.
    """
    return refuse_without(call.request, frontend.verifier, call.right, now_s)


def answer(
    frontend: NamespaceFrontend, call: RestCall, now: ClockReading, front_end: Hashable
) -> FaultedResponse | RestReceiver:
    """Return the outcome of the call, or the receiver that waits for a message.

    ``front_end``: the connection, which may have a cache of its own.
    """
    try:
        queue = frontend.namespace.queue(parse_address(call.path).path)
        if call.verb in (RestOperation.LOCK, RestOperation.TAKE):
            check_received_from(queue)
            deletes, span = call.verb is RestOperation.TAKE, call.timeout()
            return RestReceiver(
                frontend,
                queue,
                call.request,
                span,
                front_end,
                deletes=deletes,
                refuse=lambda e, m: refuse(call, e, m),
            )
        operation = Operation.SEND if call.verb is RestOperation.SEND else Operation.SETTLE
        effect = frontend.apply_fault(operation, queue.path, now)
        fate = faulted_response(effect, call.request, now)
        if fate.happens:
            _do(frontend, call, queue, now, effect)
            status = 201 if call.verb is RestOperation.SEND else 200
            return fate.of(Response(status, answer_headers(call.request, queue)))
        return fate
    except BrokerError as error:
        return UNTOUCHED.of(refuse(call, error, now))


def refuse(call: RestCall, error: BrokerError, now: ClockReading) -> Response:
    """Return the response that reports ``error``, with the status this API documents for it."""
    status = next((_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES), None)
    return failed(error, call.request, now.entity, status)


def _do(
    frontend: NamespaceFrontend, call: RestCall, queue: Queue, now: ClockReading, effect: Effect | None
) -> None:
    if call.verb is RestOperation.SEND:
        _send(frontend, call, queue, now, effect)
        return
    token = _token(call, queue, now)
    if call.verb is RestOperation.COMPLETE:
        queue.complete(token, now.entity)
    elif call.verb is RestOperation.UNLOCK:
        queue.abandon(token, now.entity)
    else:
        queue.renew(token, now.entity)


def _send(
    frontend: NamespaceFrontend, call: RestCall, queue: Queue, now: ClockReading, effect: Effect | None
) -> None:
    now_ms, request = now.entity, call.request
    check_sent_to(queue)
    check_enabled(queue, "SendDisabled")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_batch = kind == BATCH_TYPE
    payload = read_batch(request.body, now_ms) if is_batch else read_message(request, now_ms)
    visible_at = now_ms + round(effect.seconds * 1000) if isinstance(effect, LateVisibility) else None
    queue.enqueue_all(
        messages_of(frontend, queue, payload, BATCH if is_batch else 0, now_ms, visible_at), now_ms
    )


def _token(call: RestCall, queue: Queue, now: ClockReading) -> LockToken:
    """Return the lock token in the call, if it locks the message in the call. Raises LockLostError."""
    token = LockToken(uuid.UUID(call.lock).bytes_le)
    message = queue.locked_message(token, now.entity)
    if call.reference not in (message.message_id, str(message.sequence_number)):
        raise LockLostError
    return token
