"""Connect to a namespace: socket or WebSocket, TLS, and the AMQP handshake."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable

from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.auth.dialling import connect_in_loop, hand_over

from .connection import MAX_FRAME, WINDOW, NamespaceConnection, Tap
from .errors import NamespaceUnusableError, OutOfReachError
from .link import ANSWER_TIMEOUT


async def connect(
    namespace: NamespaceAccess,
    *,
    timeout: float = 60.0,
    container_id: str | None = None,
    window: int = WINDOW,
    frame: int = MAX_FRAME,
    tap: Tap | None = None,
    answer_timeout: float = ANSWER_TIMEOUT,
) -> NamespaceConnection:
    """Open a connection by the route of ``namespace``, within ``timeout`` seconds.

    ``window``: how many frames the peer may send in a session before our next flow; ``frame``: their largest size.
    ``answer_timeout``: seconds that the peer may be silent, or take to answer, once the connection is open.

    Raises OutOfReachError, or NamespaceUnusableError when the peer's certificate is refused or the file of trusted
    certificates is unusable.
    """
    route = namespace.route
    context = (route.ssl_context or _tls_context(route.ca_file)) if namespace.uses_tls else None
    try:
        async with asyncio.timeout(timeout):
            connection = await _open(
                namespace,
                context,
                lambda: NamespaceConnection(
                    namespace,
                    container_id=container_id,
                    window=window,
                    frame=frame,
                    tap=tap,
                    answer_timeout=answer_timeout,
                ),
            )
            try:
                await connection.wait_open()
            except BaseException:  # a cancelled caller leaves no socket behind
                connection.abort()
                raise
            return connection
    except ssl.SSLCertVerificationError as error:
        text = f"the certificate of {namespace.netloc} is refused: {error.verify_message}"
        raise NamespaceUnusableError(text) from error
    except (OSError, TimeoutError) as error:
        raise OutOfReachError(f"{namespace.netloc} cannot be reached: {_why(error, timeout)}") from error


def _why(error: OSError, timeout: float) -> str:
    """Return the system's error text where there is one; asyncio's text names the call and the address instead."""
    number = None if isinstance(error, ssl.SSLError | TimeoutError) else error.errno
    if number is not None and number > 0:
        return os.strerror(number)
    return str(error) or f"no answer within {timeout:g} s"


async def _open(
    namespace: NamespaceAccess,
    context: ssl.SSLContext | None,
    make: Callable[[], NamespaceConnection],
) -> NamespaceConnection:
    if namespace.route.over_websocket:
        from .websocket import open_websocket  # late: importing aiohttp is slow, and few need it

        return await open_websocket(namespace, make, context=context)
    wire = await connect_in_loop(namespace.host, namespace.port)
    try:
        _, connection = await asyncio.get_running_loop().create_connection(
            make, sock=wire, ssl=context, server_hostname=namespace.host if context else None
        )
    except BaseException:
        hand_over(wire, is_taken=False)
        raise
    hand_over(wire, is_taken=True)
    return connection


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise NamespaceUnusableError(f"the certificates in {ca_file} cannot be read: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
