"""The syphon in a sender's process (P-1, P-40): a thread with a loop of its own, or the loop that runs.

    start() --> running --close()--> what is in flight is finished, the rest given back (G-27)
                   |----abort()--> connections drop, nothing is settled (P-50)
                   '----fork-----> the parent's goes on; the child's start() makes another

A side that refuses it is told to the client, whose pair it may end; and so is one that accepts again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from azure.servicebus import TransportType

from sbpair.pairing.address import Access, proxy_url
from sbpair.pairing.bond import Role
from sbpair.pairing.core import CLOSING
from sbpair.syphon import Syphon, SyphonFaulted, SyphonOptions
from sbpair.syphon.counters import SyphonCounters, SyphonStatus
from sbpair.syphon.events import SideAccepted, SideRefused, SyphonEvent

if TYPE_CHECKING:
    from sbpair.pairing.core import Core

logger = logging.getLogger("sbpair.syphon")

MISSING = timedelta(seconds=3)  # between looks for a backlog queue: our own client may be creating it
LAST_STEPS = 3.0  # seconds that closing the connections may take after the last message
_left_to_the_parent: list[object] = []  # never collected in a child: their sockets and loops are not ours


def blocking(core: Core) -> SyphonThread:
    """For a blocking client. Raises ValueError for what a syphon cannot do."""
    return SyphonThread(core)


def asynchronous(core: Core) -> SyphonTask:
    """For a client of asyncio. Raises ValueError for what a syphon cannot do."""
    return SyphonTask(core)


class HostedSyphon:
    """One syphon after another, one in each process; its events go to whoever listens here."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._callbacks: list[Callable[[object], object]] = []
        self._syphon = self._made()

    @property
    def counters(self) -> SyphonCounters:
        return self._syphon.counters

    @property
    def status(self) -> SyphonStatus:
        return self._syphon.status

    def on_event(self, callback: Callable[[object], object]) -> Callable[[], None]:
        """Call ``callback`` with every event of the syphon; returns what ends that."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    async def _run(self, stop: asyncio.Event) -> None:
        try:
            await self._syphon.run(stop)
        except SyphonFaulted as error:
            logger.error("the syphon of this process has stopped: %s", error)

    def _made(self) -> Syphon:
        syphon = syphon_of(self._core)
        syphon.on_event(self._told)
        return syphon

    def _told(self, event: SyphonEvent) -> None:
        for callback in list(self._callbacks):
            callback(event)
        if isinstance(event, SideRefused):
            self._core.side_refused(Role(event.side), event.cause)
        elif isinstance(event, SideAccepted):
            self._core.side_accepted(Role(event.side))

    def _leave_to_the_parent(self) -> None:
        _left_to_the_parent.append(self._syphon)
        self._syphon = self._made()


class SyphonThread(HostedSyphon):
    """In a thread of its own."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._is_closed = False

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._work, name="sbpair-syphon", daemon=True)
                self._thread.start()

    def abort(self) -> None:
        self._in_loop(self._syphon.abort)
        self._in_loop(self._stop.set)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._in_loop(self._stop.set)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING + LAST_STEPS)

    def renew(self) -> None:
        if self._thread is not None:
            self._leave_to_the_parent()
            self._begin()

    def _work(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:  # the outermost frame of a thread that nobody waits for
            logger.exception("the syphon of this process has failed")
        finally:
            self._loop = None
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await self._run(self._stop)

    def _in_loop(self, call: Callable[[], object]) -> None:
        if self._thread is None:
            return
        self._ready.wait(LAST_STEPS)
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(call)
            except RuntimeError:  # it has just ended
                logger.debug("the loop of the syphon has ended")


class SyphonTask(HostedSyphon):
    """In the loop that runs."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._begin()

    def _begin(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def start(self) -> None:
        if self._task is None and not self._stop.is_set():
            self._task = asyncio.get_running_loop().create_task(self._run(self._stop), name="sbpair-syphon")

    def abort(self) -> None:
        self._syphon.abort()
        self._stop.set()

    async def close(self) -> None:
        self._stop.set()
        if self._task is None:
            return
        await asyncio.wait((self._task,), timeout=CLOSING + LAST_STEPS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def renew(self) -> None:
        if self._task is not None:
            _left_to_the_parent.append(self._task)
            self._leave_to_the_parent()
            self._begin()


def syphon_of(core: Core) -> Syphon:
    """A syphon between the two sides of a client. Raises ValueError for what it cannot do."""
    primary, secondary = core.sides
    one, other = primary.access(), secondary.access()
    options = _options(core, one, other)
    if one.connection_string is not None and other.connection_string is not None:
        return Syphon.from_connection_strings(one.connection_string, other.connection_string, options=options)
    return Syphon(
        one.endpoint,
        other.endpoint,
        one.credential,  # type: ignore[arg-type]  # what the SDK takes, of either kind
        secondary_credential=other.credential,
        options=options,
        use_tls=one.use_tls,
    )


def _options(core: Core, primary: Access, secondary: Access) -> SyphonOptions:
    settings = primary.settings
    if settings.ssl_context is not None:
        raise ValueError("enable_syphon cannot use ssl_context; give connection_verify, or run sbpair syphon")
    over_websocket = settings.http_proxy is not None
    over_websocket = over_websocket or settings.transport_type is TransportType.AmqpOverWebsocket
    return SyphonOptions(
        backlog_queue_count=core.options.backlog_queue_count,
        primary_namespace_name=core.label,
        connection_verify=settings.connection_verify,
        over_websocket=over_websocket,
        http_proxy=None if settings.http_proxy is None else proxy_url(settings.http_proxy),
        primary_endpoint_address=primary.custom_endpoint_address,
        secondary_endpoint_address=secondary.custom_endpoint_address,
        missing_backlog_interval=MISSING,
        stop_timeout=timedelta(seconds=CLOSING),
    )
