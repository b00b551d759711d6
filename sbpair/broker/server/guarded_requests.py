"""Bounds the head of each HTTP request of a connection, in bytes and in time, before the HTTP library keeps it.

    its first byte        from here on its head has HEAD_WITHIN seconds, and MAX_HEAD_BYTES
    the end of its head   what follows is the body, which the library reads on demand
    its answer is sent    the next request begins

The first request of a connection has HEAD_WITHIN seconds from the start. The library bounds single fields only, and a
client without a token could fill each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

HEAD_WITHIN = 20.0  # seconds
MAX_HEAD_BYTES = (
    64 * 1024
)  # bytes of a request line and its header fields, and of data sent before the answer
MAX_STRANGE_BYTES = 512 * 1024  # bytes over a WebSocket before a valid claim
_END = b"\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class _Phase(Enum):
    HEAD = auto()
    """A head is awaited, or has arrived in part."""
    BODY = auto()
    """The head is complete; its body follows, if it has one."""
    ANSWERING = auto()
    """The request has no body: what arrives now belongs to later requests."""
    OPEN = auto()
    """The connection carries AMQP, or is being closed: others bound it."""


class GuardedRequests(asyncio.Protocol):
    """Guards the HTTP protocol ``inner`` against slow and oversized requests; ``lost`` is called at its end."""

    def __init__(self, inner: asyncio.Protocol, lost: Callable[[], object]) -> None:
        self._inner = inner
        self._lost = lost
        self._is_trusted: Callable[[], bool] | None = None  # None: nothing is counted
        self._transport: asyncio.Transport
        self._phase = _Phase.HEAD
        self._count = 0  # bytes of this head, or sent ahead
        self._tail = b""  # the last bytes of this head
        self._timer: asyncio.TimerHandle | None = None

    # -- called by the server

    def begun(self, *, has_body: bool) -> None:
        """Report that the head was read, and that its request is being answered."""
        self._stop_timer()
        self._count = 0
        self._phase = _Phase.BODY if has_body else _Phase.ANSWERING

    def answered(self, *, is_last: bool) -> None:
        """Report the end of a request; ``is_last``: the connection ends with it."""
        self._count, self._tail = 0, b""
        self._phase = _Phase.OPEN if is_last else _Phase.HEAD

    def opened(self, is_trusted: Callable[[], bool]) -> None:
        """Report that the connection now carries another protocol; ``is_trusted``: its client has a valid claim."""
        self._phase, self._count, self._is_trusted = _Phase.OPEN, 0, is_trusted

    @property
    def is_timed(self) -> bool:
        """Whether a head must be complete in time."""
        return self._timer is not None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the first head."""
        self._transport = cast(asyncio.Transport, transport)  # streams only
        self._start_timer()
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the call to the protocol."""
        self._stop_timer()
        self._lost()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to the protocol, unless they exceed the limits."""
        if self._phase is _Phase.HEAD:
            self._count_head(data)
        elif self._phase is _Phase.ANSWERING:
            self._count += len(data)
        elif self._is_trusted is not None:
            self._count_strange(data)
            return
        if self._count > MAX_HEAD_BYTES:
            self._refuse()
        else:
            self._inner.data_received(data)

    def _count_strange(self, data: bytes) -> None:
        """Pass on bytes of a WebSocket, up to MAX_STRANGE_BYTES until its client has a valid claim."""
        self._count += len(data)
        if self._is_trusted is not None and self._is_trusted():
            self._is_trusted, self._count = None, 0
        if self._count > MAX_STRANGE_BYTES:
            self._transport.abort()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the call to the protocol."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass the call to the protocol."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass the call to the protocol."""
        self._inner.resume_writing()

    def _count_head(self, data: bytes) -> None:
        if not self._count:
            data = data.lstrip(b"\r\n")  # empty lines before a request are skipped
            if not data:
                return
            if self._timer is None:
                self._start_timer()
        seen = self._tail + data
        end = seen.find(_END)
        self._count += len(data) if end < 0 else max(0, end - len(self._tail))
        self._tail = seen[-len(_END) + 1 :]
        if end >= 0 and self._count <= MAX_HEAD_BYTES:
            self._phase, self._count = _Phase.BODY, 0

    def _refuse(self) -> None:
        if self._phase is _Phase.HEAD:
            self._transport.write(_TOO_LARGE)
        self._phase, self._count = _Phase.OPEN, 0
        self._transport.close()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEAD_WITHIN, self._abort)

    def _abort(self) -> None:
        self._timer = None
        self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
