"""The listening port of a namespace, and the protocol of each accepted connection.

    bind()       the port is reserved; connections are refused (ECONNREFUSED)
    listen()     connections are accepted
    pause()      connections wait in the system's queue
    close()      the port is free for others

A namespace that refuses connections stays bound, because another program could take its port meanwhile.

    first byte 'A'    AMQP          plain, for clients with UseDevelopmentEmulator=true
    first byte 0x16   TLS           the first byte inside it decides again: AMQP or HTTP
    a capital letter  HTTP          the administration API, plain
    anything else     closed        that connection only

The first byte is peeked at, not consumed (MSG_PEEK), because TLS needs it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from ..errors import PortUnavailableError
from . import event_loop
from .wire import AmqpWire, WireHost

if TYPE_CHECKING:
    from .http import HttpServer

ACCEPT_RETRY = 0.05  # seconds, when descriptors have run out
LOG_INTERVAL = 10.0  # seconds
BACKLOG = 256

_LOGGER = logging.getLogger("sbpair.broker")


class Listener:
    """Passes each accepted socket to ``welcome``.

    All methods but the constructor run in the broker's loop.
    """

    def __init__(self, name: str, host: str, port: int, welcome: Callable[[socket.socket], None]) -> None:
        self.host = host
        self.port = port
        """The port; 0, for any free one, is replaced by the actual port once bound."""
        self._name = name
        self._welcome = welcome
        self._socket: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None
        self._logged_at = -inf

    @property
    def is_bound(self) -> bool:
        """Whether the port is bound."""
        return self._socket is not None

    def bind(self) -> None:
        """Bind the port unless it is bound. Raises PortUnavailableError."""
        if self._socket is not None:
            return
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        try:
            bound.bind((self.host, self.port))
        except Exception as error:
            bound.close()
            if isinstance(error, OSError | OverflowError):
                raise self._unavailable(error) from error
            raise
        self._socket = bound
        self.port = bound.getsockname()[1]

    def listen(self) -> None:
        """Bind if necessary and accept connections.

        Raises PortUnavailableError: another program may listen on the bound port.
        """
        self.bind()
        assert self._socket is not None  # noqa: S101 - just bound
        try:
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise self._unavailable(error) from error
        asyncio.get_running_loop().add_reader(self._socket, self._accept_all, self._socket)

    def pause(self) -> None:
        """Stop accepting for now."""
        if self._again is not None:
            self._again.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)

    def close(self) -> None:
        """Release the port."""
        self.pause()
        if self._socket is not None:
            with suppress(OSError):  # a process being forked may hold a copy: close() alone would not end it
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None

    def _unavailable(self, error: OSError | OverflowError) -> PortUnavailableError:
        reason = getattr(error, "strerror", None) or str(error).removesuffix(".")
        return PortUnavailableError(self._name, self.host, self.port, reason)

    def _refused(self, error: OSError) -> None:
        """Log, at most every LOG_INTERVAL seconds, that a connection could not be accepted."""
        now = asyncio.get_running_loop().time()
        if now < self._logged_at + LOG_INTERVAL:
            return
        self._logged_at = now
        _LOGGER.warning(
            "A connection to the namespace '%s' on port %d could not be accepted: %s. It stays queued "
            "and is retried; the limit of open files of this process is %d.",
            self._name,
            self.port,
            error.strerror or error,
            event_loop.limit(),
        )

    def _accept_all(self, listening: socket.socket) -> None:
        """Accept all waiting connections.

        No future holds an accepted socket: a cancelled one would lose it.
        """
        while True:
            try:
                sock, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors, or the client has disconnected
                self._refused(error)
                self.pause()
                self._again = asyncio.get_running_loop().call_later(ACCEPT_RETRY, self.listen)
                return
            sock.setblocking(False)
            self._welcome(sock)


FIRST_BYTE_WITHIN = 20.0  # seconds
_OPENS_AMQP, _OPENS_TLS = b"A", b"\x16"


class ProtocolSniffer:
    """Detects the protocol of accepted sockets, and tracks the connections that speak HTTP or TLS."""

    def __init__(self, server: WireHost, tls: Callable[[], ssl.SSLContext]) -> None:
        self.transports: set[asyncio.Transport] = set()
        """Connections over HTTP or TLS; plain AMQP connections are in ``NamespaceServer.wires``."""
        self._server = server
        self._tls = tls
        self._greetings: set[asyncio.Task[None]] = set()
        self._http: HttpServer | None = None
        self._http_loading = asyncio.Lock()

    def welcome(self, sock: socket.socket) -> None:
        """Take over an accepted socket."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = asyncio.get_running_loop().create_task(self._greet(sock))
        self._greetings.add(greeting)

        def ended(greeting: asyncio.Task[None]) -> None:
            self._greetings.discard(greeting)
            sock.close()  # a no-op once a transport owns it; a task cancelled before it began leaves it to us

        greeting.add_done_callback(ended)

    def close_silent(self) -> None:
        """Close the connections that have not sent anything yet."""
        for greeting in self._greetings:
            greeting.cancel()

    async def close(self) -> None:
        """Close all connections and wait until they are gone."""
        greetings = list(self._greetings)
        self.close_silent()
        await asyncio.gather(*greetings, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def _greet(self, sock: socket.socket) -> None:
        with suppress(OSError, TimeoutError):  # disconnected, TLS failed, or silent
            async with asyncio.timeout(FIRST_BYTE_WITHIN):
                first = await _peek(sock)
            if first == _OPENS_AMQP:
                await _adopt(sock, lambda plain: AmqpWire(self._server, plain))
            elif first == _OPENS_TLS:
                await self._greet_http(sock, await asyncio.to_thread(self._tls))
            elif first.isalpha() and first.isupper():
                await self._greet_http(sock)

    async def _greet_http(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Take over a connection that speaks HTTP, or with ``context`` TLS, in which HTTP or AMQP follows."""
        http = await self._http_server()
        from .http import Sniffer  # imported by now

        self._remember(await _adopt(sock, lambda _: Sniffer(self._server, http), context))

    def _remember(self, transport: asyncio.Transport) -> None:
        self.transports = {other for other in self.transports if not other.is_closing()}
        self.transports.add(transport)
        if self._server.is_silent:
            transport.pause_reading()

    async def _http_server(self) -> HttpServer:
        async with self._http_loading:
            if self._http is None:
                # importing aiohttp is slow: AMQP continues meanwhile
                module = await asyncio.to_thread(_load_http)
                self._http = module(self._server)
            return self._http


async def _adopt(
    sock: socket.socket,
    protocol: Callable[[socket.socket], asyncio.Protocol],
    tls: ssl.SSLContext | None = None,
) -> asyncio.Transport:
    """Hand the socket over to a transport; ``sock`` is detached.

    A cancelled caller leaves behind a transport that aborts as soon as it is complete. The adoption itself is
    never cancelled: uvloop would close the socket without reporting the lost connection to the protocol.
    """
    loop = asyncio.get_running_loop()
    detached = socket.socket(fileno=sock.detach())
    timeout = FIRST_BYTE_WITHIN if tls is not None else None
    adopting = loop.create_task(
        loop.connect_accepted_socket(
            lambda: protocol(detached), detached, ssl=tls, ssl_handshake_timeout=timeout
        )
    )
    try:
        transport, _ = await asyncio.shield(adopting)
    except asyncio.CancelledError:
        if tls is not None:
            adopting.cancel()  # a handshake may take long, and closes cleanly when cancelled
        adopting.add_done_callback(_abort)  # it may just have completed
        raise
    return transport


def _abort(adopting: asyncio.Task[tuple[asyncio.Transport, asyncio.Protocol]]) -> None:
    if not adopting.cancelled() and adopting.exception() is None:
        adopting.result()[0].abort()


def _load_http() -> type[HttpServer]:
    from .http import HttpServer

    return HttpServer


async def _peek(sock: socket.socket) -> bytes:
    """Return the first byte without consuming it; b"" at the end of the stream."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            pass
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(sock, _resolve, readable)
        try:
            await readable
        finally:
            loop.remove_reader(sock)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
