"""Connections: how to accept them until a stop, without losing one that arrives at that moment; streams over them.

If anything fails or is cancelled meanwhile, the socket is closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HANDSHAKE_WITHIN = 20.0  # seconds
ACCEPT_RETRY = 0.05  # seconds


async def accept(client: socket.socket, context: ssl.SSLContext | None) -> Streams:
    """Return the streams of an accepted connection; this end is the TLS server.

    Raises OSError if the handshake fails.
    """
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


async def open_streams(host: str, port: int, context: ssl.SSLContext | None) -> Streams:
    """Return the streams of a new connection; this end is the TLS client. Raises OSError, for certificates too."""
    within = None if context is None else HANDSHAKE_WITHIN
    return await asyncio.open_connection(host, port, ssl=context, ssl_handshake_timeout=within)


async def accept_until(
    stop: asyncio.Event,
    listener: socket.socket,
    serve: Callable[[socket.socket], Coroutine[object, object, None]],
) -> set[asyncio.Task[None]]:
    """Run ``serve(connection)`` in a task for each connection to ``listener`` until ``stop`` is set.

    Every ``serve`` owns its connection and closes it. Returns the tasks that still run; each of them has begun, so that
    cancelling it reaches its ``finally``. The caller closes ``listener``.

    If a connection cannot be accepted, it is retried every ACCEPT_RETRY seconds.

    No future holds an accepted socket: a cancelled one would lose it. Nor is there an ``asyncio.Server``: on Python
    3.11 its ``close`` forgets a connection that is being accepted, which then stays open.
    """
    loop = asyncio.get_running_loop()
    serving: set[asyncio.Task[None]] = set()
    again: asyncio.TimerHandle | None = None

    def accept() -> None:
        nonlocal again
        try:
            connection, _ = listener.accept()
        except BlockingIOError:  # the client has disconnected
            return
        except OSError:  # out of descriptors: the connection stays queued
            loop.remove_reader(listener)
            again = loop.call_later(ACCEPT_RETRY, loop.add_reader, listener, accept)
            return
        task = loop.create_task(serve(connection))
        serving.add(task)
        task.add_done_callback(serving.discard)

    listener.setblocking(False)
    loop.add_reader(listener, accept)
    try:
        await stop.wait()
    finally:
        loop.remove_reader(listener)
        if again is not None:
            again.cancel()
    await asyncio.sleep(0)
    return serving
