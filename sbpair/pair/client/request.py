"""Requests to a node of the service: ``$cbs`` or ``{entity}/$management``, and the request that peeks.

A request goes out on one link; the answer arrives on another, correlated by the request's message id.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

from sbpair.pair.amqp.errors import (
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    SERVER_BUSY,
    TIMEOUT,
    UNAUTHORIZED_ACCESS,
    DecodeError,
)
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import Accepted, Condition, Source, Target
from sbpair.pair.amqp.sections import split
from sbpair.pair.amqp.types import Int
from sbpair.pair.ground.shared_task import share

from .errors import ConnectionLostError, LinkRefusedError
from .link import LinkHost, Receiver, Sender

CREDIT = 100
RENEWED_WITHIN = 5.0  # seconds: the rest of a lock at its first renewal is enough for several
OK, NO_CONTENT = 200, 204
CONDITIONS = {  # of statuses that come without a condition, or with a vague one
    401: UNAUTHORIZED_ACCESS,
    403: UNAUTHORIZED_ACCESS,
    404: NOT_FOUND,
    408: TIMEOUT,
    429: SERVER_BUSY,
    503: SERVER_BUSY,
}
_MESSAGES, _MESSAGE = b"\xa1\x08messages", b"\xa1\x07message"  # keys of the answer to a peek
# A section with a map of one list: each form, size and number of items.
_ANSWER = struct.Struct(">3sBII10sBII")
# A map of one binary: its form, size, number of items, key, form and size.
_ENTRY = struct.Struct(">BII9sBI")
T = TypeVar("T")


async def wait_for_renewal(answer: Awaitable[T], what: str) -> T:
    """Wait for the answer to a renewal. Raises ConnectionLostError after RENEWED_WITHIN seconds."""
    try:
        async with asyncio.timeout(RENEWED_WITHIN):
            return await answer
    except TimeoutError:
        raise ConnectionLostError(f"no answer to the renewal of {what} within {RENEWED_WITHIN:g} s") from None


class RequestNode:
    """The two links to one node. Attaching begins on construction."""

    def __init__(self, connection: LinkHost, node: str) -> None:
        self._connection = connection
        self._node = node
        self._name = f"sbpair-request-{uuid4()}"
        self._numbers = count(1)
        self._answers: dict[object, asyncio.Future[Message]] = {}
        self._receiver: Receiver | None = None
        self._sender: Sender | None = None
        self._opening = share(self._open())

    @property
    def is_open(self) -> bool:
        """Whether both links are attached."""
        return all(link is not None and link.is_open for link in (self._receiver, self._sender))

    async def wait_open(self) -> None:
        """Wait until both links are attached. Raises LinkRefusedError, ConnectionLostError."""
        await self._wait_for_sender()

    async def _wait_for_sender(self) -> Sender:
        """Return the sender once both links are attached. Raises LinkRefusedError, ConnectionLostError."""
        opening = self._opening
        if not opening.done():
            await asyncio.wait([opening])
        if opening.cancelled():  # by close() or abandon(), not the caller's task
            raise ConnectionLostError(f"the links to {self._node} were closed")
        return opening.result()

    async def ask(self, properties: dict[object, object], body: object) -> Message:
        """Send one request and wait for its answer.

        Raises LinkRefusedError, or ConnectionLostError when no answer arrives.
        """
        sender = await self._wait_for_sender()
        number = f"{self._name}-{next(self._numbers)}"
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        request = Message(
            properties=Properties(message_id=number, reply_to=self._name),
            application_properties=properties,
            body=ValueBody(body),
        )
        timeout = self._connection.answer_timeout
        try:
            async with asyncio.timeout(timeout):
                if not isinstance(await sender.send(request.encode()), Accepted):
                    raise ConnectionLostError(f"{self._node} did not accept a request")
                return await self._either(answer, sender)
        except TimeoutError:
            raise ConnectionLostError(f"no answer from {self._node} within {timeout:g} s") from None
        finally:
            self._answers.pop(number, None)

    async def close(self) -> None:
        """Detach both links. Never raises: callers of :meth:`ask` received the error."""
        self._opening.cancel()
        await asyncio.wait([self._opening])
        links = [link for link in (self._receiver, self._sender) if link is not None]
        await asyncio.gather(*(link.close() for link in links))

    def abandon(self) -> None:
        """Detach both links, even if they are still being attached, without waiting: the node failed to answer."""
        self._opening.cancel()
        for link in (self._receiver, self._sender):
            if link is not None:
                link.let_go()

    async def _either(self, answer: asyncio.Future[Message], sender: Sender) -> Message:
        receiver = self._receiver
        assert receiver is not None  # noqa: S101 - it was attached before the sender
        either: tuple[asyncio.Future[Any], ...] = (answer, sender.detached, receiver.detached)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        condition = next(
            (link.detached.result() for link in (receiver, sender) if link.detached.done()), None
        )
        if condition is not None and condition.symbol == MESSAGE_SIZE_EXCEEDED:
            raise LinkRefusedError(f"the answer from {self._node} is too large", condition)
        raise ConnectionLostError(f"the link to {self._node} was lost before its answer", condition)

    async def _open(self) -> Sender:
        connection, name = self._connection, self._name
        what = f"a link to {self._node}"
        link = connection.opening(
            what,
            lambda: connection.session.attach_receiver(
                f"{name}-in", source=Source(self._node), target=Target(name)
            ),
        )
        self._receiver = Receiver(connection, link, self._node, self._on_answer)
        connection.register(self._receiver)
        out = connection.opening(
            what,
            lambda: connection.session.attach_sender(
                f"{name}-out", target=Target(self._node), source=Source(name)
            ),
        )
        sender = self._sender = Sender(connection, out, self._node)
        connection.register(sender)
        self._receiver.flow(CREDIT)
        await self._receiver.wait_attached()
        await sender.wait_attached()
        return sender

    def _on_answer(self, event: MessageReceived) -> None:
        if not event.settled:
            event.link.dispose(event.delivery_id, event.delivery_id, Accepted())
        event.link.flow(CREDIT)
        try:
            message = decode_answer(event.payload)
        except (
            DecodeError,
            IndexError,
        ) as error:  # the request is unknown: fail all, so that none waits in vain
            for waiting in self._answers.values():
                if not waiting.done():
                    waiting.set_exception(
                        ConnectionLostError(f"an answer from {self._node} is not valid AMQP: {error}")
                    )
            return
        answer = self._answers.get(message.properties.correlation_id if message.properties else None)
        if answer is not None and not answer.done():
            answer.set_result(message)


def decode_answer(payload: bytes) -> Message:
    """Decode the answer to a request. Raises DecodeError, IndexError.

    Messages in the answer to a peek are located directly; decoding them as nested values would be slower.
    """
    sections = split(payload)
    messages = _messages_of_peek(sections.body)
    if messages is None:
        return Message.decode(payload)
    answer = Message.decode(b"".join(sections._replace(body=b"")))
    return replace(answer, body=ValueBody({"messages": [{"message": each} for each in messages]}))


def _messages_of_peek(body: bytes) -> list[bytes] | None:
    """Return the encoded messages in the answer to a peek; None for any other body, or an unusual form."""
    if len(body) < _ANSWER.size:
        return None
    *form, size, items, key, kind, length, number = _ANSWER.unpack_from(body)
    at, end = _ANSWER.size, len(body)
    if (form, items, key, kind) != ([b"\x00\x53\x77", 0xD1], 2, _MESSAGES, 0xD0):
        return None
    if size != end - 8 or length != end - at + 4 or number > length // _ENTRY.size:
        return None
    messages = []
    for _ in range(number):
        if at + _ENTRY.size > end:
            return None
        code, size, items, key, kind, length = _ENTRY.unpack_from(body, at)
        start, at = at + _ENTRY.size, at + 5 + size
        if (code, items, key, kind) != (0xD1, 2, _MESSAGE, 0xB0) or start + length != at or at > end:
            return None
        messages.append(body[start:at])
    return messages if at == end else None


async def peek(
    node: RequestNode, path: str, start: int, most: int, *, session_id: str | None = None
) -> list[bytes]:
    """Return up to ``most`` encoded messages of ``path``, or of one of its sessions, from sequence number ``start`` on.

    Includes locked, deferred and scheduled messages. Raises LinkRefusedError or ConnectionLostError.
    """
    properties: dict[object, object] = {"operation": "com.microsoft:peek-message", "type": "entity-mgmt"}
    asked: dict[object, object] = {"from-sequence-number": start, "message-count": Int(most)}
    if session_id is not None:
        asked["session-id"] = session_id
    answer = await node.ask(properties, asked)
    refusal = refusal_of(answer)
    if refusal is not None:
        raise LinkRefusedError(f"{path} cannot be peeked", refusal)
    if answer.application_properties.get("statusCode") == NO_CONTENT:
        return []
    try:
        return [bytes(entry["message"]) for entry in value_of(answer)["messages"] or []]
    except (KeyError, TypeError, ValueError) as error:
        raise LinkRefusedError(f"the answer to a peek at {path} cannot be read: {error!r}") from error


def refusal_of(answer: Message) -> Condition | None:
    """Return why a node refused a request; None when it accepted it."""
    status = answer.application_properties.get("statusCode")
    if status in (OK, NO_CONTENT):
        return None
    symbol = CONDITIONS.get(status) if isinstance(status, int) else None
    given = answer.application_properties.get("errorCondition")
    if symbol is None and isinstance(given, str):
        symbol = given
    description = answer.application_properties.get("statusDescription")
    shown = int(status) if isinstance(status, int) else status  # as a plain number, not an AMQP type
    return Condition(symbol or INTERNAL_ERROR, f"status {shown}: {description}")


def value_of(answer: Message) -> dict[Any, Any]:
    """Return the map in the body of an answer; empty for any other body."""
    value = answer.body.value if isinstance(answer.body, ValueBody) else None
    return value if isinstance(value, dict) else {}
