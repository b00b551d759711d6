"""The lines of standard input, read without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

CHUNK = 65_536  # bytes
MAX_LINE = 128 * 1024 * 1024  # bytes: more than the largest message as JSON
WAITING = 64  # chunks read ahead


async def lines_of(descriptor: int) -> AsyncIterator[bytes]:
    """Iterate over the lines of a file descriptor as they arrive, without their ends; the last one needs no end.

    A thread reads, because an event loop cannot wait for a file. It may still wait in its read when the program ends.
    Raises ValueError for a line of more than MAX_LINE bytes, OSError when reading fails.
    """
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(WAITING)
    loop = asyncio.get_running_loop()
    reader = threading.Thread(target=_read, args=(descriptor, chunks, loop), name="sbpair-stdin", daemon=True)
    reader.start()
    rest: list[bytes] = []
    size = 0
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        first, *others = chunk.split(b"\n")
        rest.append(first)
        size += len(first)
        if size > MAX_LINE:
            raise ValueError(f"it is longer than {MAX_LINE} bytes")
        for other in others:
            yield b"".join(rest).removesuffix(b"\r")
            rest, size = [other], len(other)
    if size:
        yield b"".join(rest)


def _read(descriptor: int, chunks: asyncio.Queue[bytes | OSError], loop: asyncio.AbstractEventLoop) -> None:
    while True:
        found: bytes | OSError
        try:
            found = os.read(descriptor, CHUNK)
        except OSError as error:
            found = error
        putting = chunks.put(found)
        try:
            asyncio.run_coroutine_threadsafe(putting, loop).result()
        except BaseException:  # the loop has ended, and no reader waits for the lines
            putting.close()
            return
        if not found or isinstance(found, OSError):
            return
