"""Syphon in a sender's process: a thread with its own loop, or a task in the running loop.

    start() --> running --close()--> finish messages in flight, release the rest
                   |----abort()--> drop the connections, settle nothing
                   '----fork-----> the parent's continues; start() in the child makes another

Reports refused and recovered sides to the client; a refused side may fault the pair. Wakes the syphon when the client
finds the primary back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING

from sbpair.pair.client.errors import NamespaceUnusableError
from sbpair.pair.ground.fork import leave_to_the_parent
from sbpair.pair.ground.loop_thread import serve_in_loop
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.events import EntityRecovered, EntityReturning, PairingEvent
from sbpair.pair.pairing.shared.time_limits import CLOSING
from sbpair.pair.syphon.daemon import Syphon
from sbpair.pair.syphon.events import SideAccepted, SideRefused, SyphonEvent
from sbpair.pair.syphon.options import SyphonOptions

from ..syphon.status import SyphonCounters, SyphonStatus

if TYPE_CHECKING:
    from sbpair.pair.pairing.shared.base_runtime import BaseRuntime
    from sbpair.pair.syphon.watch.peeking import BacklogDepth

logger = logging.getLogger("sbpair.syphon")

MISSING = timedelta(seconds=3)  # between checks for a backlog queue: this client may be creating it
MEASURED = timedelta(seconds=60)  # between measurements of the backlogs, for the gauges of the status pages
LAST_STEPS = 3.0  # seconds that closing the connections may take after the last message


class HostedSyphon:
    """The syphon of one process; a fork replaces it. Forwards its events to its subscribers."""

    def __init__(self, runtime: BaseRuntime) -> None:
        self._runtime = runtime
        runtime.dispatcher.listen(self._on_client_event)
        self._callbacks: list[Callable[[object], object]] = []
        self._syphon = self._make()

    @property
    def counters(self) -> SyphonCounters:
        return self._syphon.counters

    @property
    def status(self) -> SyphonStatus:
        return self._syphon.status

    @property
    def refusals(self) -> dict[str, str]:
        """The sides that refuse the syphon, and for each the reason."""
        return self._syphon.refusals

    @property
    def landing(self) -> tuple[str, ...]:
        """The entities whose parked messages land on the secondary now."""
        return self._syphon.landing

    @property
    def untransferred(self) -> dict[str, int]:
        """The number of messages, by backlog, that landed on the secondary but were then refused by their entity."""
        return self._syphon.untransferred

    @property
    def paces(self) -> dict[tuple[str, ...], float]:
        """The messages per second to each destination with a limited rate, by path and side."""
        return self._syphon.paces

    @property
    def levels(self) -> dict[str, BacklogDepth]:
        """The number of waiting messages by backlog, if the status pages show it."""
        return self._syphon.levels

    @property
    def backlogs(self) -> tuple[str, ...]:
        """The backlog queues that the syphon reads."""
        return self._syphon.backlogs

    @property
    def missing_backlogs(self) -> set[str]:
        """The backlog queues that do not exist."""
        return self._syphon.missing_backlogs

    @property
    def dead_letters(self) -> dict[str, int]:
        """The number of dead letters by backlog, if the status pages show it."""
        return self._syphon.dead_letters

    @property
    def stranded(self) -> dict[str, bool]:
        """The backlog queues beyond the configured count, and whether each holds messages."""
        return self._syphon.stranded

    def on_event(self, callback: Callable[[object], object]) -> Callable[[], None]:
        """Call ``callback`` with every event of the syphon. Returns a function that unsubscribes it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    async def _run(self, stop: asyncio.Event) -> None:
        try:
            await self._syphon.run(stop)
        except NamespaceUnusableError as error:
            logger.error("the syphon of this process has stopped: %s", error)
        except Exception:  # it is never awaited, so its failure is logged here
            logger.exception("the syphon of this process has failed")

    def _make(self) -> Syphon:
        syphon = syphon_of(self._runtime)
        syphon.on_event(self._told)
        return syphon

    def _told(self, event: SyphonEvent) -> None:
        for callback in list(self._callbacks):
            callback(event)
        if isinstance(event, SideRefused):
            self._runtime.sides.refused(Side(event.side), event.cause)
        elif isinstance(event, SideAccepted):
            self._runtime.sides.accepted(Side(event.side))

    def _on_client_event(self, event: PairingEvent) -> None:
        if isinstance(event, (EntityRecovered, EntityReturning)):
            self._wake()

    def _wake(self) -> None:
        """Let the syphon retry at once, because a ping of this client was accepted."""
        raise NotImplementedError

    def _leave_to_the_parent(self) -> None:
        leave_to_the_parent(self._syphon)
        self._syphon = self._make()


class SyphonThread(HostedSyphon):
    """A hosted syphon in its own thread."""

    def __init__(self, runtime: BaseRuntime) -> None:
        super().__init__(runtime)
        self._begin()

    def _begin(self) -> None:
        self._starting = threading.Lock()  # held until the loop serves, or its thread has ended
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: list[Callable[[], object]] = []  # before there was a loop
        self._stop = asyncio.Event()
        self._is_closed = False

    def start(self) -> None:
        """Start the thread, once. Raises OSError when it or its loop cannot start; the next call tries again."""
        with self._starting:
            if self._thread is None and not self._is_closed:
                self._start_thread()

    def _start_thread(self) -> None:
        started: Future[None] = Future()
        thread = threading.Thread(target=self._work, args=(started,), name="sbpair-syphon", daemon=True)
        try:
            thread.start()
            self._thread = thread
            started.result()
        except (OSError, RuntimeError) as error:  # no thread, or no descriptor for the loop
            self._thread = None
            raise OSError(f"the hosted syphon cannot start: {error}") from error

    def _wake(self) -> None:
        if self._loop is not None:
            self._in_loop(self._syphon.wake)

    def abort(self) -> None:
        self._in_loop(self._syphon.abort)
        self._in_loop(self._stop.set)

    def close(self) -> None:
        with self._starting:
            self._is_closed = True
        self._in_loop(self._stop.set)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING + LAST_STEPS)

    def reset_in_child(self) -> None:
        if self._thread is not None or self._starting.locked():
            self._leave_to_the_parent()
        self._begin()  # another thread may have held the locks at the fork

    def _work(self, started: Future[None]) -> None:
        try:
            serve_in_loop(self._main, started)
        except Exception:  # outermost frame of the thread
            logger.exception("the syphon of this process has failed")
        finally:
            self._loop = None

    async def _main(self, started: Future[None]) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            self._loop = loop
            for call in self._asked:
                loop.call_soon(call)
        started.set_result(None)
        await self._run(self._stop)

    def _in_loop(self, call: Callable[[], object]) -> None:
        """Let the loop call ``what`` soon, without waiting; if the loop is still starting, it makes the call first."""
        with self._lock:
            loop = self._loop
            if loop is None:
                self._asked.append(call)
                return
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:  # it has just ended
            logger.debug("the loop of the syphon has ended")


class SyphonTask(HostedSyphon):
    """A hosted syphon in the running loop."""

    def __init__(self, runtime: BaseRuntime) -> None:
        super().__init__(runtime)
        self._begin()

    def _begin(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def start(self) -> None:
        if self._task is None and not self._stop.is_set():
            self._task = asyncio.get_running_loop().create_task(self._run(self._stop), name="sbpair-syphon")

    def _wake(self) -> None:
        if self._task is not None:
            self._syphon.wake()

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

    def reset_in_child(self) -> None:
        if self._task is not None:
            leave_to_the_parent(self._task)
            self._leave_to_the_parent()
            self._begin()


def syphon_of(runtime: BaseRuntime) -> Syphon:
    """Return a syphon between the two sides of a client, which connects as the client does."""
    primary, secondary = runtime.namespaces
    watched = runtime.options.observation
    options = SyphonOptions(
        backlog_queue_count=runtime.options.backlog_queue_count,
        primary_namespace_name=runtime.label,
        land=runtime.options.land,
        land_after=runtime.options.land_after,
        ordering=runtime.options.ordering,
        missing_backlog_interval=MISSING,
        measure_every=None if watched is None or watched.status is None else MEASURED,
        stop_timeout=timedelta(seconds=CLOSING),
    )
    return Syphon.between(primary.access(), secondary.access(), options=options)
