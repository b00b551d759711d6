"""The administration face on the same port: aiohttp reads and writes HTTP, the face decides.

Loaded with the first client that speaks TLS or HTTP: a broker nobody administers never pays for it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiohttp import web

from ..faces import admin
from ..faces.moment import Moment
from .wire import AmqpWire

if TYPE_CHECKING:
    from .station import Station

FIRST_REQUEST_WITHIN = 20.0  # seconds
_OPENS_AMQP = ord("A")
_LOGGER = logging.getLogger("sbpair.broker.http")
_LOGGER.addHandler(logging.NullHandler())  # a client's bad request is answered, not shouted


class HttpServer:
    """HTTP for one namespace."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._server = web.Server(self._handle, access_log=None, logger=_LOGGER)
        self._patience: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}

    def protocol(self) -> asyncio.Protocol:
        """A protocol for one connection."""
        return self._server()

    def watch(self, transport: asyncio.Transport) -> None:
        """Cut the connection unless a whole request comes soon."""
        timer = asyncio.get_running_loop().call_later(FIRST_REQUEST_WITHIN, self._cut, transport)
        self._patience[transport] = timer

    def _cut(self, transport: asyncio.Transport) -> None:
        del self._patience[transport]
        transport.abort()

    async def close(self) -> None:
        """Close every connection."""
        for timer in self._patience.values():
            timer.cancel()
        await self._server.shutdown(0.5)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        raw_path, _, query = request.raw_path.partition("?")
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = admin.Request(request.method, raw_path, query, headers, await request.read())
        if (
            request.transport is not None
            and (timer := self._patience.pop(request.transport, None)) is not None
        ):
            timer.cancel()
        answer = self._answer(asked, self._station.moment())
        self._station.settle()
        return web.Response(status=answer.status, headers=dict(answer.headers), body=answer.body)

    def _answer(self, asked: admin.Request, moment: Moment) -> admin.Response:
        face = self._station.face
        refusal = admin.refusal(asked, face.verifier, moment.wall)
        return refusal if refusal is not None else admin.answer(face.namespace, asked, moment.entity)


class Sniffer(asyncio.Protocol):
    """Inside TLS: the first byte says whether AMQP or HTTP follows, and the connection is handed over."""

    def __init__(self, station: Station, http: HttpServer) -> None:
        self._station = station
        self._http = http
        self._transport: asyncio.Transport
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes, but not for ever."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - streams only
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(FIRST_REQUEST_WITHIN, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It went before it said anything."""
        if self._patience is not None:
            self._patience.cancel()

    def data_received(self, data: bytes) -> None:
        """Hand over."""
        if self._patience is not None:
            self._patience.cancel()
        heir: asyncio.Protocol
        if data[0] == _OPENS_AMQP:
            heir = AmqpWire(self._station)
        else:
            heir = self._http.protocol()
            self._http.watch(self._transport)
        self._transport.set_protocol(heir)
        heir.connection_made(self._transport)
        heir.data_received(data)
