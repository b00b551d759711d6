"""Claims-based security: put a token for a path on the connection's ``$cbs`` node, and hear whether it holds.

A request goes out on one link, its answer comes on another with our message id as its correlation id; the
answer's ``status-code`` says 200 or 202, or why not (06 2, CBS).
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

from sbpair.amqp.events import MessageReceived
from sbpair.amqp.message import Message, Properties, ValueBody
from sbpair.amqp.performatives import Accepted, Condition, Source, Target
from sbpair.amqp.types import Timestamp

from .errors import ConnectionLost, TokenRefused
from .link import Receiver, Sender

if TYPE_CHECKING:
    from .connection import NamespaceConnection

NODE = "$cbs"
TOKEN_TYPE = "servicebus.windows.net:sastoken"  # noqa: S105  (the name of a type, not a token)
CREDIT = 100
ANSWER_TIMEOUT = 60.0  # seconds

# status-code: the condition that says the same on a link
CONDITIONS = {
    401: "amqp:unauthorized-access",
    403: "amqp:unauthorized-access",
    404: "amqp:not-found",
    408: "com.microsoft:timeout",
    503: "com.microsoft:server-busy",
}


class Cbs:
    """The two links to ``$cbs`` of one connection, opened at the first token."""

    def __init__(self, connection: NamespaceConnection) -> None:
        self._connection = connection
        self._numbers = count(1)
        self._answers: dict[object, asyncio.Future[Message]] = {}
        self._opening = asyncio.ensure_future(self._open())

    async def put_token(self, audience: str, token: str, expires: int) -> None:
        """Put ``token`` for ``audience``; ``expires`` in seconds since the epoch.

        Raises TokenRefused, ConnectionLost.
        """
        sender = await asyncio.shield(self._opening)
        number = f"token-{next(self._numbers)}"
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        request = Message(
            properties=Properties(message_id=number, reply_to=NODE),
            application_properties={
                "operation": "put-token",
                "type": TOKEN_TYPE,
                "name": audience,
                "expiration": Timestamp(expires * 1000),
            },
            body=ValueBody(token),
        )
        try:
            outcome = await sender.send(request.encode())
            if not isinstance(outcome, Accepted):
                raise ConnectionLost(f"the token for {audience} was not taken")
            async with asyncio.timeout(ANSWER_TIMEOUT):
                check(audience, await self._either(answer))
        except TimeoutError:
            raise ConnectionLost(f"no answer to the token for {audience}") from None
        finally:
            self._answers.pop(number, None)

    async def _either(self, answer: asyncio.Future[Message]) -> Message:
        closed = self._connection.closed
        either: tuple[asyncio.Future[Any], ...] = (answer, closed)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionLost("the connection closed before the token was answered", closed.result())
        return answer.result()

    async def _open(self) -> Sender:
        session = self._connection.session
        receiver = Receiver(
            self._connection,
            session.attach_receiver("cbs-receiver", source=Source(NODE), target=Target(NODE)),
            NODE,
            self._on_answer,
        )
        link = session.attach_sender("cbs-sender", target=Target(NODE), source=Source(NODE))
        sender = Sender(self._connection, link, NODE)
        self._connection.register(receiver)
        self._connection.register(sender)
        receiver.flow(CREDIT)
        await receiver.wait_attached()
        await sender.wait_attached()
        self._receiver = receiver
        return sender

    def _on_answer(self, event: MessageReceived) -> None:
        if not event.settled:
            event.link.dispose(event.delivery_id, event.delivery_id, Accepted())
        event.link.flow(CREDIT)
        message = Message.decode(event.payload)
        properties = message.properties
        answer = self._answers.get(properties.correlation_id if properties else None)
        if answer is not None and not answer.done():
            answer.set_result(message)


def check(audience: str, answer: Message) -> None:
    """Raise TokenRefused unless ``answer`` says the token holds."""
    said = answer.application_properties or {}
    status, description = said.get("status-code"), said.get("status-description")
    if status in (200, 202):
        return
    symbol = (
        CONDITIONS.get(status, "amqp:internal-error") if isinstance(status, int) else "amqp:internal-error"
    )
    text = f"status {status}: {description}"
    raise TokenRefused(f"no access to {audience}", Condition(symbol, text))
