"""HTTP on the same port: aiohttp reads and writes, the faces decide.

    GET /$servicebus/websocket, an upgrade     AMQP over WebSocket: one more wire
    ... /{entity}/messages, .../messages/...   sending and receiving
    anything else                              the administration API

A body is read once the token holds.

Loaded with the first client that speaks TLS or HTTP: a broker nobody administers never pays for it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import cast
from urllib.parse import unquote

from aiohttp import web
from aiohttp.http import HttpProcessingError

from ...amqp.websocket import (
    LARGEST_MESSAGE,
    PATH,
    STANDARD_SUBPROTOCOL,
    SUBPROTOCOL,
    WebSocketTransport,
)
from ..faces.administration import admin
from ..faces.moment import Moment
from ..faces.rest import requests as rest
from ..faces.rest.faults import Fate
from ..faces.rest.receiver import NOTHING, RestReceiver
from .wire import AmqpWire, WireHost

FIRST_REQUEST_WITHIN = 20.0  # seconds
BODY_WITHIN = 20.0  # seconds
LARGEST_FIELD = 32 * 1024  # bytes of a header's value: a property may be as large (3.9)
LINGER = 1.0  # seconds the rest of a refused body is read, so that the refusal arrives
_OPENS_AMQP = ord("A")

_ABSOLUTE = re.compile(r"^https?://[^/?]*", re.IGNORECASE)  # RFC 9112, 3.2.2: so the Java SDK asks


_CLIENTS_OWN = (HttpProcessingError, web.HTTPException, web.RequestPayloadError, ConnectionError)


class _BrokenRequests(logging.Filter):
    """A client's bad request is answered, not shouted; a fault of ours is shouted."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, _CLIENTS_OWN)


_LOGGER = logging.getLogger("sbpair.broker.http")
_LOGGER.addFilter(_BrokenRequests())


class HttpServer:
    """HTTP for one namespace."""

    def __init__(self, station: WireHost) -> None:
        self._front = station
        self._server = web.Server(
            self._handle,
            access_log=None,
            logger=_LOGGER,
            lingering_time=LINGER,
            max_field_size=LARGEST_FIELD,
            handler_cancellation=True,  # who has gone waits for no message
        )
        self._patience: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        self._carrying: set[asyncio.Future[None]] = set()

    def protocol(self) -> asyncio.Protocol:
        """A protocol for one connection."""
        return self._server()

    def watch(self, transport: asyncio.Transport) -> None:
        """Cut the connection unless the head of a request comes soon."""
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

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is not None and (timer := self._patience.pop(transport, None)) is not None:
            timer.cancel()
        raw_path, _, query = _ABSOLUTE.sub("", request.raw_path, count=1).partition("?")
        if unquote(raw_path) == PATH:
            return await self._carry_amqp(request)
        station: WireHost | None = self._front.neighbours.named(request.headers.get("Host"))
        if station is None:
            names = self._front.neighbours.names
            return _plain(404, f"Host names none of the namespaces of this port: {names}.")
        if station.turns_away(transport):
            await _nothing()
        headers = {name.lower(): value for name, value in request.headers.items()}
        spelt = {name.lower(): name for name in request.headers}
        asked = admin.Request(request.method, raw_path, query, headers, spelt=spelt, scheme=request.scheme)
        call = rest.call_of(asked)
        if call is None:
            return await self._administer(station, request, asked)
        return await self._converse(station, request, call)

    # -- administration

    async def _administer(
        self, station: WireHost, request: web.BaseRequest, asked: admin.Request
    ) -> web.Response:
        refusal = admin.refusal(asked, station.face.verifier, station.moment().wall)
        if refusal is not None:
            _note(station, refusal, asked)
            return _written(refusal, ends=True)
        body = await _body_of(request)
        if isinstance(body, web.Response):
            return body
        moment: Moment = station.moment()
        answer = admin.struck(station.face, asked, moment) or admin.answer(
            station.face.namespace, asked.with_body(body), moment.entity
        )
        _note(station, answer, asked)
        station.settle()
        station.commit()  # G-26: on the disk before it is answered
        return _written(answer)

    # -- sending and receiving

    async def _converse(
        self, station: WireHost, request: web.BaseRequest, call: rest.RestCall
    ) -> web.Response:
        refusal = rest.refusal(call, station.face, station.moment().wall)
        if refusal is not None:
            _note(station, refusal, call.request)
            return _written(refusal, ends=True)
        body = await _body_of(request)
        if isinstance(body, web.Response):
            return body
        answer = rest.answer(station.face, call.with_body(body), station.moment())
        fate = await _wait(station, answer) if isinstance(answer, RestReceiver) else answer
        station.settle()
        station.commit()  # G-26
        await asyncio.sleep(fate.after + station.delay)
        if fate.cuts and request.transport is not None:
            request.transport.abort()
        if fate.response is None:
            await _nothing()
        response = fate.response or NOTHING
        _note(station, response, call.request)
        return _written(response)

    # -- AMQP over WebSocket

    async def _carry_amqp(self, request: web.BaseRequest) -> web.StreamResponse:
        websocket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL, STANDARD_SUBPROTOCOL),
            compress=False,
            max_msg_size=LARGEST_MESSAGE,
            timeout=LINGER,
        )
        if request.method != "GET" or websocket.can_prepare(request).protocol is None:
            return _plain(400, f"Expected here: a WebSocket upgrade with the sub-protocol {SUBPROTOCOL}.")
        await websocket.prepare(request)
        connection = request.transport
        if connection is not None:
            wire = WebSocketTransport(websocket, AmqpWire(self._front), connection.abort)
            carrying = asyncio.ensure_future(wire.run())
            self._carrying.add(carrying)
            carrying.add_done_callback(self._carrying.discard)
            await asyncio.shield(carrying)  # what a client said before it went still counts
        return websocket


def _note(station: WireHost, answer: admin.Response, asked: admin.Request) -> None:
    """Keep what was refused, for those who look."""
    if answer.refused:
        what = f"{asked.method} {unquote(asked.raw_path)}"
        station.face.rejections.note(station.moment().entity, what, f"HTTP {answer.status}", answer.refused)


async def _nothing() -> None:
    """No answer: until the client goes, which cancels this."""
    await asyncio.get_running_loop().create_future()


async def _wait(station: WireHost, receiver: RestReceiver) -> Fate:
    """What becomes of a request that waits for a message."""
    came = asyncio.Event()
    receiver.on_fate = came.set
    receiver.begin(station.moment())
    try:
        station.settle()
        async with asyncio.timeout(receiver.span):
            await came.wait()
    except TimeoutError:
        pass  # nothing came
    finally:
        receiver.end(station.moment())
    return receiver.fate or Fate(NOTHING)


async def _body_of(request: web.BaseRequest) -> bytes | web.Response:
    """The body, or what is answered instead. 1 MiB at most, unpacked: aiohttp's own bound."""
    try:
        async with asyncio.timeout(BODY_WITHIN):
            return await request.read()
    except TimeoutError:
        return _plain(408, f"The body did not come within {BODY_WITHIN:g} s.")
    except web.RequestPayloadError:
        return _plain(400, "The body is not as Content-Encoding or Transfer-Encoding say it is.")


def _written(answer: admin.Response, *, ends: bool = False) -> web.Response:
    response = web.Response(status=answer.status, headers=dict(answer.headers), body=answer.body)
    if ends:
        response.force_close()
    return response


def _plain(status: int, text: str) -> web.Response:
    response = web.Response(status=status, text=text)
    response.force_close()
    return response


class Sniffer(asyncio.Protocol):
    """Inside TLS: the first byte says whether AMQP or HTTP follows, and the connection is handed over."""

    def __init__(self, station: WireHost, http: HttpServer) -> None:
        self._station = station
        self._http = http
        self._transport: asyncio.Transport
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes, but not for ever."""
        transport = cast(asyncio.Transport, transport)  # streams only
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
