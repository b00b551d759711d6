"""The server of one namespace, on its own port or a shared one: connections, outages, and clocks.

    Listener            accepts sockets
    ProtocolSniffer     detects the protocol of each
    AmqpWire            a connection that speaks AMQP
    Commits             decides when answers are sent

All methods run in the broker's loop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from ..access import Verifier
from ..clock import Clock, ClockReading
from ..entities.namespace import Namespace
from ..errors import BrokerError, PortUnavailableError, StoreFailedError
from ..faults import Outage
from ..frontends.amqp.numbers import SERVICE, WireNumbers
from ..frontends.namespace_frontend import NamespaceFrontend
from .active_faults import ActiveFaults
from .event_loop import Alarm
from .host_names import Neighbours
from .listener import Listener, ProtocolSniffer
from .unread_limit import UnreadLimit
from .wire import AmqpWire

if TYPE_CHECKING:
    from ..store.sqlite import SqliteStore
    from .audit_writer import AuditWriter


class Commits:
    """Decides when a namespace's answers are sent: none leaves before the changes it reports are on disk.

        a turn of the loop       everything that arrived in it shares a commit
        a commit in progress     answers produced before it began wait for it, and for no later one
        the next commit          begins when that one is done, with everything that arrived meanwhile
        no store                 answers leave at once

    A failed commit ends the server: the state on disk is unknown, and the answers that waited are never sent.
    ``fail`` is called with the error of the commit that failed.
    """

    def __init__(
        self,
        frontend: NamespaceFrontend,
        wires: Mapping[Hashable, AmqpWire],
        store: SqliteStore | None,
        audit_writer: AuditWriter | None,
        fail: Callable[[StoreFailedError], None],
    ) -> None:
        self._frontend = frontend
        self._wires = wires
        self._store = store
        self._audit_writer = audit_writer
        self._fail = fail
        self._turn: asyncio.Handle | None = None  # scheduled for the end of this turn
        self._pending: Future[None] | None = None
        self._holding_wires: list[AmqpWire] = []  # with answers that wait for the pending commit

    @property
    def is_holding(self) -> bool:
        """Whether changes must reach the disk before any answer leaves."""
        return self._store is not None and self._store.has_pending_changes

    def end_turn(self) -> None:
        """Send pending answers: now, or after the commit of this turn of the loop."""
        if not self.is_holding:
            self._flush()
        elif self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._end_turn)

    def commit(self) -> None:
        """Write all changes to disk, then send the answers that waited.

        Raises StoreFailedError, after which the broker stops.
        """
        try:
            if self._store is not None:
                self._store.commit()
        except StoreFailedError as error:
            self._abandon(error)
            raise
        self._pending = None
        self._flush()

    def _end_turn(self) -> None:
        self._turn = None
        if self._pending is not None:
            return  # the next commit begins when this one is done
        if self.is_holding:
            self._begin()
        else:
            self._flush()

    def _begin(self) -> None:
        """Start syncing the changes in a thread; answers produced so far wait for this commit, not for a later one.

        With an audit journal, the commit is synchronous, because events are written only when no change waits to be
        synced.
        """
        if self._store is None or self._audit_writer is not None:
            with suppress(StoreFailedError):  # already reported to the broker
                self.commit()
            return
        try:
            self._pending = pending = self._store.begin_commit()
        except StoreFailedError as error:
            self._abandon(error)
            return
        for client in self._frontend.take_pending():
            if (wire := self._wires.get(client)) is not None:
                wire.hold_output()
                self._holding_wires.append(wire)
        loop = asyncio.get_running_loop()

        def synced(_: Future[None]) -> None:
            with suppress(RuntimeError):  # the loop has closed, after waiting for this commit
                loop.call_soon_threadsafe(self._end, pending)

        pending.add_done_callback(synced)

    def _end(self, pending: Future[None]) -> None:
        if pending is not self._pending or self._store is None:
            return  # commit() has completed it synchronously
        self._pending = None
        try:
            self._store.end_commit()
        except StoreFailedError as error:
            self._abandon(error)
            return
        if self.is_holding:
            self._flush_held()
            self._begin()
        else:
            self._flush()

    def _flush(self) -> None:
        if self._audit_writer is not None:
            self._audit_writer.write_soon(lambda: self.is_holding)
        for wire in self._flush_held():
            wire.flush()
        for client in self._frontend.take_pending():
            if (found := self._wires.get(client)) is not None:
                found.flush()

    def _flush_held(self) -> list[AmqpWire]:
        wires, self._holding_wires = self._holding_wires, []
        for wire in wires:
            wire.flush_held()
            if wire.client.is_closed:
                self._frontend.stir(wire.client)  # closes once everything is sent
        return wires

    def _abandon(self, error: StoreFailedError) -> None:
        self._frontend.take_pending()
        self._pending = None
        self._holding_wires.clear()
        if self._audit_writer is not None:
            self._audit_writer.abandon()
        self._fail(error)


_NO_LINGER = struct.pack("ii", 1, 0)  # close sends RST


class NamespaceServer:
    """A namespace, its port and its connections."""

    def __init__(
        self,
        namespace: Namespace,
        verifier: Verifier,
        clock: Clock,
        host: str,
        port: int,
        tls: Callable[[], ssl.SSLContext],
        store: SqliteStore | None = None,
        on_failure: Callable[[BrokerError], None] | None = None,
        audit_writer: AuditWriter | None = None,
        neighbours: Neighbours[NamespaceServer] | None = None,
        management_port: int | None = None,
        advertised: str | None = None,
        numbers: WireNumbers = SERVICE,
    ) -> None:
        self.frontend = NamespaceFrontend(namespace, verifier, store, numbers)
        self.neighbours = Neighbours[NamespaceServer]() if neighbours is None else neighbours
        self.neighbours.all.append(self)
        self.wires: dict[Hashable, AmqpWire] = {}
        self.unread = UnreadLimit[AmqpWire](lambda wire: _abort(wire.transport))
        self._listener = Listener(namespace.name, host, port, self._welcome)
        self._listeners = [self._listener]
        if management_port is not None:
            self._listeners.append(Listener(namespace.name, host, management_port, self._welcome))
        self.advertised = advertised
        """The host in connection strings, where it is not the address listened on."""
        self._sniffer = ProtocolSniffer(self, tls)
        self._commits = Commits(self.frontend, self.wires, store, audit_writer, self._fail)
        self.clock = clock
        self._ahead = 0.0  # seconds
        self.delay = 0.0  # seconds each answer waits: Outage.SLOW
        self.active_faults = ActiveFaults(self)
        self._outage: Outage | None = None
        self._silent_sockets: list[socket.socket] = []  # accepted during a silent outage
        self.turned_away: set[asyncio.Future[None]] = set()
        """HTTP requests on a shared port that wait for the end of the outage."""
        self._timer = Alarm(self.handle_timer, slack=0.001)
        self._continuation: asyncio.Handle | None = None  # continues a delivery too large for one turn
        self._on_failure = on_failure
        self._audit_writer = audit_writer

    @property
    def port(self) -> int:
        """The port clients connect to: its own, or the shared one."""
        return self.neighbours.all[0]._listener.port

    @property
    def host(self) -> str:
        """The address it listens on."""
        return self._listener.host

    @property
    def management_port(self) -> int | None:
        """The second port, if there is one: it serves the same as the first."""
        return self._listeners[1].port if len(self._listeners) > 1 else None

    @property
    def _is_guest(self) -> bool:
        return self.neighbours.all[0] is not self

    def read_clocks(self) -> ClockReading:
        """Return the current time on all clocks."""
        ahead = self._ahead
        now, wall = time.monotonic(), int(time.time() + ahead)  # the loop's clock is the monotonic one
        return ClockReading(now, wall, self.clock.now(), ahead)

    def advance_connections(self, seconds: float) -> None:
        """Advance connection time by ``seconds``, and process idle links and expired tokens."""
        self._ahead += seconds
        for wire in list(self.wires.values()):
            wire.handle_timer()
        self.active_faults.apply()

    # -- opening and closing

    def open(self) -> None:
        """Start listening.

        Raises PortUnavailableError, and BrokerError when the journal cannot be written or a standing fault cannot
        begin.
        """
        try:
            self._open()
        except BrokerError:
            self._close_ports()
            if self._audit_writer is not None:
                self._audit_writer.close()
            raise

    def _open(self) -> None:
        ports = [] if self._is_guest else self._listeners
        for each in ports:
            each.bind()
        if self._audit_writer is not None:
            self._audit_writer.open()
        for each in ports:
            each.listen()
        for refusal in self.active_faults.apply().values():
            raise refusal

    async def close(self) -> None:
        """Close the port and every connection."""
        with suppress(PortUnavailableError):  # the port closes anyway
            self.active_faults.stop()
        self._close_ports()
        self._abort_all()
        await self._sniffer.close()
        while self.wires:
            await asyncio.sleep(0)  # each connection_lost removes its wire
        self._timer.cancel()  # the end of a connection can arm it
        if self._continuation is not None:
            self._continuation.cancel()
            self._continuation = None
        with suppress(StoreFailedError):  # already reported to the broker
            self.commit()
        if self._audit_writer is not None:
            self._audit_writer.close()

    @property
    def is_silent(self) -> bool:
        """Whether new connections to the port get no answer for now; on a shared port they do."""
        return self._outage is Outage.SILENT and not self.neighbours.are_several

    @property
    def is_open(self) -> bool:
        """Whether the port is bound: standing faults need one."""
        return self.neighbours.all[0]._listener.is_bound

    # -- outages

    @property
    def outage(self) -> Outage | None:
        """The current outage, None while the namespace is up."""
        return self._outage

    def take_down(self, outage: Outage, delay: float = 0.2) -> None:
        """Apply ``outage`` until :meth:`bring_up`; ``delay`` is in seconds, for SLOW only."""
        self.bring_up()
        if outage is Outage.REFUSE and self.neighbours.are_several:
            outage = Outage.RESET  # other namespaces use the port
        self._outage = outage
        if outage is Outage.SLOW:
            self.delay = delay
            return
        if outage is Outage.HALF_OPEN:
            for wire in self.wires.values():
                wire.die()
            self.end_turn()
            return
        if outage is Outage.SILENT:
            for wire in self.wires.values():
                wire.mute()
            for transport in [] if self.neighbours.are_several else self._sniffer.transports:
                if not transport.is_closing():
                    transport.pause_reading()
            return
        self._abort_all()
        if outage is Outage.REFUSE:
            self._close_ports()
            for each in self._listeners:
                with suppress(PortUnavailableError):  # refused in any case; bring_up() binds again
                    each.bind()

    def bring_up(self) -> None:
        """End the outage; requests that arrived during a silent one are answered now.

        Raises PortUnavailableError, and stays down, when another program took the port during a refusing outage.
        """
        if self._outage is Outage.REFUSE:
            for each in self._listeners:
                each.listen()
        outage, self._outage = self._outage, None
        self.delay = 0.0
        for end in self.turned_away:
            if not end.done():
                end.set_result(None)
        if outage is Outage.SILENT:
            for wire in list(self.wires.values()):
                wire.unmute()
            for transport in self._sniffer.transports:
                if not transport.is_closing():
                    transport.resume_reading()
            sockets, self._silent_sockets = self._silent_sockets, []
            for sock in sockets:
                self._sniffer.welcome(sock)

    def _close_ports(self) -> None:
        for each in self._listeners:
            each.close()

    def _abort_all(self) -> None:
        others = self._sniffer.transports
        if self._outage is not None and self.neighbours.are_several:
            others = set()  # shared connections: decided request by request
        for transport in [*(wire.transport for wire in self.wires.values()), *others]:
            _abort(transport)
        others.clear()
        for sock in self._silent_sockets:
            _reset(sock)
        self._silent_sockets.clear()
        self._sniffer.close_silent()

    def admit(self, wire: AmqpWire) -> None:
        """Apply the current outage to a client of the shared port that has chosen this namespace."""
        if self._outage is Outage.RESET:
            _abort(wire.transport)
        elif self._outage is Outage.SILENT:
            wire.mute()

    def turns_away(self, transport: asyncio.Transport | None) -> bool:
        """Whether an HTTP request on a shared port must not be answered.

        A reset also aborts its connection.
        """
        if not self.neighbours.are_several:
            return False  # then the port itself fails
        if self._outage is Outage.RESET and transport is not None:
            _abort(transport)
        return self._outage in (Outage.RESET, Outage.SILENT)

    async def wait_until_up(self) -> None:
        """Wait until the outage ends, or is replaced by another."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.turned_away.add(end)
        try:
            await end
        finally:  # also when the client disconnects, which cancels this task
            self.turned_away.discard(end)

    def _welcome(self, sock: socket.socket) -> None:
        outage = None if self.neighbours.are_several else self._outage
        if outage is Outage.RESET:
            _reset(sock)
        elif outage is Outage.SILENT:
            self._silent_sockets.append(sock)
        else:
            self._sniffer.welcome(sock)

    # -- the end of a turn, commits and timers

    def end_turn(self) -> None:
        """Deliver waiting messages, send pending answers, and arm the timer.

        Call after each chunk of data, request or timer.
        """
        if self.frontend.deliver(self.read_clocks()) and self._continuation is None:
            self._continuation = asyncio.get_running_loop().call_soon(self._continue)
        self._commits.end_turn()
        self._arm()

    def _continue(self) -> None:
        self._continuation = None
        self.end_turn()

    @property
    def is_holding(self) -> bool:
        """Whether changes must reach the disk before any answer leaves."""
        return self._commits.is_holding

    def commit(self) -> None:
        """Write all changes to disk, then send the answers that waited.

        Raises StoreFailedError, after which the broker stops.
        """
        self._commits.commit()

    def _fail(self, error: StoreFailedError) -> None:
        for each in self._listeners:
            each.pause()
        self._abort_all()
        if self._on_failure is not None:
            self._on_failure(error)

    def handle_timer(self) -> None:
        """Process the entities' due timers, one slice of them."""
        self.frontend.namespace.handle_timer(self.clock.now())
        self.end_turn()

    def catch_up(self) -> None:
        """Process all due timers, for callers that advanced the clock."""
        namespace = self.frontend.namespace
        before = -1
        while before != namespace.work_done:
            before = namespace.work_done
            self.handle_timer()

    def _arm(self) -> None:
        at = self.frontend.namespace.take_moved_timer()
        if at is None or self.clock.is_driven():  # then Broker.advance processes the timers
            return
        self._timer.set(asyncio.get_running_loop().time() + max(0, at - self.clock.now()) / 1000)


def _abort(transport: asyncio.Transport) -> None:
    """Abort a transport with a TCP reset."""
    if not transport.is_closing():  # a closed TLS transport has no socket
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError, ValueError):  # already closed
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    with suppress(AttributeError):  # of Python 3.11.2, for TLS that was closed twice, here by aiohttp
        transport.abort()


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    sock.close()
