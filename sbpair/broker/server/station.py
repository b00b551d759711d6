"""One namespace, on its port or on one it shares: who knocks, in what language, and how does the port fail?

    first byte 'A'    AMQP          plain, for clients with UseDevelopmentEmulator=true
    first byte 0x16   TLS           and inside it the same question again: AMQP or HTTP
    a capital letter  HTTP          the administration API, plain
    anything else     closed        that connection only

The first byte is looked at, not taken (MSG_PEEK): TLS needs it. All methods run in the broker's loop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from ..access import Verifier
from ..clock import Clock
from ..entities.namespace import Namespace
from ..errors import BrokerError, PortUnavailable, StoreFailed
from ..faces.links.client_connection import ClientConnection
from ..faces.moment import Moment
from ..faces.namespace_face import NamespaceFace
from ..faults import Outage
from .neighbours import Neighbours
from .standing import StandingFaults
from .wire import AmqpWire

if TYPE_CHECKING:
    from ..store.sqlite import SqliteStore
    from .chronicle import Chronicle
    from .http import HttpServer

FIRST_BYTE_WITHIN = 20.0  # seconds
ACCEPT_AGAIN_AFTER = 0.05  # seconds, when descriptors have run out
BACKLOG = 256
_OPENS_AMQP, _OPENS_TLS = b"A", b"\x16"
_NO_LINGER = struct.pack("ii", 1, 0)  # close sends RST


class Station:
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
        chronicle: Chronicle | None = None,
        neighbours: Neighbours[Station] | None = None,
    ) -> None:
        self.face = NamespaceFace(namespace, verifier, store)
        self.neighbours = Neighbours[Station]() if neighbours is None else neighbours
        self.neighbours.all.append(self)
        self.wires: dict[ClientConnection, AmqpWire] = {}
        self.host = host
        self._port = port
        self.clock = clock
        self._tls = tls
        self._ahead = 0.0  # seconds
        self.delay = 0.0  # seconds each answer waits: Outage.SLOW
        self.standing = StandingFaults(self)
        self._outage: Outage | None = None
        self._listener: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None
        self._greetings: set[asyncio.Task[None]] = set()
        self._unheard: list[socket.socket] = []  # accepted while silent
        self._others: set[asyncio.Transport] = set()  # HTTP, or not known yet
        self._http: HttpServer | None = None
        self._http_loading = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._store = store
        self._on_failure = on_failure
        self._chronicle = chronicle
        self._committing: asyncio.Handle | None = None  # at the end of this turn of the loop
        self._under_way: Future[None] | None = None  # a commit
        self._aside: list[AmqpWire] = []  # those that wait for it

    @property
    def port(self) -> int:
        """The port clients reach it at: its own, or the one of the first who shares it."""
        return self.neighbours.all[0]._port

    @property
    def _is_guest(self) -> bool:
        return self.neighbours.all[0] is not self

    def moment(self) -> Moment:
        """Now, on all clocks."""
        ahead = self._ahead
        now, wall = time.monotonic(), int(time.time() + ahead)  # the loop's clock is the monotonic one
        return Moment(now, wall, self.clock.now(), ahead)

    def advance_connections(self, seconds: float) -> None:
        """Set connection time ahead, and let happen to idle links and to tokens what is due."""
        self._ahead += seconds
        for wire in list(self.wires.values()):
            wire.handle_timer()
        self.standing.apply()

    # -- opening and closing

    def open(self) -> None:
        """Listen. Raises PortUnavailable, BrokerError for its journal, and as a fault that cannot begin."""
        if not self._is_guest:
            self._bind()
        if self._chronicle is not None:
            self._chronicle.open()
        if not self._is_guest:
            self._listen()
        for refusal in self.standing.apply().values():
            raise refusal

    async def close(self) -> None:
        """Close the port and every connection."""
        with suppress(PortUnavailable):  # a port that is to be closed need not come up first
            self.standing.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._stop_listening()
        greetings = list(self._greetings)
        self._abort_all()
        await asyncio.gather(*greetings, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        while self.wires:
            await asyncio.sleep(0)  # each connection_lost takes its own away
        if self._store is not None:
            with suppress(StoreFailed):  # the broker was told
                self.commit()
        if self._chronicle is not None:
            self._chronicle.close()

    def _bind(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        try:
            listener.bind((self.host, self._port))
            if self._outage is not Outage.REFUSE:
                listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise self._unavailable(error) from error
        self._listener = listener
        self._port = listener.getsockname()[1]

    def _unavailable(self, error: OSError) -> PortUnavailable:
        name = self.face.namespace.name
        return PortUnavailable(name, self.host, self._port, error.strerror or str(error))

    def _listen(self) -> None:
        assert self._listener is not None  # noqa: S101 - bound before
        try:
            self._listener.listen(BACKLOG)  # another may listen where we were only bound
        except OSError as error:
            raise self._unavailable(error) from error
        asyncio.get_running_loop().add_reader(self._listener, self._knock, self._listener)

    def _stop_accepting(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)

    def _stop_listening(self) -> None:
        self._stop_accepting()
        if self._listener is not None:
            with suppress(OSError):  # a process being forked may hold a copy: close() alone would not end it
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    @property
    def is_open(self) -> bool:
        """Whether it has its port: standing faults need one."""
        return self.neighbours.all[0]._listener is not None

    # -- outages

    @property
    def outage(self) -> Outage | None:
        """How it fails, if it was told to."""
        return self._outage

    def take_down(self, outage: Outage, delay: float = 0.2) -> None:
        """Fail in this way until :meth:`bring_up`; ``delay`` in seconds, for SLOW."""
        self.bring_up()
        if outage is Outage.REFUSE and self.neighbours.are_several:
            outage = Outage.RESET  # the port is the others' too
        self._outage = outage
        if outage is Outage.SLOW:
            self.delay = delay
            return
        if outage is Outage.HALF_OPEN:
            for wire in self.wires.values():
                wire.die()
            self.settle()
            return
        if outage is Outage.SILENT:
            for wire in self.wires.values():
                wire.mute()
            for transport in [] if self.neighbours.are_several else self._others:
                if not transport.is_closing():
                    transport.pause_reading()
            return
        self._abort_all()
        if outage is Outage.REFUSE:
            self._stop_listening()
            with suppress(PortUnavailable):  # it is refused all the same; bring_up() asks again
                self._bind()  # bound but not listening: the port stays ours

    def bring_up(self) -> None:
        """Serve again; what a silent namespace was told meanwhile, it hears now.

        Raises PortUnavailable, and stays down, when its port was taken while it refused.
        """
        if self._outage is Outage.REFUSE:
            if self._listener is None:
                self._bind()
            self._listen()
        outage, self._outage = self._outage, None
        self.delay = 0.0
        if outage is Outage.SILENT:
            for wire in self.wires.values():
                wire.unmute()
            for transport in self._others:
                if not transport.is_closing():
                    transport.resume_reading()
            unheard, self._unheard = self._unheard, []
            for sock in unheard:
                self._welcome(sock)

    def _abort_all(self) -> None:
        others = self._others
        if self._outage is not None and self.neighbours.are_several:
            others = set()  # not ours alone: each request is judged when it comes
        for transport in [*(wire.transport for wire in self.wires.values()), *others]:
            if not transport.is_closing():  # a TLS transport closed twice has no socket to ask for
                sock = transport.get_extra_info("socket")
                if sock is not None:
                    with suppress(OSError, ValueError):  # it is gone already
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            transport.abort()
        others.clear()
        for sock in self._unheard:
            _reset(sock)
        self._unheard.clear()
        for greeting in self._greetings:
            greeting.cancel()

    def admit(self, wire: AmqpWire) -> None:
        """A client of the shared port has said that it means this namespace: it meets its outage."""
        if self._outage is Outage.RESET:
            wire.transport.abort()
        elif self._outage is Outage.SILENT:
            wire.mute()

    @property
    def is_deaf(self) -> bool:
        """A request over HTTP that came by a shared port is not to be answered."""
        return self.neighbours.are_several and self._outage in (Outage.RESET, Outage.SILENT)

    # -- accepting

    def _knock(self, listener: socket.socket) -> None:
        """Somebody is at the door. No future holds an accepted socket: a cancelled one would lose it."""
        while True:
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # out of descriptors, or gone before it was accepted
                self._stop_accepting()
                self._again = asyncio.get_running_loop().call_later(ACCEPT_AGAIN_AFTER, self._listen)
                return
            sock.setblocking(False)
            outage = None if self.neighbours.are_several else self._outage
            if outage is Outage.RESET:
                _reset(sock)
            elif outage is Outage.SILENT:
                self._unheard.append(sock)
            else:
                self._welcome(sock)

    def _welcome(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = asyncio.get_running_loop().create_task(self._greet(sock))
        self._greetings.add(greeting)

        def ended(greeting: asyncio.Task[None]) -> None:
            self._greetings.discard(greeting)
            if greeting.cancelled():  # perhaps before it had begun
                sock.close()

        greeting.add_done_callback(ended)

    async def _greet(self, sock: socket.socket) -> None:
        is_ours = True
        try:
            async with asyncio.timeout(FIRST_BYTE_WITHIN):
                first = await _peek(sock)
            if first == _OPENS_AMQP:
                await self._adopt(lambda: AmqpWire(self, sock), sock)
            elif first == _OPENS_TLS:
                await self._greet_tls(sock)
            elif first.isalpha() and first.isupper():
                http = await self._http_server()
                transport = await self._adopt(http.protocol, sock)
                http.watch(transport)
                self._remember(transport)
            else:
                return
            is_ours = False  # the transport's now
        except (OSError, TimeoutError):
            pass  # it went away, spoke no TLS, or said nothing
        finally:
            if is_ours:
                sock.close()

    async def _greet_tls(self, sock: socket.socket) -> None:
        from .http import Sniffer

        http = await self._http_server()
        context = await asyncio.to_thread(self._tls)
        self._remember(await self._adopt(lambda: Sniffer(self, http), sock, context))

    async def _adopt(
        self, protocol: Callable[[], asyncio.Protocol], sock: socket.socket, tls: ssl.SSLContext | None = None
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        patience = FIRST_BYTE_WITHIN if tls is not None else None
        transport, _ = await loop.connect_accepted_socket(
            protocol, sock, ssl=tls, ssl_handshake_timeout=patience
        )
        return transport

    def _remember(self, transport: asyncio.Transport) -> None:
        self._others = {other for other in self._others if not other.is_closing()}
        self._others.add(transport)

    async def _http_server(self) -> HttpServer:
        async with self._http_loading:
            if self._http is None:
                module = await asyncio.to_thread(_load_http)  # aiohttp takes its time: AMQP goes on
                self._http = module(self)
            return self._http

    # -- after each chunk, request or timer

    def settle(self) -> None:
        """Deliver what can be delivered, write what is to be written, and see when to be called back.

        While something is to be kept on disk first, nothing is written: all that came in one turn of the loop
        shares a commit, and goes out behind it (G-26).
        """
        self.face.deliver(self.moment())
        if not self.is_holding:
            self._flush()
        elif self._committing is None:
            self._committing = asyncio.get_running_loop().call_soon(self._end_turn)
        self._arm()

    @property
    def is_holding(self) -> bool:
        """Something is to be on the disk before anything more is said."""
        return self._store is not None and self._store.has_work

    def commit(self) -> None:
        """Have on disk what has changed, then say what waited for it. Raises StoreFailed: all is over."""
        try:
            if self._store is not None:
                self._store.commit()
        except StoreFailed as error:
            self._fail(error)
            raise
        self._under_way = None
        self._flush()

    def _end_turn(self) -> None:
        self._committing = None
        if self._under_way is not None:
            return  # the next begins when that one is done
        if self.is_holding:
            self._begin_commit()
        else:
            self._flush()

    def _begin_commit(self) -> None:
        """Have what has changed synced aside; what was said up to now waits for that, and for no more.

        A journal of what became of messages is written when nothing is to be synced: it waits here.
        """
        if self._store is None or self._chronicle is not None:
            with suppress(StoreFailed):  # the broker was told
                self.commit()
            return
        try:
            self._under_way = under_way = self._store.begin_commit()
        except StoreFailed as error:
            self._fail(error)
            return
        for client in self.face.take_stirred():
            if (wire := self.wires.get(client)) is not None:
                wire.set_aside()
                self._aside.append(wire)
        loop = asyncio.get_running_loop()

        def synced(_: Future[None]) -> None:
            with suppress(RuntimeError):  # the loop has ended: who ended it has waited
                loop.call_soon_threadsafe(self._end_commit, under_way)

        under_way.add_done_callback(synced)

    def _end_commit(self, under_way: Future[None]) -> None:
        if under_way is not self._under_way or self._store is None:
            return  # somebody could not wait, and has ended it
        self._under_way = None
        try:
            self._store.end_commit()
        except StoreFailed as error:
            self._fail(error)
            return
        if self.is_holding:
            self._flush_aside()
            self._begin_commit()
        else:
            self._flush()

    def _flush(self) -> None:
        if self._chronicle is not None:
            self._chronicle.write_soon(lambda: self.is_holding)
        for wire in self._flush_aside():
            wire.flush()
        for client in self.face.take_stirred():
            if (stirred := self.wires.get(client)) is not None:
                stirred.flush()

    def _flush_aside(self) -> list[AmqpWire]:
        wires, self._aside = self._aside, []
        for wire in wires:
            wire.flush_aside()
            if wire.client.is_closed:
                self.face.stir(wire.client)  # it is to leave once all is said
        return wires

    def _fail(self, error: StoreFailed) -> None:
        """Nobody knows what is on the disk: what waits to be said is never said."""
        self.face.take_stirred()
        self._under_way = None
        self._aside.clear()
        if self._chronicle is not None:
            self._chronicle.forsake()
        self._stop_accepting()
        self._abort_all()
        if self._on_failure is not None:
            self._on_failure(error)

    def handle_timer(self) -> None:
        """Let happen what is due for the entities."""
        self.face.namespace.handle_timer(self.clock.now())
        self.settle()

    def _arm(self) -> None:
        if self.clock.is_driven():
            return  # Broker.advance calls
        at = self.face.namespace.next_timer()
        if at is None:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0, at - self.clock.now()) / 1000
        if self._timer is not None and self._timer.when() <= when + 0.001:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.handle_timer()


def _load_http() -> type[HttpServer]:
    from .http import HttpServer

    return HttpServer


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    sock.close()


async def _peek(sock: socket.socket) -> bytes:
    """The first byte, left where it is; b"" at the end of the stream."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            pass
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(sock, _resolve, readable)
        try:
            await readable
        finally:
            loop.remove_reader(sock)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
