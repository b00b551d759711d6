"""Stops listening on a socket without leaking connections that asyncio is accepting."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

TURNS = 3  # of the loop: the task of the accept starts, the connection is made, the server registers it


async def stop_accepting(listener: socket.socket) -> None:
    """Stop accepting connections. Call it in the server's event loop, before the server on ``listener`` is closed.

    asyncio completes an accept in a task of its own. If the server is closed before that task has started, the
    connection is never closed.
    """
    with suppress(NotImplementedError):  # the loop on Windows accepts in another way
        asyncio.get_running_loop().remove_reader(listener)
    for _ in range(TURNS):
        await asyncio.sleep(0)
