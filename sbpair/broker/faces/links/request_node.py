"""Request and response over a pair of links: how $cbs and $management talk.

    client  -- sender link -->  RequestNode     one message a request, accepted as it comes
    client <-- receiver link --  ResponseNode   the answer, correlated, whatever the link's credit

A response goes to the receiver link that the request's reply-to names (JavaScript names its link, Python
the node), else to the one of the same session; clients grant credit once and never again, so credit is
not asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....amqp.errors import PRECONDITION_FAILED
from ....amqp.events import MessageReceived
from ....amqp.link import ReceiverLink, SenderLink
from ....amqp.message import Message, Properties, ValueBody
from ....amqp.outcomes import Outcome
from ....amqp.performatives import ACCEPTED, Condition, DeliveryState, Rejected, Target, TransactionalState
from ....amqp.types import DecodeError, Int, Symbol
from ...entities.entity import Entity
from ...errors import MalformedMessage
from ..moment import Moment
from ..wording import tracked
from .host import LinkHost
from .node import Node

CREDIT = 200
MAX_REQUEST_SIZE = 1_048_576


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered: status and words as application properties, a map as the body."""

    properties: dict[object, object]
    body: object = None


State = DeliveryState | None
Operation = Callable[["LinkHost", Entity | None, Message, State, Moment], Answer | None]


class ResponseNode(Node):
    """The client's receiver link on such a node."""

    link: SenderLink

    def __init__(self, connection: LinkHost, link: SenderLink, queue: Entity | None, address: str) -> None:
        super().__init__(connection, link, queue)
        self.address = address
        self._tags = 0

    @property
    def reply_to(self) -> str | None:
        """The address the client gave its end."""
        attach = self.link.remote_attach
        target = attach.target if attach is not None else None
        return target.address if isinstance(target, Target) else None

    def respond(self, request: Message, answer: Answer) -> None:
        """Send ``answer``, correlated with ``request``."""
        asked = request.properties or Properties()
        response = Message(
            properties=Properties(correlation_id=asked.message_id, to=asked.reply_to),
            application_properties=answer.properties,
            body=ValueBody(answer.body),
        )
        self._tags += 1
        self.link.transfer(response.encode(), tag=self._tags.to_bytes(8, "big"), settled=True, force=True)


class RequestNode(Node):
    """The client's sender link on such a node; ``operation`` answers."""

    link: ReceiverLink

    def __init__(
        self,
        connection: LinkHost,
        link: ReceiverLink,
        queue: Entity | None,
        address: str,
        operation: Operation,
    ) -> None:
        super().__init__(connection, link, queue)
        self.address = address
        self._operation = operation

    def opened(self, moment: Moment) -> None:
        """Let the client ask."""
        self.link.flow(CREDIT)

    def message_received(self, event: MessageReceived, moment: Moment) -> None:
        """Answer one request."""
        if self.link.credit < CREDIT // 2:
            self.link.flow(CREDIT)
        refusal = self._serve(event.payload, event.state, moment)
        if not event.settled:
            answer = ACCEPTED if refusal is None else Rejected(refusal)
            self.link.dispose(event.delivery_id, event.delivery_id, _in_same(event.state, answer))

    def _serve(self, payload: bytes, state: State, moment: Moment) -> Condition | None:
        face = self.connection.face
        try:
            request = Message.decode(payload)
        except DecodeError as error:
            malformed = MalformedMessage(f"The request could not be decoded: {error}.")
            return face.refusal(malformed, self.address, moment.entity)
        response = self._response_link(request)
        if response is None:
            text = f"No receiver link on '{self.address}' is there to answer on."
            return Condition(PRECONDITION_FAILED, tracked(text, face.tracker(self.address), moment.entity))
        answer = self._operation(self.connection, self.queue, request, state, moment)
        if answer is not None:
            response.respond(request, answer)
        return None

    def _response_link(self, request: Message) -> ResponseNode | None:
        candidates = [
            node
            for node in self.connection.nodes()
            if isinstance(node, ResponseNode) and node.address == self.address and node.link.is_open
        ]
        reply_to = request.properties.reply_to if request.properties else None
        named = [
            node
            for node in candidates
            if reply_to is not None and reply_to in (node.reply_to, node.link.name)
        ]
        near = [node for node in candidates if node.link.session is self.link.session]
        return next(iter(named + near + candidates), None)


def _in_same(state: State, outcome: Outcome) -> DeliveryState:
    """``outcome``, and if the request was part of a transaction, as part of it."""
    return TransactionalState(state.txn_id, outcome) if isinstance(state, TransactionalState) else outcome


def status(code: int, words: str, *, names: tuple[str, str]) -> dict[object, object]:
    """Application properties of an answer: ``names`` are those of the code and of its description."""
    return {names[0]: Int(code), names[1]: words}


def error_symbol(condition: str) -> Symbol:
    """The condition as $management tells it."""
    return Symbol(condition)
