"""A small HTTP service of a broker. It has its own port and thread, and runs for the length of a ``with`` block.

    port bound  ---- first connection ----> aiohttp is imported, the application built, requests are served

It does not use a namespace's port, because a namespace that is down does not answer. Until the first connection, it
costs only a sleeping thread. Each endpoint has its own token.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sbpair.pair.ground.loop_thread import serve_in_loop

from ..errors import EndpointUnavailableError

if TYPE_CHECKING:
    from aiohttp import web

ENDS_WITHIN = 10.0  # seconds
LOOPBACK = "127.0.0.1"


class HttpEndpoint(ABC):
    """Serves its ``application`` on ``host`` and ``port`` (0: any free port).

    Entering raises EndpointUnavailableError, and OSError when no descriptor is left for the event loop.
    """

    def __init__(self, what: str, host: str = LOOPBACK, port: int = 0) -> None:
        self.what = what
        self.host, self.port = host, port
        self.token = secrets.token_urlsafe(24)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    @abstractmethod
    def application(self) -> web.Application:
        """The application to serve, built at the first connection."""

    @property
    def address(self) -> str:
        """The URL of the endpoint, without the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def is_token(self, shown: str) -> bool:
        """Whether ``shown`` is the token; compared in constant time."""
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self.token.encode())

    def has_token(self, request: web.Request) -> bool:
        """Whether the request's Authorization header carries the token."""
        return self.is_token(request.headers.get("Authorization", "").removeprefix("Bearer "))

    def __enter__(self) -> Self:
        listener = self._bind()
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=serve_in_loop,
            args=(partial(self._serve, listener), started),
            name=f"sbpair-{self.what}",
            daemon=True,
        )
        self._thread.start()
        try:
            started.result()
        except Exception:
            listener.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None and self._thread is not None:
            with suppress(RuntimeError):  # its loop is closed: it ended after a failure
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(ENDS_WITHIN)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            listener = socket.create_server((self.host, self.port), family=family)
        except (OSError, OverflowError) as error:
            number = error.errno if isinstance(error, OSError) else None
            # not the error's own text, which repeats the address
            why = str(error) if number is None or number < 0 else os.strerror(number)
            raise EndpointUnavailableError(self.what, self.host, self.port, why) from error
        self.port = listener.getsockname()[1]
        return listener

    async def _serve(self, listener: socket.socket, started: Future[None]) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop, self._stop = loop, stop
        listener.setblocking(False)
        knock = asyncio.Event()
        loop.add_reader(listener, knock.set)
        waits = [asyncio.ensure_future(each.wait()) for each in (knock, stop)]
        started.set_result(None)
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        loop.remove_reader(listener)
        with listener:
            if not stop.is_set():
                await self._answer(listener, stop)
        for wait in waits:
            wait.cancel()

    async def _answer(self, listener: socket.socket, stop: asyncio.Event) -> None:
        from aiohttp import web

        from sbpair.pair.observation.listening import stop_accepting

        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        await stop.wait()
        await stop_accepting(listener)
        await runner.cleanup()
