"""A TCP server on loopback that closes every connection when it ends, even one that it is accepting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from sbpair.broker.testing.streams import accept_until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[int]:
    """Yield the port. A connection is closed when its ``serve`` returns, or aborted when the block ends."""

    async def converse(connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            await serve(reader, writer)
            writer.close()
            with suppress(OSError):  # its peer reset it
                await writer.wait_closed()
        except BaseException:
            writer.transport.abort()
            raise

    stop = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(accept_until(stop, listener, converse))
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            conversations = await serving
            for conversation in conversations:
                conversation.cancel()
            await asyncio.gather(*conversations, return_exceptions=True)
