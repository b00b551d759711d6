"""The broker's event loop: its implementation, the limit of open files, and a timer that is cheap to move.

uvloop has builds for Linux and macOS on common processors; elsewhere asyncio's own loop is used, which is slower.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress

STANDARD_STREAMS = range(3)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop loop if uvloop is installed, else an asyncio one.

    Also returns an asyncio loop when a standard stream is closed: a socket may get its descriptor number, and libuv
    aborts the process when it closes such a descriptor.
    """
    try:
        import uvloop  # imported late: not available everywhere
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop() if _are_open(STANDARD_STREAMS) else asyncio.new_event_loop()


def _are_open(descriptors: range) -> bool:
    try:
        return all(os.fstat(descriptor) for descriptor in descriptors)
    except OSError:
        return False


WANTED = 65_536
"""Open files: more than the connections that the namespaces of a broker accept."""


def raise_limit(wanted: int = WANTED) -> None:
    """Raise the soft limit of open files to ``wanted``, at most to the hard limit; never lower it."""
    if sys.platform == "win32":
        return  # which has no such limits
    with suppress(ImportError, OSError, ValueError):  # the system refuses
        import resource  # imported late: not available everywhere

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def limit() -> int:
    """Return the soft limit of open files; 0 where it is unknown."""
    if sys.platform == "win32":
        return 0
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Alarm:
    """Calls ``ring`` once, at the earliest of the times for which it was set.

    The time is stored here, because uvloop's handles lose theirs once it has passed. ``slack``: how many seconds late
    the alarm may ring, which avoids setting it again for a slightly earlier time.
    """

    def __init__(self, ring: Callable[[], None], slack: float = 0.0) -> None:
        self._ring = ring
        self._slack = slack
        self._at = 0.0
        self._handle: asyncio.Handle | None = None

    def set(self, at: float) -> None:
        """Ring at ``at``, if that is earlier than the current setting."""
        if self._handle is not None:
            if self._at <= at + self._slack:
                return
            self._handle.cancel()
        self._at = at
        self._handle = asyncio.get_running_loop().call_at(at, self._rung)

    def cancel(self) -> None:
        """Cancel the alarm; does nothing if it is not set."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rung(self) -> None:
        self._handle = None
        self._ring()
