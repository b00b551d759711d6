"""`GET /health` on a namespace's port, without a token: a real AMQP round trip through that port.

The server connects to itself as a client does, and exchanges AMQP open and close. This exercises the listening socket,
the protocol sniffer, the event loop and, with a store on disk, the commit that answers wait for. No queue is used: a
health check must not affect the content, limits or quotas of a namespace.
"""

from __future__ import annotations

import asyncio
import time

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import ConnectionClosed, ConnectionOpened
from sbpair.pair.ground.shared_task import result_of, share

WITHIN = 10.0  # seconds; callers may give up sooner
CHUNK = 65_536  # bytes


class HealthProbe:
    """Probes one port; concurrent callers share one probe."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._probing: asyncio.Task[float] | None = None

    async def round_trip(self) -> float:
        """Return how long AMQP open and close took, in seconds. Raises OSError or TimeoutError without an answer."""
        if self._probing is None or self._probing.done():
            self._probing = share(self._round_trip())
        return await result_of(self._probing)

    async def close(self) -> None:
        """Cancel the probe in progress, if any."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)

    async def _round_trip(self) -> float:
        began = time.perf_counter()  # uvloop's clock has a resolution of one millisecond
        async with asyncio.timeout(WITHIN):
            reader, writer = await asyncio.open_connection(*self._address)
            try:
                await _open_and_close(reader, writer)
            finally:
                writer.transport.abort()
        return time.perf_counter() - began


async def _open_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Exchange open and close. Raises ConnectionError when the peer closes the connection before that."""
    loop = asyncio.get_running_loop()
    connection = Connection(
        role=ConnectionRole.CLIENT, container_id="sbpair-health", hostname="localhost", now=loop.time()
    )
    is_open = False
    while True:
        writer.write(connection.data_to_send())
        await writer.drain()
        data = await reader.read(CHUNK)
        connection.receive_data(data, loop.time()) if data else connection.receive_eof(loop.time())
        for event in connection.events():
            if isinstance(event, ConnectionOpened):
                is_open = True
                connection.close()
            elif isinstance(event, ConnectionClosed):
                if not is_open or event.condition is not None:
                    raise ConnectionError(f"the port closed the connection: {event.condition}")
                return
