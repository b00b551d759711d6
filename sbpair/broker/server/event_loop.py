"""Which event loop does the broker run on? The quickest there is.

uvloop has a build for Linux and macOS on the usual processors; elsewhere asyncio's own does the same, later.
"""

from __future__ import annotations

import asyncio
import os

STANDARD_STREAMS = range(3)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop where it is installed, else of asyncio.

    Of asyncio too where a standard stream is closed: a socket may get its number, and libuv ends the process
    when it is to close such a one.
    """
    try:
        import uvloop  # late: not everywhere
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop() if _are_open(STANDARD_STREAMS) else asyncio.new_event_loop()


def _are_open(descriptors: range) -> bool:
    try:
        return all(os.fstat(descriptor) for descriptor in descriptors)
    except OSError:
        return False
