"""Access to private parts of the SDK; no other module touches them.

They are the socket under a sender (to end a hanging call), the AMQP condition of an error, and the messages in a
batch. Every private name has a test. If a later SDK lacks one, the loss is logged once and the feature is off.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import struct
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from azure.core.settings import settings
from azure.core.tracing import SpanKind
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusConnectionError, ServiceBusError

from sbpair.envelope.copies import ABSENT, private

from .aio_limits import Limits
from .waiting import own_copy, unchain

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender as AsyncServiceBusSender
    from azure.servicebus.amqp import AmqpAnnotatedMessage

KeepAlive = TypeVar("KeepAlive")

_logger = logging.getLogger("sbpair")
_new = object.__new__

FRAMES = 16  # read in a row while a link opens; the SDK itself sleeps 50 ms after each
MAX_READ_SECONDS = 0.2  # for one frame, as the SDK's: between two it looks after the connection
ENDLESS = 2**30  # bytes: a write buffer that never fills up, since its senders hold the messages anyway
_SIZE = struct.Struct(">I")  # of a frame, at its head
_NO_FRAME_LIMIT = "a peer that announces a huge frame makes a call late"


class _Wire(Generic[KeepAlive]):
    """The handlers under one SDK sender, with their transports and keep-alives."""

    _LOSS: ClassVar[str]
    _OPEN: ClassVar[str]  # the method that opens a handler
    _READY: ClassVar[str]  # the method that reads one frame while a handler opens
    _KEEP_ALIVE: ClassVar[type[Any]]

    def __init__(self, sender: object) -> None:
        self._sender = sender
        self._handlers: list[object] = []
        self._transports: list[object] = []
        self._keep_alive: list[KeepAlive] = []
        create = private(sender, "_create_handler", self._LOSS)
        if callable(create):
            sender._create_handler = self._remembering(create)  # type: ignore[attr-defined]

    def is_open(self) -> bool:
        """Whether the SDK keeps the link for another send."""
        return bool(private(self._sender, "_running", "links are reopened after every error"))

    def signs(self) -> object:
        """A value that changes whenever the peer answers while a link opens."""
        found = []
        for handler in self._handlers:
            connection = getattr(handler, "_connection", None)
            transport = getattr(connection, "_transport", None)
            is_connected = getattr(transport, "connected", None)
            found.append((is_connected, getattr(connection, "_last_frame_received_time", None)))
        return found

    def _remembering(self, create: Callable[..., object]) -> Callable[..., None]:
        def create_and_remember(auth: object) -> None:
            create(auth)
            handler = private(self._sender, "_handler", self._LOSS)
            opening = getattr(handler, self._OPEN, None)
            if handler is None or opening is None:
                return
            self._handlers.append(handler)
            setattr(handler, self._OPEN, self._recording_open(handler, opening))
            ready = getattr(handler, self._READY, None)
            if ready is not None:
                setattr(handler, self._READY, self._without_pauses(handler, ready))

        return create_and_remember

    def _recording_open(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        raise NotImplementedError

    def _without_pauses(self, handler: object, ready: Callable[..., Any]) -> Callable[..., Any]:
        """``ready`` without the SDK's pauses between the frames of the opening."""
        raise NotImplementedError

    def _opened(self, handler: object) -> None:
        # When opening or closing fails, the SDK drops the connection without closing its socket. And it waits up to
        # a second for its keep-alive thread or task, which ends on its own.
        delattr(handler, self._OPEN)  # restore the SDK's method: each send calls it again
        transport = _transport_of(handler, self._LOSS)
        self._transports.append(transport)
        self._bound_frames(handler, transport)
        keep_alive = private(handler, "_keep_alive_thread", "closing a failed link takes up to a second")
        if isinstance(keep_alive, self._KEEP_ALIVE):
            handler._keep_alive_thread = None  # type: ignore[attr-defined]
            self._keep_alive.append(keep_alive)

    def _bound_frames(self, handler: object, transport: object) -> None:
        """Hold the peer to the frame size that the SDK announced: it reserves the memory for any size (R-33)."""
        if transport is None:
            return
        connection = private(handler, "_connection", _NO_FRAME_LIMIT)
        limit = private(connection, "_max_frame_size", _NO_FRAME_LIMIT)
        read = private(transport, "_read", _NO_FRAME_LIMIT)
        if isinstance(limit, int) and callable(read):
            transport._read = self._bounded(read, limit)  # type: ignore[attr-defined]

    def _bounded(self, read: Callable[..., Any], limit: int) -> Callable[..., Any]:
        """``read`` of a transport, but a frame of more than ``limit`` bytes is refused at its head."""
        raise NotImplementedError

    def _all_transports(self) -> list[object]:
        return [*self._transports, *(_transport_of(handler, self._LOSS) for handler in self._handlers)]

    def _forget(self) -> None:
        self._handlers.clear()
        self._transports.clear()


class Wire(_Wire[threading.Thread]):
    """The sockets under one SDK sender, so that another thread can end its calls."""

    _LOSS = "a hanging call cannot be ended at its deadline"
    _OPEN, _READY = "open", "client_ready"
    _KEEP_ALIVE = threading.Thread

    def join(self, seconds: float) -> None:
        """Wait for the keep-alive threads of closed links, at most ``seconds`` each."""
        while self._keep_alive:
            self._keep_alive.pop().join(seconds)

    def shut(self) -> None:
        """End every read and write on the connection; the blocked call raises. Thread-safe."""
        for wire in self._sockets():
            try:
                # Not SSLSocket.shutdown, which drops the TLS state that the reading thread uses.
                socket.socket.shutdown(wire, socket.SHUT_RDWR)
            except OSError:
                pass  # closed already

    def release(self) -> None:
        """Close the sockets without notifying the peer: those the SDK leaves open, and all after a fork."""
        for wire in self._sockets():
            wire.close()
        self._forget()

    def _recording_open(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        def open_and_remember(connection: object = None) -> None:
            try:
                opening(connection=connection)
            finally:
                self._opened(handler)

        return open_and_remember

    def _without_pauses(self, handler: object, ready: Callable[..., Any]) -> Callable[..., Any]:
        def is_ready() -> bool:
            for _ in range(FRAMES):
                if ready():
                    vars(handler).pop(self._READY, None)  # restore the SDK's method for the sends
                    return True
            return False

        return is_ready

    def _bounded(self, read: Callable[..., Any], limit: int) -> Callable[..., Any]:
        def bounded(size: int, *, initial: bool = False, buffer: memoryview | None = None) -> memoryview:
            view: memoryview = read(size, initial=initial, buffer=buffer)
            if initial:
                _check_size(view, limit)
            return view

        return bounded

    def _sockets(self) -> list[socket.socket]:
        found = [_socket_of(transport, self._LOSS) for transport in self._all_transports()]
        return [wire for wire in found if wire is not None]


class AsyncWire(_Wire["asyncio.Future[object]"]):
    """The connections under one asyncio SDK sender, so that they can be ended.

    Unless ``is_plain``, several sends can share the link, and an error of one does not close it under the others,
    as the SDK would.
    """

    _LOSS = "a connection may stay open for a while after its call was ended"
    _OPEN, _READY = "open_async", "client_ready_async"
    _KEEP_ALIVE = asyncio.Future

    def __init__(self, sender: object, *, is_plain: bool = False) -> None:
        super().__init__(sender)
        self.is_shared = False
        """Whether sends share the link in the way of this module, and only wait for their answers.

        Known once the link is open.
        """
        self.limits = Limits()
        self._is_plain = is_plain
        self._is_in_doubt = False
        if not is_plain and private(sender, "_close_handler", "one failed send ends all others on its link"):
            sender._close_handler = self._defer_close  # type: ignore[attr-defined]

    @property
    def can_share(self) -> bool:
        """Whether several sends may be in progress at once; known once the link is open."""
        return self._is_plain or self.is_shared

    def is_open(self) -> bool:
        return super().is_open() and not self._is_in_doubt

    def let_close(self) -> None:
        """Let the SDK close the link again; call when no send is in progress."""
        vars(self._sender).pop("_close_handler", None)

    def _bounded(self, read: Callable[..., Any], limit: int) -> Callable[..., Any]:
        async def bounded(
            size: int, *, initial: bool = False, buffer: memoryview | None = None
        ) -> memoryview:
            view: memoryview = await read(size, initial=initial, buffer=buffer)
            if initial:
                _check_size(view, limit)
            return view

        return bounded

    async def _defer_close(self) -> None:
        self._is_in_doubt = True

    def abort(self) -> None:
        """Drop the connections without notifying the peer; a waiting call raises."""
        for transport in self._all_transports():
            inner = getattr(getattr(transport, "writer", None), "transport", None)
            if inner is not None:
                inner.abort()
        for task in self._keep_alive:
            task.cancel()

    async def release(self) -> None:
        """Close everything that the SDK leaves open."""
        self.abort()
        for transport in self._all_transports():
            session = getattr(transport, "session", None)  # of aiohttp, for a WebSocket
            if session is not None:
                await session.close()
        await asyncio.gather(*self._keep_alive, return_exceptions=True)
        self._keep_alive.clear()
        self._forget()

    def _recording_open(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        async def open_and_remember(connection: object = None) -> None:
            try:
                await opening(connection=connection)
            finally:
                self._opened(handler)

        return open_and_remember

    def _opened(self, handler: object) -> None:
        super()._opened(handler)
        if not self._is_plain:
            self.is_shared = _SharedLink.is_made_of(handler, self._transports[-1], self.limits)

    def _without_pauses(self, handler: object, ready: Callable[..., Any]) -> Callable[..., Any]:
        async def is_ready() -> bool:
            for _ in range(FRAMES):
                if await ready():
                    vars(handler).pop(self._READY, None)
                    return True
            return False

        return is_ready


def _check_size(head: memoryview, limit: int) -> None:
    """Raises ConnectionError when a frame is larger than ``limit`` bytes; a protocol header has no size."""
    (size,) = _SIZE.unpack_from(head)
    if size > limit and bytes(head[:4]) != b"AMQP":
        raise ConnectionError(f"the peer announced a frame of {size} bytes, where {limit} is the limit")


class _Sending:
    """A message waiting for its outcome; the SDK sets ``state``, ``reason`` and ``error``."""

    __slots__ = ("error", "is_over", "reason", "state", "turn")

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.reason: object = None
        self.state: object = None
        self.is_over = False
        self.turn: asyncio.Future[None] | None = None


class _SharedLink:
    """Concurrent sends on one asyncio link: one of them reads for all, and each writes immediately.

    The SDK itself makes the sends read in turn, for 0.2 s each, while writes wait for the reader; of two sends
    waiting that way, the second writes the first one's message again.
    """

    _LOSS = "asyncio sends do not share a link: each waits for its own"

    def __init__(self, handler: Any, tcp: asyncio.WriteTransport) -> None:  # noqa: ANN401 -- the SDK's private client
        self._handler, self._tcp = handler, tcp
        self._is_reading = False
        self._waiting: dict[_Sending, asyncio.Future[None]] = {}

    @classmethod
    def is_made_of(cls, handler: object, transport: object, limits: Limits) -> bool:
        """Make the sends of this handler share its link; returns whether that is possible."""
        write = private(transport, "_write", cls._LOSS)
        receive: Any = private(transport, "receive_frame", cls._LOSS)
        needed = (
            "_send_message_impl_async",
            "_on_send_complete_async",
            "_link",
            "_connection",
            "do_work_async",
        )
        tcp = _tcp_of(transport)
        if (
            tcp is None
            or write is None
            or receive is None
            or any(private(handler, name, cls._LOSS) is None for name in needed[:2])
        ):
            return False
        if any(getattr(handler, name, ABSENT) is ABSENT for name in needed[2:]):
            return False
        tcp.set_write_buffer_limits(high=ENDLESS)  # writes never wait, so frames do not interleave
        transport.write = write  # type: ignore[attr-defined]  # without the lock that the reader holds
        transport.receive_frame = _limited(receive, limits)  # type: ignore[attr-defined]
        handler._send_message_impl_async = cls(handler, tcp).send  # type: ignore[attr-defined]
        return True

    async def send(self, message: object, *, timeout: float = 0) -> None:
        """Replaces the SDK's send; raises the same errors."""
        handler, handled, sending = self._handler, sys.exception(), _Sending()
        try:
            while not await handler.client_ready_async():
                await asyncio.sleep(0.05)
            if self._tcp.is_closing():
                raise ServiceBusConnectionError(
                    message="The connection was lost before the message was sent."
                )
            settled = partial(self._settled, sending)
            await handler._link.send_transfer(message, on_send_complete=settled, timeout=timeout)
            while not sending.is_over:
                await (self._turn(sending) if self._is_reading else self._read(sending, handled))
        except Exception as error:
            # The SDK raises the same object in other sends too, and Python chains to it what each caller handles.
            unchain(error, handled)
            sending.error = own_copy(error).with_traceback(error.__traceback__)
        finally:
            if not self._is_reading:
                self._pass_on()
        if sending.error is not None:
            raise sending.error
        if sending.state is None:
            raise ServiceBusError("The service neither accepted nor rejected the message.")

    async def _read(self, sending: _Sending, handled: BaseException | None) -> None:
        self._is_reading = True
        try:
            while not sending.is_over:
                if not await self._handler.do_work_async():
                    raise ServiceBusConnectionError(message="The connection was closed under a send.")
        except Exception as error:
            unchain(error, handled)
            for turn in self._waiting.values():
                if not turn.done():
                    turn.set_exception(own_copy(error))
            raise
        finally:
            self._is_reading = False

    async def _turn(self, sending: _Sending) -> None:
        turn = self._waiting[sending] = asyncio.get_running_loop().create_future()
        sending.turn = turn
        try:
            await turn
        finally:
            del self._waiting[sending]

    async def _settled(self, sending: _Sending, reason: object, state: object) -> None:
        try:
            await self._handler._on_send_complete_async(sending, reason, state)
        finally:
            sending.is_over = True
            if sending.turn is not None and not sending.turn.done():
                sending.turn.set_result(None)

    def _pass_on(self) -> None:
        for turn in self._waiting.values():
            if not turn.done():
                turn.set_result(None)
                return


def _limited(receive: Callable[..., Any], limits: Limits) -> Callable[..., Any]:
    """``receive_frame`` of a transport without the task that the SDK makes for each frame.

    The limit covers the reading alone: what has arrived stays for the next read, whereas a frame whose processing is
    cancelled is lost.
    """

    async def receive_frame(timeout: float | None = None, **options: object) -> tuple[Any, Any]:
        seconds = math.inf if timeout is None else min(timeout, MAX_READ_SECONDS)
        try:
            with limits.within(seconds):
                found: tuple[Any, Any] = await receive(timeout=None, **options)
        except TimeoutError:
            return None, None  # as the SDK's
        return found

    return receive_frame


def _tcp_of(transport: object) -> asyncio.WriteTransport | None:
    """The asyncio transport below the SDK's: TCP, TLS, or that of an aiohttp WebSocket."""
    writer = getattr(transport, "writer", None) or getattr(getattr(transport, "sock", None), "_writer", None)
    found = getattr(writer, "transport", None)
    return found if hasattr(found, "set_write_buffer_limits") else None


def _transport_of(handler: object, loss: str) -> object:
    connection = None if handler is None else private(handler, "_connection", loss)
    return None if connection is None else private(connection, "_transport", loss)


def _socket_of(transport: object, loss: str) -> socket.socket | None:
    wire = None if transport is None else private(transport, "sock", loss)
    if wire is None or isinstance(wire, socket.socket):
        return wire
    inner = getattr(wire, "sock", None)  # websocket-client keeps the socket one deeper
    return inner if isinstance(inner, socket.socket) else None


_OF_THE_SDK = frozenset({None, "amqp:client-error", "amqp:unknown-error", "amqp:socket-error"})


def condition_of(error: BaseException) -> str | None:
    """The AMQP condition of the service's error as text, or None."""
    condition = getattr(error, "_condition", None)
    if isinstance(condition, bytes):
        return condition.decode("ascii", "replace")
    return condition if isinstance(condition, str) else None


def token_status_of(error: BaseException) -> int | None:
    """The status with which ``$cbs`` refused the token; None for other errors."""
    inner = getattr(error, "inner_exception", None)
    status = getattr(inner, "status_code", None)
    is_token = type(inner).__name__ == "TokenAuthFailure"
    return status if is_token and isinstance(status, int) and not isinstance(status, bool) else None


def was_rejected(error: BaseException) -> bool:
    """Whether the service rejected the message itself, which means that it is not stored.

    Without an answer from the service, the SDK raises the same class with its own condition.
    """
    inner = getattr(error, "inner_exception", None)
    is_answer = any(kind.__name__ == "MessageException" for kind in type(inner).__mro__)
    return is_answer and condition_of(error) not in _OF_THE_SDK


def ended_connection(error: BaseException) -> bool:
    """Whether the service closed the whole connection, rather than one link, with this error."""
    return type(getattr(error, "inner_exception", None)).__name__ == "AMQPConnectionError"


def messages_of(batch: ServiceBusMessageBatch) -> list[ServiceBusMessage] | None:
    """The messages in a batch of the SDK; None if this SDK does not keep them."""
    kept = private(batch, "_messages", "batches not made by a paired sender cannot be parked")
    return list(cast("list[ServiceBusMessage]", kept)) if isinstance(kept, list) else None


_RAW = "_raw_amqp_message"
_IS_WRAPPED = _RAW in vars(ServiceBusMessage(b""))  # else the SDK wraps it, at the cost of an exception


def wrapped(message: AmqpAnnotatedMessage) -> ServiceBusMessage | AmqpAnnotatedMessage:
    """A prepared message in the form that the SDK sends fastest."""
    if not _IS_WRAPPED:
        return message
    made = _new(ServiceBusMessage)
    made._raw_amqp_message = message
    return made


_BODY = 5  # the place of the data sections in the SDK's batch
_NO_APPEND = "encoded messages are encoded again for their batch"


def append_encoded(batch: ServiceBusMessageBatch, encoded: bytes) -> bool:
    """Add an encoded message to a batch; False, without doing so, if this SDK keeps its batches in another form.

    Raises MessageSizeExceededError when the batch has no room for it.
    """
    inner, size = private(batch, "_message", _NO_APPEND), private(batch, "_size", _NO_APPEND)
    count = private(batch, "_count", _NO_APPEND)
    data = inner[_BODY] if isinstance(inner, list) and len(inner) > _BODY else None
    if not (isinstance(data, list) and isinstance(size, int) and isinstance(count, int)):
        return False
    after = size + len(encoded) + (5 if len(encoded) < 256 else 8)  # the head of a data section
    if after > batch.max_size_in_bytes:
        raise MessageSizeExceededError(message=f"The batch has at most {batch.max_size_in_bytes} bytes.")
    data.append(encoded)
    batch._size, batch._count = after, count + 1
    return True


def creation_context(message: ServiceBusMessage) -> dict[str | bytes, Any]:
    """The context that the SDK's tracing gave a message of a batch, as application properties; empty without one."""
    encoded = private(message, "_message", "messages of the SDK's own batches are parked without their trace")
    carried = getattr(encoded, "application_properties", None) or {}
    return {name: carried[name] for name, _ in _TRACE_PROPERTIES if name in carried}


def message_limit(sender: ServiceBusSender | AsyncServiceBusSender) -> int | None:
    """The maximum message size of this open link in bytes; None if this SDK does not reveal it."""
    limit = private(sender, "_max_message_size_on_link", "no warning for messages too large to be parked")
    return limit if isinstance(limit, int) and limit > 0 else None


def is_smaller(message: AmqpAnnotatedMessage, limit: int) -> bool:
    """Whether body and application properties are certainly smaller than ``limit`` bytes.

    Fast, since every send calls it; False where an exact answer would take longer.
    """
    try:
        body: Any = message._data_body
    except AttributeError:
        private(message, "_data_body", "every message must be encoded to learn its size, which is slower")
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
                size += 4 * len(value)  # the maximum in UTF-8
    return size < limit


_PEEK = b"com.microsoft:peek-message"
_NO_PEEK = "ordered sessions stay parked: their backlog queues cannot be peeked"


def is_empty(sender: ServiceBusSender, session_id: str | None, seconds: float) -> bool:
    """Whether the queue of this sender holds no message, or none of this session (O-4).

    Peeks over the ``$management`` node on the sender's own connection: a receiver of the SDK would have to accept the
    session first, or be refused. Raises the SDK's exceptions.
    """
    ask = _mgmt(sender)
    return bool(ask(_PEEK, _peek_body(sender, session_id), _answer, timeout=seconds))


async def is_empty_async(sender: AsyncServiceBusSender, session_id: str | None, seconds: float) -> bool:
    """The asyncio twin of :func:`is_empty`."""
    ask = _mgmt(sender)
    return bool(await ask(_PEEK, _peek_body(sender, session_id), _answer, timeout=seconds))


def _mgmt(sender: object) -> Callable[..., Any]:
    ask = private(sender, "_mgmt_request_response_with_retry", _NO_PEEK)
    transport = private(sender, "_amqp_transport", _NO_PEEK)
    if not callable(ask) or getattr(transport, "AMQP_LONG_VALUE", None) is None:
        raise ServiceBusError("this version of azure-servicebus cannot peek over a sender")
    return ask


def _peek_body(sender: Any, session_id: str | None) -> dict[str, object]:  # noqa: ANN401 -- private parts
    first = {"from-sequence-number": sender._amqp_transport.AMQP_LONG_VALUE(1), "message-count": 1}
    return first if session_id is None else {**first, "session-id": session_id}


def _answer(status: int, message: Any, description: object, amqp_transport: Any) -> bool:  # noqa: ANN401
    """Whether the answer to a peek reports that no message was found; any other status is an error."""
    if status == 200:
        return False
    if status in (202, 204):
        return True
    condition = (message.application_properties or {}).get(b"errorCondition")
    amqp_transport.handle_amqp_mgmt_error(_logger, "The peek failed.", condition, description, status)
    raise ServiceBusError(f"The peek failed with status {status}.")


def carry_trace(message: AmqpAnnotatedMessage) -> None:
    """Add the caller's trace context to a message, as the SDK does on sending. Existing context is kept."""
    kind = settings.tracing_implementation()
    if kind is None:
        return
    with kind(name="ServiceBus.message", kind=SpanKind.PRODUCER) as span:
        headers = span.to_header()
    carried: dict[str | bytes, Any] = dict(message.application_properties or {})
    for name, header in _TRACE_PROPERTIES:
        if header in headers and name.decode() not in carried:
            carried.setdefault(name, headers[header])
    message.application_properties = carried or None


_TRACE_PROPERTIES = (
    (b"Diagnostic-Id", "traceparent"),
    (b"traceparent", "traceparent"),
    (b"tracestate", "tracestate"),
)
