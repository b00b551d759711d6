"""A port of ours: free, bound but refusing, or listening.

    bind()       it is ours; who connects is refused (ECONNREFUSED)
    listen()     who connects is accepted, as soon as the loop comes round
    pause()      who connects waits in the queue of the system
    close()      it is free for others

A namespace that refuses connections stays bound, or another program might take its port meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from ..errors import PortUnavailable

ACCEPT_AGAIN_AFTER = 0.05  # seconds, when descriptors have run out
BACKLOG = 256


class Listener:
    """Hands each accepted socket to ``welcome``. All methods but the first run in the broker's loop."""

    def __init__(self, name: str, host: str, port: int, welcome: Callable[[socket.socket], None]) -> None:
        self.host = host
        self.port = port
        """Once bound, the one it got where 0 was asked for."""
        self._name = name
        self._welcome = welcome
        self._socket: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None

    @property
    def is_bound(self) -> bool:
        """Whether the port is ours."""
        return self._socket is not None

    def bind(self) -> None:
        """Have the port, unless we have it. Raises PortUnavailable."""
        if self._socket is not None:
            return
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        try:
            bound.bind((self.host, self.port))
        except Exception as error:
            bound.close()
            if isinstance(error, OSError | OverflowError):
                raise self._unavailable(error) from error
            raise
        self._socket = bound
        self.port = bound.getsockname()[1]

    def listen(self) -> None:
        """Accept, binding first. Raises PortUnavailable: another may listen where we were only bound."""
        self.bind()
        assert self._socket is not None  # noqa: S101 - just bound
        try:
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise self._unavailable(error) from error
        asyncio.get_running_loop().add_reader(self._socket, self._knock, self._socket)

    def pause(self) -> None:
        """Accept nobody for now."""
        if self._again is not None:
            self._again.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)

    def close(self) -> None:
        """Give the port back."""
        self.pause()
        if self._socket is not None:
            with suppress(OSError):  # a process being forked may hold a copy: close() alone would not end it
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None

    def _unavailable(self, error: OSError | OverflowError) -> PortUnavailable:
        reason = getattr(error, "strerror", None) or str(error).removesuffix(".")
        return PortUnavailable(self._name, self.host, self.port, reason)

    def _knock(self, listening: socket.socket) -> None:
        """Somebody is at the door. No future holds an accepted socket: a cancelled one would lose it."""
        while True:
            try:
                sock, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError:  # out of descriptors, or gone before it was accepted
                self.pause()
                self._again = asyncio.get_running_loop().call_later(ACCEPT_AGAIN_AFTER, self.listen)
                return
            sock.setblocking(False)
            self._welcome(sock)
