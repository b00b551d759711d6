"""The status pages, served over HTTP, by default on loopback.

    /          the list of the pages
    /live      200 while the process and its loop respond; use it for a livenessProbe
    /ready     200 when it can work, or is waiting for a side that is down; 503 when a side refuses it
    /health    200 when a round trip to both sides has just succeeded, else 503 with the reason; for people and
               monitors. It fails during an outage, so never restart a process because of it
    /metrics   Prometheus metrics
    /state     the state as JSON

The pages show the names of namespaces and entities, never keys. They have no access control: add it if you bind them to
an address other than loopback.
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
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sbpair import __version__
from sbpair.pair.ground.loop_thread import serve_in_loop
from sbpair.pair.ground.shared_task import result_of, share

from .listening import stop_accepting
from .metrics import CONTENT_TYPE
from .record import plain, scrub
from .sinks import renew_in_children

if TYPE_CHECKING:
    from aiohttp import web

LOOPBACK = "127.0.0.1"
PROBE_TIMEOUT = 5.0  # seconds
STOP_TIMEOUT = 10.0  # seconds, of the thread

PAGES = {
    "live": "the process and its loop respond",
    "ready": "it can work, or waits for a side that is down",
    "health": "a round trip to both sides has just succeeded",
    "metrics": "Prometheus metrics",
    "state": "the state as JSON",
}

logger = logging.getLogger("sbpair.status")


class StatusError(ValueError):
    """The status pages cannot be served; the text names host and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The content of the pages, as callables.

    ``probe`` makes a round trip, or raises; it is cancelled after ``probe_timeout`` seconds. ``pulse`` returns once the
    event loop that does the work has run; None if the pages are served by that loop. ``details`` adds fields to
    /health. ``is_ready``, ``state`` and ``metrics`` must return at once.
    """

    probe: Callable[[], Awaitable[object]]
    is_ready: Callable[[], bool]
    state: Callable[[], Mapping[str, object]]
    metrics: Callable[[], bytes]
    probe_timeout: float = PROBE_TIMEOUT
    pulse: Callable[[], Awaitable[object]] | None = None
    details: Callable[[], Mapping[str, object]] | None = None


class _Pages:
    """The request handlers. Concurrent requests for /health share one probe."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._probing: asyncio.Task[tuple[int, dict[str, object]]] | None = None

    async def index(self, request: web.Request) -> web.Response:
        from aiohttp import web

        items = "".join(f"<li><a href='{name}'>/{name}</a>: {what}</li>" for name, what in PAGES.items())
        head = f"<!doctype html><html lang=en><title>sbpair</title><h1>sbpair {__version__}</h1>"
        text = f"{head}<ul>{items}</ul></html>\n"
        return web.Response(text=text, content_type="text/html")

    async def live(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(self._status.probe_timeout):
                if self._status.pulse is not None:
                    await self._status.pulse()
        except TimeoutError:
            return _json({"live": False, "reason": "the worker's event loop is blocked"}, 503)
        return _json({"live": True}, 200)

    async def health(self, request: web.Request) -> web.Response:
        if self._probing is None or self._probing.done():
            self._probing = share(self._probe())
        code, fields = await result_of(self._probing)
        details = self._status.details
        return _json(fields if details is None else fields | dict(details()), code)

    async def _probe(self) -> tuple[int, dict[str, object]]:
        timeout = self._status.probe_timeout
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout) as bound:
                await self._status.probe()
        except Exception as error:  # any error of the probe is the answer
            late = isinstance(error, TimeoutError) and bound.expired()
            why = f"no answer within {timeout:g} s" if late else f"{type(error).__name__}: {error}"
            return 503, {"status": "failing", "reason": scrub(why)}
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
        """Cancel a probe in progress."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)


def _json(fields: Mapping[str, object], code: int) -> web.Response:
    from aiohttp import web

    text = json.dumps(plain(fields), indent=2) + "\n"
    headers = {"Cache-Control": "no-store"}
    return web.Response(text=text, status=code, content_type="application/json", headers=headers)


def application(status: Status) -> web.Application:
    """Return the pages as an aiohttp application, to mount in an existing server."""
    from aiohttp import web

    pages = _Pages(status)
    made = web.Application()
    made.router.add_get("/", pages.index)
    for name in PAGES:
        made.router.add_get(f"/{name}", getattr(pages, name))
    made.on_shutdown.append(pages.close)  # before open requests are waited for
    made.on_cleanup.append(pages.close)
    return made


def _why(error: OSError | OverflowError) -> str:
    """Return only the system's error text; asyncio's contains the address, which the caller adds."""
    number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    return os.strerror(number) if number else str(error)


def _listener(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise OverflowError("a port is a number from 0 to 65535")
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family)


class StatusServer:
    """Serves the pages on the running event loop: ``async with StatusServer(status, port=8080):``.

    With ``port`` 0 the system picks a free port, which :attr:`port` then holds. Entering returns once the pages
    are served, and raises StatusError when the address cannot be bound.
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
            raise _not_served(self, _why(error)) from error
        runner = web.AppRunner(application(self._status), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        self._runner, self._listener = runner, listener
        self.port = runner.addresses[0][1]
        return self

    def renew(self) -> None:
        """Close the listening socket in a forked child: the port belongs to the parent."""
        if self._listener is not None:
            os.close(self._listener.detach())
            self._listener = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            if self._listener is not None:
                await stop_accepting(self._listener)
            self._listener = None  # closed with the runner
            await self._runner.cleanup()


def _not_served(server: StatusServer, why: str) -> StatusError:
    return StatusError(f"the status pages cannot be served on {server.host}:{server.port}: {why}")


class StatusThread:
    """Serves the pages from a background thread, for programs without an event loop.

    Parameters as for :class:`StatusServer`. All callables of ``status`` run in that thread.
    """

    def __init__(self, status: Status, *, port: int = 0, host: str = LOOPBACK) -> None:
        self._server = StatusServer(status, port=port, host=host)
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] | None = None
        renew_in_children(self)

    @property
    def port(self) -> int:
        """The port that the pages are served on."""
        return self._server.port

    def start(self) -> Self:
        """Start the thread and return once the pages are served. Raises StatusError when they cannot be."""
        started: Future[None] = Future()
        thread = threading.Thread(
            target=serve_in_loop, args=(self._serve, started), name="sbpair-status", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system cannot create a thread
            raise _not_served(self._server, str(error)) from error
        self._thread = thread
        try:
            started.result()
        except Exception as error:
            thread.join(STOP_TIMEOUT)
            if isinstance(error, OSError):  # no descriptor for the loop
                raise _not_served(self._server, _why(error)) from error
            raise
        return self

    def close(self) -> None:
        """Close the port and end the thread."""
        if self._stop is not None and self._thread is not None:
            self._stop()
            self._stop = None
            self._thread.join(STOP_TIMEOUT)

    def renew(self) -> None:
        """Give up thread and port in a forked child: both belong to the parent."""
        self._server.renew()
        self._stop = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _serve(self, started: Future[None]) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            async with self._server:
                self._stop = lambda: loop.call_soon_threadsafe(stop.set)
                started.set_result(None)
                await stop.wait()
        except Exception:
            if not started.done():
                raise
            logger.exception("the status pages failed")
