"""AMQP over WebSocket: an asyncio transport that carries a byte stream over an open WebSocket.

    protocol.write --> outbox --> binary messages --> peer
    protocol.data_received   <--  binary messages <-- peer

A frame may span messages, and a message may hold many frames (AMQP WebSocket Binding 1.0, 2.3). The caller opens the
WebSocket, including TLS; :class:`WebSocket` lists the methods that this transport uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

PATH = "/$servicebus/websocket"
SUBPROTOCOL = "AMQPWSB10"  # the older name of Service Bus, which most SDKs request
STANDARD_SUBPROTOCOL = "amqp"  # AMQP WebSocket Binding 1.0, 2.1; the Go SDK's documentation has it
MAX_MESSAGE_BYTES = 4 * 1024 * 1024  # bytes of one received message
PIECE = 256 * 1024  # bytes of one sent message
HIGH_WATER = 256 * 1024  # bytes in the outbox above which the protocol is paused
BINARY = 2  # RFC 6455, 5.2


class WebSocketMessage(Protocol):
    """A received message; any but a binary one ends the stream."""

    @property
    def type(self) -> int: ...

    @property
    def data(self) -> object: ...  # bytes, text, a close code or an error, depending on the type


class WebSocket(Protocol):
    """The WebSocket methods that are used; both the client's and the server's WebSocket of aiohttp have them."""

    async def receive(self) -> WebSocketMessage: ...

    async def send_bytes(self, data: bytes, /) -> None: ...

    async def close(self) -> bool: ...

    def get_extra_info(self, name: str, default: object = None) -> object: ...


class WebSocketTransport(asyncio.Transport):
    """Carries the bytes of ``protocol``. ``cut`` aborts the connection beneath the WebSocket."""

    def __init__(self, websocket: WebSocket, protocol: asyncio.Protocol, cut: Callable[[], None]) -> None:
        super().__init__()
        self._websocket = websocket
        self._protocol = protocol
        self._cut = cut
        self._outbox = bytearray()
        self._news = asyncio.Event()
        self._readable = asyncio.Event()
        self._readable.set()
        self._high_water = HIGH_WATER
        self._is_paused = False
        self._is_closing = False

    async def run(self) -> None:
        """Carry bytes until either side closes; calls ``connection_made`` first and ``connection_lost`` last."""
        self._protocol.connection_made(self)
        writing = asyncio.ensure_future(self._write_all())
        error: Exception | None = None
        try:
            await self._read_all()
        except OSError as lost:
            error = lost
        finally:
            self._is_closing = True
            writing.cancel()
            self._cut()
            await asyncio.gather(writing, return_exceptions=True)
            self._protocol.connection_lost(error)

    async def _read_all(self) -> None:
        while True:
            message = await self._websocket.receive()
            await self._readable.wait()
            data = message.data
            if message.type != BINARY or not isinstance(data, bytes):
                return
            if not self._is_closing:
                self._protocol.data_received(data)

    async def _write_all(self) -> None:
        try:
            while self._outbox or not self._is_closing:
                if not self._outbox:
                    self._news.clear()
                    await self._news.wait()
                    continue
                piece = bytes(self._outbox[:PIECE])
                del self._outbox[:PIECE]
                await self._websocket.send_bytes(piece)
                self._resume_protocol()
            await self._websocket.close()
        except (OSError, RuntimeError):  # closed: the reading side calls connection_lost
            self.abort()

    def _resume_protocol(self) -> None:
        if self._is_paused and len(self._outbox) <= self._high_water // 4:
            self._is_paused = False
            self._protocol.resume_writing()

    # asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        self._outbox += data
        self._news.set()
        if not self._is_paused and len(self._outbox) > self._high_water:
            self._is_paused = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return len(self._outbox)

    def pause_reading(self) -> None:
        self._readable.clear()

    def resume_reading(self) -> None:
        self._readable.set()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Send the outbox, then close the WebSocket."""
        self._is_closing = True
        self._readable.set()
        self._news.set()

    def abort(self) -> None:
        self._is_closing = True
        self._outbox.clear()
        self._readable.set()
        self._cut()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._websocket.get_extra_info(name, default)
