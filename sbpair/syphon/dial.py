"""Open a connection to a namespace: the socket, TLS where it is asked for, and the handshake."""

from __future__ import annotations

import asyncio
import ssl

from .connection import NamespaceConnection
from .connection_string import Namespace
from .errors import ConnectionLost, SyphonFaulted


async def connect(
    namespace: Namespace,
    *,
    ca_file: str | None = None,
    timeout: float = 60.0,
    container_id: str | None = None,
) -> NamespaceConnection:
    """Open a connection, within ``timeout`` seconds.

    Raises ConnectionLost, or SyphonFaulted when the peer's certificate, or ``ca_file``, is not to be trusted.
    """
    loop = asyncio.get_running_loop()
    context = _tls_context(ca_file) if namespace.uses_tls else None
    connection = None
    try:
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(
                lambda: NamespaceConnection(namespace, container_id=container_id),
                namespace.host,
                namespace.port,
                ssl=context,
                server_hostname=namespace.host if context else None,
            )
            await connection.wait_open()
    except ssl.SSLCertVerificationError as error:
        text = f"the certificate of {namespace.netloc} is refused: {error.verify_message}"
        raise SyphonFaulted(text) from error
    except (OSError, TimeoutError) as error:
        if connection is not None:
            connection.abort()
        why = str(error) or f"no answer within {timeout:g} s"
        raise ConnectionLost(f"{namespace.netloc} cannot be reached: {why}") from error
    return connection


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise SyphonFaulted(f"the certificates in {ca_file} cannot be read: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
