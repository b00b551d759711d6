"""Is it alive, is it ready, how does it do? Four pages over HTTP, on loopback unless told otherwise.

    /health    200 when a real round trip succeeded just now, else 503: a live process can be wedged
    /ready     200 when it can do its work now, else 503
    /metrics   for Prometheus
    /state     JSON, for people and programs

The pages show no key; they show names of namespaces and entities. Whoever binds them to another address
than loopback decides who may read that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .fork import renewed_in_children
from .metrics import CONTENT_TYPE
from .record import plain, scrubbed

if TYPE_CHECKING:
    from aiohttp import web

LOOPBACK = "127.0.0.1"
PROBE_TIMEOUT = 5.0  # seconds
STARTING, ENDING = 10.0, 10.0  # seconds a thread may take for it

logger = logging.getLogger("sbpair.status")


class StatusError(ValueError):
    """The status pages cannot be served where they should be; the text names host and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the pages show. ``probe`` makes a round trip or raises; the others answer at once."""

    probe: Callable[[], Awaitable[object]]
    is_ready: Callable[[], bool]
    state: Callable[[], Mapping[str, object]]
    metrics: Callable[[], bytes]
    probe_timeout: float = PROBE_TIMEOUT


class _Pages:
    """The four answers. Callers of /health at the same time share one probe: it costs a round trip."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._probing: asyncio.Task[tuple[int, dict[str, object]]] | None = None

    async def health(self, request: web.Request) -> web.Response:
        if self._probing is None or self._probing.done():
            self._probing = asyncio.ensure_future(self._probe())
        code, said = await asyncio.shield(self._probing)
        return _json(said, code)

    async def _probe(self) -> tuple[int, dict[str, object]]:
        timeout = self._status.probe_timeout
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout) as bound:
                await self._status.probe()
        except Exception as error:  # whatever the probe raises is the answer
            late = isinstance(error, TimeoutError) and bound.expired()
            why = f"no answer within {timeout:g} s" if late else f"{type(error).__name__}: {error}"
            return 503, {"status": "failing", "reason": scrubbed(why)}
        return 200, {"status": "ok", "seconds": round(time.monotonic() - began, 6)}

    async def ready(self, request: web.Request) -> web.Response:
        is_ready = self._status.is_ready()
        return _json({"ready": is_ready}, 200 if is_ready else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web

        return web.Response(body=self._status.metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def state(self, request: web.Request) -> web.Response:
        return _json(self._status.state(), 200)

    async def close(self, application: web.Application) -> None:
        """End a probe that nobody waits for any more."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)


def _json(said: Mapping[str, object], code: int) -> web.Response:
    from aiohttp import web

    text = json.dumps(plain(said), indent=2) + "\n"
    headers = {"Cache-Control": "no-store"}
    return web.Response(text=text, status=code, content_type="application/json", headers=headers)


def application(status: Status) -> web.Application:
    """The pages as an aiohttp application, to be served by whoever has a server already."""
    from aiohttp import web

    pages = _Pages(status)
    made = web.Application()
    for name in ("health", "ready", "metrics", "state"):
        made.router.add_get(f"/{name}", getattr(pages, name))
    made.on_cleanup.append(pages.close)
    return made


def _why(error: OSError | OverflowError) -> str:
    """The system's words alone: asyncio puts the address into them a second time."""
    number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    return os.strerror(number) if number else str(error)


def _listener(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise OverflowError("a port is a number from 0 to 65535")
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family)


class StatusServer:
    """Serves the pages on the running event loop: ``async with StatusServer(status, port=8080):``.

    ``port`` 0 takes a free one; :attr:`port` says which. Entering returns when it answers, and raises
    StatusError when the port is taken.
    """

    def __init__(self, status: Status, *, port: int = 0, host: str = LOOPBACK) -> None:
        self._status = status
        self.host, self.port = host, port
        self._runner: web.AppRunner | None = None
        self._listener: socket.socket | None = None

    async def __aenter__(self) -> Self:
        from aiohttp import web

        try:
            listener = _listener(self.host, self.port)
        except (OSError, OverflowError) as error:
            where = f"{self.host}:{self.port}"
            raise StatusError(f"the status pages cannot be served on {where}: {_why(error)}") from error
        runner = web.AppRunner(application(self._status), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        self._runner, self._listener = runner, listener
        self.port = runner.addresses[0][1]
        return self

    def renew(self) -> None:
        """In a forked child: let go of the port, which is the parent's, and would stay taken by us."""
        if self._listener is not None:
            os.close(self._listener.detach())
            self._listener = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            self._listener = None  # closed with the runner
            await self._runner.cleanup()


class StatusThread:
    """Serves the pages from a thread of its own, for a process without an event loop.

    The parameters are those of :class:`StatusServer`; ``probe`` runs on the thread's loop, the other
    callables in the thread.
    """

    def __init__(self, status: Status, *, port: int = 0, host: str = LOOPBACK) -> None:
        self._server = StatusServer(status, port=port, host=host)
        self._thread = threading.Thread(target=self._run, name="sbpair-status", daemon=True)
        self._started = threading.Event()
        self._error: Exception | None = None
        self._stop: Callable[[], object] | None = None
        renewed_in_children(self)

    @property
    def port(self) -> int:
        """The port that answers."""
        return self._server.port

    def start(self) -> Self:
        """Return when the pages are answered. Raises StatusError."""
        self._thread.start()
        if not self._started.wait(STARTING):
            raise StatusError(f"the status pages on port {self.port} did not start within {STARTING:g} s")
        if self._error is not None:
            self._thread.join(ENDING)
            raise self._error
        return self

    def close(self) -> None:
        """Stop answering, close the port and end the thread."""
        if self._stop is not None:
            self._stop()
            self._stop = None
            self._thread.join(ENDING)

    def renew(self) -> None:
        """In a forked child: the thread is not there, and the port is the parent's."""
        self._server.renew()
        self._stop = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            async with self._server:
                self._stop = lambda: loop.call_soon_threadsafe(stop.set)
                self._started.set()
                await stop.wait()
        except Exception as error:  # told by start(), in the thread that asked
            if self._started.is_set():
                logger.exception("the status pages have ended")
            self._error = error
            self._started.set()
