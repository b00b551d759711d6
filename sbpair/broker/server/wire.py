"""The connection of one AMQP client: passes bytes between its socket and its protocol engine."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Hashable
from typing import Any, Protocol, cast

from sbpair.pair.amqp.fast_path import Chunk

from ..clock import ClockReading
from ..faults import CutAfter, Operation
from ..frontends.amqp.client_connection import MAX_CONNECTIONS, ClientConnection
from ..frontends.namespace_frontend import NamespaceFrontend
from .event_loop import Alarm
from .host_names import Neighbours
from .unread_limit import UnreadLimit

CHUNK = 262_144
CLOSE_TIMEOUT = 1.0  # seconds after the last answer in which the client may close the connection itself
MAX_DISCARDED = 8_388_608  # bytes that are read and dropped in this time


class WireHost(Protocol):
    """The parts of a namespace server that a wire uses."""

    frontend: NamespaceFrontend
    wires: dict[Hashable, AmqpWire]
    delay: float

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...

    advertised: str | None

    @property
    def neighbours(self) -> Neighbours[Any]: ...

    @property
    def is_holding(self) -> bool: ...
    @property
    def is_silent(self) -> bool: ...
    def read_clocks(self) -> ClockReading: ...
    def end_turn(self) -> None: ...
    def commit(self) -> None: ...
    def admit(self, wire: AmqpWire) -> None: ...
    @property
    def unread(self) -> UnreadLimit[AmqpWire]: ...
    def turns_away(self, transport: asyncio.Transport | None) -> bool: ...
    async def wait_until_up(self) -> None: ...


class AmqpWire(asyncio.Protocol):
    """The asyncio protocol of an AMQP connection, inside TLS or not."""

    def __init__(self, server: WireHost, sock: socket.socket | None = None) -> None:
        self._server = server
        self._sock = sock  # plain TCP only: see connection_lost
        self._timer = Alarm(self.handle_timer)
        self._is_mute = False
        self._is_dead = False
        self._is_connected = False
        self._cut: CutAfter | None = None
        self._passed = 0  # bytes, in the direction of the cut
        self._late: deque[tuple[float, bytes]] = deque()
        self._held_output: list[Chunk] = []  # waits for the commit in progress
        self._unprocessed = b""  # arrived while mute: uvloop reads once more before it pauses
        self._closing: asyncio.TimerHandle | None = None  # set once everything is sent: see _close_gracefully
        self._discarded = 0
        self.transport: asyncio.Transport
        self.client: ClientConnection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the protocol engine of this connection."""
        self.transport = cast(asyncio.Transport, transport)  # streams only
        now = self._server.read_clocks()
        server = self._server
        self.client = ClientConnection(
            server.frontend,
            now,
            self if server.neighbours.are_several else None,
            is_refused=len(server.wires) >= MAX_CONNECTIONS,
        )
        self._is_connected = True
        effect = self._server.frontend.apply_fault(Operation.CONNECT, "", now)
        self._cut = effect if isinstance(effect, CutAfter) else None
        self._server.wires[self.client] = self
        self.arm()
        if server.is_silent:  # the outage began before the first byte arrived
            self.mute()

    @property
    def is_trusted(self) -> bool:
        """Whether the client has a valid claim."""
        return self._is_connected and bool(self.client.claims)

    def frontends(self) -> list[NamespaceFrontend]:
        """Return the frontends of all namespaces of the port."""
        return [each.frontend for each in self._server.neighbours.all]

    def move(self, hostname: str | None) -> NamespaceFrontend | None:
        """Move the connection to the namespace that ``hostname`` names.

        Returns its frontend; None, without a move, if there is no such namespace.
        """
        server: WireHost | None = self._server.neighbours.select(hostname)
        if server is None:
            return None
        if server is not self._server:
            del self._server.wires[self.client]
            self._server = server
            server.wires[self.client] = self
        server.admit(self)
        return server.frontend

    def data_received(self, data: bytes) -> None:
        """Process one chunk of data; its answers are sent in one write."""
        if self._is_dead:
            return
        if self._is_mute:
            self._unprocessed += data
            self.transport.pause_reading()
            return
        if self._closing is not None:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED:
                self.transport.close()
            return
        data = self._before_cut("in", data)
        self.client.receive_data(data, self._server.read_clocks())
        self._server.end_turn()

    def eof_received(self) -> bool:
        """Close the connection: half-closed connections are not served."""
        return False

    def _before_cut(self, direction: str, data: bytes) -> bytes:
        """Return the bytes before an injected cut; the connection is closed after the last of them."""
        cut = self._cut
        if cut is None or cut.direction != direction:
            return data
        data = data[: max(0, cut.count - self._passed)]
        self._passed += len(data)
        if self._passed >= cut.count:
            asyncio.get_running_loop().call_soon(self.transport.close)
        return data

    def connection_lost(self, exc: Exception | None) -> None:
        """Process what the client sent before the socket closed.

        Clients close right after their last dispositions, often with a reset. If a write fails because of it, unread
        bytes would otherwise be lost.
        """
        self._timer.cancel()
        self._server.unread.note(self, 0)
        if self._closing is not None:
            self._closing.cancel()
        try:
            if self._sock is not None and exc is not None:
                self._read_the_rest(self._sock)
            self.client.receive_eof(self._server.read_clocks())
        finally:  # the server waits for the last wire when it closes
            del self._server.wires[self.client]
        self._server.end_turn()

    def _read_the_rest(self, sock: socket.socket) -> None:
        try:
            while data := sock.recv(CHUNK):
                self.client.receive_data(data, self._server.read_clocks())
        except OSError:
            return  # nothing more, or the reset itself

    def pause_writing(self) -> None:
        """Stop delivering and reading: the client does not read."""
        self.client.set_clogged(True, self._server.read_clocks())
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue: the client reads again."""
        if not self._is_mute:
            self.transport.resume_reading()
        self.client.set_clogged(False, self._server.read_clocks())
        self._server.unread.note(self, self.client.answers.size)
        self._resume()

    def _resume(self) -> None:
        """Answer the requests that waited until the client reads."""
        if not self._is_mute:
            self.client.resume(self._server.read_clocks())
        self._server.end_turn()

    def flush(self) -> None:
        """Write everything pending, in one piece, unless a commit must come first."""
        if self._is_mute or self._server.is_holding:
            return
        self.hold_output()
        self._write_held()
        if self.client.answers.size:
            self._count_unread()
        if self.client.is_closed and not self._late:
            self._close_gracefully()
        elif self.client.timers_moved:
            self.arm()

    def _count_unread(self) -> None:
        answers = self.client.answers
        if not self.client.is_clogged and not self._late:
            answers.passed_on()
            if answers.waiting and not answers.are_too_many:
                asyncio.get_running_loop().call_soon(self._resume)
        self._server.unread.note(self, answers.size)

    def hold_output(self) -> None:
        """Hold the pending output until the commit that begins now is on disk."""
        if not self._is_mute:
            self._held_output += self.client.pieces_to_send()

    def flush_held(self) -> None:
        """Write the output held for a commit that is now on disk.

        Also sets the timer: while commits follow one another without a pause, :meth:`flush` is not called.
        """
        if not self._is_mute:
            self._write_held()
            if self.client.timers_moved and not self.client.is_closed:
                self.arm()

    def _write_held(self) -> None:
        pieces, self._held_output = self._held_output, []
        if self._cut is not None or self._server.delay or self._late:
            self._write_in_time(self._before_cut("out", b"".join(pieces)))
        elif pieces and not self.transport.is_closing():
            if len(pieces) == 1:
                self.transport.write(pieces[0])
            else:
                self.transport.writelines(pieces)

    def _write_in_time(self, data: bytes) -> None:
        if self._server.delay or self._late:
            self._write_late(data)
        elif data and not self.transport.is_closing():
            self.transport.write(data)

    def _close_gracefully(self) -> None:
        """Close the sending half first: closing a socket with unread bytes would lose the last answer.

        Bytes that the client still sends are dropped, up to CLOSE_TIMEOUT seconds and MAX_DISCARDED bytes.
        """
        if self.transport.is_closing():  # TLS that is closed twice cannot be aborted
            return
        if self._sock is None:
            self.transport.close()  # TLS and WebSocket have their own closing handshakes
        elif self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(CLOSE_TIMEOUT, self.transport.close)
            try:
                self.transport.write_eof()
                self.transport.resume_reading()
            except (OSError, RuntimeError):  # the socket is gone, not reported yet
                self.transport.abort()

    def _write_late(self, data: bytes) -> None:
        if data:
            loop = asyncio.get_running_loop()
            due = loop.time() + self._server.delay
            self._late.append((max(due, self._late[-1][0]) if self._late else due, data))
            loop.call_at(self._late[-1][0], self._write_due)

    def _write_due(self) -> None:
        """Write one piece for each scheduled call, in order."""
        if self._late and not self.transport.is_closing():
            self.transport.write(self._late.popleft()[1])
            self.flush()

    def arm(self) -> None:
        """Set the timer for the connection's next deadline, if that is earlier than the current one."""
        self.client.timers_moved = False
        at = self.client.next_timer()
        if at is not None:
            self._timer.set(at)

    def handle_timer(self) -> None:
        """Process the connection's due timers, unless it is mute."""
        if not self._is_mute:
            self.client.handle_timer(self._server.read_clocks())
            self._server.end_turn()
            self.arm()

    def die(self) -> None:
        """Stop reading and writing permanently while the socket stays open (half-open)."""
        self._is_mute = self._is_dead = True
        self.client.receive_eof(self._server.read_clocks())

    def mute(self) -> None:
        """Stop reading and writing while the socket stays open."""
        self._is_mute = True
        self.transport.pause_reading()

    def unmute(self) -> None:
        """Continue where :meth:`mute` stopped."""
        if self._is_dead:
            return
        self._is_mute = False
        if not self.client.is_clogged and not self.transport.is_closing():
            self.transport.resume_reading()
        if self._unprocessed:
            data, self._unprocessed = self._unprocessed, b""
            self.data_received(data)
        self._server.frontend.stir(self.client)
        self._resume()
        self.arm()
