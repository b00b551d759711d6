"""What do we need of the SDK that it does not offer in public?

The only file that touches its private parts: the socket under a sender (to end a call that would hang),
the AMQP condition of an error, the messages inside a batch. Each name has a test; when one is gone in a
later SDK the loss is logged once and the rest goes on without.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender as AsyncServiceBusSender
    from azure.servicebus.amqp import AmqpAnnotatedMessage

_logger = logging.getLogger("sbpair")
_missed: set[str] = set()
_ABSENT = object()
KeepAlive = TypeVar("KeepAlive")


def _read(thing: object, name: str, loss: str) -> object:
    """A private attribute, or None when this SDK has no such name; then ``loss`` is logged once."""
    value = getattr(thing, name, _ABSENT)
    if value is not _ABSENT:
        return value
    if name not in _missed:
        _missed.add(name)
        _logger.warning("azure-servicebus has no %r any more: %s", name, loss)
    return None


class _Wire(Generic[KeepAlive]):
    """What lies under one SDK sender, of either kind: its handlers, their transports and keep-alives."""

    _LOSS: ClassVar[str]
    _OPEN: ClassVar[str]  # what opens a handler
    _KEEP_ALIVE: ClassVar[type[Any]]

    def __init__(self, sender: object) -> None:
        self._sender = sender
        self._handlers: list[object] = []
        self._transports: list[object] = []
        self._keep_alive: list[KeepAlive] = []
        create = _read(sender, "_create_handler", self._LOSS)
        if callable(create):
            sender._create_handler = self._remembering(create)  # type: ignore[attr-defined]

    def is_open(self) -> bool:
        """Whether the SDK keeps the link for another send."""
        return bool(_read(self._sender, "_running", "links are reopened after every error"))

    def _remembering(self, create: Callable[..., object]) -> Callable[..., None]:
        def create_and_remember(auth: object) -> None:
            create(auth)
            handler = _read(self._sender, "_handler", self._LOSS)
            opening = getattr(handler, self._OPEN, None)
            if handler is None or opening is None:
                return
            self._handlers.append(handler)
            setattr(handler, self._OPEN, self._remembering_what_opens(handler, opening))

        return create_and_remember

    def _remembering_what_opens(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        raise NotImplementedError

    def _opened(self, handler: object) -> None:
        # The SDK forgets a connection without closing its socket when opening or closing it fails, and it
        # waits a second for its keep-alive, a thread or a task, which ends by itself.
        delattr(handler, self._OPEN)  # each send calls it again
        self._transports.append(_transport_of(handler, self._LOSS))
        keep_alive = _read(handler, "_keep_alive_thread", "closing a failed link takes up to a second")
        if isinstance(keep_alive, self._KEEP_ALIVE):
            handler._keep_alive_thread = None  # type: ignore[attr-defined]
            self._keep_alive.append(keep_alive)

    def _all_transports(self) -> list[object]:
        return [*self._transports, *(_transport_of(handler, self._LOSS) for handler in self._handlers)]

    def _forget(self) -> None:
        self._handlers.clear()
        self._transports.clear()


class Wire(_Wire[threading.Thread]):
    """The socket under one SDK sender, so that a call can be ended from another thread."""

    _LOSS = "a hanging call cannot be ended at its deadline"
    _OPEN = "open"
    _KEEP_ALIVE = threading.Thread

    def join(self, seconds: float) -> None:
        """Wait for the SDK's keep-alive threads of links that are closed, so long at most each."""
        while self._keep_alive:
            self._keep_alive.pop().join(seconds)

    def shut(self) -> None:
        """End every read and write on the connection; the blocked call raises. From any thread."""
        for wire in self._sockets():
            try:
                # Not SSLSocket's own: it takes the TLS state away from the thread that reads.
                socket.socket.shutdown(wire, socket.SHUT_RDWR)
            except OSError:
                pass  # closed already

    def release(self) -> None:
        """Close the descriptors, saying nothing to the peer: for what the SDK leaves open, and after fork."""
        for wire in self._sockets():
            wire.close()
        self._forget()

    def _remembering_what_opens(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        def open_and_remember(connection: object = None) -> None:
            try:
                opening(connection=connection)
            finally:
                self._opened(handler)

        return open_and_remember

    def _sockets(self) -> list[socket.socket]:
        found = [_socket_of(transport, self._LOSS) for transport in self._all_transports()]
        return [wire for wire in found if wire is not None]


class AsyncWire(_Wire["asyncio.Future[object]"]):
    """The connections under one SDK sender of asyncio, so that they end when we say so."""

    _LOSS = "a connection may stay open for a while after its call was ended"
    _OPEN = "open_async"
    _KEEP_ALIVE = asyncio.Future

    def abort(self) -> None:
        """Drop the connections at once, saying nothing to the peer; the call that waits raises."""
        for transport in self._all_transports():
            inner = getattr(getattr(transport, "writer", None), "transport", None)
            if inner is not None:
                inner.abort()
        for task in self._keep_alive:
            task.cancel()

    async def release(self) -> None:
        """Let go of everything that the SDK leaves behind."""
        self.abort()
        for transport in self._all_transports():
            session = getattr(transport, "session", None)  # aiohttp's, of a websocket
            if session is not None:
                await session.close()
        await asyncio.gather(*self._keep_alive, return_exceptions=True)
        self._keep_alive.clear()
        self._forget()

    def _remembering_what_opens(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        async def open_and_remember(connection: object = None) -> None:
            try:
                await opening(connection=connection)
            finally:
                self._opened(handler)

        return open_and_remember


def _transport_of(handler: object, loss: str) -> object:
    connection = None if handler is None else _read(handler, "_connection", loss)
    return None if connection is None else _read(connection, "_transport", loss)


def _socket_of(transport: object, loss: str) -> socket.socket | None:
    wire = None if transport is None else _read(transport, "sock", loss)
    if wire is None or isinstance(wire, socket.socket):
        return wire
    inner = getattr(wire, "sock", None)  # websocket-client keeps the socket one deeper
    return inner if isinstance(inner, socket.socket) else None


def condition_of(error: BaseException) -> str | None:
    """The AMQP condition the service gave, as text; None where there was none."""
    condition = getattr(error, "_condition", None)
    if isinstance(condition, bytes):
        return condition.decode("ascii", "replace")
    return condition if isinstance(condition, str) else None


def token_status_of(error: BaseException) -> int | None:
    """The status with which ``$cbs`` refused the token; None when this is no such error."""
    inner = getattr(error, "inner_exception", None)
    status = getattr(inner, "status_code", None)
    is_token = type(inner).__name__ == "TokenAuthFailure"
    return status if is_token and isinstance(status, int) and not isinstance(status, bool) else None


def ended_connection(error: BaseException) -> bool:
    """Whether the service ended the whole connection with this error, not one link."""
    return type(getattr(error, "inner_exception", None)).__name__ == "AMQPConnectionError"


def messages_of(batch: ServiceBusMessageBatch) -> list[ServiceBusMessage] | None:
    """The messages that were added to a batch of the SDK's own; None when it no longer keeps them."""
    kept = _read(batch, "_messages", "batches not made by a paired sender cannot be parked")
    return list(cast("list[ServiceBusMessage]", kept)) if isinstance(kept, list) else None


def message_limit(sender: ServiceBusSender | AsyncServiceBusSender) -> int | None:
    """How many bytes a message may have on this open link; None when the SDK no longer says."""
    limit = _read(sender, "_max_message_size_on_link", "messages that could not be parked are not warned of")
    return limit if isinstance(limit, int) and limit > 0 else None


def is_smaller(message: AmqpAnnotatedMessage, limit: int) -> bool:
    """Whether body and text of the properties have surely fewer bytes than this.

    Short on purpose: every send asks. False where it would take longer to find out.
    """
    try:
        body: Any = message._data_body
    except AttributeError:
        _read(message, "_data_body", "the size of every message is computed, which costs time")
        return False
    if body is None:
        return False
    size = 0
    for part in body:
        size += len(part)
    carried = message.application_properties
    if carried:
        for value in carried.values():
            if value.__class__ is str:
                size += 4 * len(value)  # the most that UTF-8 makes of it
    return size < limit
