"""What language does who connects speak? Their first byte tells.

    first byte 'A'    AMQP          plain, for clients with UseDevelopmentEmulator=true
    first byte 0x16   TLS           and inside it the same question again: AMQP or HTTP
    a capital letter  HTTP          the administration API, plain
    anything else     closed        that connection only

The first byte is looked at, not taken (MSG_PEEK): TLS needs it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from .wire import AmqpWire, WireHost

if TYPE_CHECKING:
    from .http import HttpServer

FIRST_BYTE_WITHIN = 20.0  # seconds
_OPENS_AMQP, _OPENS_TLS = b"A", b"\x16"


class Reception:
    """The sockets of a port whose language is not known yet, and those that speak HTTP or TLS."""

    def __init__(self, station: WireHost, tls: Callable[[], ssl.SSLContext]) -> None:
        self.transports: set[asyncio.Transport] = set()
        """HTTP, or not known yet; AMQP in the clear belongs to the station."""
        self._station = station
        self._tls = tls
        self._greetings: set[asyncio.Task[None]] = set()
        self._http: HttpServer | None = None
        self._http_loading = asyncio.Lock()

    def welcome(self, sock: socket.socket) -> None:
        """Take in a socket that was accepted."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = asyncio.get_running_loop().create_task(self._greet(sock))
        self._greetings.add(greeting)

        def ended(greeting: asyncio.Task[None]) -> None:
            self._greetings.discard(greeting)
            if greeting.cancelled():  # perhaps before it had begun
                sock.close()

        greeting.add_done_callback(ended)

    def send_away(self) -> None:
        """Close those that have not said anything yet."""
        for greeting in self._greetings:
            greeting.cancel()

    async def close(self) -> None:
        """Send everybody away, and wait until they are gone."""
        greetings = list(self._greetings)
        self.send_away()
        await asyncio.gather(*greetings, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def _greet(self, sock: socket.socket) -> None:
        is_ours = True
        try:
            async with asyncio.timeout(FIRST_BYTE_WITHIN):
                first = await _peek(sock)
            if first == _OPENS_AMQP:
                await _adopt(lambda: AmqpWire(self._station, sock), sock)
            elif first == _OPENS_TLS:
                await self._greet_tls(sock)
            elif first.isalpha() and first.isupper():
                http = await self._http_server()
                transport = await _adopt(http.protocol, sock)
                http.watch(transport)
                self._remember(transport)
            else:
                return
            is_ours = False  # the transport's now
        except (OSError, TimeoutError):
            pass  # it went away, spoke no TLS, or said nothing
        finally:
            if is_ours:
                sock.close()

    async def _greet_tls(self, sock: socket.socket) -> None:
        from .http import Sniffer

        http = await self._http_server()
        context = await asyncio.to_thread(self._tls)
        self._remember(await _adopt(lambda: Sniffer(self._station, http), sock, context))

    def _remember(self, transport: asyncio.Transport) -> None:
        self.transports = {other for other in self.transports if not other.is_closing()}
        self.transports.add(transport)

    async def _http_server(self) -> HttpServer:
        async with self._http_loading:
            if self._http is None:
                module = await asyncio.to_thread(_load_http)  # aiohttp takes its time: AMQP goes on
                self._http = module(self._station)
            return self._http


async def _adopt(
    protocol: Callable[[], asyncio.Protocol], sock: socket.socket, tls: ssl.SSLContext | None = None
) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    patience = FIRST_BYTE_WITHIN if tls is not None else None
    transport, _ = await loop.connect_accepted_socket(protocol, sock, ssl=tls, ssl_handshake_timeout=patience)
    return transport


def _load_http() -> type[HttpServer]:
    from .http import HttpServer

    return HttpServer


async def _peek(sock: socket.socket) -> bytes:
    """The first byte, left where it is; b"" at the end of the stream."""
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
