"""One AMQP client's socket: bytes to its connection, and back."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Hashable
from typing import Any, Protocol, cast

from ..faces.links.client_connection import MOST_CONNECTIONS, ClientConnection
from ..faces.moment import Moment
from ..faces.namespace_face import NamespaceFace
from ..faults import CutAfter, Operation
from .neighbours import Neighbours

CHUNK = 262_144
LEAVES_WITHIN = 1.0  # seconds from our last word to the end, for a client that does not end itself
UNHEARD = 8_388_608  # bytes that such a client may still send


class WireHost(Protocol):
    """What a wire needs of the station it belongs to."""

    face: NamespaceFace
    wires: dict[Hashable, AmqpWire]
    delay: float

    @property
    def neighbours(self) -> Neighbours[Any]: ...

    @property
    def is_holding(self) -> bool: ...
    def moment(self) -> Moment: ...
    def settle(self) -> None: ...
    def commit(self) -> None: ...
    def admit(self, wire: AmqpWire) -> None: ...
    def turns_away(self, transport: asyncio.Transport | None) -> bool: ...


class AmqpWire(asyncio.Protocol):
    """The protocol of a socket on which AMQP is spoken, inside TLS or not."""

    def __init__(self, station: WireHost, sock: socket.socket | None = None) -> None:
        self._station = station
        self._sock = sock  # plain TCP only: see connection_lost
        self._timer: asyncio.TimerHandle | None = None
        self._is_mute = False
        self._is_dead = False
        self._cut: CutAfter | None = None
        self._passed = 0  # bytes, in the direction that is cut
        self._late: deque[tuple[float, bytes]] = deque()
        self._aside = b""  # waits for the commit that is under way
        self._leaving: asyncio.TimerHandle | None = None  # all is said: see _leave
        self._unheard = 0
        self.transport: asyncio.Transport
        self.client: ClientConnection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        self.transport = cast(asyncio.Transport, transport)  # streams only
        moment = self._station.moment()
        station = self._station
        self.client = ClientConnection(
            station.face,
            moment,
            self if station.neighbours.are_several else None,
            is_refused=len(station.wires) >= MOST_CONNECTIONS,
        )
        effect = self._station.face.strike(Operation.CONNECT, "", moment)
        self._cut = effect if isinstance(effect, CutAfter) else None
        self._station.wires[self.client] = self
        self.arm()

    def faces(self) -> list[NamespaceFace]:
        """All namespaces of the port."""
        return [each.face for each in self._station.neighbours.all]

    def move(self, hostname: str | None) -> NamespaceFace | None:
        """The client says whom it means: from now on the connection is that station's."""
        station: WireHost | None = self._station.neighbours.named(hostname)
        if station is None:
            return None
        if station is not self._station:
            del self._station.wires[self.client]
            self._station = station
            station.wires[self.client] = self
        station.admit(self)
        return station.face

    def data_received(self, data: bytes) -> None:
        """One chunk in, one write out."""
        if self._is_dead:
            return
        if self._leaving is not None:
            self._unheard += len(data)
            if self._unheard > UNHEARD:
                self.transport.close()
            return
        data = self._before_cut("in", data)
        self.client.receive_data(data, self._station.moment())
        self._station.settle()

    def eof_received(self) -> bool:
        """Close: nobody answers a client that has stopped listening."""
        return False

    def _before_cut(self, direction: str, data: bytes) -> bytes:
        """What of the bytes may pass; the connection is cut behind the last one."""
        cut = self._cut
        if cut is None or cut.direction != direction:
            return data
        data = data[: max(0, cut.count - self._passed)]
        self._passed += len(data)
        if self._passed >= cut.count:
            asyncio.get_running_loop().call_soon(self.transport.close)
        return data

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone; what the client said before it went still counts.

        A client closes at once after its last dispositions, often with a reset: a write of ours that fails on
        it would otherwise lose what still waits unread.
        """
        if self._sock is not None and exc is not None:
            self._read_the_rest(self._sock)
        for timer in (self._timer, self._leaving):
            if timer is not None:
                timer.cancel()
        self.client.receive_eof(self._station.moment())
        del self._station.wires[self.client]
        self._station.settle()

    def _read_the_rest(self, sock: socket.socket) -> None:
        try:
            while data := sock.recv(CHUNK):
                self.client.receive_data(data, self._station.moment())
        except OSError:
            return  # nothing more, or the reset itself

    def pause_writing(self) -> None:
        """The client does not take what it gets: send no more, and hear no more, until it does."""
        self.client.set_clogged(True, self._station.moment())
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The client takes again."""
        if not self._is_mute:
            self.transport.resume_reading()
        self.client.set_clogged(False, self._station.moment())
        self._station.settle()

    def flush(self) -> None:
        """Write what there is to write, in one piece; not before it is on the disk (G-26)."""
        if self._is_mute or self._station.is_holding:
            return
        aside, self._aside = self._aside, b""
        self._write(aside + self.client.data_to_send() if aside else self.client.data_to_send())
        if self.client.is_closed and not self._late:
            self._leave()
        else:
            self.arm()

    def set_aside(self) -> None:
        """What there is to write is to wait for the commit that begins now, and for none behind it."""
        if not self._is_mute:
            self._aside += self.client.data_to_send()

    def flush_aside(self) -> None:
        """That commit is on the disk."""
        if not self._is_mute:
            aside, self._aside = self._aside, b""
            self._write(aside)

    def _write(self, data: bytes) -> None:
        data = self._before_cut("out", data)
        if self._station.delay or self._late:
            self._write_late(data)
        elif data and not self.transport.is_closing():
            self.transport.write(data)

    def _leave(self) -> None:
        """End, our half first: a socket that is closed on unread bytes is reset, and our answer lost with it.

        What the client still sends is read and dropped, until its end, or for so long and so much.
        """
        if self._sock is None or self.transport.is_closing():
            self.transport.close()  # TLS and WebSocket have an end of their own
        elif self._leaving is None:
            loop = asyncio.get_running_loop()
            self._leaving = loop.call_later(LEAVES_WITHIN, self.transport.close)
            self.transport.write_eof()
            self.transport.resume_reading()

    def _write_late(self, data: bytes) -> None:
        if data:
            loop = asyncio.get_running_loop()
            due = loop.time() + self._station.delay
            self._late.append((max(due, self._late[-1][0]) if self._late else due, data))
            loop.call_at(self._late[-1][0], self._write_due)

    def _write_due(self) -> None:
        """One piece for each call that was asked for, in their order."""
        if self._late and not self.transport.is_closing():
            self.transport.write(self._late.popleft()[1])
            self.flush()

    def arm(self) -> None:
        """Have the timer ring when the connection wants it, if that is sooner than it would."""
        at = self.client.next_timer()
        if at is None or (self._timer is not None and self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.handle_timer()

    def handle_timer(self) -> None:
        """Let happen what is due for the connection, unless it is mute."""
        if not self._is_mute:
            self.client.handle_timer(self._station.moment())
            self._station.settle()
            self.arm()

    def die(self) -> None:
        """Go without a sign: nothing is heard or said any more, though the socket stays open (half-open)."""
        self._is_mute = self._is_dead = True
        self.client.receive_eof(self._station.moment())

    def mute(self) -> None:
        """Neither hear nor speak, though the socket stays open."""
        self._is_mute = True
        self.transport.pause_reading()

    def unmute(self) -> None:
        """Go on where it stopped."""
        if self._is_dead:
            return
        self._is_mute = False
        if not self.client.is_clogged and not self.transport.is_closing():
            self.transport.resume_reading()
        self._station.face.stir(self.client)
        self._station.settle()
        self.arm()
