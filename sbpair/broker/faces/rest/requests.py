"""What does a namespace answer to who sends and receives over HTTP?

    POST    /{entity}/messages                 send: 201; with Content-Type BATCH_TYPE a batch, all or none
    POST    /{entity}/messages/head            receive under a lock: 201, and Location is its address
    DELETE  /{entity}/messages/head            receive and delete: 200
    PUT     /{entity}/messages/{id}/{lock}     unlock: 200
    POST    /{entity}/messages/{id}/{lock}     renew the lock: 200
    DELETE  /{entity}/messages/{id}/{lock}     complete: 200

An entity is a queue or a topic to send to; a queue, ``topic/Subscriptions/name`` or either's
``$DeadLetterQueue`` to receive from. ``{id}`` is the message's id or sequence number. Both ways of receiving
wait ``?timeout=`` seconds, 60 unless it says, and answer 204 when nothing comes. Statuses are those that
Microsoft documents for each call: 410 for an entity that is not there, 404 for a message or a lock, 403 for
what is too large or finds no room. Sessions cannot be received over HTTP.

Pure: what waits is handed to the server as a :class:`RestReceiver`. ``refusal`` is asked first, before the
body is read.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qsl, unquote

from ...auth import Right
from ...entities.entity import Entity
from ...entities.stored_message import LockToken
from ...errors import (
    BrokerError,
    EntityNotFound,
    HeaderTooLarge,
    InvalidArgument,
    LockLost,
    MessageTooLarge,
    SessionLockLost,
)
from ...faults import Effect, LateVisibility, Operation
from ..address import parse_address
from ..administration.http_messages import Request, Response, failed, refused
from ..intake import check_enabled, check_received_from, check_sent_to, messages_of
from ..message_form import BATCH
from ..moment import Moment
from ..namespace_face import NamespaceFace
from .faults import UNTOUCHED, Fate, fate_of
from .message import BATCH_TYPE, message_reference, read_batch, read_message
from .receiver import RestReceiver

DEFAULT_TIMEOUT, LONGEST_TIMEOUT = 60.0, 3600.0  # seconds
_GUID = re.compile(r"\{?[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}\}?")
_STATUSES: dict[type[BrokerError], int] = {
    EntityNotFound: 410,
    LockLost: 404,
    SessionLockLost: 404,
    MessageTooLarge: 403,
    HeaderTooLarge: 403,
}


class Verb(Enum):
    """What is asked for."""

    SEND = "send"
    LOCK = "lock"
    TAKE = "take"
    UNLOCK = "unlock"
    RENEW = "renew"
    COMPLETE = "complete"


_COLLECTION = {"POST": Verb.SEND}
_HEAD = {"POST": Verb.LOCK, "DELETE": Verb.TAKE}
_LOCKED = {"PUT": Verb.UNLOCK, "POST": Verb.RENEW, "DELETE": Verb.COMPLETE}


@dataclass(frozen=True, slots=True)
class RestCall:
    """One call: on the entity at ``path``, for the message that ``reference`` and ``lock`` name."""

    request: Request
    verb: Verb
    path: str
    reference: str = ""
    lock: str = ""

    def with_body(self, body: bytes) -> RestCall:
        """The same call once its body has been read."""
        return RestCall(self.request.with_body(body), self.verb, self.path, self.reference, self.lock)

    @property
    def right(self) -> Right:
        """What the caller's token must grant."""
        return Right.SEND if self.verb is Verb.SEND else Right.LISTEN

    def timeout(self) -> float:
        """For how many seconds the caller waits. Raises InvalidArgument."""
        try:
            text = dict(parse_qsl(self.request.query, max_num_fields=32)).get("timeout", str(DEFAULT_TIMEOUT))
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= LONGEST_TIMEOUT:
            raise InvalidArgument(f"timeout is not a number of seconds from 0 to {LONGEST_TIMEOUT:g}.")
        return seconds


def call_of(request: Request) -> RestCall | None:
    """The call that a request is; None for one that is the administration's."""
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


def refusal(call: RestCall, face: NamespaceFace, now_s: int) -> Response | None:
    """The 401 for a caller without Send, or Listen, on what is asked for. ``now_s``: epoch seconds."""
    return refused(call.request, face.verifier, call.right, now_s)


def answer(face: NamespaceFace, call: RestCall, moment: Moment) -> Fate | RestReceiver:
    """What is answered at once, or what waits for a message."""
    try:
        queue = face.namespace.queue(parse_address(call.path).path)
        if call.verb in (Verb.LOCK, Verb.TAKE):
            check_received_from(queue)
            deletes, span = call.verb is Verb.TAKE, call.timeout()
            return RestReceiver(
                face, queue, call.request, span, deletes=deletes, refuse=lambda e, m: refuse(call, e, m)
            )
        struck = Operation.SEND if call.verb is Verb.SEND else Operation.SETTLE
        effect = face.strike(struck, queue.path, moment)
        fate = fate_of(effect, call.request, moment)
        if fate.happens:
            _do(face, call, queue, moment, effect)
            status = 201 if call.verb is Verb.SEND else 200
            return fate.of(Response(status))
        return fate
    except BrokerError as error:
        return UNTOUCHED.of(refuse(call, error, moment))


def refuse(call: RestCall, error: BrokerError, moment: Moment) -> Response:
    """The response that tells of ``error``, with the status that this API documents for it."""
    status = next((_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES), None)
    return failed(error, call.request, moment.entity, status)


def _do(face: NamespaceFace, call: RestCall, queue: Entity, moment: Moment, effect: Effect | None) -> None:
    if call.verb is Verb.SEND:
        _send(face, call, queue, moment, effect)
        return
    token, now = _token(call, queue, moment), moment.entity
    if call.verb is Verb.COMPLETE:
        queue.complete(token, now)
    elif call.verb is Verb.UNLOCK:
        queue.abandon(token, now)
    else:
        queue.renew(token, now)


def _send(face: NamespaceFace, call: RestCall, queue: Entity, moment: Moment, effect: Effect | None) -> None:
    now, request = moment.entity, call.request
    check_sent_to(queue)
    check_enabled(queue, "SendDisabled")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_batch = kind == BATCH_TYPE
    payload = read_batch(request.body, now) if is_batch else read_message(request, now)
    visible_at = now + round(effect.seconds * 1000) if isinstance(effect, LateVisibility) else None
    queue.enqueue_all(messages_of(face, queue, payload, BATCH if is_batch else 0, now, visible_at), now)


def _token(call: RestCall, queue: Entity, moment: Moment) -> LockToken:
    """The lock that is named, if it holds the message that is named. Raises LockLost."""
    token = LockToken(uuid.UUID(call.lock).bytes_le)
    message = queue.held(token, moment.entity)
    if call.reference not in (message_reference(message), str(message.sequence_number)):
        raise LockLost
    return token
