"""Streams over a connection, with TLS where asked; whatever fails or is cancelled on the way closes the socket."""

from __future__ import annotations

import asyncio
import socket
import ssl

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HANDSHAKE_WITHIN = 20.0  # seconds


async def accepted(client: socket.socket, context: ssl.SSLContext | None) -> Streams:
    """The streams of an accepted connection; this end is TLS's server. Raises OSError when the handshake fails."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    within = None if context is None else HANDSHAKE_WITHIN
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, client, ssl=context, ssl_handshake_timeout=within
        )
    except BaseException:
        client.close()
        raise
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def opened(host: str, port: int, context: ssl.SSLContext | None) -> Streams:
    """The streams of a new connection; this end is TLS's client. Raises OSError, for certificates too."""
    within = None if context is None else HANDSHAKE_WITHIN
    return await asyncio.open_connection(host, port, ssl=context, ssl_handshake_timeout=within)
