"""One namespace, on its port or on one it shares: its connections, its outages, and its clock.

    listener      accepts sockets
    reception     finds out what language each speaks
    wires         those that speak AMQP
    commits       when what is said goes out

All methods run in the broker's loop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..access import Verifier
from ..clock import Clock
from ..entities.namespace import Namespace
from ..errors import BrokerError, PortUnavailable, StoreFailed
from ..faces.moment import Moment
from ..faces.namespace_face import NamespaceFace
from ..faults import Outage
from .commits import Commits
from .listener import Listener
from .neighbours import Neighbours
from .reception import Reception
from .standing import StandingFaults
from .wire import AmqpWire

if TYPE_CHECKING:
    from ..store.sqlite import SqliteStore
    from .chronicle import Chronicle

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
        self.wires: dict[Hashable, AmqpWire] = {}
        self._listener = Listener(namespace.name, host, port, self._welcome)
        self._reception = Reception(self, tls)
        self._commits = Commits(self.face, self.wires, store, chronicle, self._fail)
        self.clock = clock
        self._ahead = 0.0  # seconds
        self.delay = 0.0  # seconds each answer waits: Outage.SLOW
        self.standing = StandingFaults(self)
        self._outage: Outage | None = None
        self._unheard: list[socket.socket] = []  # accepted while silent
        self._timer: asyncio.TimerHandle | None = None
        self._on_failure = on_failure
        self._chronicle = chronicle

    @property
    def port(self) -> int:
        """The port clients reach it at: its own, or the one of the first who shares it."""
        return self.neighbours.all[0]._listener.port

    @property
    def host(self) -> str:
        """The address it listens at."""
        return self._listener.host

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
        try:
            self._open()
        except BrokerError:
            self._listener.close()
            if self._chronicle is not None:
                self._chronicle.close()
            raise

    def _open(self) -> None:
        if not self._is_guest:
            self._listener.bind()
        if self._chronicle is not None:
            self._chronicle.open()
        if not self._is_guest:
            self._listener.listen()
        for refusal in self.standing.apply().values():
            raise refusal

    async def close(self) -> None:
        """Close the port and every connection."""
        with suppress(PortUnavailable):  # a port that is to be closed need not come up first
            self.standing.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._listener.close()
        self._abort_all()
        await self._reception.close()
        while self.wires:
            await asyncio.sleep(0)  # each connection_lost takes its own away
        with suppress(StoreFailed):  # the broker was told
            self.commit()
        if self._chronicle is not None:
            self._chronicle.close()

    @property
    def is_open(self) -> bool:
        """Whether it has its port: standing faults need one."""
        return self.neighbours.all[0]._listener.is_bound

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
            for transport in [] if self.neighbours.are_several else self._reception.transports:
                if not transport.is_closing():
                    transport.pause_reading()
            return
        self._abort_all()
        if outage is Outage.REFUSE:
            self._listener.close()
            with suppress(PortUnavailable):  # it is refused all the same; bring_up() asks again
                self._listener.bind()

    def bring_up(self) -> None:
        """Serve again; what a silent namespace was told meanwhile, it hears now.

        Raises PortUnavailable, and stays down, when its port was taken while it refused.
        """
        if self._outage is Outage.REFUSE:
            self._listener.listen()
        outage, self._outage = self._outage, None
        self.delay = 0.0
        if outage is Outage.SILENT:
            for wire in self.wires.values():
                wire.unmute()
            for transport in self._reception.transports:
                if not transport.is_closing():
                    transport.resume_reading()
            unheard, self._unheard = self._unheard, []
            for sock in unheard:
                self._reception.welcome(sock)

    def _abort_all(self) -> None:
        others = self._reception.transports
        if self._outage is not None and self.neighbours.are_several:
            others = set()  # not ours alone: each request is judged when it comes
        for transport in [*(wire.transport for wire in self.wires.values()), *others]:
            _abort(transport)
        others.clear()
        for sock in self._unheard:
            _reset(sock)
        self._unheard.clear()
        self._reception.send_away()

    def admit(self, wire: AmqpWire) -> None:
        """A client of the shared port has said that it means this namespace: it meets its outage."""
        if self._outage is Outage.RESET:
            _abort(wire.transport)
        elif self._outage is Outage.SILENT:
            wire.mute()

    def turns_away(self, transport: asyncio.Transport | None) -> bool:
        """Whether a request over HTTP by a shared port is not to be answered; a reset it meets at once."""
        if not self.neighbours.are_several:
            return False  # then the port itself fails
        if self._outage is Outage.RESET and transport is not None:
            _abort(transport)
        return self._outage in (Outage.RESET, Outage.SILENT)

    def _welcome(self, sock: socket.socket) -> None:
        outage = None if self.neighbours.are_several else self._outage
        if outage is Outage.RESET:
            _reset(sock)
        elif outage is Outage.SILENT:
            self._unheard.append(sock)
        else:
            self._reception.welcome(sock)

    # -- after each chunk, request or timer

    def settle(self) -> None:
        """Deliver what can be delivered, say what is to be said, and see when to be called back."""
        self.face.deliver(self.moment())
        self._commits.settle()
        self._arm()

    @property
    def is_holding(self) -> bool:
        """Something is to be on the disk before anything more is said (G-26)."""
        return self._commits.is_holding

    def commit(self) -> None:
        """Have on disk what has changed, then say what waited for it. Raises StoreFailed: all is over."""
        self._commits.commit()

    def _fail(self, error: StoreFailed) -> None:
        self._listener.pause()
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


def _abort(transport: asyncio.Transport) -> None:
    """End it with a reset."""
    if not transport.is_closing():  # a TLS transport closed twice has no socket to ask for
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError, ValueError):  # it is gone already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    sock.close()
