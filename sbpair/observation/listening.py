"""End of listening, without losing connections that asyncio is accepting."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

TURNS = 3  # of the loop: the task of the accept begins, its connection is made, the server knows of it


async def stop_accepting(listener: socket.socket) -> None:
    """Accept no more connections; call it before the server on ``listener`` is closed, in its event loop.

    asyncio completes an accept in a task of its own. When the server is closed before that task has begun, the
    connection is never closed.
    """
    with suppress(NotImplementedError):  # Windows' loop accepts in another way
        asyncio.get_running_loop().remove_reader(listener)
    for _ in range(TURNS):
        await asyncio.sleep(0)
