"""HTTP on the namespace's port: aiohttp reads and writes, the frontends decide.

    GET /$servicebus/websocket, an upgrade     AMQP over WebSocket
    GET /health, without a token               a health check: an AMQP round trip
    ... /{entity}/messages, .../messages/...   sending and receiving
    anything else                              the administration API

The body of a request is read only after its token has been verified.

This module is imported when the first client speaks TLS or HTTP, because aiohttp is slow to import.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import NoReturn, cast
from urllib.parse import unquote

from aiohttp import web
from aiohttp.http import HttpProcessingError

from sbpair.pair.amqp.websocket import (
    MAX_MESSAGE_BYTES,
    PATH,
    STANDARD_SUBPROTOCOL,
    SUBPROTOCOL,
    WebSocketTransport,
)

from ..access import OpenAccess
from ..clock import ClockReading
from ..errors import MessageTooLargeError
from ..frontends.admin import requests
from ..frontends.admin.http_messages import failed
from ..frontends.admin.requests import forwarding_refusal
from ..frontends.rest import requests as rest
from ..frontends.rest.faults import FaultedResponse
from ..frontends.rest.receiver import RestReceiver
from .guarded_requests import HEAD_WITHIN, GuardedRequests
from .health import HealthProbe
from .host_names import comes_from_this_broker, names_this_broker
from .wire import AmqpWire, WireHost

IDLE_BETWEEN = 75.0  # seconds between two requests of a connection
BODY_WITHIN = 20.0  # seconds
MAX_REQUEST_BYTES = 2**20  # bytes of a body: aiohttp's own bound, and the service's over HTTP
MAX_FIELD_BYTES = 32 * 1024  # bytes of a header's value: a message property may be this large
LINGER = 1.0  # seconds for which the rest of a refused body is read, so that the client gets the refusal
HEALTH = "/health"
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - connects to a server that listens there
_OPENS_AMQP = ord("A")


class _Gone:
    """The front end of a connection that has ended."""


_NOBODY = _Gone()

# RFC 9112, 3.2.2: the absolute form, which the Java SDK sends
_ABSOLUTE = re.compile(r"^https?://[^/?]*", re.IGNORECASE)


_CLIENT_ERRORS = (HttpProcessingError, web.HTTPException, web.RequestPayloadError, ConnectionError)


class _BrokerErrors(logging.Filter):
    """Passes errors of the broker only: a client's invalid request is answered, not logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, _CLIENT_ERRORS)


_LOGGER = logging.getLogger("sbpair.broker.http")
_LOGGER.addFilter(_BrokerErrors())
UNREAD = "not read"
_UNREAD_LOGGER = logging.getLogger("sbpair.broker.unread")


class HttpServer:
    """Serves HTTP for the namespaces of one port."""

    def __init__(self, server: WireHost) -> None:
        self._front = server
        self._server = web.Server(
            self._handle,
            access_log=None,
            logger=_LOGGER,
            lingering_time=LINGER,
            max_field_size=MAX_FIELD_BYTES,
            keepalive_timeout=IDLE_BETWEEN,
            handler_cancellation=True,  # a client that disconnected must not take a message
        )
        self._health: HealthProbe | None = None
        self._guards: dict[asyncio.BaseTransport, GuardedRequests] = {}
        self._carrying: set[asyncio.Future[None]] = set()

    def protocol(self, transport: asyncio.Transport) -> asyncio.Protocol:
        """Return a protocol instance for one connection."""
        guard = GuardedRequests(self._server(), lost=lambda: self._guards.pop(transport, None))
        self._guards[transport] = guard
        return guard

    async def close(self) -> None:
        """Close every connection."""
        if self._health is not None:
            await self._health.close()
        await self._server.shutdown(0.5)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        guard = None if transport is None else self._guards.get(transport)
        if guard is None:
            return await self._respond(request)
        guard.begun(has_body=request.can_read_body)
        response: web.StreamResponse | None = None
        try:
            response = await self._respond(request)
        finally:
            guard.answered(is_last=response is None or response.keep_alive is False)
        return response

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if (
            request.path == HEALTH
            and request.method in ("GET", "HEAD")
            and "Authorization" not in request.headers
        ):
            return await self._report_health()
        if self._may_be_from_a_foreign_page(request):
            return _plain(403, "With open access, Host and Origin must name this machine's loopback.")
        raw_path, _, query = _ABSOLUTE.sub("", request.raw_path, count=1).partition("?")
        if unquote(raw_path).removesuffix("/") == PATH:  # .NET's client has a slash at its end
            return await self._carry_amqp(request)
        server: WireHost | None = self._front.neighbours.select(request.headers.get("Host"))
        if server is None:
            names = self._front.neighbours.names
            return _plain(404, f"Host does not name a namespace of this port; there are: {names}.")
        while server.turns_away(transport):
            await server.wait_until_up()
        headers = {name.lower(): value for name, value in request.headers.items()}
        header_names = {name.lower(): name for name in request.headers}
        requested = requests.Request(
            request.method, raw_path, query, headers, header_names=header_names, scheme=request.scheme
        )
        call = rest.call_of(requested)
        if call is None:
            return await self._administer(server, request, requested)
        return await self._converse(server, request, call)

    async def _report_health(self) -> web.Response:
        """Return 200 when AMQP works on this port, else 503."""
        if self._health is None:
            host = self._front.host
            self._health = HealthProbe(LOOPBACK_OF.get(host, host), self._front.neighbours.all[0].port)
        try:
            seconds = await self._health.round_trip()
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer over AMQP in time"
            return web.json_response({"status": "unhealthy", "reason": reason}, status=503)
        response = web.json_response({"status": "healthy", "round_trip_ms": round(seconds * 1000, 3)})
        response.force_close()  # it has no token: it does not keep a connection
        return response

    def _may_be_from_a_foreign_page(self, request: web.BaseRequest) -> bool:
        """Whether, with open access, a foreign web page may have sent this request (DNS rebinding)."""
        fronts = self._front.neighbours.all
        if not any(isinstance(each.frontend.verifier, OpenAccess) for each in fronts):
            return False
        host, names = self._front.host, [each.frontend.namespace.name for each in fronts]
        names += [each.advertised for each in fronts if each.advertised]
        headers = request.headers
        return not (
            names_this_broker(headers.get("Host", ""), host, names)
            and comes_from_this_broker(headers.get("Origin"), host, names)
        )

    # -- administration

    async def _administer(
        self, server: WireHost, request: web.BaseRequest, requested: requests.Request
    ) -> web.Response:
        frontend = server.frontend
        refusal = requests.refusal(
            requested, frontend.namespace, frontend.verifier, server.read_clocks().wall
        )
        if refusal is not None:
            _note(server, refusal, requested)
            return _to_aiohttp(refusal, ends=True)
        try:
            body = await _body_of(request)
        except MessageTooLargeError as error:
            return _to_aiohttp(failed(error, requested, server.read_clocks().entity, 413), ends=True)
        if isinstance(body, web.Response):
            return body
        now: ClockReading = server.read_clocks()
        requested = requested.with_body(body)
        answer = (
            forwarding_refusal(requested, frontend.namespace, frontend.verifier, now.wall)
            or requests.fault_response(frontend, requested, now)
            or requests.answer(frontend.namespace, requested, now.entity)
        )
        _note(server, answer, requested)
        server.end_turn()
        server.commit()  # on the disk before it is answered
        return _to_aiohttp(answer)

    # -- sending and receiving

    async def _converse(
        self, server: WireHost, request: web.BaseRequest, call: rest.RestCall
    ) -> web.Response:
        refusal = rest.refusal(call, server.frontend, server.read_clocks().wall)
        if refusal is not None:
            _note(server, refusal, call.request)
            return _to_aiohttp(refusal, ends=True)
        try:
            body = await _body_of(request)
        except MessageTooLargeError as error:
            refusal = rest.refuse(call, error, server.read_clocks())
            _note(server, refusal, call.request)
            return _to_aiohttp(refusal, ends=True)
        if isinstance(body, web.Response):
            return body
        front_end = self._guards.get(request.transport) if request.transport is not None else None
        answer = rest.answer(
            server.frontend, call.with_body(body), server.read_clocks(), front_end or _NOBODY
        )
        fate = await _wait(server, answer) if isinstance(answer, RestReceiver) else answer
        server.end_turn()
        server.commit()
        await asyncio.sleep(fate.after + server.delay)
        if fate.cuts and request.transport is not None:
            request.transport.abort()
        response = fate.response
        if response is None:
            return await _nothing()
        _note(server, response, call.request)
        return _to_aiohttp(response)

    # -- AMQP over WebSocket

    async def _carry_amqp(self, request: web.BaseRequest) -> web.StreamResponse:
        websocket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL, STANDARD_SUBPROTOCOL),
            compress=False,
            max_msg_size=MAX_MESSAGE_BYTES,
            timeout=LINGER,
        )
        if request.method != "GET" or websocket.can_prepare(request).protocol is None:
            return _plain(400, f"This path expects a WebSocket upgrade with the sub-protocol {SUBPROTOCOL}.")
        await websocket.prepare(request)
        connection = request.transport
        if connection is not None:
            amqp = AmqpWire(self._front)
            wire = WebSocketTransport(websocket, amqp, connection.abort)
            if (guard := self._guards.get(connection)) is not None:
                guard.opened(lambda: amqp.is_trusted)
            carrying = asyncio.ensure_future(wire.run())
            self._carrying.add(carrying)
            carrying.add_done_callback(self._carrying.discard)
            # data that arrived before the client disconnected is still processed
            await asyncio.shield(carrying)
        return websocket


def _note(server: WireHost, answer: requests.Response, requested: requests.Request) -> None:
    """Record a refused request for the dashboard, and log what was ignored in an accepted one."""
    if answer.refused:
        what = f"{requested.method} {unquote(requested.raw_path)}"
        server.frontend.rejections.note(
            server.read_clocks().entity, what, f"HTTP {answer.status}", answer.refused
        )
    for text in answer.unread:
        what = f"{requested.method} {unquote(requested.raw_path)}"
        server.frontend.rejections.note(server.read_clocks().entity, what, UNREAD, text)
        _UNREAD_LOGGER.warning("%s: %s: %s", server.frontend.namespace.name, what, text)


async def _nothing() -> NoReturn:
    """Never answer: wait until the client disconnects, which cancels this task."""
    while True:
        await asyncio.get_running_loop().create_future()


async def _wait(server: WireHost, receiver: RestReceiver) -> FaultedResponse:
    """Return the outcome of a request that waits for a message."""
    arrived = asyncio.Event()
    receiver.on_fate = arrived.set
    receiver.begin(server.read_clocks())
    try:
        server.end_turn()
        async with asyncio.timeout(receiver.span):
            await arrived.wait()
    except TimeoutError:
        pass  # no message
    finally:
        receiver.end(server.read_clocks())
    return receiver.fate or FaultedResponse(receiver.nothing())


async def _body_of(request: web.BaseRequest) -> bytes | web.Response:
    """Return the body, or the response to send if it cannot be read.

    Raises MessageTooLargeError when it exceeds MAX_REQUEST_BYTES, after decompression.
    """
    try:
        async with asyncio.timeout(BODY_WITHIN):
            return await request.read()
    except TimeoutError:
        return _plain(408, f"The body did not arrive within {BODY_WITHIN:g} s.")
    except web.HTTPRequestEntityTooLarge:
        raise MessageTooLargeError(
            max(request.content_length or 0, MAX_REQUEST_BYTES + 1), MAX_REQUEST_BYTES
        ) from None
    except web.RequestPayloadError:
        return _plain(400, "The body does not match its Content-Encoding or Transfer-Encoding.")


def _to_aiohttp(answer: requests.Response, *, ends: bool = False) -> web.Response:
    response = web.Response(
        status=answer.status, reason=answer.reason, headers=dict(answer.headers), body=answer.body
    )
    if ends:
        response.force_close()
    return response


def _plain(status: int, text: str) -> web.Response:
    response = web.Response(status=status, text=text)
    response.force_close()
    return response


class Sniffer(asyncio.Protocol):
    """Reads the first byte, inside TLS if there is any, and hands the connection over to AMQP or HTTP."""

    def __init__(self, server: WireHost, http: HttpServer) -> None:
        self._server = server
        self._http = http
        self._transport: asyncio.Transport
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes, for a limited time."""
        transport = cast(asyncio.Transport, transport)  # streams only
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(HEAD_WITHIN, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout: the client closed before it sent anything."""
        if self._patience is not None:
            self._patience.cancel()

    def data_received(self, data: bytes) -> None:
        """Hand the connection over."""
        if self._patience is not None:
            self._patience.cancel()
        is_amqp = data[0] == _OPENS_AMQP
        protocol = AmqpWire(self._server) if is_amqp else self._http.protocol(self._transport)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)
