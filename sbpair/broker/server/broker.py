"""The broker: several namespaces, each on its port, in a thread of its own.

with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
    broker.namespace("contoso").create_queue("orders")
    client = ServiceBusClient.from_connection_string(broker.namespace("contoso").connection_string)
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ..access import OpenAccess, SharedAccess, Verifier
from ..auth import EMULATOR_POLICY, SharedAccessPolicy
from ..clock import Clock, ManualClock, ShiftedClock, SystemClock
from ..entities.journal import Journal
from ..entities.layout import Layout
from ..entities.namespace import Namespace
from ..entities.tier import Tier
from ..errors import BrokerError
from ..faces.rule_form import RuleForm
from .control import NamespaceControl
from .event_loop import new_event_loop
from .neighbours import Neighbours
from .station import Station

if TYPE_CHECKING:
    from ..certificates import Certificates
    from ..store.disk import Disk
    from .chronicle import Chronicle

Result = TypeVar("Result")
STOP_WITHIN = 10.0  # seconds


class Broker:
    """Service Bus namespaces, in memory or on disk, for unmodified clients.

    ``namespaces``: name to port, 0 for any free one. ``host``: the address to listen on. ``clock``: entity
    time. ``open_access``: take any token, and the emulator's well-known key; else each namespace has a root
    policy with random keys. ``tls_directory``: where the certificate authority is kept; without one it lives
    as long as the broker. ``tier``: of every namespace, Basic, Standard or Premium (T-8).
    ``legacy_forward_tdlq``: what cannot be forwarded goes to the transfer dead-letter queue, as it was
    documented until 2021 (3.7).
    ``partitions``: by namespace, 1, 2 or 4 for a partitioned Premium one (Q-2).
    ``first_partition``: where each partitioned entity's messages without a key begin their round (Q-5).
    ``credits_per_second``: what each Basic or Standard namespace may be asked for (3.9): the service gives
    1,000; None, as here, is no limit.
    ``data``: the directory in which all of it is kept, keys and certificates too; without one it is in memory
    only. What is answered is on the disk before (G-26); when that fails the broker stops, ``failure`` says
    why, and ``on_failure`` is called, in the broker's thread.
    ``journal``: the directory to which each namespace writes what becomes of its messages, for an audit.

    ``one_port``: all namespaces are behind the port of the first; clients say by their host name which they
    mean (``contoso.servicebus.windows.net``).

    ``policies``: by namespace, those that sign tokens beside the root's.

    Raises BrokerError; with ``data`` StoreError, StoreInUse, StoreDamaged.
    """

    def __init__(
        self,
        namespaces: Mapping[str, int],
        *,
        host: str = "127.0.0.1",
        clock: Clock | None = None,
        open_access: bool = False,
        tls_directory: Path | None = None,
        tier: str = "Standard",
        legacy_forward_tdlq: bool = False,
        partitions: Mapping[str, int] | None = None,
        first_partition: int = 0,
        credits_per_second: int | None = None,
        data: str | Path | None = None,
        journal: str | Path | None = None,
        on_failure: Callable[[BrokerError], None] | None = None,
        one_port: bool = False,
        policies: Mapping[str, Sequence[SharedAccessPolicy]] | None = None,
    ) -> None:
        if not namespaces:
            raise BrokerError("A broker needs at least one namespace.")
        self._clock = clock or SystemClock()
        self._open_access = open_access
        self._tier = _tier_of(tier)
        self._legacy_forward_tdlq = legacy_forward_tdlq
        self._first_partition = first_partition
        self._credits_per_second = credits_per_second
        self._host = host
        self._neighbours = Neighbours[Station]() if one_port else None
        self.failure: BrokerError | None = None
        self._on_failure = on_failure
        self._journal = None if journal is None else Path(journal)
        self._disk = None if data is None else _disk(Path(data))
        self._tls_directory = tls_directory or (None if data is None else Path(data) / "tls")
        self._certificates: Certificates | None = None
        self._context: ssl.SSLContext | None = None
        self._tls_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._shutdown: asyncio.Event | None = None
        self._stations: list[Station] = []
        self._controls: dict[str, NamespaceControl] = {}
        self._policies = policies or {}
        try:
            for name, port in namespaces.items():
                self._add(name, port, self._clock, (partitions or {}).get(name))
            for name in partitions or {}:
                self.namespace(name)
        except BaseException:
            self._close_disk()
            raise

    def _add(self, name: str, port: int, clock: Clock, partitions: int | None = None) -> Station:
        chronicle = None if self._journal is None else _chronicle(self._journal, name)
        namespace = Namespace(
            name,
            created_at=clock.now(),
            layout=Layout(partitions, self._first_partition),
            tier=self._tier,
            legacy_forward_tdlq=self._legacy_forward_tdlq,
            form=RuleForm(),
            credits_per_second=self._credits_per_second,
            journal=None if self._disk is None else Journal(),
            witness=None if chronicle is None else chronicle.witness,
        )
        store = None if self._disk is None else self._disk.keep(namespace, clock.now())
        if self._open_access:
            policy = EMULATOR_POLICY
        else:
            policy = SharedAccessPolicy.generate() if store is None else store.policy()
        verifier: Verifier = (
            OpenAccess()
            if self._open_access
            else SharedAccess((policy, *self._policies.get(name, ())), namespace.access_rules)
        )
        station = Station(
            namespace,
            verifier,
            clock,
            self._host,
            port,
            self._tls_context,
            store,
            self._failed,
            chronicle,
            self._neighbours,
        )
        self._stations.append(station)
        self._controls[name] = NamespaceControl(station, policy, clock, self._in_loop)
        return station

    # -- life

    def start(self) -> None:
        """Return when every port answers. Raises PortUnavailable, which names the namespace and the port."""
        if self._thread is not None:
            raise BrokerError("The broker is running already.")
        if self._disk is not None and self._disk.is_closed:
            raise BrokerError("The broker has given its data directory back: make another one.")
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="sbpair-broker", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            self._close_disk()
            raise

    def stop(self) -> None:
        """Close every port and connection, and the files; idempotent.

        Queues and messages in memory are kept until the object goes, those on disk until they are received.
        """
        thread, loop, shutdown = self._thread, self._loop, self._shutdown
        if thread is None or loop is None or shutdown is None:
            self._close_disk()
            return
        with suppress(RuntimeError):  # its loop is closed: it has stopped by itself, after a failure
            loop.call_soon_threadsafe(shutdown.set)
        thread.join(STOP_WITHIN)
        if thread.is_alive():
            raise BrokerError(f"The broker did not stop within {STOP_WITHIN:g} s.")
        self._thread = self._loop = self._shutdown = None
        self._close_disk()
        if self._certificates is not None:
            self._certificates.clean_up()
            self._certificates = self._context = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _close_disk(self) -> None:
        if self._disk is not None:
            self._disk.close()

    def _failed(self, error: BrokerError) -> None:
        """A namespace could not be written: nothing is answered any more, by none of them."""
        if self.failure is not None:
            return
        self.failure = error
        if self._shutdown is not None:
            self._shutdown.set()
        if self._on_failure is not None:
            self._on_failure(error)

    # -- use

    def namespace(self, name: str) -> NamespaceControl:
        """The namespace of that name. Raises BrokerError, which names those there are."""
        control = self._controls.get(name)
        if control is None:
            raise BrokerError(f"There is no namespace '{name}'; there are: {', '.join(self._controls)}.")
        return control

    def add_namespace(
        self, name: str, port: int = 0, *, clock: Clock | None = None, partitions: int | None = None
    ) -> NamespaceControl:
        """One more namespace, at once if the broker runs; ``clock``: an entity time of its own.

        Raises BrokerError for a name that is taken, PortUnavailable.
        """
        if name in self._controls:
            raise BrokerError(f"There is a namespace '{name}' already.")

        def add() -> None:
            station = self._add(name, port, clock or self._clock, partitions)
            if self._loop is None:
                return
            try:
                station.open()
            except Exception:
                self._forget(station)
                if self._disk is not None:
                    self._disk.release(name)
                raise

        self._in_loop(add)
        return self._controls[name]

    def remove_namespace(self, name: str) -> None:
        """Close a namespace and forget it, on disk too. Raises BrokerError when it is not there."""
        station = self.namespace(name).station
        if station.neighbours.are_several and station.neighbours.all[0] is station:
            raise BrokerError(f"The others are behind the port of '{name}': it is the last to be removed.")
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(station.close(), self._loop).result(STOP_WITHIN)
        self._in_loop(lambda: self._forget(station))
        if self._disk is not None:
            self._disk.forget(name)

    def _forget(self, station: Station) -> None:
        self._stations.remove(station)
        station.neighbours.all.remove(station)
        del self._controls[station.face.namespace.name]

    @property
    def namespaces(self) -> list[NamespaceControl]:
        """All namespaces, in the order they were given."""
        return list(self._controls.values())

    @property
    def ca_file(self) -> Path:
        """PEM of the authority that signed this broker's certificate: what https clients are to trust."""
        return self._provide().ca_file

    def advance(self, span: int | timedelta, *, clock: Clock | None = None) -> None:
        """Turn entity time on (milliseconds or a timedelta) and let happen what falls due.

        ``clock``: that of namespaces which were added with one of their own. Raises BrokerError unless it
        is a ManualClock or a ShiftedClock, ValueError for a span below 0.
        """
        clock = clock or self._clock
        if not isinstance(clock, ManualClock | ShiftedClock):
            raise BrokerError("Only a broker with a ManualClock or a ShiftedClock can be advanced.")

        def advance_all() -> None:
            clock.advance(span)
            for station in self._stations:
                if station.clock is clock:
                    station.handle_timer()

        self._in_loop(advance_all)

    def advance_connections(self, span: timedelta) -> None:
        """Set connection time ahead: idle links and connections, and the expiry of tokens (3.10).

        Entity time does not move, nor do the heartbeats of connections. Raises ValueError for a span below 0.
        """
        if span < timedelta(0):
            raise ValueError(f"time is not turned back: the span is {span!r}")

        def advance_all() -> None:
            for station in self._stations:
                station.advance_connections(span.total_seconds())

        self._in_loop(advance_all)

    # -- thread and loop

    def _run(self, started: Future[None]) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._shutdown = asyncio.Event()
        try:
            for station in self._stations:
                station.open()
        except Exception as error:  # who waits for the start is told, whatever it is
            try:
                await self._close_all()
            finally:
                self._loop = None
                started.set_exception(error)
            return
        started.set_result(None)
        await self._shutdown.wait()
        await self._close_all()

    async def _close_all(self) -> None:
        async with AsyncExitStack() as closing:  # each of them, whatever another raises
            for station in reversed(self._stations):
                closing.push_async_callback(station.close)

    def _in_loop(self, function: Callable[[], Result], /) -> Result:
        loop = self._loop
        if loop is None or not loop.is_running():
            return self._kept(function)  # before start and after stop there is nobody to disturb
        done: Future[Result] = Future()

        def call() -> None:
            try:
                done.set_result(self._kept(function))
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(call)
        return done.result(STOP_WITHIN)

    def _kept(self, function: Callable[[], Result]) -> Result:
        """What ``function`` returns, with what it changed on the disk."""
        result = function()
        for station in self._stations:
            station.commit()
        return result

    # -- TLS

    def _provide(self) -> Certificates:
        from ..certificates import LOCAL_NAMES, provide

        with self._tls_lock:
            if self._certificates is None:
                names = LOCAL_NAMES if self._host in LOCAL_NAMES else (*LOCAL_NAMES, self._host)
                self._certificates = provide(names, int(time.time()), self._tls_directory)
            return self._certificates

    def _tls_context(self) -> ssl.SSLContext:
        certificates = self._provide()
        with self._tls_lock:
            if self._context is None:
                self._context = certificates.ssl_context()
            return self._context


def _disk(path: Path) -> Disk:
    from ..store.disk import Disk  # late: a broker in memory does not load SQLite

    return Disk(path)


def _chronicle(directory: Path, name: str) -> Chronicle:
    from .chronicle import Chronicle  # late: a broker without a journal does not load it

    return Chronicle(directory, name)


def _tier_of(name: str) -> Tier:
    names = {tier.value: tier for tier in Tier}
    if name not in names:
        raise BrokerError(f"The tier is {name!r}: one of {', '.join(names)}.")
    return names[name]
