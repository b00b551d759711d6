"""The broker: several namespaces in one thread, each with its port.

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
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from sbpair.pair.ground.loop_thread import serve_in_loop

from ..access import OpenAccess, SharedAccess, Verifier
from ..auth import EMULATOR_POLICY, SharedAccessPolicy
from ..clock import Clock, ManualClock, ShiftedClock, SystemClock
from ..entities.change_log import ChangeLog
from ..entities.namespace import Namespace
from ..entities.partition import Layout
from ..entities.quotas import Tier
from ..errors import BrokerError
from ..frontends.amqp.numbers import FAST, SERVICE
from ..frontends.rule_form import AmqpPropertyCodec
from . import event_loop
from .control import NamespaceControl
from .event_loop import new_event_loop
from .host_names import Neighbours
from .namespace_server import NamespaceServer

if TYPE_CHECKING:
    from ..certificates import Certificates
    from ..store.disk import Disk
    from .audit_writer import AuditWriter

Result = TypeVar("Result")
STOP_WITHIN = 30.0  # seconds


class Broker:
    """Service Bus namespaces, in memory or on disk, for unmodified clients.

    * ``namespaces``: name to port, 0 for any free one.
    * ``host``: the address to listen on.
    * ``clock``: entity time; by default the machine's clock.
    * ``open_access``: accept any token, and the emulator's well-known key. Otherwise each namespace has a root policy
      with random keys.
    * ``tls_directory``: where the certificate authority is stored; by default it lives as long as the broker.
    * ``tier``: Basic, Standard or Premium, for every namespace.
    * ``legacy_forward_tdlq``: move messages that cannot be forwarded to the transfer dead-letter queue, as documented
      until 2021.
    * ``partitions``: by namespace, 1, 2 or 4 for a partitioned Premium namespace.
    * ``first_partition``: the partition that receives the first message without a key, from 0.
    * ``credits_per_second``: the throttling limit of each Basic or Standard namespace, which is 1,000 in the service;
      None, the default, for no limit.
    * ``data``: the directory in which entities, messages, keys and certificates are stored; by default everything is
      in memory. Everything is on disk before it is acknowledged. If writing fails, the broker stops and
      ``failure`` holds the error.
    * ``on_failure``: called with that error in the broker's thread, where the namespaces cannot be used.
    * ``journal``: the directory in which each namespace records what happens to its messages, for an audit.
    * ``one_port``: all namespaces share the port of the first; clients choose one by host name
      (``contoso.servicebus.windows.net``).
    * ``policies``: by namespace, policies that sign tokens in addition to the root policy.
    * ``advertise``: the host in connection strings and in the certificate, if clients know this machine by another
      name than ``host``.
    * ``management_port``: a second port of the first namespace, which serves the same as the first, since the vendor's
      emulator has a separate port for its administration API.
    * ``fast``: announce larger frames, windows and numbers of links over AMQP than the service, and send answers
      settled: for tests of throughput. By default clients meet the service's numbers.

    Raises BrokerError for contradictory arguments. With ``data``, raises StoreInUseError when another broker uses the
    directory, StoreDamagedError when a file in it is damaged, and StoreError when it cannot be used.
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
        advertise: str | None = None,
        management_port: int | None = None,
        fast: bool = False,
    ) -> None:
        if not namespaces:
            raise BrokerError("A broker needs at least one namespace.")
        self._clock = clock or SystemClock()
        self._open_access = open_access
        self._fast = fast
        self._tier = _tier_of(tier)
        self._legacy_forward_tdlq = legacy_forward_tdlq
        self._first_partition = first_partition
        self._credits_per_second = credits_per_second
        self._host, self._advertise = host, advertise
        self._management_port = management_port
        self._neighbours = Neighbours[NamespaceServer]() if one_port else None
        self.failure: BrokerError | None = None
        self._on_failure = on_failure
        self._journal = None if journal is None else Path(journal)
        self._disk = None if data is None else _disk(Path(data))
        self._tls_directory = tls_directory or (None if data is None else Path(data) / "tls")
        self._certificates: Certificates | None = None
        self._context: ssl.SSLContext | None = None
        self._tls_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # None unless it accepts calls
        self._loop_lock = threading.Lock()  # so that a loop that is closing never drops a scheduled call
        self._thread: threading.Thread | None = None
        self._shutdown: asyncio.Event | None = None
        self._servers: list[NamespaceServer] = []
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

    def _add(self, name: str, port: int, clock: Clock, partitions: int | None = None) -> NamespaceServer:
        audit_writer = None if self._journal is None else _audit_writer(self._journal, name)
        namespace = Namespace(
            name,
            created_at=clock.now(),
            layout=Layout(partitions, self._first_partition),
            tier=self._tier,
            legacy_forward_tdlq=self._legacy_forward_tdlq,
            codec=AmqpPropertyCodec(),
            credits_per_second=self._credits_per_second,
            change_log=None if self._disk is None else ChangeLog(),
            audit=None if audit_writer is None else audit_writer.recorder,
        )
        store = None if self._disk is None else self._disk.attach(namespace, clock.now())
        if self._open_access:
            policy = EMULATOR_POLICY
        else:
            policy = SharedAccessPolicy.generate() if store is None else store.policy()
        additional = [] if store is None else store.policies()
        verifier: Verifier = (
            OpenAccess()
            if self._open_access
            else SharedAccess(
                (*additional, policy, *self._policies.get(name, ())), namespace.directory.access_rules
            )
        )
        server = NamespaceServer(
            namespace,
            verifier,
            clock,
            self._host,
            port,
            self._tls_context,
            store,
            self._failed,
            audit_writer,
            self._neighbours,
            management_port=None if self._servers else self._management_port,
            advertised=self._advertise,
            numbers=FAST if self._fast else SERVICE,
        )
        self._servers.append(server)
        self._controls[name] = NamespaceControl(
            server, policy, clock, self._in_loop, additional, None if store is None else store.save_policies
        )
        return server

    # -- starting and stopping

    def start(self) -> None:
        """Start the thread and return when every port answers.

        Raises PortUnavailableError, which names the namespace and the port, and BrokerError when the broker is already
        running or has released its data directory. Raises OSError when no descriptor is left for the event loop.
        """
        if self._thread is not None:
            raise BrokerError("The broker is already running.")
        if self._disk is not None and self._disk.is_closed:
            raise BrokerError("The broker has released its data directory: create a new Broker.")
        event_loop.raise_limit()
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=serve_in_loop,
            args=(self._serve, started, new_event_loop),
            name="sbpair-broker",
            daemon=True,
        )
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            self._close_disk()
            raise

    def stop(self) -> None:
        """Close every port, connection and file; idempotent.

        Queues and messages in memory exist as long as this object, those on disk until they are deleted. Raises
        BrokerError when the thread does not end within 30 s.
        """
        thread, shutdown = self._thread, self._shutdown
        if thread is None or shutdown is None:
            self._close_disk()
            return
        self._schedule(shutdown.set)
        thread.join(STOP_WITHIN)
        if thread.is_alive():
            raise BrokerError(f"The broker did not stop within {STOP_WITHIN:g} s.")
        self._thread = self._shutdown = None
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
        """Stop the broker because a namespace could not be written: no namespace answers any more."""
        if self.failure is not None:
            return
        self.failure = error
        if self._shutdown is not None:
            self._shutdown.set()
        if self._on_failure is not None:
            self._on_failure(error)

    # -- namespaces

    def namespace(self, name: str) -> NamespaceControl:
        """Return a namespace by name.

        Raises BrokerError, which lists the existing ones, when there is none.
        """
        control = self._controls.get(name)
        if control is None:
            raise BrokerError(f"There is no namespace '{name}'; there are: {', '.join(self._controls)}.")
        return control

    def add_namespace(
        self, name: str, port: int = 0, *, clock: Clock | None = None, partitions: int | None = None
    ) -> NamespaceControl:
        """Add a namespace, and open it at once if the broker is running.

        ``port``: 0 for any free one. ``clock``: entity time of its own. ``partitions``: 1, 2 or 4 for a partitioned
        Premium namespace.

        Raises BrokerError when the name is taken, PortUnavailableError when the port cannot be opened.
        """
        if name in self._controls:
            raise BrokerError(f"The namespace '{name}' already exists.")

        def add() -> None:
            server = self._add(name, port, clock or self._clock, partitions)
            if self._loop is None:
                return
            try:
                server.open()
            except Exception:
                self._forget(server)
                if self._disk is not None:
                    self._disk.detach(name)
                raise

        self._in_loop(add)
        return self._controls[name]

    def remove_namespace(self, name: str) -> None:
        """Close a namespace and delete it, on disk too.

        Raises BrokerError when it does not exist, or when other namespaces share its port.
        """
        server = self.namespace(name).server
        if server.neighbours.are_several and server.neighbours.all[0] is server:
            raise BrokerError(f"The other namespaces share the port of '{name}': remove them first.")
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(server.close(), self._loop).result(STOP_WITHIN)
        self._in_loop(lambda: self._forget(server))
        if self._disk is not None:
            self._disk.delete(name)

    def _forget(self, server: NamespaceServer) -> None:
        self._servers.remove(server)
        server.neighbours.all.remove(server)
        del self._controls[server.frontend.namespace.name]

    @property
    def namespaces(self) -> list[NamespaceControl]:
        """All namespaces, in the order given."""
        return list(self._controls.values())

    @property
    def ca_file(self) -> Path:
        """PEM of the authority that signed this broker's certificate: https clients must trust it."""
        return self._get_certificates().ca_file

    def advance(self, span: int | timedelta, *, clock: Clock | None = None) -> None:
        """Advance entity time (milliseconds or a timedelta) and process everything that falls due.

        ``clock``: that of namespaces added with their own clock. Raises BrokerError unless it is a
        ManualClock or a ShiftedClock, ValueError for a negative span.
        """
        clock = clock or self._clock
        if not isinstance(clock, ManualClock | ShiftedClock):
            raise BrokerError("Only a broker with a ManualClock or a ShiftedClock can be advanced.")

        def advance_all() -> None:
            clock.advance(span)
            for server in self._servers:
                if server.clock is clock:
                    server.catch_up()

        self._in_loop(advance_all)

    def advance_connections(self, span: timedelta) -> None:
        """Advance connection time: idle links and connections, and the expiry of tokens.

        Neither entity time nor the heartbeats of connections are affected. Raises ValueError for a negative
        span.
        """
        if span < timedelta(0):
            raise ValueError(f"time cannot go back: the span is {span!r}")

        def advance_all() -> None:
            for server in self._servers:
                server.advance_connections(span.total_seconds())

        self._in_loop(advance_all)

    # -- thread and loop

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._shutdown = asyncio.Event()
        try:
            for server in self._servers:
                server.open()
        except Exception as error:  # start() raises it
            try:
                await self._close_all()
            finally:
                self._loop = None
                started.set_exception(error)
            return
        started.set_result(None)
        await self._shutdown.wait()
        try:
            await self._close_all()
        finally:
            with self._loop_lock:
                self._loop = None
            await asyncio.sleep(0)  # run the calls that are already scheduled

    async def _close_all(self) -> None:
        async with AsyncExitStack() as closing:  # close all, even when one raises
            for server in reversed(self._servers):
                closing.push_async_callback(server.close)

    def _in_loop(self, function: Callable[[], Result], /) -> Result:
        if self._thread is threading.current_thread():  # the thread would wait for itself
            raise BrokerError(
                "A callback of the broker cannot use its namespaces: use them in another thread."
            )
        done: Future[Result] = Future()

        def call() -> None:
            try:
                done.set_result(self._run_and_commit(lambda: self._run_as_turn(function)))
            except BaseException as error:
                done.set_exception(error)

        if not self._schedule(call):
            return self._run_and_commit(function)  # before start and after stop no loop uses the namespaces
        return done.result(STOP_WITHIN)

    def _schedule(self, call: Callable[[], object]) -> bool:
        """Schedule ``call`` in the loop. Returns False, without scheduling it, when the loop accepts no calls."""
        with self._loop_lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call)
            return self._loop is not None

    def _run_as_turn(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` in the loop, deliver the messages it made available, and set the changed timers."""
        try:
            return function()
        finally:
            for server in self._servers:
                server.end_turn()

    def _run_and_commit(self, function: Callable[[], Result]) -> Result:
        """Run ``function``, commit its changes, and return its result."""
        result = function()
        for server in self._servers:
            server.commit()
        return result

    # -- TLS

    def _get_certificates(self) -> Certificates:
        from ..certificates import LOCAL_NAMES, provide

        with self._tls_lock:
            if self._certificates is None:
                more = [name for name in (self._host, self._advertise) if name and name not in LOCAL_NAMES]
                self._certificates = provide((*LOCAL_NAMES, *more), int(time.time()), self._tls_directory)
            return self._certificates

    def _tls_context(self) -> ssl.SSLContext:
        certificates = self._get_certificates()
        with self._tls_lock:
            if self._context is None:
                self._context = certificates.ssl_context()
            return self._context


def _disk(path: Path) -> Disk:
    from ..store.disk import Disk  # imported late: a broker in memory does not load SQLite

    return Disk(path)


def _audit_writer(directory: Path, name: str) -> AuditWriter:
    from .audit_writer import AuditWriter  # imported late: only a broker with a journal needs it

    return AuditWriter(directory, name)


def _tier_of(name: str) -> Tier:
    names = {tier.value: tier for tier in Tier}
    if name not in names:
        raise BrokerError(f"The tier is {name!r}: use one of {', '.join(names)}.")
    return names[name]
