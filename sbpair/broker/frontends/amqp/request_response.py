"""Request-response links: the $cbs and $management nodes.

    client  -- sender link -->   RequestLink     a request is one message, accepted on arrival
    client <-- receiver link --  ResponseLink    the answer, correlated, regardless of the link's credit

A response goes to the receiver link that the request's reply-to names (the JavaScript SDK names its link, the Python
SDK the node), else to one of the same session. Clients grant credit only once, so credit is not required.

On $cbs, a client presents a token and is granted the rights that it proves (claims-based security). The Python SDK
declares ``type`` jwt even for a shared access signature, so the form of the token decides. The token is checked first:
an invalid one is answered with 401, then a missing entity with 404.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sbpair.pair.amqp.errors import PRECONDITION_FAILED, DecodeError
from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.link import ReceiverLink, SenderLink
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Condition,
    DeliveryState,
    Outcome,
    Rejected,
    Target,
    TransactionalState,
)
from sbpair.pair.amqp.types import Int

from ...auth import ExpiredTokenError, InvalidTokenError, split_audience
from ...clock import ClockReading
from ...entities.queue import Queue
from ...errors import EntityNotFoundError, MalformedMessageError
from ..address import parse_address
from ..refusals import tracked
from .node import ConnectionContext, Node

CLAIMS = "$cbs"
MAX_REQUEST_SIZE = 1_048_576
MAX_UNSETTLED = 1_000  # answers of a link; if the client settles none, the oldest are forgotten
SETTLED = 1  # the snd-settle-mode of 2.8.2
MAX_CLAIM_SIZE = 65_536  # bytes; a token has at most a quarter of that


@dataclass(frozen=True, slots=True)
class NodeResponse:
    """The answer to a request: status and description as application properties, a map as the body."""

    properties: dict[object, object]
    body: object = None


State = DeliveryState | None
RequestHandler = Callable[
    ["ConnectionContext", Queue | None, Message, State, ClockReading], NodeResponse | None
]


class ResponseLink(Node):
    """The client's receiver link on a request-response node."""

    link: SenderLink

    def __init__(
        self, connection: ConnectionContext, link: SenderLink, queue: Queue | None, address: str
    ) -> None:
        super().__init__(connection, link, queue)
        self.address = address
        self._tags = 0

    @property
    def reply_to(self) -> str | None:
        """The address of the client's end."""
        attach = self.link.remote_attach
        target = attach.target if attach is not None else None
        return target.address if isinstance(target, Target) else None

    def respond(self, request: Message, answer: NodeResponse) -> None:
        """Send ``answer``, correlated with ``request``."""
        requested = request.properties or Properties()
        response = Message(
            properties=Properties(correlation_id=requested.message_id, to=requested.reply_to),
            application_properties=answer.properties,
            body=ValueBody(answer.body),
        )
        self._tags = (self._tags + 1) & 0xFFFFFFFF
        numbers = self.connection.frontend.numbers
        encoded = response.encode()
        self.connection.answers.answered(len(encoded), self.link.session)
        tag = self._tags.to_bytes(4, "little")
        attach = self.link.remote_attach
        is_settled = numbers.answers_settled or (attach is not None and attach.snd_settle_mode == SETTLED)
        self.link.transfer(encoded, tag=tag, settled=is_settled, force=True)
        if len(self.link.unsettled) > MAX_UNSETTLED:
            oldest = next(iter(self.link.unsettled))
            self.link.settle(oldest, oldest, ACCEPTED)

    def disposition_received(self, event: DispositionReceived, now: ClockReading) -> None:
        """Settle answers whose receiver waits for it."""
        if not event.settled and event.state is not None:
            self.link.settle(event.first, event.last, event.state)


class RequestLink(Node):
    """The client's sender link on a request-response node; ``operation`` returns the answers."""

    link: ReceiverLink

    def __init__(
        self,
        connection: ConnectionContext,
        link: ReceiverLink,
        queue: Queue | None,
        address: str,
        operation: RequestHandler,
    ) -> None:
        super().__init__(connection, link, queue)
        self.address = address
        self._operation = operation

    def opened(self, now: ClockReading) -> None:
        """Grant credit."""
        self.link.flow(self.connection.frontend.numbers.request_credit)

    def messages_received(self, events: Sequence[MessageReceived], now: ClockReading) -> int:
        """Answer requests as long as the client reads the answers."""
        for number, event in enumerate(events):
            if self.connection.is_clogged or self.connection.answers.are_too_many:
                return number
            self.message_received(event, now)
        return len(events)

    def message_received(self, event: MessageReceived, now: ClockReading) -> None:
        """Answer one request."""
        credit = self.connection.frontend.numbers.request_credit
        if self.link.credit < credit // 2:
            self.link.flow(credit)
        refusal = self._serve(event.payload, event.state, now)
        if not event.settled:
            answer = ACCEPTED if refusal is None else Rejected(refusal)
            self.link.dispose(event.delivery_id, event.delivery_id, _in_same(event.state, answer))

    def _serve(self, payload: bytes, state: State, now: ClockReading) -> Condition | None:
        frontend = self.connection.frontend
        try:
            request = Message.decode(payload)
        except DecodeError as error:
            malformed = MalformedMessageError(f"The request could not be decoded: {error}.")
            return frontend.refusal(malformed, self.address, now.entity)
        response = self._response_link(request)
        if response is None:
            text = f"There is no receiver link on '{self.address}' for the answer."
            return Condition(PRECONDITION_FAILED, tracked(text, frontend.tracker(self.address), now.entity))
        answer = self._operation(self.connection, self.queue, request, state, now)
        if answer is not None:
            response.respond(request, answer)
        return None

    def _response_link(self, request: Message) -> ResponseLink | None:
        candidates = [
            node
            for node in self.connection.links
            if isinstance(node, ResponseLink) and node.address == self.address and node.link.is_open
        ]
        reply_to = request.properties.reply_to if request.properties else None
        named = [
            node
            for node in candidates
            if reply_to is not None and reply_to in (node.reply_to, node.link.name)
        ]
        near = [node for node in candidates if node.link.session is self.link.session]
        return next(iter(named + near + candidates), None)


def is_of_claims(node: Node) -> bool:
    """Whether the node is on $cbs."""
    return isinstance(node, RequestLink | ResponseLink) and node.address == CLAIMS


def _in_same(state: State, outcome: Outcome) -> DeliveryState:
    """Return ``outcome``, in the request's transaction if it has one."""
    return TransactionalState(state.txn_id, outcome) if isinstance(state, TransactionalState) else outcome


def status(code: int, words: str, *, names: tuple[str, str]) -> dict[object, object]:
    """Return the application properties of an answer: ``names`` are those of the code and of its description."""
    return {names[0]: Int(code), names[1]: words}


_NAMES = ("status-code", "status-description")


def put_token(
    connection: ConnectionContext, queue: Queue | None, request: Message, state: State, now: ClockReading
) -> NodeResponse:
    """Answer a put-token request: 202, 400, 401 or 404."""
    requested = request.application_properties
    audience, operation = requested.get("name"), requested.get("operation")
    token = request.body.value if isinstance(request.body, ValueBody) else None
    frontend = connection.frontend

    def refuse(code: int, words: str) -> NodeResponse:
        frontend.rejections.note(now.entity, "$cbs", f"{code}", words)
        return NodeResponse(status(code, tracked(words, frontend.tracker("$cbs"), now.entity), names=_NAMES))

    if operation != "put-token":
        return refuse(400, f"The operation {operation!r:.60} is not put-token.")
    if not isinstance(audience, str) or not isinstance(token, str):
        return refuse(400, "put-token needs the property name and a string as its body.")
    try:
        connection.claims.put(audience, token, now.wall)
    except ExpiredTokenError as refusal:
        return refuse(401, refusal.words)
    except InvalidTokenError as refusal:
        return refuse(401, f"Unauthorized access: {refusal.reason}.")
    path = parse_address(split_audience(audience)[1]).path
    try:
        if path:
            frontend.namespace.queue(path)
    except EntityNotFoundError as missing:
        return refuse(404, missing.text_at(frontend.host))
    return NodeResponse(status(202, "Accepted", names=_NAMES))
