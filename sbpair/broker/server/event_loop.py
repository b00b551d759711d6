"""Which event loop does the broker run on? The quickest there is.

uvloop has a build for Linux and macOS on the usual processors; elsewhere asyncio's own does the same, later.
"""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop where it is installed, else of asyncio."""
    try:
        import uvloop  # late: not everywhere
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
