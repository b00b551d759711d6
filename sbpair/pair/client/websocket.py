"""AMQP over WebSocket, through an HTTP proxy if configured, for networks that allow only HTTPS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.request import getproxies, proxy_bypass

from sbpair.pair.amqp.websocket import MAX_MESSAGE_BYTES, PATH, SUBPROTOCOL, WebSocketTransport
from sbpair.pair.auth.connection_string import TLS_PORT, NamespaceAccess

from .errors import ConnectionLostError, NamespaceUnusableError

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse

AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.Protocol)

HTTPS_PORT = 443
CLOSE_WITHIN = 1.0  # seconds to wait for the peer's close

_carrying: set[asyncio.Task[None]] = set()  # the event loop holds only weak references to tasks


async def open_websocket(
    namespace: NamespaceAccess,
    make: Callable[[], AnyProtocol],
    *,
    context: ssl.SSLContext | None,
) -> AnyProtocol:
    """Open a WebSocket and run the protocol that ``make`` returns over it.

    Without a proxy in the namespace's route, the proxy of the environment is used. Raises NamespaceUnusableError when
    the peer or the proxy refuses the WebSocket, ssl.SSLCertVerificationError for its certificate, and
    ConnectionLostError or OSError when it cannot be reached.
    """
    import aiohttp

    session = aiohttp.ClientSession()
    try:
        proxy = namespace.route.http_proxy or environment_proxy(namespace)
        websocket = await _upgrade(session, namespace, context, proxy)
    except BaseException:
        await session.close()
        raise
    protocol = make()
    transport = WebSocketTransport(websocket, protocol, lambda: _cut(websocket))
    task = asyncio.ensure_future(_carry(session, websocket, transport))
    _carrying.add(task)
    task.add_done_callback(_carrying.discard)
    try:
        await asyncio.sleep(0)  # let the task start: cancelled before that, it closes nothing
    except asyncio.CancelledError:
        task.cancel()
        raise
    return protocol


async def _upgrade(
    session: ClientSession, namespace: NamespaceAccess, context: ssl.SSLContext | None, proxy: str | None
) -> ClientWebSocketResponse:
    import aiohttp

    try:
        websocket = await session.ws_connect(
            url_of(namespace),
            protocols=(SUBPROTOCOL,),
            ssl=True if context is None else context,
            proxy=proxy,
            max_msg_size=MAX_MESSAGE_BYTES,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_WITHIN),
        )
    except aiohttp.ClientConnectorCertificateError as error:
        raise error.certificate_error from error
    except (aiohttp.ClientHttpProxyError, aiohttp.WSServerHandshakeError) as error:
        peer = "the proxy" if isinstance(error, aiohttp.ClientHttpProxyError) else namespace.netloc
        kind = (
            NamespaceUnusableError
            if 400 <= error.status < 500 and error.status != 408
            else ConnectionLostError
        )
        raise kind(f"{peer} answers the WebSocket with status {error.status}") from error
    except aiohttp.ClientConnectorError as error:
        reason = os.strerror(error.errno) if error.errno else str(error.os_error)
        raise ConnectionLostError(f"{error.host}:{error.port} cannot be reached: {reason}") from error
    except aiohttp.ClientError as error:
        raise ConnectionLostError(
            f"{namespace.netloc} cannot be reached: {error or type(error).__name__}"
        ) from error
    if websocket.protocol != SUBPROTOCOL:
        await websocket.close()
        raise NamespaceUnusableError(f"{namespace.netloc} does not speak AMQP over WebSocket")
    return websocket


async def _carry(
    session: ClientSession, websocket: ClientWebSocketResponse, transport: WebSocketTransport
) -> None:
    try:
        await transport.run()
    finally:
        try:
            await websocket.close()
        finally:
            await session.close()


def _cut(websocket: ClientWebSocketResponse) -> None:
    sock = websocket.get_extra_info("socket")
    try:
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # already closed


def url_of(namespace: NamespaceAccess) -> str:
    """Return the WebSocket URL of a namespace: port 443 unless another was given."""
    host = f"[{namespace.host}]" if ":" in namespace.host else namespace.host
    if not namespace.uses_tls:
        return f"ws://{host}:{namespace.port}{PATH}"
    port = HTTPS_PORT if namespace.port == TLS_PORT else namespace.port
    return f"wss://{host}:{port}{PATH}"


def environment_proxy(namespace: NamespaceAccess) -> str | None:
    """Return the proxy in HTTPS_PROXY (HTTP_PROXY without TLS); None if there is none or NO_PROXY excludes the host."""
    if proxy_bypass(namespace.host):
        return None
    return getproxies().get("https" if namespace.uses_tls else "http")
